"""Disks that forget, and disks that are full, under a running broker."""

from __future__ import annotations

import errno
import os
import time
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from penstock import Admin
from penstock.client.connection import Connection, ConnectionLost
from penstock.log.storage import Buffer, File, Storage
from penstock.testing import RunningBroker, broker
from penstock.wire.batch import batches_in
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.produce import PartitionProduceResponse
from tests.broker.frames import produce, produced
from tests.log.samples import opened_as


def _create(running: RunningBroker, topic: str, **config: str) -> None:
    admin = AdminClient({"bootstrap.servers": running.bootstrap})
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result()


def _fetch(running: RunningBroker, topic: str, offset: int) -> tuple[int, list[int]]:
    """(error, offsets of the batches)."""
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    request = FetchRequest(
        topics=[FetchTopic(topic=topic, partitions=[partition])], max_wait_ms=0, min_bytes=1, session_epoch=-1
    )
    with Connection("127.0.0.1", running.port) as connection:
        answer = connection.call(request, 12).responses[0].partitions[0]
    return answer.error_code, [
        batch.base_offset for batch in batches_in(bytes(answer.records or b""), is_verified=False)
    ]


class CountingDisk(Storage):
    """Counts how often the beginning of a topic's first segment is read in large pieces: by scrubs."""

    def __init__(self) -> None:
        self.scrubs = 0

    def open(self, path: str, *, create: bool = False) -> File:
        storage = self

        class Counting(File):
            def read_at(self, count: int, position: int) -> bytes:
                if position == 0 and count > 1000 and self.path.endswith(f"/t-0/{0:020d}.log"):
                    storage.scrubs += 1
                return super().read_at(count, position)

        return opened_as(Counting, super().open(path, create=create))


def test_a_scrub_finds_damage_tells_it_once_and_keeps_it_from_readers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    settings = {"penstock_scrub_interval_ms": 20, "log_initial_task_delay_ms": 0}
    disk = CountingDisk()
    with broker(data=tmp_path, storage=disk, **settings) as running:
        _create(running, "t", segment_bytes="2000")
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for number in range(100):
            producer.produce("t", b"%d" % number, b"k")
            producer.flush()
        first = min((tmp_path / "t-0").glob("*.log"))
        batch = list(batches_in(first.read_bytes()))[5]
        with open(first, "r+b") as file:
            file.seek(batch.position + 62)
            file.write(b"\xee")
        deadline = time.monotonic() + 30
        while _fetch(running, "t", 5)[0] == 0:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert _fetch(running, "t", 5) == (ErrorCode.CORRUPT_MESSAGE, [])
        assert _fetch(running, "t", 2) == (0, [2, 3, 4])
        assert _fetch(running, "t", 6)[1][:3] == [6, 7, 8]
        assert f"{first} is damaged from position {batch.position}" in caplog.text
        assert "offsets 5 to 5 are not served" in caplog.text
        producer.produce("t", b"still here", b"k")
        assert producer.flush(30) == 0
        before = disk.scrubs
        while disk.scrubs < before + 3:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert caplog.text.count("is damaged from position") == 1


class FullDisk(Storage):
    """Has so much room for the logs of one topic."""

    def __init__(self, topic: str, bytes_left: int) -> None:
        self.topic = topic
        self.bytes_left = bytes_left

    def open(self, path: str, *, create: bool = False) -> File:
        storage = self

        class Limited(File):
            def write_at(self, data: Buffer, position: int) -> None:
                if f"/{storage.topic}-0/" in self.path and self.path.endswith(".log"):
                    if len(data) > storage.bytes_left:
                        super().write_at(memoryview(data)[: storage.bytes_left], position)  # as a real one does
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    storage.bytes_left -= len(data)
                super().write_at(data, position)

        return opened_as(Limited, super().open(path, create=create))


def test_a_full_disk_refuses_the_write_and_loses_nothing_that_was_acknowledged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FullDisk("t", 5000)
    running = broker(data=tmp_path / "data", storage=disk, metadata_log_dir=str(tmp_path / "metadata"))
    acknowledged: list[bytes] = []
    errors: list[KafkaError] = []
    with running:
        _create(running, "t")
        producer = Producer({"bootstrap.servers": running.bootstrap, "retries": 0, "message.timeout.ms": 5000})

        def delivered(error: KafkaError | None, message: object) -> None:
            if error is None:
                acknowledged.append(message.value())  # type: ignore[attr-defined]
            else:
                errors.append(error)

        number = 0
        while not errors:
            producer.produce("t", b"%d" % number, b"k", on_delivery=delivered)
            producer.flush(30)
            number += 1
        assert 30 < len(acknowledged) < 80
        assert errors[0].code() == ErrorCode.KAFKA_STORAGE_ERROR
        assert "Make room on the disk" in caplog.text
        assert caplog.text.count("failed and is offline") == 1
        disk.bytes_left = 10**9
        running.restart()
        consumer = Consumer({"bootstrap.servers": running.bootstrap, "group.id": "g", "enable.partition.eof": True})
        consumer.assign([TopicPartition("t", 0, 0)])
        found: list[bytes] = []
        while True:
            message = consumer.poll(30)
            assert message is not None
            if message.error():
                break
            found.append(message.value())
        assert found == acknowledged
        producer.produce("t", b"goes on", b"k", on_delivery=delivered)
        assert producer.flush(30) == 0
        assert acknowledged[-1] == b"goes on"
        consumer.close()


def test_a_broker_does_not_coordinate_what_is_on_a_failed_disk(tmp_path: Path) -> None:
    disk = FullDisk("t", 100)
    with (
        broker(data=tmp_path / "data", storage=disk, metadata_log_dir=str(tmp_path / "metadata")) as running,
        Admin(running.bootstrap) as admin,
        Connection("127.0.0.1", running.port) as connection,
    ):
        _create(running, "t")
        admin.alter_group_offsets("g", {("t", 0): 0})
        transaction = InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000)
        connection.call(FindCoordinatorRequest(key="x", key_type=1), 3)
        assert connection.call(transaction).error_code == ErrorCode.NONE
        producer = Producer({"bootstrap.servers": running.bootstrap, "retries": 0, "message.timeout.ms": 5000})
        producer.produce("t", bytes(200))
        producer.flush(30)
        (described,) = connection.call(DescribeGroupsRequest(groups=["g"])).groups
        assert described.error_code == ErrorCode.NOT_COORDINATOR
        assert connection.call(transaction).error_code == ErrorCode.NOT_COORDINATOR


def test_nobody_is_told_of_records_that_waited_for_a_disk_that_is_full(tmp_path: Path) -> None:
    """Several requests come at once: all but the first wait for the end of the turn, and then there is no room."""
    disk = FullDisk("t", 10**9)
    with (
        broker(data=tmp_path / "data", storage=disk, metadata_log_dir=str(tmp_path / "metadata")) as running,
        Connection("127.0.0.1", running.port) as connection,
        Connection("127.0.0.1", running.port) as bystander,
    ):
        _create(running, "t")
        _create(running, "quiet")
        connection.send_bytes(produce("t", b"0"))
        produced(connection)
        first = (tmp_path / "data" / "t-0" / f"{0:020d}.log").stat().st_size
        disk.bytes_left = first
        connection.send_bytes(b"".join(produce("t", b"%d" % number) for number in range(1, 10)))
        answers: list[PartitionProduceResponse] = []
        with suppress(ConnectionLost):
            while len(answers) < 9:
                answers.append(produced(connection))
        assert not [answer.base_offset for answer in answers if not answer.error_code], "nobody is acknowledged"
        assert bystander.call(DescribeGroupsRequest(groups=["g"])).groups, "others are not disturbed"
        disk.bytes_left = 10**9
        running.restart()
        error, offsets = _fetch(running, "t", 0)
        assert (error, offsets[:1]) == (ErrorCode.NONE, [0])
        assert offsets == list(range(len(offsets)))
        assert len(offsets) <= 2, "only the first of them was written"
