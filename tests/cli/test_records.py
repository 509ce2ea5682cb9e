"""Records go in and come out: `produce` and `consume`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock import Producer
from penstock.testing import RunningBroker
from tests.cli.running import Command


def test_lines_go_in_and_come_out(run: Command, topic: str) -> None:
    run("topic", "create", topic)
    sent = run("produce", topic, stdin="one\ntwo\n\nthree")
    assert (sent.out, sent.err) == ("", f"sent 4 records to {topic}\n")
    assert run("consume", topic).out == "one\ntwo\n\nthree\n"


def test_keys_headers_partitions_and_compression(run: Command, topic: str) -> None:
    run("topic", "create", topic, "--partitions", "2")
    options = ("-K", ":", "-H", "a=1", "-H", "a=2", "--partition", "1", "--compression", "zstd", "--acks", "1")
    told = run.json("produce", topic, *options, stdin="k:v:w\n")
    assert told == {"topic": topic, "records": 1, "partitions": {"1": 1}}
    (line,) = run("consume", topic, "--json").lines
    record = json.loads(line)
    assert list(record) == ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    assert (record["partition"], record["key"], record["value"]) == (1, "k", "v:w")
    assert record["headers"] == [["a", "1"], ["a", "2"]]


def test_a_file_and_null_values(run: Command, topic: str, tmp_path: Path) -> None:
    run("topic", "create", topic)
    (tmp_path / "lines").write_text("k:\n:v\n")
    run("produce", topic, "-f", str(tmp_path / "lines"), "-K", ":", "--empty-is-null")
    records = [json.loads(line) for line in run("consume", topic, "--json").lines]
    assert [(one["key"], one["value"]) for one in records] == [("k", None), (None, "v")]
    assert "No such file" in run.fails("produce", topic, "-f", str(tmp_path / "none"), code=1)


def test_a_topic_is_replayed_into_another(run: Command, filled: str, broker: RunningBroker) -> None:
    with Producer(broker.bootstrap) as producer:
        producer.send_and_wait(filled, b"\xff\x00", key=b"\xfe", partition=0, timeout=10)
    copy = f"{filled}-copy"
    run("topic", "create", copy, "--partitions", "2")
    before = run("consume", filled, "--json").out
    run("produce", copy, "--jsonl", "--keep-partitions", stdin=before)

    def essence(lines: str) -> list[dict[str, object]]:
        records = [{**json.loads(line), "topic": None} for line in lines.splitlines()]
        return sorted(records, key=lambda one: (one["partition"], one["offset"]))

    assert essence(run("consume", copy, "--json").out) == essence(before)


def test_json_lines_may_be_short(run: Command, topic: str) -> None:
    run("topic", "create", topic)
    run("produce", topic, "--jsonl", stdin='{"value": {"n": 1}, "headers": {"a": "b"}, "timestamp": 1000}\n\n')
    assert run("consume", topic, "-f", r"%s|%h|%T\n").out == '{"n": 1}|a=b|1000\n'
    assert "line 1 is no JSON" in run.fails("produce", topic, "--jsonl", stdin="{", code=2)
    assert "line 1 is no JSON object" in run.fails("produce", topic, "--jsonl", stdin="3", code=2)


def test_formats_are_kcats(run: Command, numbers: str) -> None:
    shown = run("consume", numbers, "-p", "0", "-n", "1", "-f", r"%t %p %o %k %K %S %h%%\x41\t%s\n").out
    assert shown == f'{numbers} 0 0 k0 2 22 part=0%A\t{{"n": 0, "name": "n0"}}\n'
    assert "%x is not known" in run.fails("consume", numbers, "-f", "%x", code=2)
    assert "ends within" in run.fails("consume", numbers, "-f", "%", code=2)


@pytest.mark.parametrize(
    ("start", "keys"),
    [
        (("--from-beginning",), ["k0", "k2", "k4", "k6", "k8"]),
        (("--offset", "3"), ["k6", "k8"]),
        (("--offset", "-1"), ["k8"]),
        (("--offset", "99"), []),
        (("--since", "-1h"), ["k0", "k2", "k4", "k6", "k8"]),
        (("--since", "2999-01-01T00:00:00Z"), []),
    ],
)
def test_reading_begins_where_it_is_told(run: Command, numbers: str, start: tuple[str, ...], keys: list[str]) -> None:
    assert run("consume", numbers, "-p", "0", "-f", r"%k\n", *start).lines == keys


@pytest.mark.parametrize(
    ("filters", "keys"),
    [
        (("--grep", "n[34]"), ["k3", "k4"]),
        (("--grep", "^k7$"), ["k7"]),
        (("--where", "n>7"), ["k8", "k9"]),
        (("--where", "n>=2", "--where", "name!=n2", "--where", "n<4"), ["k3"]),
        (("--where", "name~5$"), ["k5"]),
        (("--where", "n=6"), ["k6"]),
        (("--where", "other=6"), []),
        (("--header", "part=1", "--where", "n<=1"), ["k1"]),
        (("--header", "part", "--grep", "n9"), ["k9"]),
        (
            (
                "--header",
                "absent",
            ),
            [],
        ),
    ],
)
def test_records_are_chosen(run: Command, numbers: str, filters: tuple[str, ...], keys: list[str]) -> None:
    assert sorted(run("consume", numbers, "-f", r"%k\n", *filters).lines) == keys


def test_a_group_goes_on_where_it_left_off(run: Command, numbers: str) -> None:
    first = run("consume", numbers, "--group", f"{numbers}-group", "--max", "4", "-f", r"%k\n").lines
    rest = run("consume", numbers, "--group", f"{numbers}-group", "-f", r"%k\n").lines
    assert len(first) == 4
    assert sorted(first + rest) == [f"k{number}" for number in range(10)]
    assert run("consume", numbers, "--group", f"{numbers}-group").out == ""


def test_following_waits_for_more(run: Command, numbers: str) -> None:
    assert len(run("consume", numbers, "--follow", "--from-beginning", "--max", "10").lines) == 10


def test_mistakes_are_one_line(run: Command, numbers: str) -> None:
    assert "there is no topic 'no-such'" in run.fails("consume", "no-such", code=1)
    assert "there is no topic 'no-such'" in run.fails("produce", "no-such", stdin="x\n", code=1)
    assert "no-such" not in run("topic", "list").out
    assert "no partition 7" in run.fails("produce", numbers, "--partition", "7", stdin="x\n", code=2)
    assert "no partition 7" in run.fails("consume", numbers, "--partition", "7", code=2)
    assert "has no ':'" in run.fails("produce", numbers, "-K", ":", stdin="x\n", code=2)
    assert "acks" in run.fails("produce", numbers, "--acks", "2", code=2)
    assert "compression" in run.fails("produce", numbers, "--compression", "rar", code=2)
    assert "name=value" in run.fails("produce", numbers, "-H", "x", code=2)
    assert "is no time" in run.fails("consume", numbers, "--since", "noon", code=2)
    assert "is no duration" in run.fails("consume", numbers, "--since", "-1x", code=2)
    assert "one place" in run.fails("consume", numbers, "--since", "-1h", "--offset", "3", code=2)
    assert "no regular expression" in run.fails("consume", numbers, "--grep", "(", code=2)
    assert "write it like" in run.fails("consume", numbers, "--where", "n", code=2)
    assert "leave out --offset" in run.fails("consume", numbers, "--group", "g", "--offset", "1", code=2)
    assert "either --json or --format" in run.fails("consume", numbers, "--json", "-f", "%s", code=2)
