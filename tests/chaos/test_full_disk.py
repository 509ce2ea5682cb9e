"""A file system that is really full: what was acknowledged is there when room has been made, once and in order."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Message, Producer

from penstock import Admin, Consumer
from penstock.wire.errors import ErrorCode
from tests.support import systems
from tests.support.systems import System

TOPIC = "t"


class SmallDisk:
    """A file system of its own, in memory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(path)], capture_output=True, text=True
        )
        if done.returncode:
            pytest.skip(f"mounting a file system is not allowed here: {done.stderr.strip()}")

    def grow(self) -> None:
        subprocess.run(["mount", "-o", "remount,size=64m", str(self.path)], check=True)

    def unmount(self) -> None:
        subprocess.run(["umount", "--lazy", str(self.path)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    small = SmallDisk(tmp_path / "disk")
    yield small
    small.unmount()


class Writer:
    """Writes numbered records one after the other, and knows which were acknowledged."""

    def __init__(self, system: System) -> None:
        self._producer = Producer(
            {"bootstrap.servers": system.bootstrap, "retries": 0, "message.timeout.ms": 5000, "log_level": 0}
        )
        self._number = 0
        self.acknowledged: list[bytes] = []
        self.errors: list[KafkaError] = []

    def write(self, size: int) -> None:
        value = b"%06d" % self._number + b"." * size
        self._number += 1
        self._producer.produce(TOPIC, value, b"key", partition=0, on_delivery=self._delivered)
        self._producer.flush(30)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acknowledged.append(message.value() or b"")
        else:
            self.errors.append(error)


def read_all(system: System) -> list[bytes]:
    with Consumer(system.bootstrap, auto_offset_reset="earliest", stop_at_end=True) as consumer:
        consumer.assign([(TOPIC, 0)])
        return [record.value for record in consumer]


@pytest.mark.parametrize("size", [100, 20_000], ids=["small records", "large records"])
def test_a_full_disk_loses_nothing_that_was_acknowledged(tmp_path: Path, disk: SmallDisk, size: int) -> None:
    system = systems.penstock(disk.path / "data", metadata_log_dir=str(tmp_path / "metadata")).start()
    try:
        with Admin(system.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=1, config={"segment.bytes": "200000", "index.interval.bytes": "100"})
        writer = Writer(system)
        while not writer.errors:
            writer.write(size)
        assert len(writer.acknowledged) > 20
        assert writer.errors[0].code() == ErrorCode.KAFKA_STORAGE_ERROR
        assert "Make room on the disk, then restart the broker." in system.log
        system.kill()
        disk.grow()
        system.start()
        acknowledged = set(writer.acknowledged)  # what was refused may be there or not
        assert [value for value in read_all(system) if value in acknowledged] == writer.acknowledged
        later = Writer(system)
        later.write(size)
        assert not later.errors
        assert "Traceback" not in system.log
    finally:
        system.kill()
