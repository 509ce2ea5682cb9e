"""The producer against a real broker."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import confluent_kafka
import pytest

from penstock import Admin, Consumer, Delivered, OutgoingRecord, PenstockError, Producer, ProducerInterceptor, Record
from penstock.client.errors import (
    BufferFull,
    Closed,
    ConfigurationError,
    DeliveryFailed,
    Fenced,
    SerializationError,
)
from tests.client.waiting import BASE_MS
from tests.support.systems import System, free_port

Create = Callable[..., None]


def read(system: System, topic: str, **options: Any) -> list[Record[Any, Any]]:
    """All records of a topic."""
    options = {"auto_offset_reset": "earliest", "stop_at_end": True, "config": {"fetch.wait.max.ms": 20}, **options}
    with Consumer(system.bootstrap, **options) as consumer, Admin(system.bootstrap) as admin:
        consumer.assign(admin.topic_offsets(topic).keys())
        return list(consumer)


def test_a_record_arrives_as_it_was_sent(system: System, topic: str, create: Create) -> None:
    create(topic)
    with Producer(system.bootstrap) as producer:
        delivered = producer.send_and_wait(
            topic, "value", key=b"key", headers={"a": "1", "none": None}, timestamp=BASE_MS
        )
    assert delivered == Delivered(topic, 0, 0, BASE_MS)
    assert read(system, topic) == [Record(topic, 0, 0, BASE_MS, b"key", b"value", (("a", b"1"), ("none", None)), False)]


@pytest.mark.parametrize("acks", [0, 1, "all"])
@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_all_acknowledgements_and_codecs_deliver(
    system: System, topic: str, create: Create, acks: Any, compression: Any
) -> None:
    create(topic)
    with Producer(system.bootstrap, acks=acks, compression=compression, linger_ms=2) as producer:
        handles = [producer.send(topic, f"{number}") for number in range(100)]
    offsets = [handle.result(0).offset for handle in handles]
    assert offsets == ([None] * 100 if acks == 0 else list(range(100)))
    assert [record.value for record in read(system, topic)] == [b"%d" % number for number in range(100)]


def test_keys_go_where_java_puts_them_and_partitions_can_be_chosen(system: System, topic: str, create: Create) -> None:
    create(topic, 7)
    # Computed by org.apache.kafka.common.utils.Utils.toPositive(murmur2(key)) % 7.
    with Producer(system.bootstrap) as producer:
        placed = {key: producer.send(topic, key=key) for key in ["21", "foobar", "a-little-bit-long-string"]}
        assert producer.send_and_wait(topic, key="21", partition=5).partition == 5
    assert {key: handle.result(0).partition for key, handle in placed.items()} == {
        "21": (-973932308 & 0x7FFFFFFF) % 7,
        "foobar": (-790332482 & 0x7FFFFFFF) % 7,
        "a-little-bit-long-string": (-985981536 & 0x7FFFFFFF) % 7,
    }


def test_round_robin_and_custom_partitioners(system: System, topic: str, create: Create) -> None:
    create(topic, 3)
    with Producer(system.bootstrap, partitioner="round_robin") as producer:
        handles = [producer.send(topic, "x", key="same") for _ in range(6)]
    assert [handle.result(0).partition for handle in handles] == [0, 1, 2, 0, 1, 2]
    seen: list[tuple[bytes | None, int]] = []

    def last(key: bytes | None, count: int) -> int:
        seen.append((key, count))
        return count - 1

    with Producer(system.bootstrap, partitioner=last, key_serializer="json") as producer:
        assert producer.send_and_wait(topic, "x", key=[1]).partition == 2
    assert seen == [(b"[1]", 3)]
    with (
        Producer(system.bootstrap, partitioner=lambda key, count: count) as producer,
        pytest.raises(ConfigurationError, match=r"chose partition 3 .* has 3 partitions"),
    ):
        producer.send(topic, "x")


def test_callbacks_come_without_being_asked_for(system: System, topic: str, create: Create) -> None:
    create(topic)
    called = threading.Event()
    with Producer(system.bootstrap) as producer:
        producer.send(topic, "x", on_delivery=lambda delivered, error: called.set())
        assert called.wait(10)


class Stamp(ProducerInterceptor):
    def __init__(self) -> None:
        self.acknowledged: list[tuple[Delivered | None, PenstockError | None]] = []

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        return OutgoingRecord(
            record.topic, record.value.upper(), record.key, (*record.headers, ("stamp", b"1")), None, None
        )

    def on_acknowledged(self, delivered: Delivered | None, error: PenstockError | None) -> None:
        self.acknowledged.append((delivered, error))


def test_interceptors_change_what_is_sent_and_see_the_answer(system: System, topic: str, create: Create) -> None:
    create(topic)
    stamp = Stamp()
    with Producer(system.bootstrap, interceptors=[stamp]) as producer:
        delivered = producer.send_and_wait(topic, "abc")
    (record,) = read(system, topic)
    assert (record.value, record.headers) == (b"ABC", (("stamp", b"1"),))
    assert stamp.acknowledged == [(delivered, None)]


# ---- failures ----


def test_nothing_is_lost_silently(topic: str) -> None:
    producer = Producer(f"127.0.0.1:{free_port()}", delivery_timeout=0.2, linger_ms=0)
    producer.send(topic, "x")
    producer.send(topic, "y")
    with pytest.raises(DeliveryFailed, match=f"2 records were not delivered; the first of them.*{topic}.*check that"):
        producer.flush()
    handle = producer.send(topic, "z")
    with pytest.raises(DeliveryFailed) as caught:
        handle.result(10)
    assert caught.value.name == "_MSG_TIMED_OUT"
    producer.close()


def test_close_raises_what_flush_did_not_wait_for(topic: str) -> None:
    producer = Producer(f"127.0.0.1:{free_port()}")
    handle = producer.send(topic, "x")
    with pytest.raises(TimeoutError, match="no acknowledgement"):
        handle.result(0.05)
    with pytest.raises(DeliveryFailed, match=r"1 records were not yet delivered after 0\.1 s.*Connection refused"):
        producer.flush(0.1)
    with pytest.raises(DeliveryFailed, match=r"1 records were not delivered within 0\.1 s.*they are lost"):
        producer.close(0.1)
    with pytest.raises(Closed):
        producer.send(topic, "x")


def test_a_full_buffer_blocks_and_then_raises(topic: str) -> None:
    producer = Producer(f"127.0.0.1:{free_port()}", buffer_records=3, max_block=0.2)
    for _ in range(3):
        producer.send(topic, "x")
    with pytest.raises(BufferFull, match=r"3 records wait.*stayed full for 0\.2 s"):
        producer.send(topic, "x")
    with pytest.raises(DeliveryFailed):
        producer.close(0)


def test_a_full_buffer_empties_while_send_waits(system: System, topic: str, create: Create) -> None:
    create(topic)
    with Producer(system.bootstrap, buffer_records=10, linger_ms=0) as producer:
        for number in range(200):
            producer.send(topic, str(number))
    assert len(read(system, topic)) == 200


def test_a_record_that_is_too_large_is_refused_at_once(system: System, topic: str) -> None:
    with Producer(system.bootstrap) as producer, pytest.raises(PenstockError, match="MSG_SIZE_TOO_LARGE"):
        producer.send(topic, b"x" * 2_000_000)


def test_mistakes_are_told_in_one_line(system: System, topic: str) -> None:
    with Producer(system.bootstrap) as producer:
        with pytest.raises(
            SerializationError, match=f"value of a record for '{topic}': it is an int, not bytes or str"
        ):
            producer.send(topic, 1)
        with pytest.raises(ConfigurationError, match="partition is -1"):
            producer.send(topic, "x", partition=-1)
        with pytest.raises(ConfigurationError, match="header 'a' is of type int"):
            producer.send(topic, "x", headers={"a": 1})  # type: ignore[dict-item]
        with pytest.raises(ConfigurationError, match="need a producer with a transactional_id"):
            producer.transaction().__enter__()
    with pytest.raises(ConfigurationError, match="acks is 2"):
        Producer(system.bootstrap, acks=2)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="no partitioner 'sticky'"):
        Producer(system.bootstrap, partitioner="sticky")
    with pytest.raises(ConfigurationError, match="no serializer 'xml'"):
        Producer(system.bootstrap, value_serializer="xml")


# ---- transactions ----


def test_a_transaction_is_seen_as_a_whole_or_not_at_all(
    system: System, topic: str, create: Create, unique: Callable[[str], str]
) -> None:
    create(topic)
    with Producer(system.bootstrap, transactional_id=unique("txn")) as producer:
        with producer.transaction():
            producer.send(topic, "a")
            producer.send(topic, "b")
        with suppress(ZeroDivisionError), producer.transaction():
            producer.send_and_wait(topic, "never")
            raise ZeroDivisionError
        with producer.transaction():
            producer.send(topic, "c")
        with pytest.raises(ConfigurationError, match="only within"):
            producer.send(topic, "outside")
    assert [record.value for record in read(system, topic)] == [b"a", b"b", b"c"]
    assert b"never" in [record.value for record in read(system, topic, isolation_level="read_uncommitted")]


def test_the_producer_that_came_first_is_fenced(
    system: System, topic: str, create: Create, unique: Callable[[str], str]
) -> None:
    create(topic)
    name = unique("txn")
    first, second = (Producer(system.bootstrap, transactional_id=name) for _ in range(2))
    with first.transaction():
        first.send(topic, "a")
    with second.transaction():
        second.send(topic, "b")
    with pytest.raises(Fenced, match="use an id of its own"), first.transaction():
        first.send(topic, "c")
    second.close()
    first.close(1)
    assert [record.value for record in read(system, topic)] == [b"a", b"b"]


def test_offsets_are_committed_with_the_transaction(
    system: System, admin: Admin, create: Create, unique: Callable[[str], str]
) -> None:
    source, sink, group = unique("source"), unique("sink"), unique("group")
    create(source)
    create(sink)
    with Producer(system.bootstrap) as producer:
        for number in range(10):
            producer.send(source, str(number))
    with (
        Producer(system.bootstrap, transactional_id=unique("txn")) as producer,
        Consumer(
            system.bootstrap, group=group, topics=[source], auto_commit=False, auto_offset_reset="earliest"
        ) as consumer,
    ):
        with suppress(ZeroDivisionError), producer.transaction():
            record = consumer.poll(20)
            assert record is not None
            producer.send(sink, record.value)
            producer.send_offsets(consumer)
            raise ZeroDivisionError
        assert admin.group_offsets(group) == {}
        consumer.seek_to_committed()
        with producer.transaction():
            for _ in range(4):
                record = consumer.poll(20)
                assert record is not None
                producer.send(sink, record.value)
            producer.send_offsets(consumer)
    assert [info.offset for info in admin.group_offsets(group).values()] == [4]
    assert [record.value for record in read(system, sink)] == [b"0", b"1", b"2", b"3"]


def test_importing_penstock_does_not_load_librdkafka() -> None:
    import subprocess
    import sys

    code = "import sys, penstock; assert 'confluent_kafka' not in sys.modules; penstock.Producer; print('loaded')"
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert run.stdout == "loaded\n"
    assert confluent_kafka.__name__ in sys.modules
