import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * The Java producer and consumer, told by JSON what to do:
 *
 * <pre>
 * Client produce {"config": {...}, "records": [{"topic", "partition", "timestamp", "key", "value", "headers"}]}
 * Client consume {"config": {...}, "topic", "partition", "offset", "count", "timeoutMs"}
 * </pre>
 *
 * Both print one line of JSON for each record: where it is, or what it holds. Bytes are Latin-1 text.
 */
public class Client {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        JsonNode task = JSON.readTree(args[1]);
        Properties config = new Properties();
        for (Iterator<Map.Entry<String, JsonNode>> i = task.get("config").fields(); i.hasNext(); ) {
            Map.Entry<String, JsonNode> entry = i.next();
            config.put(entry.getKey(), entry.getValue().asText());
        }
        if (args[0].equals("produce")) {
            produce(config, task);
        } else {
            consume(config, task);
        }
    }

    private static void produce(Properties config, JsonNode task) throws Exception {
        config.put("key.serializer", ByteArraySerializer.class.getName());
        config.put("value.serializer", ByteArraySerializer.class.getName());
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode r : task.get("records")) {
                ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(
                    r.get("topic").asText(),
                    r.hasNonNull("partition") ? r.get("partition").asInt() : null,
                    r.hasNonNull("timestamp") ? r.get("timestamp").asLong() : null,
                    bytes(r.get("key")),
                    bytes(r.get("value")));
                if (r.hasNonNull("headers")) {
                    for (JsonNode h : r.get("headers")) {
                        record.headers().add(h.get(0).asText(), bytes(h.get(1)));
                    }
                }
                sent.add(producer.send(record));
            }
            for (Future<RecordMetadata> future : sent) {
                ObjectNode line = JSON.createObjectNode();
                try {
                    RecordMetadata metadata = future.get();
                    line.put("partition", metadata.partition());
                    line.put("offset", metadata.offset());
                    line.put("timestamp", metadata.timestamp());
                } catch (ExecutionException e) {
                    line.put("error", e.getCause().getClass().getSimpleName());
                    line.put("message", e.getCause().getMessage());
                }
                System.out.println(JSON.writeValueAsString(line));
            }
        }
    }

    private static void consume(Properties config, JsonNode task) throws Exception {
        config.put("key.deserializer", ByteArrayDeserializer.class.getName());
        config.put("value.deserializer", ByteArrayDeserializer.class.getName());
        config.putIfAbsent("auto.offset.reset", "none");
        TopicPartition partition = new TopicPartition(task.get("topic").asText(), task.get("partition").asInt());
        int wanted = task.get("count").asInt();
        long deadline = System.currentTimeMillis() + task.path("timeoutMs").asLong(20000);
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config)) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, task.get("offset").asLong());
            while (wanted > 0 && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    wanted--;
                    System.out.println(JSON.writeValueAsString(describe(record)));
                }
            }
        }
    }

    private static ObjectNode describe(ConsumerRecord<byte[], byte[]> record) {
        ObjectNode line = JSON.createObjectNode();
        line.put("offset", record.offset());
        line.put("timestamp", record.timestamp());
        line.put("timestampType", record.timestampType().toString());
        line.put("key", text(record.key()));
        line.put("value", text(record.value()));
        line.put("leaderEpoch", record.leaderEpoch().orElse(-1));
        ArrayNode headers = line.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(text(header.value()));
        }
        return line;
    }

    private static byte[] bytes(JsonNode node) {
        return node == null || node.isNull() ? null : node.asText().getBytes(StandardCharsets.ISO_8859_1);
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.ISO_8859_1);
    }
}
