"""What is measured, for one system at a time. Each scenario returns named numbers."""

from __future__ import annotations

import itertools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.client.connection import Connection
from penstock.wire._kernel import build_batch
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.java_tools import compiled
from tests.support.maven import ROOT, classpath
from tests.support.systems import System

Numbers = dict[str, float]

_topics = itertools.count()
_MIB = 1024 * 1024
_GIB = 1024 * _MIB


def _java(main: str, *args: str) -> str:
    """Run a Java program in a JVM of its own."""
    command = ["java", "-Xmx1g", "-cp", f"{compiled()}:{classpath()}", main, *args]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def new_topic(system: System, partitions: int = 1) -> str:
    name = f"bench-{next(_topics)}"
    create_topics(system, [name], partitions)
    return name


def send_batch(connection: Any, topic: str, partition: int, payload: Any, count: int, timestamp_ms: int) -> None:
    """Write a batch of records, as `encode_records` made them, all with one timestamp."""
    batch = build_batch(
        payload,
        base_offset=0,
        last_offset_delta=count - 1,
        count=count,
        attributes=0,
        base_timestamp=timestamp_ms,
        max_timestamp=timestamp_ms,
    )
    data = [PartitionProduceData(index=partition, records=memoryview(batch))]
    topics = [TopicProduceData(name=topic, partition_data=data)]
    answer = connection.call(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics), 9)
    if code := answer.responses[0].partition_responses[0].error_code:
        raise RuntimeError(f"a write was refused with error {code}")


def create_topics(system: System, names: list[str], partitions: int) -> None:
    """Create topics and wait until the last of them can be written to."""
    wanted = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
    with system.connect(timeout_s=120.0) as connection:
        for result in connection.call(CreateTopicsRequest(topics=wanted, timeout_ms=100_000)).topics:
            if result.error_code:
                raise RuntimeError(f"cannot create {result.name}: {result.error_message}")
        while _end_offset(connection, names[-1], partitions - 1) < 0:
            time.sleep(0.01)


def _end_offset(connection: Connection, topic: str, index: int) -> int:
    wanted = ListOffsetsPartition(partition_index=index, timestamp=-1)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
    (result,) = connection.call(request).topics[0].partitions
    return -1 if result.error_code else result.offset


# ---- producing ----


def produce_with_java(system: System, topic: str, count: int, size: int) -> Numbers:
    cpu = system.cpu_seconds()
    output = _java(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", str(count),
        "--record-size", str(size), "--throughput", "-1",
        "--producer-props", f"bootstrap.servers={system.bootstrap}", "acks=1",
    )  # fmt: skip
    found = re.search(r"([\d.]+) records/sec", output.splitlines()[-1])
    if found is None:
        raise RuntimeError(f"no result in {output!r}")
    return {
        "records_per_second": float(found[1]),
        "cpu_s_per_million": (system.cpu_seconds() - cpu) / count * 1e6,
    }


def java_producer_100(system: System) -> Numbers:
    return produce_with_java(system, new_topic(system), 3_000_000, 100)


def java_producer_1k(system: System) -> Numbers:
    return produce_with_java(system, new_topic(system), 600_000, 1024)


def run_module(name: str, *arguments: object) -> Numbers:
    """Run a load in a process of its own; it prints its numbers."""
    command = [sys.executable, "-m", name, *map(str, arguments)]
    numbers: Numbers = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout)
    return numbers


def _load(system: System, connections: int, depth: int, seconds: float = 4.0) -> Numbers:
    cpu = system.cpu_seconds()
    result = run_module("bench.load", system.port, new_topic(system), connections, depth, seconds)
    result["cpu_us_per_request"] = (system.cpu_seconds() - cpu) / (result["per_second"] * (seconds + 1)) * 1e6
    return result


def pipelined(system: System) -> Numbers:
    return _load(system, 1, 50)


def hundred_connections(system: System) -> Numbers:
    return _load(system, 100, 1)


def round_trip(system: System) -> Numbers:
    return _load(system, 1, 1)


def transactions(system: System) -> Numbers:
    cpu = system.cpu_seconds()
    result = run_module("bench.transactions", system.port, new_topic(system, 3), 4.0)
    result["cpu_ms_per_transaction"] = (system.cpu_seconds() - cpu) / result.pop("transactions") * 1000
    return result


# ---- consuming ----


@dataclass
class Consumer:
    """Reads the same topic in every round; it is filled in the first one."""

    count: int = 4_000_000
    size: int = 100

    def __post_init__(self) -> None:
        self._filled: dict[str, str] = {}

    def __call__(self, system: System) -> Numbers:
        topic = self._filled.get(system.name)
        if topic is None:
            topic = self._filled[system.name] = new_topic(system)
            produce_with_java(system, topic, self.count, self.size)
        cpu = system.cpu_seconds()
        seconds, size = _java("Drain", system.bootstrap, topic, str(self.count)).split()
        return {
            "records_per_second": self.count / float(seconds),
            "cpu_s_per_gib": (system.cpu_seconds() - cpu) / (int(size) / _GIB),
        }


def end_to_end(system: System) -> Numbers:
    """Produce one record, wait until it is consumed, and again; when the JVM has compiled the clients, it counts."""
    p50, p99, p999, mean = map(float, _java("EndToEnd", system.bootstrap, new_topic(system), "5000", "10000").split())
    return {"p50_us": p50, "p99_us": p99, "p999_us": p999, "mean_us": mean}


def end_to_end_tool(system: System) -> Numbers:
    """The same with Kafka's own tool, which counts from the first record on, in whole milliseconds."""
    output = _java(
        "org.apache.kafka.tools.EndToEndLatency", "--bootstrap-server", system.bootstrap, "--topic", new_topic(system),
        "--num-records", "5000", "--producer-acks", "1", "--record-size", "100",
    )  # fmt: skip
    found = re.search(r"Percentiles: 50th = (\d+), 99th = (\d+), 99.9th = (\d+)", output)
    if found is None:
        raise RuntimeError(f"no result in {output!r}")
    average = re.search(r"Avg latency: ([\d.]+) ms", output)
    return {
        "p50_ms": float(found[1]),
        "p99_ms": float(found[2]),
        "p999_ms": float(found[3]),
        "mean_ms": float(average[1]) if average else 0.0,
    }


# ---- starting and memory: each needs a broker of its own ----


def start(make: Callable[[Path], System]) -> Numbers:
    """From the command to the first answer, and the memory it takes when nothing happens."""
    with tempfile.TemporaryDirectory() as folder:
        system = make(Path(folder) / "data")
        system.start()
        system.stop()
        began = time.perf_counter()
        system.start()
        first_answer_s = time.perf_counter() - began
        time.sleep(1.0)
        idle = system.memory_bytes()
        system.kill()
        return {"first_answer_s": first_answer_s, "idle_mib": idle / _MIB}


def memory(make: Callable[[Path], System]) -> Numbers:
    """After ten million records, and with a thousand idle connections besides."""
    with tempfile.TemporaryDirectory() as folder:
        system = make(Path(folder) / "data").start()
        produce_with_java(system, new_topic(system), 10_000_000, 100)
        loaded = system.memory_bytes()
        connections = [system.connect() for _ in range(1000)]
        for connection in connections:
            connection.call(MetadataRequest(topics=[]))
        crowded = system.memory_bytes()
        for connection in connections:
            connection.close()
        system.kill()
        return {"after_10m_mib": loaded / _MIB, "with_1000_connections_mib": crowded / _MIB}


def many_partitions(make: Callable[[Path], System]) -> Numbers:
    """Two thousand partitions: the time to start with them."""
    with tempfile.TemporaryDirectory() as folder:
        system = make(Path(folder) / "data").start()
        names = [f"many-{number}" for number in range(20)]
        create_topics(system, names, 100)
        system.stop()
        began = time.perf_counter()
        system.start()
        with system.connect(timeout_s=120.0) as connection:
            while any(_end_offset(connection, name, 99) < 0 for name in names):
                time.sleep(0.01)
        seconds = time.perf_counter() - began
        used = system.memory_bytes()
        system.kill()
        return {"start_s": seconds, "memory_mib": used / _MIB}


def log_size(make: Callable[[Path], System], gibibytes: float) -> Numbers:
    """The cost of a produce in a log that has grown, beside a new log of the same broker, in alternating rounds."""
    with tempfile.TemporaryDirectory() as folder:
        system = make(Path(folder) / "data").start()
        grown = new_topic(system)
        produce_with_java(system, grown, int(gibibytes * _GIB / 1024), 1024)
        rounds: list[tuple[Numbers, Numbers]] = []
        for _ in range(3):
            os.sync()  # the disk must not still be busy with the round before
            in_grown = produce_with_java(system, grown, 400_000, 1024)
            os.sync()
            rounds.append((in_grown, produce_with_java(system, new_topic(system), 400_000, 1024)))
        with system.connect() as connection:
            stored = _end_offset(connection, grown, 0)
        system.kill()
        return {
            "log_gib": stored * 1024 / _GIB,
            "throughput_ratio": statistics.median(a["records_per_second"] / b["records_per_second"] for a, b in rounds),
            "cpu_ratio": statistics.median(a["cpu_s_per_million"] / b["cpu_s_per_million"] for a, b in rounds),
        }
