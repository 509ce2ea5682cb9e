"""The examples of docs/spark.md do what they say."""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from penstock import Admin, Consumer, Producer
from tests.support.systems import System

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples" / "spark"

Run = Callable[..., list[str]]
_numbers = count()


@pytest.fixture
def run(spark: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run an example as a program, in the session that is there; returns the lines it printed."""

    def run(name: str, *arguments: object) -> list[str]:
        monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
        capsys.readouterr()
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
        return capsys.readouterr().out.splitlines()

    return run


@pytest.fixture
def topics(system: System) -> Iterator[Callable[[str], str]]:
    with Admin(system.bootstrap) as admin:

        def make(name: str) -> str:
            made = f"{name}-{next(_numbers)}"
            admin.create_topic(made, partitions=1, config={"retention.ms": "-1"})
            return made

        yield make


def send(system: System, topic: str, *records: tuple[str, Any, int]) -> None:
    """Send (user, value, second of the day)."""
    with Producer(system.bootstrap, value_serializer="json") as producer:
        for key, value, second in records:
            producer.send(topic, value, key=key, timestamp=datetime.fromtimestamp(86_400 * 20_000 + second, UTC))


def received(system: System, topic: str) -> list[tuple[str, Any]]:
    with Consumer(system.bootstrap, auto_offset_reset="earliest", stop_at_end=True) as consumer:
        consumer.assign([(topic, 0)])
        return [((record.key or b"").decode(), json.loads(record.value)) for record in consumer]


def views(system: System, topic: str) -> None:
    seconds = (0, 10, 59, 60, 61, 300)
    send(system, topic, *((f"u{n % 2}", {"page": f"/{n % 3}", "ms": n * 10}, at) for n, at in enumerate(seconds)))


def test_read_topic(run: Run, system: System, topics: Callable[[str], str]) -> None:
    topic = topics("views")
    views(system, topic)
    assert run("read_topic", system.bootstrap, topic) == [
        "/0: 2 views, the slowest took 30 ms",
        "/1: 2 views, the slowest took 40 ms",
        "/2: 2 views, the slowest took 50 ms",
    ]


def test_count_per_minute(run: Run, system: System, topics: Callable[[str], str], tmp_path: Path) -> None:
    source, target = topics("views"), topics("counts")
    views(system, source)
    run("count_per_minute", system.bootstrap, source, target, tmp_path)
    found = received(system, target)
    assert sorted((key[-5:], value["count"]) for key, value in found) == [("00:00", 3), ("00:01", 2)]
    send(system, source, ("u", {}, 600))
    run("count_per_minute", system.bootstrap, source, target, tmp_path)
    assert sorted((key[-5:], value["count"]) for key, value in received(system, target)) == [
        ("00:00", 3),
        ("00:01", 2),
        ("00:05", 1),
    ]


def test_enrich(run: Run, system: System, topics: Callable[[str], str], tmp_path: Path) -> None:
    stream, table, target = topics("views"), topics("profiles"), topics("enriched")
    send(system, table, ("u0", {"country": "FR"}, 0), ("u1", {"country": "DE"}, 0), ("u0", {"country": "IT"}, 0))
    send(system, stream, ("u0", "a", 1), ("u1", "b", 2), ("u2", "c", 3))
    run("enrich", system.bootstrap, stream, table, target, tmp_path)
    found = {key: value.get("country") for key, value in received(system, target)}
    assert found == {"u0": "IT", "u1": "DE", "u2": None}


def test_deduplicate(run: Run, system: System, topics: Callable[[str], str], tmp_path: Path) -> None:
    source, target = topics("payments"), topics("once")
    send(system, source, *((f"u{n}", {"id": n % 3}, n) for n in range(7)))
    run("deduplicate", system.bootstrap, source, target, tmp_path)
    send(system, source, ("u7", {"id": 1}, 8), ("u8", {"id": 9}, 9))
    run("deduplicate", system.bootstrap, source, target, tmp_path)
    assert sorted(value["id"] for _, value in received(system, target)) == [0, 1, 2, 9]


def test_land_in_parquet(run: Run, system: System, topics: Callable[[str], str], tmp_path: Path) -> None:
    topic = topics("views")
    views(system, topic)
    table = tmp_path / "table"
    assert run("land_in_parquet", system.bootstrap, topic, table, tmp_path)[-1] == "6 rows in the table"
    assert [path.name for path in table.glob("day=*")] == ["day=2024-10-04"]


def test_write_table(run: Run, system: System, topics: Callable[[str], str]) -> None:
    topic = topics("prices")
    assert run("write_table", system.bootstrap, topic) == ["apple: 120", "pear: 95", "plum: 45"]
    with Consumer(system.bootstrap, auto_offset_reset="earliest", stop_at_end=True) as consumer:
        consumer.assign([(topic, 0)])
        assert {record.key: record.value[-1] for record in consumer} == {b"apple": 120, b"pear": 95, b"plum": 45}


def test_no_example_is_left_out() -> None:
    names = {f"test_{path.stem}" for path in EXAMPLES.glob("*.py")}
    assert len(names) >= 6
    assert names <= globals().keys()
