import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** Reads a partition from its beginning: {@code Drain bootstrap topic count}; prints the seconds it took and the bytes. */
public class Drain {
    public static void main(String[] args) {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("key.deserializer", ByteArrayDeserializer.class.getName());
        config.put("value.deserializer", ByteArrayDeserializer.class.getName());
        config.put("max.partition.fetch.bytes", "4194304");
        config.put("max.poll.records", "5000");
        TopicPartition partition = new TopicPartition(args[1], 0);
        long wanted = Long.parseLong(args[2]);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config)) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            consumer.position(partition);
            long started = System.nanoTime();
            long count = 0;
            long bytes = 0;
            while (count < wanted) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofSeconds(10));
                if (records.isEmpty()) {
                    throw new IllegalStateException("only " + count + " of " + wanted + " records came");
                }
                for (ConsumerRecord<byte[], byte[]> record : records) {
                    count++;
                    bytes += record.value().length;
                }
            }
            System.out.printf("%.6f %d%n", (System.nanoTime() - started) / 1e9, bytes);
        }
    }
}
