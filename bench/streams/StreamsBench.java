import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.TimeWindows;

/** Kafka Streams' side of the comparison: SCENARIO BOOTSTRAP RECORDS TABLE OUTPUT GROUP FOLDER. Runs until it is killed. */
public class StreamsBench {
    public static void main(String[] arguments) {
        String records = arguments[2], table = arguments[3], output = arguments[4];
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[5]);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[6]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put("auto.offset.reset", "earliest");

        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> stream = builder.stream(records);
        if (arguments[0].equals("count")) {
            stream.groupByKey()
                .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(10), Duration.ofMinutes(1)))
                .count()
                .toStream()
                .map((key, count) -> KeyValue.pair(key.key(), key.window().start() + " " + count))
                .to(output);
        } else {
            stream.join(builder.<String, String>table(table), (left, right) -> left + " " + right).to(output);
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.start();
    }
}
