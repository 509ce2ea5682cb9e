from __future__ import annotations

from tests.cli.running import Command


def test_settings_of_a_topic(run: Command, topic: str) -> None:
    run("topic", "create", topic)
    told = run.json("config", "set", "topic", topic, "retention.ms=1000", "segment.ms=7000")
    assert told["set"] == {"retention.ms": "1000", "segment.ms": "7000"}
    (row,) = run.json("config", "describe", "topic", topic, "--key", "retention.ms")
    assert (row["value"], row["source"], row["default"]) == ("1000", "DYNAMIC_TOPIC_CONFIG", False)
    changed = [row["key"] for row in run.json("config", "describe", "topic", topic, "--changed")]
    assert {"retention.ms", "segment.ms"} <= set(changed)
    run("config", "set", "topic", topic, "retention.ms=5", "--dry-run")
    run("config", "delete", "topic", topic, "retention.ms", "--yes")
    (row,) = run.json("config", "describe", "topic", topic, "-k", "retention.ms")
    assert row["default"]
    assert "cleanup.policy" in run("config", "describe", "topic", topic).out


def test_settings_of_brokers(run: Command) -> None:
    assert "log.retention.ms" in run("config", "describe", "broker", "1").out
    run("config", "set", "broker", "all", "message.max.bytes=2000000")
    rows = {row["key"]: row["value"] for row in run.json("config", "describe", "broker", "all")}
    assert rows["message.max.bytes"] == "2000000"
    run("config", "delete", "broker", "all", "message.max.bytes", "-y")


def test_mistakes_in_settings_are_one_line(run: Command, topic: str) -> None:
    run("topic", "create", topic)
    assert "key=value" in run.fails("config", "set", "topic", topic, "retention.ms", code=2)
    assert "INVALID_CONFIG" in run.fails("config", "set", "topic", topic, "retention=1", code=1)
    assert "no setting 'x'" in run.fails("config", "describe", "topic", topic, "-k", "x", code=2)
    assert "there is no topic" in run.fails("config", "describe", "topic", "no-such", code=1)
    assert "there is no broker '9'" in run.fails("config", "describe", "broker", "9", code=2)
    assert "'planet'" in run.fails("config", "describe", "planet", "earth", code=2)
    assert "--yes" in run.fails("config", "delete", "topic", topic, "retention.ms", code=2)


def test_the_cluster_is_described(run: Command, numbers: str) -> None:
    told = run.json("cluster", "describe")
    assert [one["id"] for one in told["brokers"]] == [1]
    assert told["controller"] == 1
    assert told["topics"] >= 1
    assert "CLUSTER ID" in run("cluster", "describe").out


def test_what_a_broker_speaks(run: Command) -> None:
    rows = {row["api"]: row for row in run.json("cluster", "api-versions")}
    assert rows["Fetch"]["high"] >= 12
    assert "Produce" in run("cluster", "api-versions", "--broker", "1").out
    assert "there is no broker 7" in run.fails("cluster", "api-versions", "--broker", "7", code=1)


def test_the_disks(run: Command, numbers: str) -> None:
    (folder,) = run.json("cluster", "log-dirs", "--topic", numbers)
    assert [(one["topic"], one["partition"]) for one in folder["replicas"]] == [(numbers, 0), (numbers, 1)]
    assert numbers in run("cluster", "log-dirs").out


def test_measurements(run: Command, topic: str) -> None:
    run("topic", "create", topic)
    told = run.json("perf", "produce", topic, "--records", "500", "--size", "50", "--rate", "5000")
    assert told["records"] == 500
    assert told["p50_ms"] <= told["p95_ms"] <= told["p99_ms"]
    told = run.json("perf", "consume", topic)
    assert told["records"] == 500
    assert "RECORDS PER SECOND" in run("perf", "consume", topic, "--records", "10").out
    told = run.json("perf", "latency", topic, "--records", "5")
    assert told["p50_ms"] > 0
    empty = f"{topic}-empty"
    run("topic", "create", empty)
    assert "is empty" in run.fails("perf", "consume", empty, code=1)
    assert "there is no topic" in run.fails("perf", "produce", "no-such", code=1)
    assert "records" in run.fails("perf", "produce", topic, "--records", "0", code=2)
