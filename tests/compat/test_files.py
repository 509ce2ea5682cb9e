"""Kafka's own tools and broker read our files, and we read theirs."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support import systems
from tests.support.java_tools import JavaTools
from tests.support.systems import System

pytestmark = pytest.mark.java

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def _dump(java: JavaTools, *args: str) -> str:
    return java.tool("DumpLogSegments", *args).out


def _fill(system: System, java: JavaTools, topic: str, count: int = 3000, **settings: Any) -> None:
    """Several small segments of one partition, with every codec, headers, nulls and an idempotent producer."""
    java.tool(
        "TopicCommand", "--bootstrap-server", system.bootstrap, "--create", "--topic", topic,
        "--config", "segment.bytes=1048576", "--config", "index.interval.bytes=1000",
    )  # fmt: skip
    noise = random.Random(1).randbytes(8000).hex()
    for number, codec in enumerate(CODECS):
        config = {"bootstrap.servers": system.bootstrap, "compression.type": codec, "linger.ms": 5, **settings}
        records = [
            {
                "topic": topic,
                "partition": 0,
                "key": f"k{n}" if n % 7 else None,
                "value": f"{codec} {number} {n} " + noise[n : n + 37 * n % 8000] if n % 11 else None,
                "headers": [["h", "v"], ["null", None]] if n % 3 == 0 else [],
            }
            for n in range(count // len(CODECS))
        ]
        reports = java.produce(config, records)
        assert not [report for report in reports if "error" in report]


def _read_all(system: System, java: JavaTools, topic: str, count: int) -> list[Any]:
    config = {"bootstrap.servers": system.bootstrap}
    return java.consume(config, topic=topic, partition=0, offset=0, count=count)


def _content(records: list[Any]) -> list[Any]:
    """Records without the leader epoch, which may grow when a broker starts again."""
    return [{name: value for name, value in record.items() if name != "leaderEpoch"} for record in records]


@pytest.fixture
def written(tmp_path: Path, java: JavaTools) -> System:
    """A Penstock broker that was filled and stopped."""
    system = systems.penstock(tmp_path / "data").start()
    _fill(system, java, "t")
    assert system.stop() == 0
    return system


def test_dump_log_finds_nothing_wrong(written: System, java: JavaTools) -> None:
    folder = written.data / "t-0"
    logs = sorted(folder.glob("*.log"))
    assert len(logs) > 2
    dumped = _dump(java, "--deep-iteration", "--print-data-log", "--files", ",".join(map(str, logs)))
    assert "isvalid: false" not in dumped
    offsets = [int(found) for found in re.findall(r"^\| offset: (\d+) ", dumped, re.MULTILINE)]
    assert offsets == list(range(3000))
    assert set(re.findall(r"compresscodec: (\w+)", dumped)) == set(CODECS)
    for kind in ("*.index", "*.timeindex"):
        files = sorted(folder.glob(kind))
        assert len(files) == len(logs)
        checked = _dump(java, "--index-sanity-check", "--files", ",".join(map(str, files)))
        assert checked.count("passed sanity check") == len(files)
        assert "Mismatches" not in _dump(java, "--verify-index-only", "--files", ",".join(map(str, files)))
    snapshots = sorted(folder.glob("*.snapshot"))
    assert snapshots
    assert re.search(r"producerId: \d+ producerEpoch: 0", _dump(java, "--files", str(snapshots[-1])))


def test_indexes_have_entries_as_often_as_kafkas(tmp_path: Path, java: JavaTools) -> None:
    """The same batches give the same index entries in both systems."""
    from penstock.wire.batch import encode_batch
    from penstock.wire.record import Record
    from tests.compat.test_protocol import Client

    entries: dict[str, list[tuple[str, ...]]] = {}
    for system in (systems.penstock(tmp_path / "penstock").start(), systems.kafka(tmp_path / "kafka").start()):
        client = Client(system)
        client.create("t", index_interval_bytes="500")
        for n in range(200):
            records = [Record(i, 1_700_000_000_000 + (n * 7919) % 1000 + i, b"k", b"v" * (n % 97)) for i in range(3)]
            assert client.produce("t", encode_batch(records)).error_code == 0
        system.stop()
        entries[system.name] = []
        for kind in (".index", ".timeindex"):
            dumped = _dump(java, "--files", str(system.data / "t-0" / f"{0:020d}{kind}"))
            entries[system.name] += re.findall(r"offset: (\d+) (?:position: (\d+))?", dumped)
            entries[system.name] += re.findall(r"timestamp: (\d+) offset: (\d+)", dumped)
    assert len(entries["kafka"]) > 50
    assert entries["penstock"] == entries["kafka"]


def test_the_metadata_log_is_one_that_kafka_reads(written: System, java: JavaTools) -> None:
    (log,) = (written.data / "__cluster_metadata-0").glob("*.log")
    dumped = _dump(java, "--cluster-metadata-decoder", "--files", str(log))
    assert "isvalid: false" not in dumped
    for kind in ("FEATURE_LEVEL_RECORD", "REGISTER_BROKER_RECORD", "TOPIC_RECORD", "PARTITION_RECORD", "CONFIG_RECORD"):
        assert f'"type":"{kind}"' in dumped
    assert "LeaderChange" in dumped
    assert "Could not decode" not in dumped


def test_kafka_takes_over_a_directory_of_ours(written: System, java: JavaTools, tmp_path: Path) -> None:
    ours = written.start()
    expected = _content(_read_all(ours, java, "t", 3000))
    assert len(expected) == 3000
    assert ours.stop() == 0
    kafka = systems.kafka(written.data)
    try:
        kafka.start()
        assert _content(_read_all(kafka, java, "t", 3000)) == expected
        more = java.produce(
            {"bootstrap.servers": kafka.bootstrap}, [{"topic": "t", "partition": 0, "value": "from kafka"}]
        )
        assert more[0]["offset"] == 3000
    finally:
        kafka.stop()


def test_we_take_over_a_directory_of_kafkas(java: JavaTools, tmp_path: Path) -> None:
    kafka = systems.kafka(tmp_path / "data").start()
    _fill(kafka, java, "t")
    expected = _content(_read_all(kafka, java, "t", 3000))
    assert len(expected) == 3000
    kafka.stop()
    ours = systems.penstock(tmp_path / "data")
    try:
        ours.start()
        assert _content(_read_all(ours, java, "t", 3000)) == expected
        described = java.tool("TopicCommand", "--bootstrap-server", ours.bootstrap, "--describe", "--topic", "t").out
        assert "segment.bytes=1048576" in described
        more = java.produce({"bootstrap.servers": ours.bootstrap}, [{"topic": "t", "partition": 0, "value": "from us"}])
        assert more[0]["offset"] == 3000
    finally:
        ours.stop()
    kafka.start()
    assert _read_all(kafka, java, "t", 3001)[-1]["value"] == "from us"
    kafka.stop()
