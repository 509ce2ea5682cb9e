"""Penstock's streams beside Kafka Streams, Quix Streams and Faust, on the same topics of the same Penstock broker.

Each runs as a process of its own until it has committed all records, or its time is up. What counts is what it commits
between its first commit and its last: so neither start-up nor warming up counts for anybody.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bench.scenarios import Numbers, new_topic, send_batch
from penstock.client.cluster import Cluster
from penstock.client.partitioners import murmur2
from penstock.client.shared_transaction import SharedTransaction
from penstock.wire._kernel import encode_records
from penstock.wire.record import Record
from tests.support import environments, java_programs, systems
from tests.support.systems import System

PARTITIONS = 4
SYSTEMS = ("penstock", "kafka-streams", "quix", "faust")
COUNT, JOIN = "count", "join"

_HERE = Path(__file__).parent
_KEYS = 1000
_BATCH_RECORDS = 1000
_PATIENCE_S = 120.0  # until the first commit
_LONGEST_S = 40.0  # from there on
_RIVALS = ("quixstreams==3.28.1", "faust-streaming==0.15.3")


@dataclass(frozen=True)
class Topics:
    """What all of them read."""

    records: str
    table: str
    count: int


def filled(system: System, count: int) -> Topics:
    """Records of about 100 bytes with a thousand keys, by key as Java's clients place them; and a table of the keys.

    Timestamps go over a hundred seconds, and the table is older than all of them.
    """
    rng = random.Random(1)
    topics = Topics(new_topic(system, PARTITIONS), new_topic(system, PARTITIONS), count)
    keys = [b"key-%04d" % number for number in range(_KEYS)]
    by_partition = [[key for key in keys if murmur2(key, PARTITIONS) == index] for index in range(PARTITIONS)]
    began_ms = int(time.time() * 1000) - 200_000
    batches = count // _BATCH_RECORDS
    with system.connect() as connection:
        for index, own in enumerate(by_partition):
            rows = encode_records([Record(n, 0, key, b"name of " + key) for n, key in enumerate(own)], 0, 0)
            send_batch(connection, topics.table, index, rows, len(own), began_ms - 1000)
        for number in range(batches):
            index, timestamp = number % PARTITIONS, began_ms + number * 100_000 // batches
            records = encode_records(list(_some_records(rng, by_partition[index])), 0, 0)
            send_batch(connection, topics.records, index, records, _BATCH_RECORDS, timestamp)
    return topics


def _some_records(rng: random.Random, keys: list[bytes]) -> Iterator[Record]:
    for number in range(_BATCH_RECORDS):
        yield Record(number, 0, rng.choice(keys), rng.randbytes(46).hex().encode())


class Stage:
    """A broker with topics full of records, made when they are needed."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        self._count = count
        self._made: tuple[System, Topics] | None = None

    def run(self, scenario: str, name: str) -> Numbers:
        if self._made is None:
            system = systems.penstock(self._folder / "streams").start()
            self._made = system, filled(system, self._count)
        return run(*self._made, scenario, name)

    def close(self) -> None:
        if self._made is not None:
            self._made[0].kill()


# ---- one run ----


def run(system: System, topics: Topics, scenario: str, name: str) -> Numbers:
    """Have one of them do a scenario from the beginning."""
    group = f"{name}-{scenario}-{time.monotonic_ns()}"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        arguments = [scenario, system.bootstrap, topics.records, topics.table, new_topic(system, PARTITIONS)]
        processes = [
            _started(command, Path(folder) / f"{number}.log")
            for number, command in enumerate(_commands(name, [*arguments, group], folder))
        ]
        try:
            watched = f"{group}-{scenario}" if name == "penstock" else group
            return {"records_per_second": _rate(system, watched, topics, processes, folder)}
        finally:
            for process in processes:
                with suppress(ProcessLookupError):  # it has ended by itself
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _commands(name: str, arguments: list[str], folder: str) -> list[list[str]]:
    """What is started. Those that use one core each are started twice."""
    if name == "penstock":
        return [[sys.executable, "-m", "bench.streams.ours", *arguments, f"{folder}/state"]]
    if name == "kafka-streams":
        return [[*java_programs.command(_HERE / "StreamsBench.java"), *arguments, f"{folder}/state"]]
    python = environments.python("streams-rivals", *_RIVALS)
    return [[str(python), str(_HERE / f"{name}_app.py"), *arguments, f"{folder}/state-{one}"] for one in (1, 2)]


def _started(command: list[str], log: Path) -> subprocess.Popen[bytes]:
    with open(log, "wb") as output:
        return subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)


def _rate(system: System, group: str, topics: Topics, processes: list[subprocess.Popen[bytes]], folder: str) -> float:
    """Records per second, by what a group has committed. A commit counts from the moment that it is seen."""
    began = time.monotonic()
    first: tuple[float, int] | None = None
    newest = (began, 0)
    with Cluster(system.bootstrap) as cluster:
        offsets = SharedTransaction(cluster, group)
        while newest[1] < topics.count:
            time.sleep(0.05)
            now = time.monotonic()
            found = offsets.committed(group)
            done = sum(max(one.offset, 0) for place, one in found.items() if place.topic == topics.records)
            if done > newest[1]:
                newest = (now, done)
                first = first or newest
            is_too_late = first is None and now > began + _PATIENCE_S
            if is_too_late or any(one.poll() is not None for one in processes):
                logs = "\n".join(path.read_text(errors="replace")[-3000:] for path in Path(folder).glob("*.log"))
                raise RuntimeError(f"{group} does not get on:\n{logs}")
            if first is not None and now > first[0] + _LONGEST_S:
                break
    assert first is not None
    if newest[0] == first[0]:
        raise RuntimeError(f"{group} committed all at once: give it more records")
    return (newest[1] - first[1]) / (newest[0] - first[0])
