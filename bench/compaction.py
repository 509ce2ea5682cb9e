"""Compaction: ten million records of a million keys, written first, compacted then."""

from __future__ import annotations

import random
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from bench.scenarios import Numbers, new_topic, run_module
from penstock.client.connection import Connection
from penstock.wire.batch import encode_batch
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.record import Record
from tests.support.systems import System

_TOPIC = "compacted"
_RECORDS = 10_000_000
_KEYS = 1_000_000
_RECORDS_PER_BATCH = 150
_PATIENCE_S = 600
_MIB = 1024 * 1024


def compaction(make: Callable[..., System], records: int = _RECORDS, keys: int = _KEYS) -> Numbers:
    """From when the topic is to be compacted until all but its last segment is, while somebody produces elsewhere."""
    with tempfile.TemporaryDirectory() as folder:
        system = make(Path(folder) / "data", log_cleaner_backoff_ms="50").start()
        try:
            admin = AdminClient({"bootstrap.servers": system.bootstrap})
            config = {"segment.bytes": str(128 * _MIB), "min.cleanable.dirty.ratio": "0.01"}
            admin.create_topics([NewTopic(_TOPIC, 1, 1, config=config)])[_TOPIC].result()
            _write(system, records, keys)
            idle_p99_us = _produce_p99_us(system)
            cpu_before, began = system.cpu_seconds(), time.perf_counter()
            with ThreadPoolExecutor(1) as pool:
                busy = pool.submit(_produce_p99_us, system)
                _compact(admin)
                memory_max = _wait(system)
                elapsed_s = time.perf_counter() - began
                cpu_s = system.cpu_seconds() - cpu_before
                busy_p99_us = busy.result()
        finally:
            system.kill()
    return {
        "records_per_second": records / elapsed_s,
        "cpu_s_per_million": cpu_s / records * 1e6,
        "memory_mib": memory_max / _MIB,
        "p99_growth": busy_p99_us / idle_p99_us,
    }


def _produce_p99_us(system: System) -> float:
    """How long single produces to another topic take."""
    return run_module("bench.load", system.port, new_topic(system), 1, 1, 1.5)["p99_us"]


def _write(system: System, records: int, keys: int) -> None:
    with system.connect() as connection:
        for number, batch in enumerate(_batches(records, keys)):
            code = _produce(connection, batch)
            deadline = time.monotonic() + 10
            while code and number == 0 and time.monotonic() < deadline:  # Kafka's topics take a moment to be there
                time.sleep(0.01)
                code = _produce(connection, batch)
            if code:
                raise RuntimeError(f"a write was refused with error {code}")


def _produce(connection: Connection, batch: bytearray) -> int:
    data = [PartitionProduceData(index=0, records=memoryview(batch))]
    topics = [TopicProduceData(name=_TOPIC, partition_data=data)]
    answer: Any = connection.call(ProduceRequest(acks=1, timeout_ms=30_000, topic_data=topics), 9)
    return int(answer.responses[0].partition_responses[0].error_code)


def _batches(records: int, keys: int) -> Iterator[bytearray]:
    """Batches of records of 100 bytes with random keys; the same ones every time."""
    rng = random.Random(1)
    now = int(time.time() * 1000)
    value = b"x" * 80
    for _ in range(records // _RECORDS_PER_BATCH):
        yield encode_batch(
            [Record(n, now, b"key-%08d" % rng.randrange(keys), value) for n in range(_RECORDS_PER_BATCH)]
        )


def _compact(admin: AdminClient) -> None:
    entry = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, _TOPIC, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result()


def _wait(system: System) -> int:
    """Wait until the system has noted that it is done; returns the most memory it had meanwhile."""
    deadline = time.monotonic() + _PATIENCE_S
    active = max(int(path.stem) for path in (system.data / f"{_TOPIC}-0").glob("*.log"))
    checkpoint = system.data / "cleaner-offset-checkpoint"
    memory_max = 0
    while time.monotonic() < deadline:
        memory_max = max(memory_max, system.memory_bytes())
        text = checkpoint.read_text() if checkpoint.exists() else ""
        found = re.search(rf"^{_TOPIC} 0 (\d+)$", text, re.MULTILINE)
        if found and int(found[1]) >= active:
            return memory_max
        time.sleep(0.02)
    raise RuntimeError(f"{system.name} did not compact its topic within {_PATIENCE_S} s")
