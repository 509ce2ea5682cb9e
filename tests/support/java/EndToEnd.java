import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Produces one record, waits until it is consumed, and again: EndToEnd BOOTSTRAP TOPIC WARM_UP COUNT.
 *
 *  As Kafka's EndToEndLatency does it, with the same settings, but in microseconds and without the first WARM_UP records,
 *  in which the JVM compiles the clients. Prints the 50th, 99th and 99.9th percentile, and the mean.
 */
public class EndToEnd {
    public static void main(String[] args) throws Exception {
        int warmUp = Integer.parseInt(args[2]);
        int count = Integer.parseInt(args[3]);
        TopicPartition partition = new TopicPartition(args[1], 0);
        Map<String, Object> forProducer = Map.of("bootstrap.servers", args[0], "acks", "1", "linger.ms", "0");
        Map<String, Object> forConsumer = Map.of(
            "bootstrap.servers", args[0], "enable.auto.commit", "false", "fetch.max.wait.ms", "0");
        long[] latencies = new long[count];
        byte[] value = new byte[100];
        Arrays.fill(value, (byte) 'x');
        try (KafkaProducer<byte[], byte[]> producer =
                     new KafkaProducer<>(forProducer, new ByteArraySerializer(), new ByteArraySerializer());
             KafkaConsumer<byte[], byte[]> consumer =
                     new KafkaConsumer<>(forConsumer, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(partition));
            consumer.seekToEnd(List.of(partition));
            consumer.position(partition);
            for (int number = -warmUp; number < count; number++) {
                long began = System.nanoTime();
                producer.send(new ProducerRecord<>(args[1], value)).get();
                if (consumer.poll(Duration.ofSeconds(60)).count() != 1) {
                    throw new IllegalStateException("record " + number + " did not come back alone");
                }
                if (number >= 0) {
                    latencies[number] = (System.nanoTime() - began) / 1000;
                }
            }
        }
        Arrays.sort(latencies);
        System.out.println(latencies[count / 2] + " " + latencies[(int) (count * 0.99)] + " "
                + latencies[(int) (count * 0.999)] + " " + Arrays.stream(latencies).average().orElse(0));
    }
}
