"""Compaction in a running broker."""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from penstock.log.storage import Buffer, File, Storage
from penstock.testing import RunningBroker, broker
from tests.log.samples import opened_as

QUICK = {"log_cleaner_backoff_ms": 20, "log_retention_check_interval_ms": 50, "log_initial_task_delay_ms": 50}
COMPACTED = {
    "cleanup.policy": "compact",
    "segment.bytes": "20000",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "1",
}


def _create(running: RunningBroker, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    settings = COMPACTED | {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result()


def _set(running: RunningBroker, topic: str, name: str, value: str) -> None:
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result()


def _produce(running: RunningBroker, topic: str, first: int, count: int, keys: int = 50) -> None:
    producer = Producer({"bootstrap.servers": running.bootstrap, "linger.ms": 1})
    for number in range(first, first + count):
        producer.produce(topic, b"%d " % number + b"x" * 50, b"key %d" % (number % keys), 0)
        if number % 100 == 99:
            producer.flush()
    assert producer.flush(30) == 0


def _read(running: RunningBroker, topic: str) -> list[tuple[int, bytes, bytes]]:
    """All records: offset, key, value."""
    settings = {"group.id": "reader", "enable.partition.eof": True, "check.crcs": True, "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": running.bootstrap, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            consumer.close()
            return found
        found.append((message.offset(), message.key(), message.value()))


def _until(is_so: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.01)


def _cleaned_offset(running: RunningBroker, topic: str) -> int:
    path = running.data / "cleaner-offset-checkpoint"
    found = re.search(rf"^{topic} 0 (\d+)$", path.read_text(), re.MULTILINE) if path.exists() else None
    return int(found[1]) if found else -1


def _active(running: RunningBroker, topic: str) -> int:
    return max(int(path.stem) for path in (running.data / f"{topic}-0").glob("*.log"))


def _wait_until_clean(running: RunningBroker, topic: str) -> None:
    _until(lambda: _cleaned_offset(running, topic) == _active(running, topic), f"{topic} is compacted")


def test_a_compacted_topic_holds_the_last_value_of_each_key_while_it_is_written_and_read() -> None:
    with broker(**QUICK) as running:
        _create(running, "t")
        for first in range(0, 6000, 1000):
            _produce(running, "t", first, 1000)
            found = _read(running, "t")
            offsets = [offset for offset, _, _ in found]
            assert offsets == sorted(set(offsets))
            assert {key: int(value.split()[0]) for _, key, value in found} == {
                b"key %d" % (number % 50): number for number in range(first + 950, first + 1000)
            }
            assert all(int(value.split()[0]) == offset for offset, _, value in found)
        _wait_until_clean(running, "t")
        assert len(_read(running, "t")) < 1000
        _until(lambda: not list((running.data / "t-0").glob("*.deleted")), "old files are removed")
        before = _read(running, "t")
        running.restart()
        assert _read(running, "t") == before
        _produce(running, "t", 6000, 1000)
        _wait_until_clean(running, "t")


def test_a_broker_that_is_killed_while_it_compacts_keeps_every_key() -> None:
    with broker(as_process=True, **QUICK) as running:
        _create(running, "t")
        for first in range(0, 4000, 1000):
            _produce(running, "t", first, 1000)
            running.kill()
            running.start()
            found = {key: int(value.split()[0]) for _, key, value in _read(running, "t")}
            assert found == {b"key %d" % (number % 50): number for number in range(first + 950, first + 1000)}


def test_both_policies_on_one_topic_compact_and_delete() -> None:
    with broker(**QUICK) as running:
        _create(running, "t", cleanup_policy="compact,delete", retention_bytes="30000")
        _produce(running, "t", 0, 3000, keys=3000)
        _until(lambda: min(int(path.stem) for path in (running.data / "t-0").glob("*.log")) > 1000, "old ones expire")
        _wait_until_clean(running, "t")
        offsets = [offset for offset, _, _ in _read(running, "t")]
        assert offsets[-1] == 2999
        assert offsets == list(range(offsets[0], 3000))


def test_a_topic_that_becomes_compacted_is_compacted_and_one_that_ceases_to_be_is_not() -> None:
    with broker(**QUICK) as running:
        _create(running, "t", cleanup_policy="delete")
        _create(running, "u")
        _produce(running, "t", 0, 2000)
        assert len(_read(running, "t")) == 2000
        _set(running, "t", "cleanup.policy", "compact")
        _wait_until_clean(running, "t")
        assert len(_read(running, "t")) < 500
        _set(running, "t", "cleanup.policy", "delete")
        _produce(running, "t", 2000, 2000)
        _produce(running, "u", 0, 2000)
        _wait_until_clean(running, "u")
        assert len(_read(running, "t")) >= 2000


def test_a_topic_can_be_deleted_while_it_is_compacted() -> None:
    with broker(**QUICK, log_cleaner_io_max_bytes_per_second=200_000.0) as running:
        _create(running, "t")
        _produce(running, "t", 0, 5000)
        _until(lambda: bool(list((running.data / "t-0").glob("*.cleaned"))), "the compaction begins")
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.delete_topics(["t"])["t"].result()
        _until(lambda: not list(running.data.glob("t-0*")), "its folder is removed")
        _create(running, "t")
        _produce(running, "t", 0, 10)
        assert len(_read(running, "t")) == 10
        assert _cleaned_offset(running, "t") == -1


def test_a_broker_stops_at_once_however_slow_the_compaction_is() -> None:
    with broker(**QUICK, log_cleaner_io_max_bytes_per_second=10_000.0) as running:
        _create(running, "t")
        _produce(running, "t", 0, 3000)
        began = time.monotonic()
        running.restart()
        assert time.monotonic() - began < 20
        assert len(_read(running, "t")) == 3000


def test_committed_offsets_are_compacted_and_survive() -> None:
    settings = {**QUICK, "offsets_topic_segment_bytes": 5000, "log_cleaner_min_cleanable_ratio": 0.01}
    with broker(**settings) as running:
        _create(running, "t", cleanup_policy="delete")
        _produce(running, "t", 0, 300)
        consumer = Consumer({"bootstrap.servers": running.bootstrap, "group.id": "g", "enable.auto.commit": False})
        for number in range(1, 300):
            consumer.commit(offsets=[TopicPartition("t", 0, number)], asynchronous=False)
        consumer.close()
        _until(lambda: _cleaned_offset(running, "__consumer_offsets") > 200, "the offsets are compacted")
        size = sum(path.stat().st_size for path in (running.data / "__consumer_offsets-0").glob("*.log"))
        assert size < 15_000
        running.restart()
        consumer = Consumer({"bootstrap.servers": running.bootstrap, "group.id": "g"})
        (committed,) = consumer.committed([TopicPartition("t", 0)], timeout=30)
        assert committed.offset == 299
        consumer.close()


def test_a_log_that_cannot_be_compacted_is_set_aside_and_the_others_go_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    running = broker(data=tmp_path / "data", **QUICK)
    with running:
        for topic in ("bad", "good"):
            _create(running, topic, cleanup_policy="delete")
            _produce(running, topic, 0, 2000)
        first = min((running.data / "bad-0").glob("*.log"))
        with open(first, "r+b") as file:
            file.seek(500)
            file.write(b"\xff" * 8)
        for topic in ("bad", "good"):
            _set(running, topic, "cleanup.policy", "compact")
        _wait_until_clean(running, "good")
        _until(lambda: "bad-0 cannot be compacted" in caplog.text, "it is told")
        _produce(running, "good", 2000, 2000)
        _wait_until_clean(running, "good")
        assert caplog.text.count("bad-0 cannot be compacted") == 1
        assert not list((running.data / "bad-0").glob("*.cleaned"))


class FullDisk(Storage):
    """Has no room for what compaction writes, until it is told."""

    is_full = True

    def open(self, path: str, *, create: bool = False) -> File:
        storage = self

        class Full(File):
            def write_at(self, data: Buffer, position: int) -> None:
                if storage.is_full and self.path.endswith(".cleaned"):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                super().write_at(data, position)

        return opened_as(Full, super().open(path, create=create))


def test_a_disk_without_room_for_compaction_is_no_reason_to_stop_serving(caplog: pytest.LogCaptureFixture) -> None:
    disk = FullDisk()
    with broker(storage=disk, **QUICK) as running:
        _create(running, "t")
        _produce(running, "t", 0, 2000)
        _until(lambda: "the disk is full" in caplog.text, "it is told")
        _produce(running, "t", 2000, 100)
        assert len(_read(running, "t")) == 2100
        assert caplog.text.count("the disk is full") == 1
        disk.is_full = False
        _wait_until_clean(running, "t")
        assert len(_read(running, "t")) < 1000
