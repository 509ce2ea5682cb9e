import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.util.Iterator;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java producer in transactions, told by JSON what to do:
 *
 * <pre>
 * Transactor {"config": {...}, "transactions": [{"records": [{"topic", "partition", "value"}], "end": "commit",
 *             "offset": {"group", "topic", "partition", "offset"}}]}
 * </pre>
 *
 * "end" is commit, abort or leave (the transaction stays open). Prints a line of JSON for each.
 */
public class Transactor {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        JsonNode task = JSON.readTree(args[0]);
        Properties config = new Properties();
        for (Iterator<Map.Entry<String, JsonNode>> i = task.get("config").fields(); i.hasNext(); ) {
            Map.Entry<String, JsonNode> entry = i.next();
            config.put(entry.getKey(), entry.getValue().asText());
        }
        config.put("key.serializer", ByteArraySerializer.class.getName());
        config.put("value.serializer", ByteArraySerializer.class.getName());
        KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config);
        try {
            producer.initTransactions();
            for (JsonNode transaction : task.get("transactions")) {
                run(producer, transaction);
            }
        } finally {
            producer.close(java.time.Duration.ZERO);
        }
    }

    private static void run(KafkaProducer<byte[], byte[]> producer, JsonNode transaction) throws Exception {
        producer.beginTransaction();
        for (JsonNode r : transaction.get("records")) {
            byte[] value = r.get("value").asText().getBytes(StandardCharsets.UTF_8);
            producer.send(new ProducerRecord<>(r.get("topic").asText(), r.get("partition").asInt(), null, value));
        }
        if (transaction.hasNonNull("offset")) {
            JsonNode o = transaction.get("offset");
            TopicPartition where = new TopicPartition(o.get("topic").asText(), o.get("partition").asInt());
            producer.sendOffsetsToTransaction(
                Map.of(where, new OffsetAndMetadata(o.get("offset").asLong())),
                new ConsumerGroupMetadata(o.get("group").asText()));
        }
        producer.flush();
        String end = transaction.get("end").asText();
        if (end.equals("commit")) {
            producer.commitTransaction();
        } else if (end.equals("abort")) {
            producer.abortTransaction();
        }
        System.out.println(JSON.writeValueAsString(Map.of("end", end)));
    }
}
