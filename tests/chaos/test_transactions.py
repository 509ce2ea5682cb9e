"""kill -9 of brokers and clients in the middle of transactions: what comes out is what went in, once and in order."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.client.connection import ConnectionLost
from penstock.wire.batch import encode_batch
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.record import Record
from tests.support import systems
from tests.support.maven import ROOT, classpath
from tests.support.systems import System
from tests.support.transactions import create_topic, latest, read

Start = Callable[[int], "subprocess.Popen[bytes]"]
STALLED_S = 60.0  # without any progress: something hangs


class Copier:
    """A copier in a process of its own, started again whenever it is dead."""

    def __init__(self, start: Start) -> None:
        self._start = start
        self.starts = 0
        self._process = self._begin()

    def _begin(self) -> subprocess.Popen[bytes]:
        self.starts += 1
        return self._start(self.starts)

    def keep_alive(self) -> None:
        if self._process.poll() is not None:
            self._process = self._begin()

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()


def fill(system: System, topic: str, partition: int, first: int, count: int) -> None:
    now_ms = int(time.time() * 1000)  # an older one would be a matter for retention
    records = [Record(n, now_ms, None, f"{partition}:{first + n}".encode()) for n in range(count)]
    data = TopicProduceData(topic, partition_data=[PartitionProduceData(partition, memoryview(encode_batch(records)))])
    with system.connect() as connection:
        response = connection.call(ProduceRequest(None, -1, 10_000, [data]), 9)
        assert response.responses[0].partition_responses[0].error_code == 0


def copied(system: System, topic: str, partitions: int) -> list[list[str]]:
    with system.connect() as connection:
        return [read(connection, topic, partition) for partition in range(partitions)]


def run(
    system: System,
    copier: Copier,
    chance: random.Random,
    kills: int,
    pause_s: tuple[float, float],
    feed: Callable[[], None],
) -> None:
    """Kill the broker, the copier, or both, again and again while there is something to copy."""
    for number in range(kills):
        feed()
        time.sleep(chance.uniform(*pause_s))
        copier.keep_alive()
        if number % 3 != 1:
            system.kill()
            system.start()
        if number % 3 != 0:
            copier.kill()
            copier.keep_alive()


def finish(system: System, copier: Copier, topic: str, expected: list[list[str]]) -> None:
    """Let the copier go on until all is there; what is there is always a beginning of what must be."""
    deadline, best = 0.0, -1
    while True:
        try:
            seen = copied(system, topic, len(expected))
        except (OSError, ConnectionLost):
            seen = [[] for _ in expected]
        for got, wanted in zip(seen, expected, strict=True):
            assert got == wanted[: len(got)]
        if seen == expected:
            break
        if sum(map(len, seen)) > best:
            deadline, best = time.monotonic() + STALLED_S, sum(map(len, seen))
        assert time.monotonic() < deadline, [len(got) for got in seen]
        copier.keep_alive()
        time.sleep(0.3)
    copier.kill()


def check_files(system: System, topic: str, expected: list[list[str]]) -> None:
    """The same after a clean restart; nothing is left open but what the copier held when it was killed."""
    assert system.stop() == 0
    assert "Traceback" not in system.log
    system.start()
    assert copied(system, topic, len(expected)) == expected
    with system.connect() as connection:
        for partition, wanted in enumerate(expected):
            assert latest(connection, topic, partition, committed=False) > len(wanted)  # markers, and what was aborted
    system.kill()


@pytest.mark.parametrize("flush", [None, "1"], ids=["page-cache", "synced"])
def test_a_copier_copies_exactly_once_through_kills(
    tmp_path: Path, request: pytest.FixtureRequest, seed: int, flush: str | None
) -> None:
    is_short = request.config.getoption("--chaos") == "short"
    partitions, count, kills = 3, 900 if is_short else 6_000, 5 if is_short else 60
    chance = random.Random(seed)
    options = {"log_flush_interval_messages": flush} if flush is not None else {}
    system = systems.penstock(tmp_path / "data", transaction_state_log_num_partitions="5", **options).start()
    with system.connect() as connection:
        create_topic(connection, "in", partitions)
        create_topic(connection, "out", partitions, segment_bytes="30000")
    expected = [[f"{partition}:{n}" for n in range(count)] for partition in range(partitions)]
    portions = iter(range(0, count, count // (kills + 1) + 1))

    def feed() -> None:
        first = next(portions)
        for partition in range(partitions):
            fill(system, "in", partition, first, min(count // (kills + 1) + 1, count - first))

    def start(number: int) -> subprocess.Popen[bytes]:
        arguments = [system.bootstrap, "group", "in", "out", str(partitions), str(seed + number)]
        command = [sys.executable, "-m", "tests.chaos.copier", *arguments]
        return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    copier = Copier(start)
    try:
        run(system, copier, chance, kills, (0.3, 1.0), feed)
        feed()
        finish(system, copier, "out", expected)
        assert copier.starts > kills // 2
        check_files(system, "out", expected)
    finally:
        copier.kill()
        system.kill()


@pytest.mark.java
def test_kafkas_own_copier_copies_exactly_once_through_kills(
    tmp_path: Path, request: pytest.FixtureRequest, seed: int
) -> None:
    """org.apache.kafka.tools.TransactionalMessageCopier, of Kafka's system tests: the newer rules of transactions."""
    is_short = request.config.getoption("--chaos") == "short"
    count, kills, size = (6_000, 3, 30) if is_short else (200_000, 30, 100)
    chance = random.Random(seed)
    system = systems.penstock(tmp_path / "data", transaction_state_log_num_partitions="5").start()
    with system.connect() as connection:
        create_topic(connection, "in")
        create_topic(connection, "out", segment_bytes="30000")
    expected = [[f"0:{n}" for n in range(count)]]
    portions = iter(range(0, count, count // (kills + 1) + 1))

    def feed() -> None:
        first = next(portions)
        fill(system, "in", 0, first, min(count // (kills + 1) + 1, count - first))

    def start(number: int) -> subprocess.Popen[bytes]:
        command = [shutil.which("java") or "java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", classpath()]
        command += ["org.apache.kafka.tools.TransactionalMessageCopier", "--broker-list", system.bootstrap]
        command += ["--input-topic", "in", "--input-partition", "0", "--output-topic", "out"]
        command += ["--transactional-id", "java-copier", "--consumer-group", "java-group"]
        command += ["--transaction-size", str(size), "--transaction-timeout", "20000", "--enable-random-aborts"]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    copier = Copier(start)
    try:
        run(system, copier, chance, kills, (1.5, 3.0), feed)
        feed()
        finish(system, copier, "out", expected)
        assert copier.starts > 1
        check_files(system, "out", expected)
    finally:
        copier.kill()
        system.kill()
