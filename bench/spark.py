"""Penstock's Spark connector beside Spark's own, on the same topics of the same Penstock broker.

Each connector has a process of its own with a Spark session that lives as long as the benchmark does: what is measured
is queries, not start-up. The first run of each query only warms up.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer

from bench.scenarios import Numbers, new_topic, send_batch
from penstock.wire._kernel import encode_records
from penstock.wire.record import Record
from tests.support import official_connector, systems
from tests.support.systems import System

PARTITIONS = 4
_BATCH_RECORDS = 1000
_KEYS = 1000
_WARM_RUNS = 8
_MIB = 1024 * 1024
_WORKER = Path(__file__).with_name("spark_worker.py")

_RATE = 1000  # records per second, for latency
_LATENCY_S = 20.0
_SETTLE_S = 5.0


class Worker:
    """A process with a Spark session and one of the connectors."""

    def __init__(self, connector: str, cores: int) -> None:
        self.connector = connector
        self._warm: set[str] = set()
        command, environment = [sys.executable, str(_WORKER), connector, str(cores)], None
        if connector == "kafka":
            command[0] = str(official_connector.python())
            command.append(",".join(map(str, official_connector.jars())))
            environment = official_connector.environment()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._answer()

    def run(self, task: str, **arguments: Any) -> float:
        """Run a query; how long it took."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"task": task, **arguments}) + "\n")
        self._process.stdin.flush()
        seconds: float = self._answer()["seconds"]
        return seconds

    def warm(self, what: str, query: Callable[[], Any]) -> None:
        """Run a query that does not count, some times: a JVM gets faster at first."""
        if what not in self._warm:
            for _ in range(_WARM_RUNS):
                query()
            self._warm.add(what)

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"Spark with {self.connector} ended")
        return json.loads(line)

    def memory(self) -> tuple[int, int]:
        """What the JVM and the Python processes of its tasks have in memory, in bytes."""
        (jvm,) = (pid for pid in _children(self._process.pid) if Path(f"/proc/{pid}/comm").read_text() == "java\n")
        return _memory_bytes(jvm), sum(map(_memory_bytes, _descendants(jvm)))

    def cpu_seconds(self) -> float:
        """What the JVM and the Python processes have used, with those that have ended."""
        return sum(map(_cpu_seconds, _descendants(self._process.pid)))

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(60)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        found += map(int, path.read_text().split())
    return found


def _descendants(pid: int) -> Iterator[int]:
    for child in _children(pid):
        yield child
        yield from _descendants(child)


def _memory_bytes(pid: int) -> int:
    """What a process has in memory. What it shares with others, as those that Spark forks do, counts in parts."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has ended meanwhile
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:  # it has ended meanwhile, and counts with its parent
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


class PeakMemory:
    """The most memory that a worker has while something runs."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._is_done = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.jvm_bytes = self.python_bytes = 0

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._is_done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._is_done.wait(0.05):
            jvm, python = self._worker.memory()
            self.jvm_bytes = max(self.jvm_bytes, jvm)
            self.python_bytes = max(self.python_bytes, python)


class Stage:
    """What all scenarios share: a broker, a topic full of records, and workers. Each is made when it is needed."""

    def __init__(self, folder: Path, records: int) -> None:
        self.records = records
        self._folder = folder
        self._system: System | None = None
        self._topic: str | None = None
        self._workers: dict[tuple[str, int], Worker] = {}

    @property
    def system(self) -> System:
        if self._system is None:
            self._system = systems.penstock(self._folder / "data").start()
        return self._system

    @property
    def topic(self) -> str:
        if self._topic is None:
            self._topic = new_topic(self.system, PARTITIONS)
            _fill(self.system, self._topic, self.records)
        return self._topic

    @property
    def rows(self) -> str:
        """A folder with a quarter of the records as rows, in eight files."""
        path = self._folder / "rows"
        if not path.exists():
            self.worker("penstock").run("make_rows", path=str(path), count=self.records // 4, files=8)
        return str(path)

    def worker(self, connector: str, cores: int = 2) -> Worker:
        if (connector, cores) not in self._workers:
            self._workers[connector, cores] = Worker(connector, cores)
        return self._workers[connector, cores]

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()
        if self._system is not None:
            self._system.kill()


def _fill(system: System, topic: str, records: int) -> None:
    """Records of 100 bytes with a thousand keys. Their timestamps go over a hundred seconds."""
    rng = random.Random(1)
    payloads = [encode_records(list(_some_records(rng)), 0, 0) for _ in range(20)]
    batches = records // _BATCH_RECORDS
    began_ms = int(time.time() * 1000) - 200_000
    with system.connect() as connection:
        for number in range(batches):
            timestamp = began_ms + number * 100_000 // batches
            send_batch(
                connection, topic, number % PARTITIONS, payloads[number % len(payloads)], _BATCH_RECORDS, timestamp
            )


def _some_records(rng: random.Random) -> Iterator[Record]:
    for number in range(_BATCH_RECORDS):
        yield Record(number, 0, b"key-%04d" % rng.randrange(_KEYS), rng.randbytes(46).hex().encode())


# ---- the scenarios: each for one connector at a time ----


def _measured(worker: Worker, name: str, records: int, query: Callable[[], float]) -> Numbers:
    """Run a query that says how long it took, after first times that do not count."""
    worker.warm(name, query)
    query()  # one more each time: after a minute without work Spark has let its Python processes go
    os.sync()  # what the disk has to write, it has written
    cpu = worker.cpu_seconds()
    seconds = query()
    return {
        "records_per_second": records / seconds,
        "cpu_s_per_million": (worker.cpu_seconds() - cpu) / records * 1e6,
    }


def _read(stage: Stage, worker: Worker, task: str) -> Numbers:
    query = partial(worker.run, task, bootstrap=stage.system.bootstrap, topic=stage.topic)
    return _measured(worker, task, stage.records, query)


def batch_read(stage: Stage, connector: str) -> Numbers:
    """All columns of all records, to nowhere; and the memory that takes."""
    worker = stage.worker(connector)
    numbers = _read(stage, worker, "batch_read")
    with PeakMemory(worker) as peak:  # in a run of its own: looking takes time
        _read(stage, worker, "batch_read")
    return {**numbers, "jvm_mib": peak.jvm_bytes / _MIB, "python_mib": peak.python_bytes / _MIB}


def cores(stage: Stage, connector: str) -> Numbers:
    """The same on one core and on two."""
    return {
        f"records_per_second_{count}": _read(stage, stage.worker(connector, count), "batch_read")["records_per_second"]
        for count in (1, 2)
    }


def stream_read(stage: Stage, connector: str) -> Numbers:
    return _read(stage, stage.worker(connector), "stream_read")


def write(stage: Stage, connector: str) -> Numbers:
    """Rows from files into a topic: exactly once against at least once."""
    worker, rows = stage.worker(connector), stage.rows

    def run() -> float:
        to = new_topic(stage.system, PARTITIONS)
        return worker.run("write", bootstrap=stage.system.bootstrap, topic=to, path=rows)

    return _measured(worker, "write", stage.records // 4, run)


def windowed_count(stage: Stage, connector: str) -> Numbers:
    """Topic to topic, in four micro-batches."""
    worker = stage.worker(connector)
    settings = {"bootstrap": stage.system.bootstrap, "topic": stage.topic, "batch_records": stage.records // 4}
    return _measured(
        worker,
        "windowed_count",
        stage.records,
        lambda: worker.run("windowed_count", to=new_topic(stage.system, PARTITIONS), **settings),
    )


def latency(stage: Stage, connector: str) -> Numbers:
    """From when a record is produced to one topic until a reader of committed records has it from another."""
    system, worker = stage.system, stage.worker(connector)
    source, to = new_topic(system, PARTITIONS), new_topic(system, PARTITIONS)
    reader = Consumer({"bootstrap.servers": system.bootstrap, "group.id": to, "isolation.level": "read_committed",
                       "auto.offset.reset": "earliest", "fetch.wait.max.ms": 10})  # fmt: skip
    reader.subscribe([to])
    worker.run("copy", bootstrap=system.bootstrap, topic=source, to=to)
    is_done = threading.Event()
    producing = threading.Thread(target=_produce_steadily, args=(system, source, is_done))
    producing.start()
    try:
        found = _latencies_ms(reader)
    finally:
        is_done.set()
        producing.join()
        reader.close()
        worker.run("stop_copying")
    return {"p50_ms": found[len(found) // 2], "p99_ms": found[int(len(found) * 0.99)]}


def _produce_steadily(system: System, topic: str, is_done: threading.Event) -> None:
    """A record's value is when it was made."""
    producer = Producer({"bootstrap.servers": system.bootstrap, "linger.ms": 0})
    began, sent = time.monotonic(), 0
    while not is_done.wait(0.002):
        while sent < (time.monotonic() - began) * _RATE:
            producer.produce(topic, str(time.time()).encode().ljust(100), partition=sent % PARTITIONS)
            sent += 1
        producer.poll(0)
    producer.flush(30)


def _latencies_ms(reader: Consumer) -> list[float]:
    """Of the records that were made after all had settled, in order of size."""
    found: list[float] = []
    began = time.time()
    while time.time() < began + _SETTLE_S + _LATENCY_S:
        for message in reader.consume(1000, 0.05):
            if message.error():
                raise RuntimeError(f"the output cannot be read: {message.error()}")
            made = float(message.value())
            if made > began + _SETTLE_S:
                found.append((time.time() - made) * 1000)
    if len(found) < _LATENCY_S * _RATE / 2:
        raise RuntimeError(f"the query does not keep up: it copied {len(found)} records in {_LATENCY_S} s")
    return sorted(found)
