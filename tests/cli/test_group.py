from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import Admin, Consumer
from penstock.testing import RunningBroker
from tests.cli.running import Command


@pytest.fixture
def group(broker: RunningBroker, numbers: str, unique: Callable[[str], str]) -> str:
    """A group that has read three records of partition 0 and one of partition 1."""
    name = unique("group")
    with Admin(broker.bootstrap) as admin:
        admin.alter_group_offsets(name, {(numbers, 0): 3, (numbers, 1): 1})
    return name


def _offsets(run: Command, group: str) -> list[int]:
    return [row["committed"] for row in run.json("group", "lag", group)]


def test_groups_are_listed_and_described(run: Command, numbers: str, group: str, broker: RunningBroker) -> None:
    assert {"group": group, "state": "Empty", "type": "Classic"} in run.json("group", "list")
    assert group in run("group", "list", "--state", "Empty").out
    assert group not in run("group", "list", "--state", "Stable").out
    assert "no members now" in run("group", "describe", group).err
    with Consumer(broker.bootstrap, group=group, topics=[numbers]) as consumer:
        consumer.poll(10)
        (described,) = run.json("group", "describe", group)
        (member,) = described["members"]
        assert described["state"] == "Stable"
        assert [one["partition"] for one in member["assignment"]] == [0, 1]
        assert f"{numbers}:0,1" in run("group", "describe", group).out
        assert "UNKNOWN_MEMBER_ID" in run.fails("group", "reset-offsets", group, "--to-latest", "--execute", code=1)
        assert "NON_EMPTY_GROUP" in run.fails("group", "delete", group, "--yes", code=1)


def test_lag_is_shown(run: Command, numbers: str, group: str) -> None:
    rows = run.json("group", "lag", group)
    assert rows[0] == {"group": group, "topic": numbers, "partition": 0, "committed": 3, "end": 5, "lag": 2}
    shown = run("group", "lag", group)
    assert "COMMITTED" in shown.out
    assert shown.err == "total lag: 6\n"


def test_nothing_is_moved_without_execute(run: Command, group: str) -> None:
    told = run.json("group", "reset-offsets", group, "--to-earliest")
    assert told["executed"] is False
    assert [(row["current"], row["new"], row["change"]) for row in told["offsets"]] == [(3, 0, -3), (1, 0, -1)]
    assert "add --execute" in run("group", "reset-offsets", group, "--to-earliest").err
    assert _offsets(run, group) == [3, 1]


@pytest.mark.parametrize(
    ("target", "offsets"),
    [
        (("--to-earliest",), [0, 0]),
        (("--to-latest",), [5, 5]),
        (("--to-offset", "2"), [2, 2]),
        (("--to-offset", "99"), [5, 5]),
        (("--to-time", "-1h"), [0, 0]),
        (("--to-time", "2999-01-01"), [5, 5]),
        (("--by-duration", "1h"), [0, 0]),
        (("--shift", "1"), [4, 2]),
        (("--shift", "-2"), [1, 0]),
        (("--to-latest", "--topic", "numbers:1"), [3, 5]),
    ],
)
def test_a_group_is_moved(run: Command, group: str, target: tuple[str, ...], offsets: list[int]) -> None:
    assert run.json("group", "reset-offsets", group, *target, "--execute")["executed"] is True
    assert _offsets(run, group) == offsets


def test_a_group_is_moved_as_a_file_says(run: Command, numbers: str, group: str, tmp_path: Path) -> None:
    file = tmp_path / "offsets.csv"
    file.write_text(f"# topic,partition,offset\n{numbers},0,4\n")
    run("group", "reset-offsets", group, "--from-file", str(file), "--execute")
    assert _offsets(run, group) == [4, 1]
    file.write_text("nonsense\n")
    line = run.fails("group", "reset-offsets", group, "--from-file", str(file), code=2)
    assert "line 1: write it as topic,partition,offset" in line


def test_a_group_is_deleted(run: Command, group: str) -> None:
    assert "Say so with --yes" in run.fails("group", "delete", group, code=2)
    assert run.json("group", "delete", group, "--yes") == {"deleted": [group]}
    assert "there is no group" in run.fails("group", "describe", group, code=1)


def test_mistakes_are_one_line(run: Command, numbers: str, group: str) -> None:
    reset = ("group", "reset-offsets")
    assert "say where to move" in run.fails(*reset, group, code=2)
    assert "say where to move" in run.fails(*reset, group, "--to-earliest", "--to-latest", code=2)
    assert "is no duration" in run.fails(*reset, group, "--by-duration", "long", code=2)
    assert "has committed nothing" in run.fails(*reset, "new-group", "--to-earliest", code=1)
    assert "no partition 7" in run.fails(*reset, group, "--to-latest", "--topic", f"{numbers}:7", code=2)
    assert "there is no topic" in run.fails(*reset, group, "--to-latest", "--topic", "no-such", code=1)
    assert "there is no group 'no-such'" in run.fails("group", "lag", "no-such", code=1)
    assert "is no state" in run.fails("group", "list", "--state", "Happy", code=2)
