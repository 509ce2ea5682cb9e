"""The same log, compacted by real Kafka and by us: what is left must be the same."""

from __future__ import annotations

import random
import re
import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from penstock.wire.batch import DELETE_HORIZON, batches_in, decode_records
from tests.support import systems
from tests.support.java_tools import JavaTools
from tests.support.systems import System

pytestmark = pytest.mark.java

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
SEGMENT_BYTES = 1 << 20  # the smallest that Kafka takes
NEVER_MS = "3600000"


def _write(system: System, topic: str) -> None:
    """Some 5 MB: all codecs, headers, deletions, idempotent producers, transactions that end well and that do not."""
    admin = AdminClient({"bootstrap.servers": system.bootstrap})
    config = {"segment.bytes": str(SEGMENT_BYTES), "delete.retention.ms": "1", "min.cleanable.dirty.ratio": "0.01"}
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result()
    overtaken = Producer({"bootstrap.servers": system.bootstrap, "enable.idempotence": True})
    for number in range(3):
        overtaken.produce(topic, b"soon overtaken", f"key {number}", 0)
    overtaken.flush()
    rng = random.Random(5)
    for number in range(15):
        codec = CODECS[number % len(CODECS)]
        is_transactional = number % 3 == 1
        settings = {"bootstrap.servers": system.bootstrap, "compression.type": codec, "linger.ms": 5}
        settings |= {"transactional.id": f"t{number}"} if is_transactional else {"enable.idempotence": number % 3 == 2}
        producer = Producer(settings)
        if is_transactional:
            producer.init_transactions(30)
        for round_number in range(3):
            if is_transactional:
                producer.begin_transaction()
            _send(producer, topic, rng, f"{number}.{round_number}")
            producer.flush()
            if is_transactional:
                if round_number == number % 2:
                    producer.abort_transaction(30)
                else:
                    producer.commit_transaction(30)


def _send(producer: Producer, topic: str, rng: random.Random, label: str) -> None:
    for number in range(120):
        key = f"key {rng.randrange(60 if number % 2 else 1500)}"
        value = None if rng.random() < 0.1 else f"{label} {rng.randbytes(rng.randrange(1200)).hex()}".encode()
        headers = [("h", b"v"), ("null", None)] if number % 5 == 0 else None
        producer.produce(topic, value, key, 0, headers=headers)
        if number % 25 == 24:
            producer.flush()


def _set_policy(system: System, topic: str, policy: str) -> None:
    admin = AdminClient({"bootstrap.servers": system.bootstrap})
    entry = ConfigEntry("cleanup.policy", policy, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result()


def _wait_until_compacted(data: Path, topic: str) -> int:
    """Wait until everything but the last segment is noted as clean; returns where that segment begins."""
    deadline = time.monotonic() + 60
    while True:
        active = max(int(path.stem) for path in (data / f"{topic}-0").glob("*.log"))
        checkpoint = data / "cleaner-offset-checkpoint"
        text = checkpoint.read_text() if checkpoint.exists() else ""
        found = re.search(rf"^{topic} 0 (\d+)$", text, re.MULTILINE)
        if found and int(found[1]) == active:
            return active
        assert time.monotonic() < deadline, f"not compacted up to {active}: {text!r}"
        time.sleep(0.05)


class Found(NamedTuple):
    """What must be the same of a batch, whoever compacted it."""

    offsets: tuple[int, int]
    codec: int
    attributes: int
    producer: tuple[int, int, int]
    leader_epoch: int
    max_timestamp: int
    records: tuple[Any, ...]


def _batches(data: Path, topic: str, end_offset: int) -> list[Found]:
    found = []
    for path in sorted((data / f"{topic}-0").glob("*.log")):
        content = path.read_bytes()
        for batch in batches_in(content):
            if batch.base_offset < end_offset:
                found.append(
                    Found(
                        (batch.base_offset, batch.last_offset),
                        batch.codec,
                        batch.attributes,
                        (batch.producer_id, batch.producer_epoch, batch.base_sequence),
                        batch.leader_epoch,
                        batch.max_timestamp,
                        tuple(decode_records(content, batch)),
                    )
                )
    return found


def _segments(data: Path, topic: str) -> list[int]:
    return sorted(int(path.stem) for path in (data / f"{topic}-0").glob("*.log"))


def _consumed(system: System, java: JavaTools, topic: str, count: int) -> list[Any]:
    config = {"bootstrap.servers": system.bootstrap, "isolation.level": "read_committed"}
    records = java.consume(config, topic=topic, partition=0, offset=0, count=count)
    return [{name: value for name, value in record.items() if name != "leaderEpoch"} for record in records]


def _compacted(name: str, source: Path, to: Path) -> System:
    """A copy of a data directory, compacted by a system that is stopped afterwards."""
    shutil.copytree(source, to)
    start = systems.penstock if name == "penstock" else systems.kafka
    system = start(to, log_cleaner_backoff_ms="50").start()
    try:
        _wait_until_compacted(to, "t")
    finally:
        system.stop()
    return system


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory that Kafka wrote, with a topic that is to be compacted and is not yet."""
    data = tmp_path_factory.mktemp("written") / "data"
    kafka = systems.kafka(data, log_cleaner_backoff_ms=NEVER_MS).start()
    try:
        _write(kafka, "t")
        _set_policy(kafka, "t", "compact")
    finally:
        kafka.stop()
    (data / ".lock").unlink(missing_ok=True)
    return data


@pytest.fixture(scope="module")
def ours(written: Path, tmp_path_factory: pytest.TempPathFactory) -> System:
    return _compacted("penstock", written, tmp_path_factory.mktemp("ours") / "data")


@pytest.fixture(scope="module")
def theirs(written: Path, tmp_path_factory: pytest.TempPathFactory) -> System:
    return _compacted("kafka", written, tmp_path_factory.mktemp("theirs") / "data")


def test_both_systems_leave_the_same_batches(written: Path, ours: System, theirs: System) -> None:
    assert len(_segments(written, "t")) > 3
    active = _segments(written, "t")[-1]
    before, mine, kafkas = (_batches(data, "t", active) for data in (written, ours.data, theirs.data))
    assert mine == kafkas
    assert sum(len(batch.records) for batch in mine) < sum(len(batch.records) for batch in before) / 2
    assert any(batch.attributes & DELETE_HORIZON for batch in mine)
    assert {batch.codec for batch in mine} == {0, 1, 2, 3, 4}
    assert any(not batch.records for batch in mine)
    assert _segments(ours.data, "t") == _segments(theirs.data, "t")
    txn_indexes = [sorted((data / "t-0").glob("*.txnindex")) for data in (ours.data, theirs.data)]
    mine_entries, kafkas_entries = (
        {path.name: path.read_bytes() for path in paths if path.stat().st_size} for paths in txn_indexes
    )
    assert mine_entries == kafkas_entries


def test_kafkas_tools_find_nothing_wrong_with_our_segments(ours: System, java: JavaTools) -> None:
    folder = ours.data / "t-0"
    logs = sorted(folder.glob("*.log"))
    dumped = java.tool("DumpLogSegments", "--deep-iteration", "--files", ",".join(map(str, logs))).out
    assert dumped.count("isvalid: true") > 10
    assert "isvalid: false" not in dumped
    assert "deleteHorizonMs: OptionalLong[" in dumped
    for kind in ("*.index", "*.timeindex"):
        files = sorted(folder.glob(kind))
        assert len(files) == len(logs)
        names = ",".join(map(str, files))
        checked = java.tool("DumpLogSegments", "--index-sanity-check", "--files", names).out
        assert checked.count("passed sanity check") == len(files)
        assert "Mismatches" not in java.tool("DumpLogSegments", "--verify-index-only", "--files", names).out


def test_each_system_goes_on_with_what_the_other_compacted(
    ours: System, theirs: System, java: JavaTools, tmp_path: Path
) -> None:
    """Deletions are due by now: the second compaction, each by the other system, removes them."""
    shutil.copytree(ours.data, tmp_path / "kafka")
    shutil.copytree(theirs.data, tmp_path / "penstock")
    met_before = _segments(ours.data, "t")[-1]
    read = {}
    for system in (
        systems.kafka(tmp_path / "kafka", log_cleaner_backoff_ms="50"),
        systems.penstock(tmp_path / "penstock", log_cleaner_backoff_ms="50"),
    ):
        system.start()
        try:
            producer = Producer({"bootstrap.servers": system.bootstrap})
            for number in range(1300):  # more than a segment, so that there is something to compact
                producer.produce("t", b"x" * 1000, b"filler %d" % number, 0)
                if number % 100 == 99:
                    producer.flush()
            active = _wait_until_compacted(system.data, "t")
            read[system.name] = [
                record
                for batch in _batches(system.data, "t", active)
                if not batch.attributes & 32
                for record in batch.records
                if not (record.key or b"").startswith(b"filler")
            ]
            offsets = [record["offset"] for record in _consumed(system, java, "t", 200)]
            assert offsets[:200] == [record.offset for record in read[system.name]][:200]
        finally:
            system.stop()
    assert read["penstock"] == read["kafka"]
    assert not [record for record in read["penstock"] if record.value is None and record.offset < met_before]
