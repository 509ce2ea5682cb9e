"""The official Java producer, consumer and command-line tools against both systems."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.java_tools import JavaTools
from tests.support.systems import NODE_ID, System

pytestmark = pytest.mark.java

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


@pytest.fixture
def tool(system: System, java: JavaTools) -> Callable[..., str]:
    """Run a tool against the system; returns its output."""

    def run(name: str, *args: str, stdin: str = "") -> str:
        return java.tool(name, "--bootstrap-server", system.bootstrap, *args, stdin=stdin).out

    return run


@pytest.fixture
def config(system: System) -> dict[str, Any]:
    return {"bootstrap.servers": system.bootstrap}


# ---- producer and consumer ----


@pytest.mark.parametrize("codec", CODECS)
def test_what_was_produced_is_consumed_unchanged(
    topic: str, java: JavaTools, tool: Any, config: dict[str, Any], codec: str
) -> None:
    tool("TopicCommand", "--create", "--topic", topic)
    now = int(time.time() * 1000)
    records = [
        {
            "topic": topic,
            "partition": 0,
            "timestamp": now + n,
            "key": f"key{n}" if n % 3 else None,
            "value": "v" * n if n % 5 else None,
            "headers": [["a", "b"], ["none", None]] if n % 2 else [],
        }
        for n in range(300)
    ]
    sent = java.produce({**config, "compression.type": codec, "linger.ms": 20}, records)
    assert [report["offset"] for report in sent] == list(range(300))
    received = java.consume(config, topic=topic, partition=0, offset=0, count=300)
    for n, (record, seen) in enumerate(zip(records, received, strict=True)):
        assert seen["offset"] == n
        assert seen["timestampType"] == "CreateTime"
        assert {name: seen[name] for name in ("timestamp", "key", "value", "headers")} == {
            name: record[name] for name in ("timestamp", "key", "value", "headers")
        }


@pytest.mark.parametrize(
    "settings",
    [
        {"acks": "0", "enable.idempotence": "false"},
        {"acks": "1", "enable.idempotence": "false"},
        {"acks": "all"},
        {"acks": "all", "max.in.flight.requests.per.connection": "5", "batch.size": "100"},
    ],
)
def test_all_acknowledgements(
    topic: str, java: JavaTools, tool: Any, config: dict[str, Any], settings: dict[str, str]
) -> None:
    tool("TopicCommand", "--create", "--topic", topic)
    sent = java.produce({**config, **settings}, [{"topic": topic, "value": str(n)} for n in range(500)])
    assert not [report for report in sent if "error" in report]
    received = java.consume(config, topic=topic, partition=0, offset=0, count=500)
    assert [seen["value"] for seen in received] == [str(n) for n in range(500)]


def test_errors_reach_the_producer_by_their_names(
    topic: str, java: JavaTools, tool: Any, config: dict[str, Any]
) -> None:
    tool("TopicCommand", "--create", "--topic", topic, "--config", "cleanup.policy=compact")
    future = int(time.time() * 1000) + 7_200_000
    plain = [{"topic": topic, "value": "no key"}]
    dated = [{"topic": topic, "key": "k", "value": "v", "timestamp": future}]
    large = [{"topic": topic, "key": "k", "value": "v" * 1_100_000}]
    assert java.produce(config, plain)[0]["error"] == "InvalidRecordException"
    assert java.produce(config, dated)[0]["error"] == "InvalidTimestampException"
    sent = java.produce({**config, "max.request.size": 5_000_000}, large)
    assert sent[0]["error"] == "RecordTooLargeException"


def test_read_committed_sees_what_is_not_transactional(
    topic: str, java: JavaTools, tool: Any, config: dict[str, Any]
) -> None:
    tool("TopicCommand", "--create", "--topic", topic)
    java.produce(config, [{"topic": topic, "value": str(n)} for n in range(10)])
    task = {"topic": topic, "partition": 0, "offset": 0, "count": 10}
    received = java.consume({**config, "isolation.level": "read_committed"}, **task)
    assert [seen["value"] for seen in received] == [str(n) for n in range(10)]


# ---- tools ----


def test_kafka_topics(topic: str, tool: Any, system: System, java: JavaTools) -> None:
    tool("TopicCommand", "--create", "--topic", topic, "--partitions", "3", "--config", "retention.ms=1000")
    assert topic in tool("TopicCommand", "--list").split()
    described = tool("TopicCommand", "--describe", "--topic", topic)
    assert re.search(r"PartitionCount: 3\s+ReplicationFactor: 1\s+Configs: .*retention.ms=1000", described)
    for index in range(3):
        assert re.search(rf"Partition: {index}\s+Leader: {NODE_ID}\s+Replicas: {NODE_ID}\s+Isr: {NODE_ID}", described)
    tool("TopicCommand", "--alter", "--topic", topic, "--partitions", "6")
    assert "PartitionCount: 6" in tool("TopicCommand", "--describe", "--topic", topic)
    for option in ("--unavailable-partitions", "--under-replicated-partitions", "--under-min-isr-partitions"):
        assert topic not in tool("TopicCommand", "--describe", option)
    again = java.run(
        "org.apache.kafka.tools.TopicCommand", "--bootstrap-server", system.bootstrap, "--create", "--topic", topic
    )
    assert again.code == 1
    assert f"Topic '{topic}' already exists." in again.out
    tool("TopicCommand", "--delete", "--topic", topic)
    assert topic not in tool("TopicCommand", "--list").split()


def test_kafka_configs_on_topics(topic: str, tool: Any) -> None:
    tool("TopicCommand", "--create", "--topic", topic)
    target = ("--entity-type", "topics", "--entity-name", topic)
    tool("ConfigCommand", "--alter", *target, "--add-config", "retention.ms=5000,cleanup.policy=[compact,delete]")
    _wait_until(lambda: "retention.ms=5000" in tool("ConfigCommand", "--describe", *target))
    described = tool("ConfigCommand", "--describe", *target)
    assert re.search(r"retention.ms=5000 sensitive=false synonyms=\{DYNAMIC_TOPIC_CONFIG:retention.ms=5000", described)
    assert "cleanup.policy=compact,delete" in described
    tool("ConfigCommand", "--alter", *target, "--delete-config", "retention.ms")
    _wait_until(lambda: "retention.ms" not in tool("ConfigCommand", "--describe", *target))
    everything = tool("ConfigCommand", "--describe", "--all", *target)
    assert "retention.ms=604800000" in everything
    assert re.search(
        r"segment.bytes=1073741824 sensitive=false synonyms=\{DEFAULT_CONFIG:log.segment.bytes=1073741824\}", everything
    )


def test_kafka_configs_on_brokers(tool: Any) -> None:
    one = ("--entity-type", "brokers", "--entity-name", str(NODE_ID))
    default = ("--entity-type", "brokers", "--entity-default")
    tool("ConfigCommand", "--alter", *one, "--add-config", "log.retention.ms=98765")
    _wait_until(lambda: "log.retention.ms=98765" in tool("ConfigCommand", "--describe", *one))
    assert "DYNAMIC_BROKER_CONFIG:log.retention.ms=98765" in tool("ConfigCommand", "--describe", *one)
    tool("ConfigCommand", "--alter", *default, "--add-config", "log.retention.ms=55555")
    _wait_until(lambda: "log.retention.ms=55555" in tool("ConfigCommand", "--describe", *default))
    assert "log.retention.ms=98765" in tool("ConfigCommand", "--describe", *one)
    tool("ConfigCommand", "--alter", *one, "--delete-config", "log.retention.ms")
    tool("ConfigCommand", "--alter", *default, "--delete-config", "log.retention.ms")
    _wait_until(lambda: "log.retention.ms" not in tool("ConfigCommand", "--describe", *default))
    assert "num.partitions=1" in tool("ConfigCommand", "--describe", "--all", *one)


def test_console_producer_and_consumer(topic: str, tool: Any) -> None:
    tool("TopicCommand", "--create", "--topic", topic)
    lines = "".join(f"key{n}:value{n}\n" for n in range(20))
    properties = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    tool("ConsoleProducer", "--sync", "--topic", topic, *properties, stdin=lines)
    read = tool(
        "consumer.ConsoleConsumer", "--topic", topic, "--partition", "0", "--offset", "earliest",
        "--max-messages", "20", "--timeout-ms", "15000",
        "--formatter-property", "print.key=true", "--formatter-property", "print.offset=true",
    )  # fmt: skip
    assert read.splitlines() == [f"Offset:{n}\tkey{n}\tvalue{n}" for n in range(20)]


def test_get_offsets_and_delete_records(topic: str, tool: Any, tmp_path: Any) -> None:
    tool("TopicCommand", "--create", "--topic", topic)
    tool("ConsoleProducer", "--sync", "--topic", topic, stdin="a\nb\nc\nd\n")
    assert tool("GetOffsetShell", "--topic", topic).split() == [f"{topic}:0:4"]
    wish = {"partitions": [{"topic": topic, "partition": 0, "offset": 3}], "version": 1}
    (tmp_path / "delete.json").write_text(json.dumps(wish))
    deleted = tool("DeleteRecordsCommand", "--offset-json-file", str(tmp_path / "delete.json"))
    assert re.search(rf"partition: {topic}-0\s+low_watermark: 3", deleted)
    assert tool("GetOffsetShell", "--topic", topic, "--time", "earliest").split() == [f"{topic}:0:3"]
    assert tool("GetOffsetShell", "--topic", topic, "--time", "latest").split() == [f"{topic}:0:4"]


def test_log_dirs(topic: str, tool: Any, system: System) -> None:
    tool("TopicCommand", "--create", "--topic", topic, "--partitions", "2")
    tool("ConsoleProducer", "--sync", "--topic", topic, stdin="a\nb\n")
    described = json.loads(tool("LogDirsCommand", "--describe", "--topic-list", topic).splitlines()[-1])
    (directory,) = described["brokers"][0]["logDirs"]
    assert directory["logDir"] == str(system.data)
    assert directory["error"] is None
    sizes = {entry["partition"]: entry["size"] for entry in directory["partitions"]}
    assert set(sizes) == {f"{topic}-0", f"{topic}-1"}
    assert sum(sizes.values()) > 0


def test_broker_api_versions(tool: Any) -> None:
    listed = tool("BrokerApiVersionsCommand")
    for api, low, high in (("Produce", 0, 13), ("Fetch", 4, 18), ("ListOffsets", 1, 11), ("ApiVersions", 0, 4)):
        assert re.search(rf"{api}\(\d+\): {low} to {high} \[usable: {high}\]", listed)


def test_features_and_cluster_id(tool: Any) -> None:
    assert re.search(
        r"Feature: metadata.version\s+.*FinalizedVersionLevel: 4.3-IV0", tool("FeatureCommand", "describe")
    )


def _wait_until(condition: Callable[[], bool]) -> None:
    """Kafka applies settings a moment after it acknowledged them."""
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
