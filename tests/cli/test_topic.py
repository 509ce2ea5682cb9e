from __future__ import annotations

from tests.cli.running import Command


def test_a_topic_lives_and_dies(run: Command, topic: str) -> None:
    created = run("topic", "create", topic, "--partitions", "3", "--config", "retention.ms=60000")
    assert created.out == f"created {topic}\n"
    assert topic in run("topic", "list").out
    listed = {row["topic"]: row for row in run.json("topic", "list")}
    assert listed[topic]["partitions"] == 3
    (described,) = run.json("topic", "describe", topic)
    assert described["config"] == {"retention.ms": "60000"}
    assert [one["partition"] for one in described["partitions"]] == [0, 1, 2]
    shown = run("topic", "describe", topic).out
    assert "retention.ms=60000" in shown
    assert "LEADER" in shown

    run("topic", "alter", topic, "--partitions", "4", "--config", "segment.ms=7000", "--delete-config", "retention.ms")
    (described,) = run.json("topic", "describe", topic)
    assert described["partition_count"] == 4
    assert described["config"] == {"segment.ms": "7000"}

    assert run.json("topic", "delete", topic, "--yes") == {"deleted": [topic]}
    assert topic not in run("topic", "list").out


def test_what_exists_can_be_left_alone(run: Command, topic: str) -> None:
    run("topic", "create", topic)
    assert "TOPIC_ALREADY_EXISTS" in run.fails("topic", "create", topic, code=1)
    assert run.json("topic", "create", topic, "--if-not-exists")["existed"] == [topic]
    assert run("topic", "delete", "no-such", "--if-exists", "--yes").out == "nothing to do\n"


def test_a_dry_run_creates_nothing(run: Command, topic: str) -> None:
    assert run("topic", "create", topic, "--dry-run").out == f"could create {topic}\n"
    assert topic not in run("topic", "list").out


def test_offsets_are_shown(run: Command, numbers: str) -> None:
    rows = run.json("topic", "offsets", numbers)
    assert rows == [{"partition": number, "earliest": 0, "latest": 5, "count": 5} for number in (0, 1)]
    assert [row["at"] for row in run.json("topic", "offsets", numbers, "--at", "-1h")] == [0, 0]
    assert "EARLIEST" in run("topic", "offsets", numbers).out


def test_old_records_are_trimmed(run: Command, filled: str) -> None:
    (row,) = run.json("topic", "trim", filled, "--before", "2", "--partition", "0", "--yes")
    assert row == {"topic": filled, "partition": 0, "earliest": 2, "deleted": 2}
    assert [row["deleted"] for row in run.json("topic", "trim", filled, "--before", "-1h", "--yes")] == [0, 0]
    assert [row["earliest"] for row in run.json("topic", "trim", filled, "--before", "end", "--yes")] == [5, 5]


def test_mistakes_are_one_line(run: Command, topic: str) -> None:
    assert "there is no topic 'no-such'" in run.fails("topic", "describe", "no-such", code=1)
    assert "there is no topic 'no-such'" in run.fails("topic", "delete", "no-such", "--yes", code=1)
    assert "there is no topic 'no-such'" in run.fails("topic", "offsets", "no-such", code=1)
    assert "--yes" in run.fails("topic", "delete", "no-such", "--if-exists", "--yess", code=2)
    run("topic", "create", topic)
    assert "Say so with --yes" in run.fails("topic", "delete", topic, code=2)
    assert "nothing to change" in run.fails("topic", "alter", topic, code=2)
    assert "key=value" in run.fails("topic", "alter", topic, "--config", "retention.ms", code=2)
    assert "INVALID_CONFIG" in run.fails("topic", "alter", topic, "--config", "retention.ms=long", code=1)
    assert "partitions" in run.fails("topic", "create", "new", "--partitions", "many", code=2)
    assert "partitions" in run.fails("topic", "create", "new", "--partitions", "0", code=2)
    assert "no partition 9" in run.fails("topic", "trim", topic, "--before", "1", "--partition", "9", "--yes", code=2)
    assert "is no time" in run.fails("topic", "offsets", topic, "--at", "yesterday", code=2)
