"""The examples of docs/client.md do what they say."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from penstock import Admin
from tests.support.systems import System

GROUPS = ("at-most-once", "at-least-once", "exactly-once")
EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


def run(name: str, *arguments: str) -> list[str]:
    command = [sys.executable, str(EXAMPLES / f"{name}.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def forget_earlier_runs(admin: Admin) -> None:
    """The examples have groups with fixed names."""
    groups = [listing.group for listing in admin.list_groups() if listing.group in GROUPS]
    admin.delete_groups(groups)
    admin.delete_topics([name for name in admin.list_topics() if name.startswith("at-least-once.retry")])


def test_the_examples_run_one_after_the_other(
    system: System, admin: Admin, create: Callable[..., None], unique: Callable[[str], str]
) -> None:
    forget_earlier_runs(admin)
    orders, billed = unique("orders"), unique("billed")
    create(orders)
    create(billed)
    all_orders = [str(number) for number in range(11)]
    assert run("produce", system.bootstrap, orders) == ["the last one is at offset 10 of partition 0"]
    assert run("at_most_once", system.bootstrap, orders) == all_orders
    assert run("at_least_once", system.bootstrap, orders) == [one for one in all_orders if one != "3"]
    assert [info.offset for info in admin.topic_offsets(f"{orders}.dlq").values()] == [1]
    assert run("exactly_once", system.bootstrap, orders, billed) == ["done"]
    assert [info.offset for info in admin.group_offsets("exactly-once").values()] == [11]
    # Eleven records and the marker of one or more transactions.
    assert [info.offset >= 12 for info in admin.topic_offsets(billed).values()] == [True]
    assert len(run("with_asyncio", system.bootstrap, orders)) == 1 + 11 + 3
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {
        "produce",
        "at_most_once",
        "at_least_once",
        "exactly_once",
        "with_asyncio",
    }
