import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.function.Consumer;
import java.util.function.Function;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.TestInputTopic;
import org.apache.kafka.streams.TestOutputTopic;
import org.apache.kafka.streams.TopologyTestDriver;
import org.apache.kafka.streams.kstream.Branched;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.ValueJoiner;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.test.TestRecord;

/**
 * Runs a named topology of real Kafka Streams over records from standard input, in its TopologyTestDriver.
 *
 * A line is {"topology": name} to begin, or {"topic", "key", "value", "timestamp"}, or {"end": true}: then all records of
 * the topic "out" are printed as lines of {"key", "value", "timestamp"}, and an empty line. Keys and values are text;
 * windowed keys are "key@start-end".
 */
public final class StreamsOracle {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration SIZE = Duration.ofSeconds(10);
    private static final Duration GRACE = Duration.ofSeconds(5);

    private static final Map<String, Consumer<StreamsBuilder>> TOPOLOGIES = new HashMap<>();

    private static KStream<String, String> left(StreamsBuilder builder) {
        return builder.stream("left");
    }

    private static KGroupedStream<String, String> grouped(StreamsBuilder builder) {
        return left(builder).groupByKey(Grouped.with(Serdes.String(), Serdes.String()));
    }

    /** Windowed keys as text: key@start-end. */
    private static <V> void write(KTable<Windowed<String>, V> table) {
        table.toStream()
            .map((key, value) -> KeyValue.pair(
                key.key() + "@" + key.window().start() + "-" + key.window().end(), value == null ? null : value.toString()))
            .to("out");
    }

    private static <V> void writeTable(KTable<String, V> table) {
        table.toStream().mapValues(value -> value == null ? null : value.toString()).to("out");
    }

    private static String pair(Object left, Object right) {
        return left + "+" + right;
    }

    static {
        TOPOLOGIES.put("filter", b -> left(b).filter((k, v) -> v.length() > 1).to("out"));
        TOPOLOGIES.put("filter_not", b -> left(b).filterNot((k, v) -> v.length() > 1).to("out"));
        TOPOLOGIES.put("map_values", b -> left(b).mapValues(v -> v.toUpperCase()).to("out"));
        TOPOLOGIES.put("map", b -> left(b).map((k, v) -> KeyValue.pair(v, k)).to("out"));
        TOPOLOGIES.put("select_key", b -> left(b).selectKey((k, v) -> k + v).to("out"));
        TOPOLOGIES.put("flat_map_values", b -> left(b).flatMapValues(v -> Arrays.asList(v.split(""))).to("out"));
        TOPOLOGIES.put("flat_map", b -> left(b).flatMap(
            (k, v) -> List.of(KeyValue.pair(k, v), KeyValue.pair(v, k))).to("out"));
        TOPOLOGIES.put("merge", b -> left(b).merge(b.stream("right")).to("out"));
        TOPOLOGIES.put("repartition", b -> left(b).selectKey((k, v) -> v)
            .repartition(Repartitioned.<String, String>as("again")).to("out"));
        TOPOLOGIES.put("branch", b -> {
            Map<String, KStream<String, String>> branches = left(b).split(Named.as("b-"))
                .branch((k, v) -> v.length() > 2, Branched.as("long"))
                .branch((k, v) -> v.length() > 1, Branched.as("middle"))
                .defaultBranch(Branched.as("short"));
            branches.get("b-long").mapValues(v -> "long " + v).to("out");
            branches.get("b-middle").mapValues(v -> "middle " + v).to("out");
            branches.get("b-short").mapValues(v -> "short " + v).to("out");
        });
        TOPOLOGIES.put("count", b -> writeTable(grouped(b).count()));
        TOPOLOGIES.put("count_by_value", b -> writeTable(left(b).groupBy((k, v) -> v).count()));
        TOPOLOGIES.put("reduce", b -> writeTable(grouped(b).reduce((old, value) -> old + value)));
        TOPOLOGIES.put("aggregate", b -> writeTable(grouped(b).aggregate(
            () -> 0L, (k, v, sum) -> sum + v.length(), Materialized.with(Serdes.String(), Serdes.Long()))));
        TOPOLOGIES.put("cogroup", b -> {
            KGroupedStream<String, String> right = b.<String, String>stream("right").groupByKey();
            writeTable(grouped(b).<Long>cogroup((k, v, sum) -> sum + v.length())
                .cogroup(right, (k, v, sum) -> sum + 100 * v.length())
                .aggregate(() -> 0L, Materialized.with(Serdes.String(), Serdes.Long())));
        });
        TOPOLOGIES.put("tumbling_count", b -> write(grouped(b)
            .windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE)).count()));
        TOPOLOGIES.put("tumbling_reduce", b -> write(grouped(b)
            .windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE)).reduce((old, value) -> old + value)));
        TOPOLOGIES.put("tumbling_final", b -> write(grouped(b)
            .windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE)).count()
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))));
        TOPOLOGIES.put("tumbling_reduce_final", b -> write(grouped(b)
            .windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE)).reduce((old, value) -> old + value)
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))));
        TOPOLOGIES.put("hopping_count", b -> write(grouped(b)
            .windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE).advanceBy(Duration.ofSeconds(5))).count()));
        TOPOLOGIES.put("hopping_final", b -> write(grouped(b)
            .windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE).advanceBy(Duration.ofSeconds(5))).count()
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))));
        TOPOLOGIES.put("hopping_reduce", b -> write(grouped(b)
            .windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE).advanceBy(Duration.ofSeconds(5)))
            .reduce((old, value) -> old + value)));
        TOPOLOGIES.put("session_final", b -> write(grouped(b)
            .windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(3), GRACE)).count()
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))));
        TOPOLOGIES.put("session_updates", b -> write(grouped(b)
            .windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(3), GRACE)).count()));
        TOPOLOGIES.put("session_reduce", b -> write(grouped(b)
            .windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(1), GRACE))
            .reduce((old, value) -> old + value)));
        TOPOLOGIES.put("session_aggregate_final", b -> write(grouped(b)
            .windowedBy(SessionWindows.ofInactivityGapAndGrace(Duration.ofSeconds(1), GRACE))
            .aggregate(() -> 0L, (k, v, sum) -> sum + v.length(), (k, one, other) -> one + other,
                Materialized.with(Serdes.String(), Serdes.Long()))
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))));
        SlidingWindows sliding = SlidingWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(3), GRACE);
        TOPOLOGIES.put("sliding_count", b -> write(grouped(b).windowedBy(sliding).count()));
        TOPOLOGIES.put("sliding_reduce", b -> write(grouped(b).windowedBy(sliding).reduce((old, value) -> old + value)));
        TOPOLOGIES.put("sliding_final", b -> write(grouped(b).windowedBy(sliding).count()
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))));
        TOPOLOGIES.put("count_of_counts", b -> writeTable(grouped(b).count().toStream()
            .groupBy((k, v) -> k.substring(0, 1), Grouped.with(Serdes.String(), Serdes.Long()))
            .reduce((old, value) -> Math.max(old, value), Materialized.with(Serdes.String(), Serdes.Long()))));
        TOPOLOGIES.put("two_windows", b -> write(grouped(b)
            .windowedBy(TimeWindows.ofSizeAndGrace(SIZE, GRACE)).count()
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))
            .toStream().map((k, v) -> KeyValue.pair("n" + v, k.key()))
            .groupByKey(Grouped.with(Serdes.String(), Serdes.String()))
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(30), Duration.ofSeconds(30))).count()));
        JoinWindows windows = JoinWindows.ofTimeDifferenceAndGrace(Duration.ofSeconds(2), GRACE).after(Duration.ofSeconds(4));
        TOPOLOGIES.put("stream_join", b -> left(b).join(
            b.<String, String>stream("right"), StreamsOracle::pair, windows).to("out"));
        TOPOLOGIES.put("stream_left_join", b -> left(b).leftJoin(
            b.<String, String>stream("right"), StreamsOracle::pair, windows).to("out"));
        TOPOLOGIES.put("stream_outer_join", b -> left(b).outerJoin(
            b.<String, String>stream("right"), StreamsOracle::pair, windows).to("out"));
        TOPOLOGIES.put("lookup_join", b -> left(b).join(
            b.<String, String>table("right"), StreamsOracle::pair).to("out"));
        TOPOLOGIES.put("lookup_left_join", b -> left(b).leftJoin(
            b.<String, String>table("right"), StreamsOracle::pair).to("out"));
        KeyValueMapper<String, String, String> asked = (k, v) ->
            v == null || v.equals("ccc") ? null : "k" + (1 + v.length() % 3);
        TOPOLOGIES.put("global_join", b -> left(b).join(
            b.<String, String>globalTable("right"), asked, StreamsOracle::pair).to("out"));
        TOPOLOGIES.put("global_left_join", b -> left(b).leftJoin(
            b.<String, String>globalTable("right"), asked, StreamsOracle::pair).to("out"));
        TOPOLOGIES.put("table", b -> writeTable(b.<String, String>table("left")));
        TOPOLOGIES.put("table_filter", b -> writeTable(b.<String, String>table("left").filter((k, v) -> v.length() > 1)));
        TOPOLOGIES.put("table_map_values", b -> writeTable(b.<String, String>table("left").mapValues(v -> v + "!")));
        TOPOLOGIES.put("to_table", b -> writeTable(
            b.<String, String>table("left").mapValues(v -> v + "!").toStream().toTable()));
        TOPOLOGIES.put("table_group_count", b -> writeTable(b.<String, String>table("left")
            .groupBy((k, v) -> KeyValue.pair(v.substring(0, 1), v)).count()));
        TOPOLOGIES.put("table_group_reduce", b -> writeTable(b.<String, String>table("left")
            .mapValues(v -> (long) v.length(), Materialized.with(Serdes.String(), Serdes.Long()))
            .groupBy((k, v) -> KeyValue.pair("g" + v % 2, v), Grouped.with(Serdes.String(), Serdes.Long()))
            .reduce((sum, v) -> sum + v, (sum, v) -> sum - v == 0 ? null : sum - v,
                Materialized.with(Serdes.String(), Serdes.Long()))));
        TOPOLOGIES.put("table_group_aggregate", b -> writeTable(b.<String, String>table("left")
            .groupBy((k, v) -> KeyValue.pair(v.equals("ccc") ? null : k.substring(0, 1) + v.length() % 2, v))
            .aggregate(() -> 0L, (k, v, sum) -> sum + v.length(), (k, v, sum) -> sum - v.length(),
                Materialized.with(Serdes.String(), Serdes.Long()))));
        TOPOLOGIES.put("table_join", b -> writeTable(b.<String, String>table("left").join(
            b.<String, String>table("right"), StreamsOracle::pair)));
        TOPOLOGIES.put("table_left_join", b -> writeTable(b.<String, String>table("left").leftJoin(
            b.<String, String>table("right"), StreamsOracle::pair)));
        TOPOLOGIES.put("table_outer_join", b -> writeTable(b.<String, String>table("left").outerJoin(
            b.<String, String>table("right"), StreamsOracle::pair)));
        ValueJoiner<String, String, String> both = StreamsOracle::pair;
        Function<String, String> perhaps = v -> v.equals("ccc") ? null : "k" + (1 + v.length() % 3);
        TOPOLOGIES.put("foreign_key_join", b -> writeTable(b.<String, String>table("left").join(
            b.<String, String>table("right"), perhaps, both)));
        TOPOLOGIES.put("foreign_key_left_join", b -> writeTable(b.<String, String>table("left").leftJoin(
            b.<String, String>table("right"), perhaps, both)));
        TOPOLOGIES.put("count_joined", b -> writeTable(grouped(b).count().join(
            b.<String, String>table("right"), StreamsOracle::pair)));
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        TopologyTestDriver driver = null;
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode task = JSON.readTree(line);
            if (task.has("topology")) {
                driver = begin(task.get("topology").asText());
            } else if (task.has("end")) {
                finish(driver);
            } else {
                TestInputTopic<String, String> topic = driver.createInputTopic(
                    task.get("topic").asText(), new StringSerializer(), new StringSerializer());
                driver.advanceWallClockTime(Duration.ofSeconds(2)); // joins look for records without partners now and then
                topic.pipeInput(text(task, "key"), text(task, "value"), Instant.ofEpochMilli(task.get("timestamp").asLong()));
            }
        }
    }

    private static String text(JsonNode task, String name) {
        return task.get(name).isNull() ? null : task.get(name).asText();
    }

    private static TopologyTestDriver begin(String name) {
        StreamsBuilder builder = new StreamsBuilder();
        TOPOLOGIES.get(name).accept(builder);
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "oracle");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, "none:1");
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        return new TopologyTestDriver(builder.build(), settings, Instant.ofEpochMilli(0));
    }

    private static void finish(TopologyTestDriver driver) throws Exception {
        TestOutputTopic<String, String> topic = driver.createOutputTopic("out", new StringDeserializer(), new StringDeserializer());
        for (TestRecord<String, String> record : topic.readRecordsToList()) {
            ObjectNode line = JSON.createObjectNode();
            line.put("key", record.key());
            line.put("value", record.value());
            line.put("timestamp", record.timestamp());
            System.out.println(JSON.writeValueAsString(line));
        }
        System.out.println();
        driver.close();
    }
}
