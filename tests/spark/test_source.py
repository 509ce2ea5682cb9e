"""A topic as a DataFrame: what is read is what was written, on Penstock and on real Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka import Producer as RawProducer

from penstock import Admin, Producer
from tests.support.systems import System

Rows = list[tuple[Any, ...]]


def consumed(system: System, topic: str, partitions: int) -> Rows:
    """All records of a topic as librdkafka gives them."""
    consumer = Consumer(
        {
            "bootstrap.servers": system.bootstrap,
            "group.id": "unused",
            "enable.partition.eof": True,
            "isolation.level": "read_uncommitted",
        }
    )
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    rows: Rows = []
    ended = 0
    while ended < partitions:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            ended += 1
            continue
        kind, timestamp = message.timestamp()
        headers = message.headers()
        rows.append(
            (
                message.key(), message.value(), topic, message.partition(), message.offset(), timestamp, kind - 1,
                headers and [tuple(header) for header in headers],
            )
        )  # fmt: skip
    consumer.close()
    return sorted(rows, key=lambda row: (row[3], row[4]))


def collected(frame: Any) -> Rows:
    """The same rows as Spark has them."""
    rows = frame.selectExpr(
        "key", "value", "topic", "partition", "offset", "unix_millis(timestamp)", "timestampType", "headers"
    ).collect()
    made = [
        (
            row[0] if row[0] is None else bytes(row[0]),
            row[1] if row[1] is None else bytes(row[1]),
            *row[2:7],
            row[7] and [(name, value if value is None else bytes(value)) for name, value in row[7]],
        )
        for row in rows
    ]
    return sorted(made, key=lambda row: (row[3], row[4]))


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_column_is_as_it_was_written(
    system: System, topic: str, create: Any, read: Callable[..., Any], codec: str
) -> None:
    create(2, message_timestamp_type="LogAppendTime" if codec == "lz4" else "CreateTime")
    producer = RawProducer({"bootstrap.servers": system.bootstrap, "compression.type": codec, "linger.ms": 20})
    for number in range(500):
        producer.produce(
            topic,
            value=None if number % 11 == 0 else b"v%d" % number * (number % 9),
            key=None if number % 7 == 0 else b"k%d" % number,
            partition=number % 2,
            timestamp=1_790_000_000_000 + number * 1000,
            headers=None if number % 5 else [("one", b"1"), ("none", None), ("ö", b"\xff\x00")],
        )
    producer.flush(30)
    expected = consumed(system, topic, 2)
    assert len(expected) == 500
    assert collected(read(includeHeaders="true")) == expected
    assert "headers" not in read().columns


def test_large_ranges_are_split_and_nothing_is_read_twice(create: Any, fill: Any, read: Callable[..., Any]) -> None:
    create(2)
    fill(range(5000), 2)
    for options in ({"minPartitions": 7}, {"maxRecordsPerPartition": 333}, {}):
        frame = read(**options)
        found = frame.selectExpr("cast(cast(value as string) as int) as number")
        assert sorted(row.number for row in found.collect()) == list(range(5000))
    assert read(minPartitions=7).rdd.getNumPartitions() >= 7


def numbers_of(frame: Any) -> list[int]:
    return sorted(int(bytes(row.value)) for row in frame.select("value").collect())


def test_where_reading_begins_and_ends(system: System, topic: str, create: Any, read: Callable[..., Any]) -> None:
    create(2)
    with Producer(system.bootstrap) as producer:
        for number in range(100):
            producer.send(topic, str(number), partition=number % 2, timestamp=1_790_000_000_000 + number)
    by_offset = {
        "startingOffsets": json.dumps({topic: {"0": 10, "1": -2}}),
        "endingOffsets": json.dumps({topic: {"0": 20, "1": 3}}),
    }
    assert numbers_of(read(**by_offset)) == sorted([*range(20, 40, 2), 1, 3, 5])
    by_time = {"startingTimestamp": str(1_790_000_000_050), "endingTimestamp": str(1_790_000_000_060)}
    assert numbers_of(read(**by_time)) == list(range(50, 60))
    by_partition = {"startingOffsetsByTimestamp": json.dumps({topic: {"0": 1_790_000_000_090}})}
    assert numbers_of(read(**by_partition)) == sorted([*range(90, 100, 2), *range(1, 100, 2)])
    assert numbers_of(read(assign=json.dumps({topic: [1]}))) == list(range(1, 100, 2))
    beyond = {"startingTimestamp": str(1_790_000_001_000), "startingOffsetsByTimestampStrategy": "latest"}
    assert numbers_of(read(**beyond)) == []


def test_filters_leave_less_to_fetch(system: System, topic: str, create: Any, read: Callable[..., Any]) -> None:
    create(3)
    with Producer(system.bootstrap) as producer:
        for number in range(90):
            producer.send(topic, str(number), partition=number % 3, timestamp=1_790_000_000_000 + number * 1000)
    frame = read()
    assert frame.rdd.getNumPartitions() == 3
    narrowed = frame.filter("partition = 1")
    assert narrowed.rdd.getNumPartitions() == 1
    assert numbers_of(narrowed) == list(range(1, 90, 3))
    assert numbers_of(frame.filter("partition in (0, 2) and offset >= 5 and offset < 7")) == [15, 17, 18, 20]
    assert numbers_of(frame.filter(f"topic = '{topic}' and timestamp >= timestamp_millis(1790000080000)")) == list(
        range(80, 90)
    )
    assert numbers_of(frame.filter("topic = 'other'")) == []


def test_committed_records_only(system: System, topic: str, create: Any, read: Callable[..., Any]) -> None:
    create(1)
    producer = RawProducer({"bootstrap.servers": system.bootstrap, "transactional.id": topic, "linger.ms": 5})
    producer.init_transactions(30)
    for number in range(12):
        producer.begin_transaction()
        for n in range(20):
            producer.produce(topic, str(number * 20 + n), partition=0)
        producer.flush(30)
        if number % 3 == 1:
            producer.abort_transaction(30)
        elif number < 11:
            producer.commit_transaction(30)  # the last one stays open
    committed = [number * 20 + n for number in range(11) if number % 3 != 1 for n in range(20)]
    assert numbers_of(read(**{"kafka.isolation.level": "read_committed"})) == committed
    assert numbers_of(read(**{"kafka.isolation.level": "read_committed", "maxRecordsPerPartition": 7})) == committed
    assert numbers_of(read()) == list(range(240))
    producer.abort_transaction(30)


def test_a_stream_reads_everything_once_and_goes_on_where_it_ended(create: Any, fill: Any, stream: Any) -> None:
    create()
    fill(range(100))
    assert [number for batch in stream() for number in batch] == list(range(100))
    assert stream() == []
    fill(range(100, 130))
    assert stream() == [list(range(100, 130))]


def test_a_batch_of_a_stream_is_as_large_as_it_may_be(create: Any, fill: Any, stream: Any) -> None:
    create()
    fill(range(300))
    batches = stream(maxOffsetsPerTrigger=90)
    assert sorted(number for batch in batches for number in batch) == list(range(300))
    assert [len(batch) for batch in batches] == [90, 90, 90, 30]


def test_limits_are_not_for_all_topics(create: Any, fill: Any, stream: Any, topic: str) -> None:
    create()
    fill(range(300))
    assert [len(batch) for batch in stream(maxOffsetsPerTrigger=90, unlimitedTopics=topic)] == [300]


def test_a_batch_can_be_limited_by_bytes(system: System, topic: str, create: Any, stream: Any) -> None:
    create(1)
    with Producer(system.bootstrap, batch_bytes=2_000) as producer:
        for number in range(400):
            producer.send(topic, f"{number:0100d}")
    batches = stream(maxBytesPerTrigger=15_000)
    assert sorted(number for batch in batches for number in batch) == list(range(400))
    assert all(60 <= len(batch) <= 140 for batch in batches[:-1]), [len(batch) for batch in batches]


def test_new_partitions_and_topics_are_found(system: System, unique: Any, create: Any, fill: Any, stream: Any) -> None:
    prefix = unique("family")
    create(1, f"{prefix}-a")
    fill(range(10), 1, f"{prefix}-a")
    assert stream(subscribePattern=f"{prefix}-.*") == [list(range(10))]
    with Admin(system.bootstrap) as admin:
        admin.add_partitions(f"{prefix}-a", 2)
    create(1, f"{prefix}-b")
    fill(range(10, 20), 2, f"{prefix}-a")
    fill(range(20, 30), 1, f"{prefix}-b")
    found = stream(subscribePattern=f"{prefix}-.*")
    assert sorted(number for batch in found for number in batch) == list(range(10, 30))


def test_a_group_shows_how_far_a_stream_is(
    system: System, topic: str, unique: Any, create: Any, fill: Any, stream: Any
) -> None:
    create(2)
    fill(range(50), 2)
    group = unique("query")
    stream(group=group)
    with Admin(system.bootstrap) as admin:
        committed = {place.partition: found.offset for place, found in admin.group_offsets(group).items()}
    assert committed == {0: 25, 1: 25}


def test_lost_records_are_an_error_that_says_why(
    system: System, topic: str, create: Any, fill: Any, stream: Any, read: Callable[..., Any]
) -> None:
    create(1)
    fill(range(50), 1)
    assert len(stream(maxOffsetsPerTrigger=1000)) == 1
    fill(range(50, 100), 1)
    with Admin(system.bootstrap) as admin:
        admin.delete_records({(topic, 0): 70})
    with pytest.raises(Exception, match=r"offset 50 is not there any more: retention or DeleteRecords removed it"):
        stream()
    assert stream(failOnDataLoss="false") == [list(range(70, 100))]
    with pytest.raises(Exception, match=r"offset 10 is not there any more"):
        read(startingOffsets=json.dumps({topic: {"0": 10}})).collect()


def test_a_topic_that_was_made_again_is_noticed(
    system: System, topic: str, create: Any, fill: Any, stream: Any
) -> None:
    create(1)
    fill(range(50), 1)
    stream()
    with Admin(system.bootstrap) as admin:
        admin.delete_topics([topic])
    create(1)
    fill(range(10), 1)
    with pytest.raises(Exception, match=r"ends at 10, but 50 was read already: the topic was deleted and made again"):
        stream()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"subscribePattern": "x", "subscribe": "y"}, "exactly one of the options subscribe, subscribePattern"),
        ({"subscribe": "no-such-topic"}, "there is no topic no-such-topic"),
        ({"startingOfsets": "earliest"}, "did you mean startingOffsets?"),
        ({"assign": '{"TOPIC": [7]}'}, "counted from 0; there is no partition 7"),
        ({"startingOffsets": '{"TOPIC": {"0": 0}}'}, "says nothing of TOPIC-1: name all partitions"),
        ({"startingOffsets": '{"TOPIC": {"0": 9, "1": 0}}'}, "TOPIC-0 is to be read from 9, but only up to 0"),
        ({"startingTimestamp": "99999999999999"}, "has no record as new as 99999999999999"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_one_line(
    spark: Any, system: System, topic: str, create: Any, options: dict[str, str], says: str
) -> None:
    create(2)
    given = {"kafka.bootstrap.servers": system.bootstrap}
    if not {"subscribe", "assign"} & options.keys():
        given["subscribe"] = topic
    given |= {name: value.replace("TOPIC", topic) for name, value in options.items()}
    with pytest.raises(Exception) as caught:  # noqa: PT011
        spark.read.format("penstock").options(**given).load().collect()
    lines = str(caught.value).splitlines()
    assert any(says.replace("TOPIC", topic) in line for line in lines), lines
    assert len(lines) <= 5, lines  # and not how it came to be


def test_a_broker_that_does_not_answer(spark: Any) -> None:
    reader = spark.read.format("penstock").option("kafka.bootstrap.servers", "127.0.0.1:1").option("subscribe", "t")
    with pytest.raises(Exception, match=r"no answer from 127.0.0.1:1 within 0.5 s"):
        reader.option("kafkaConsumer.pollTimeoutMs", "500").load().collect()


def test_a_session_without_filter_pushdown_reads_too(
    spark: Any, create: Any, fill: Callable[..., list[int]], read: Callable[..., Any]
) -> None:
    """It is off by default in Spark, which then refuses a source that says it can take filters."""
    create()
    fill(range(30))
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert read().where("partition = 1").count() == 10
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_a_schema_leaves_columns_out(
    spark: Any, system: System, topic: str, create: Any, fill: Callable[..., list[int]]
) -> None:
    create(1)
    fill(range(5), partitions=1)
    reader = spark.read.format("penstock").options(**{"kafka.bootstrap.servers": system.bootstrap, "subscribe": topic})
    rows = reader.schema("offset LONG, value BINARY").load().collect()
    assert [(row.offset, bytes(row.value)) for row in rows] == [(n, b"%d" % n) for n in range(5)]
    with pytest.raises(Exception, match=r"says value string, but it can only leave out some of key binary, value"):
        reader.schema("value STRING").load().collect()
    with pytest.raises(Exception, match=r"says that value is never null, but a record may have none"):
        reader.schema("value BINARY NOT NULL").load().collect()


def test_a_query_keeps_its_state_when_a_column_is_no_longer_declared_to_be_null_at_times(
    spark: Any, system: System, topic: str, create: Any, fill: Callable[..., list[int]], tmp_path: Any
) -> None:
    """As it is with the checkpoint of a query that had Spark's own source before, which says so of every column."""
    create()
    counts: dict[int, int] = {}

    def run(**schema: str) -> None:
        reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", system.bootstrap)
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        frame = (reader.schema(schema["schema"]) if schema else reader).load()
        assert frame.schema["partition"].nullable == bool(schema)
        writer = frame.groupBy("partition").count().writeStream.outputMode("update")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer = writer.foreachBatch(lambda batch, _: counts.update((row[0], row[1]) for row in batch.collect()))
        writer.trigger(availableNow=True).start().awaitTermination()

    fill(range(30))
    run(schema="value BINARY, partition INT")
    fill(range(30))
    run()
    assert counts == {0: 20, 1: 20, 2: 20}
