"""librdkafka (confluent-kafka) against both systems."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigEntry, ConfigResource, NewPartitions, NewTopic, OffsetSpec

from tests.support.systems import System

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def admin(system: System) -> AdminClient:
    return AdminClient({"bootstrap.servers": system.bootstrap})


@pytest.fixture
def create(admin: AdminClient) -> Callable[..., None]:
    def make(name: str, partitions: int = 1, **config: str) -> None:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topics([NewTopic(name, partitions, 1, config=settings)])[name].result(10)

    return make


def produce(system: System, records: list[dict[str, Any]], **config: Any) -> list[Message]:
    """Produce and wait; returns the delivery reports."""
    reports: list[Message] = []
    errors: list[KafkaError] = []

    def report(error: KafkaError | None, message: Message) -> None:
        (errors.append(error) if error is not None else reports.append(message))

    producer = Producer({"bootstrap.servers": system.bootstrap, "linger.ms": 5, **config})
    for record in records:
        producer.produce(on_delivery=report, **record)
    assert producer.flush(20) == 0
    if errors:
        raise KafkaException(errors[0])
    return reports


def consume(
    system: System, topic: str, count: int, partition: int = 0, offset: int = 0, **config: Any
) -> list[Message]:
    """Read `count` records of a partition, without a group."""
    consumer = Consumer(
        {"bootstrap.servers": system.bootstrap, "group.id": "unused", "enable.auto.commit": False, **config}
    )
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        messages: list[Message] = []
        deadline = time.monotonic() + 20
        while len(messages) < count and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None:
                assert message.error() is None, message.error()
                messages.append(message)
        assert len(messages) == count
        return messages
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", CODECS)
def test_what_was_produced_is_consumed_unchanged(system: System, topic: str, create: Any, codec: str) -> None:
    create(topic)
    now = int(time.time() * 1000)
    records = [
        {
            "topic": topic,
            "partition": 0,
            "key": f"key {number}".encode() if number % 3 else None,
            "value": b"value " * number if number % 5 else None,
            "headers": [("kind", b"test"), ("empty", None)] if number % 2 else None,
            "timestamp": now + number,
        }
        for number in range(300)
    ]
    reports = produce(system, records, **{"compression.codec": codec})
    assert [report.offset() for report in reports] == list(range(300))
    for number, (sent, message) in enumerate(zip(records, consume(system, topic, 300), strict=True)):
        assert message.offset() == number
        assert message.key() == sent["key"]
        assert message.value() == sent["value"]
        assert message.headers() == sent["headers"]
        assert message.timestamp() == (TIMESTAMP_CREATE_TIME, now + number)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_level_of_acknowledgement_delivers(system: System, topic: str, create: Any, acks: str) -> None:
    create(topic)
    reports = produce(system, [{"topic": topic, "value": str(n)} for n in range(100)], acks=acks)
    assert len(reports) == 100
    assert [message.value() for message in consume(system, topic, 100)] == [str(n).encode() for n in range(100)]


def test_an_idempotent_producer_gets_an_identity_and_writes_in_order(system: System, topic: str, create: Any) -> None:
    create(topic, 4)
    records = [{"topic": topic, "partition": n % 4, "value": str(n)} for n in range(2000)]
    produce(system, records, **{"enable.idempotence": True, "batch.num.messages": 7})
    for partition in range(4):
        values = [int(message.value()) for message in consume(system, topic, 500, partition)]
        assert values == list(range(partition, 2000, 4))


def test_a_consumer_can_start_anywhere(system: System, topic: str, create: Any) -> None:
    create(topic)
    produce(system, [{"topic": topic, "value": str(n)} for n in range(50)], **{"compression.codec": "lz4"})
    assert [m.offset() for m in consume(system, topic, 13, offset=37)] == list(range(37, 50))


def test_an_offset_out_of_range_is_reported(system: System, topic: str, create: Any) -> None:
    create(topic)
    produce(system, [{"topic": topic, "value": b"x"}])
    consumer = Consumer({"bootstrap.servers": system.bootstrap, "group.id": "unused", "auto.offset.reset": "error"})
    consumer.assign([TopicPartition(topic, 0, 999)])
    message = None
    deadline = time.monotonic() + 10
    while message is None and time.monotonic() < deadline:
        message = consumer.poll(0.5)
    consumer.close()
    assert message is not None
    assert message.error().code() == KafkaError._AUTO_OFFSET_RESET


def test_watermarks_and_offsets_by_time(system: System, topic: str, create: Any) -> None:
    create(topic)
    base = int(time.time() * 1000) - 100_000
    produce(system, [{"topic": topic, "value": b"x", "timestamp": base + n * 1000} for n in range(100)])
    consumer = Consumer({"bootstrap.servers": system.bootstrap, "group.id": "unused"})
    partition = TopicPartition(topic, 0)
    assert consumer.get_watermark_offsets(partition, timeout=10) == (0, 100)
    for wanted, expected in ((base, 0), (base + 1, 1), (base + 50_000, 50), (base + 99_000, 99), (base + 99_001, -1)):
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, wanted)], timeout=10)
        assert found.offset == expected
    consumer.close()


def test_list_offsets_knows_the_special_positions(system: System, topic: str, create: Any, admin: AdminClient) -> None:
    create(topic)
    base = int(time.time() * 1000)
    for offset, timestamp in enumerate((base, base + 500, base + 100)):
        produce(system, [{"topic": topic, "value": str(offset), "timestamp": timestamp}])
    for spec, expected in (
        (OffsetSpec.earliest(), 0),
        (OffsetSpec.latest(), 3),
        (OffsetSpec.max_timestamp(), 1),
        (OffsetSpec.for_timestamp(base + 200), 1),
    ):
        result = admin.list_offsets({TopicPartition(topic, 0): spec})
        assert next(iter(result.values())).result(10).offset == expected


def test_records_can_be_deleted_up_to_an_offset(system: System, topic: str, create: Any, admin: AdminClient) -> None:
    create(topic)
    produce(system, [{"topic": topic, "value": str(n)} for n in range(20)])
    deleted = next(iter(admin.delete_records([TopicPartition(topic, 0, 7)]).values())).result(10)
    assert deleted.low_watermark == 7
    assert consume(system, topic, 1, offset=7)[0].value() == b"7"
    consumer = Consumer({"bootstrap.servers": system.bootstrap, "group.id": "unused"})
    assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10) == (7, 20)
    consumer.close()


def test_the_broker_dates_records_where_the_topic_says_so(system: System, topic: str, create: Any) -> None:
    create(topic, message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    produce(system, [{"topic": topic, "value": b"x", "timestamp": 1000}], **{"compression.codec": "gzip"})
    kind, timestamp = consume(system, topic, 1)[0].timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert before <= timestamp <= int(time.time() * 1000)


@pytest.mark.parametrize("target", [*CODECS[1:], "uncompressed"])
@pytest.mark.parametrize("source", ["none", "lz4"])
def test_a_topic_can_choose_its_codec(system: System, topic: str, create: Any, source: str, target: str) -> None:
    create(topic, compression_type=target)
    values = [f"{'some text ' * 10}{n}".encode() for n in range(200)]
    produce(system, [{"topic": topic, "value": value} for value in values], **{"compression.codec": source})
    assert [message.value() for message in consume(system, topic, 200)] == values


def test_a_large_record_is_stored_and_one_that_is_too_large_is_refused(system: System, topic: str, create: Any) -> None:
    create(topic, max_message_bytes="2000000")
    big = bytes(range(256)) * 7000
    produce(system, [{"topic": topic, "value": big}], **{"message.max.bytes": 10_000_000})
    assert consume(system, topic, 1)[0].value() == big
    with pytest.raises(KafkaException) as refused:
        produce(system, [{"topic": topic, "value": big * 2}], **{"message.max.bytes": 10_000_000})
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE


def test_a_record_without_key_is_refused_on_a_compacted_topic(system: System, topic: str, create: Any) -> None:
    create(topic, cleanup_policy="compact")
    produce(system, [{"topic": topic, "key": b"k", "value": b"v"}])
    with pytest.raises(KafkaException) as refused:
        produce(system, [{"topic": topic, "value": b"v"}])
    assert refused.value.args[0].code() == KafkaError.INVALID_RECORD


def test_a_timestamp_from_the_future_is_refused(system: System, topic: str, create: Any) -> None:
    create(topic)
    with pytest.raises(KafkaException) as refused:
        produce(system, [{"topic": topic, "value": b"v", "timestamp": int(time.time() * 1000) + 7_200_000}])
    assert refused.value.args[0].code() == KafkaError.INVALID_TIMESTAMP


def test_producing_to_a_topic_that_does_not_exist_creates_it(system: System, topic: str) -> None:
    produce(system, [{"topic": topic, "value": b"x"}])
    assert consume(system, topic, 1)[0].value() == b"x"


def test_topics_are_created_described_enlarged_and_deleted(
    system: System, topic: str, create: Any, admin: AdminClient
) -> None:
    create(topic, 3, retention_ms="12345")
    metadata = admin.list_topics(topic, timeout=10).topics[topic]
    assert sorted(metadata.partitions) == [0, 1, 2]
    assert all(partition.leader == 1 for partition in metadata.partitions.values())
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(10)
    assert len(admin.list_topics(topic, timeout=10).topics[topic].partitions) == 5
    admin.delete_topics([topic])[topic].result(10)
    assert topic not in admin.list_topics(timeout=10).topics


def test_settings_are_described_with_their_sources_and_changed(
    system: System, topic: str, create: Any, admin: AdminClient
) -> None:
    create(topic, retention_ms="12345")
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)

    def described() -> dict[str, ConfigEntry]:
        entries: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(10)
        return entries

    entries = described()
    assert entries["retention.ms"].value == "12345"
    assert not entries["retention.ms"].is_default
    assert entries["segment.bytes"].value == "1073741824"
    assert entries["segment.bytes"].is_default
    changed = ConfigResource(ConfigResource.Type.TOPIC, topic)
    changed.add_incremental_config(ConfigEntry("retention.ms", "777", incremental_operation=_operation("SET")))
    admin.incremental_alter_configs([changed])[changed].result(10)
    _wait_until(lambda: described()["retention.ms"].value == "777")


def _operation(name: str) -> Any:
    from confluent_kafka.admin import AlterConfigOpType

    return AlterConfigOpType[name]


def _wait_until(condition: Callable[[], bool]) -> None:
    """Kafka applies settings a moment after it acknowledged them."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_cluster_describes_itself(system: System, admin: AdminClient) -> None:
    cluster = admin.describe_cluster().result(10)
    assert [(node.id, node.host, node.port) for node in cluster.nodes] == [(1, "127.0.0.1", system.port)]
    assert cluster.controller.id == 1
    assert len(cluster.cluster_id) == 22
