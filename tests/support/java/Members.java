import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ConcurrentHashMap;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Java consumers that are members of groups, each in a thread of its own, for as long as a test wants:
 *
 * <pre>
 * Members start {"name", "config": {...}, "topics": [...]} or with "pattern" (matched here) or "regex" (by the broker)
 * Members stop NAME
 * Members events
 * </pre>
 *
 * "events" prints a line of JSON for everything that happened since it was last asked, of all members in one order: it
 * was written down while it happened.
 */
public class Members {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, Member> MEMBERS = new ConcurrentHashMap<>();
    private static final List<ObjectNode> EVENTS = new ArrayList<>();

    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "start" -> start(JSON.readTree(args[1]));
            case "stop" -> MEMBERS.remove(args[1]).finish();
            default -> printEvents();
        }
    }

    private static void start(JsonNode task) {
        Member member = new Member(task);
        MEMBERS.put(member.name, member);
        member.thread.start();
    }

    private static void printEvents() throws Exception {
        List<ObjectNode> taken;
        synchronized (EVENTS) {
            taken = new ArrayList<>(EVENTS);
            EVENTS.clear();
        }
        for (ObjectNode event : taken) {
            System.out.println(JSON.writeValueAsString(event));
        }
    }

    private static final class Member implements ConsumerRebalanceListener {
        private final String name;
        private final JsonNode task;
        private final Thread thread;
        private volatile boolean isStopping;

        Member(JsonNode task) {
            this.task = task;
            this.name = task.get("name").asText();
            this.thread = new Thread(this::run, name);
            this.thread.setDaemon(true);
        }

        void finish() throws InterruptedException {
            isStopping = true;
            thread.join(60000);
        }

        private void run() {
            Properties config = new Properties();
            for (Iterator<Map.Entry<String, JsonNode>> i = task.get("config").fields(); i.hasNext(); ) {
                Map.Entry<String, JsonNode> entry = i.next();
                config.put(entry.getKey(), entry.getValue().asText());
            }
            config.put("key.deserializer", ByteArrayDeserializer.class.getName());
            config.put("value.deserializer", ByteArrayDeserializer.class.getName());
            config.put("client.id", name);
            try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config)) {
                subscribe(consumer);
                while (!isStopping) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(50))) {
                        ObjectNode event = event("record");
                        event.put("topic", record.topic());
                        event.put("partition", record.partition());
                        event.put("offset", record.offset());
                        event.put("value", new String(record.value(), StandardCharsets.ISO_8859_1));
                        note(event);
                    }
                }
            } catch (Exception e) {
                ObjectNode event = event("failed");
                event.put("error", e.getClass().getSimpleName());
                event.put("message", e.getMessage());
                note(event);
            }
            note(event("closed"));
        }

        private void subscribe(KafkaConsumer<byte[], byte[]> consumer) {
            if (task.has("pattern")) {
                consumer.subscribe(Pattern.compile(task.get("pattern").asText()), this);
            } else if (task.has("regex")) {
                consumer.subscribe(new SubscriptionPattern(task.get("regex").asText()), this);
            } else {
                consumer.subscribe(JSON.convertValue(task.get("topics"), List.class), this);
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            note(event("assigned", partitions));
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            note(event("revoked", partitions));
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            note(event("lost", partitions));
        }

        private ObjectNode event(String kind) {
            return JSON.createObjectNode().put("member", name).put("event", kind);
        }

        private ObjectNode event(String kind, Collection<TopicPartition> partitions) {
            ObjectNode event = event(kind);
            ArrayNode all = event.putArray("partitions");
            for (TopicPartition partition : partitions) {
                all.addArray().add(partition.topic()).add(partition.partition());
            }
            return event;
        }
    }

    private static void note(ObjectNode event) {
        synchronized (EVENTS) {
            EVENTS.add(event);
        }
    }
}
