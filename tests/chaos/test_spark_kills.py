"""kill -9 of Spark's driver and executors and of the broker: every row comes out, and once."""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.spark_job import COUNTS, QUERY, counts_of
from tests.chaos.under_fire import EVENTS, PROFILES, Run, prepare, read
from tests.support import systems
from tests.support.spark_processes import Driver, StandaloneCluster
from tests.support.systems import System


def finish(run: Run, bootstrap: str) -> int:
    """Wait for the last row, and check all; returns how many there are."""
    wanted = counts_of(read(bootstrap, EVENTS), read(bootstrap, PROFILES), run.feeder.end_ms)
    run.wait(lambda: len(read(bootstrap, COUNTS)) >= len(wanted))
    run.come_back()
    found = sorted(record.value.decode() for record in read(bootstrap, COUNTS))
    doubled = [row for row, count in Counter(found).items() if count > 1]
    assert not doubled, f"doubled: {doubled[:5]} of {len(doubled)}"
    lost, strange = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
    assert not lost, f"lost: {lost[:5]} of {len(lost)}; in their place {strange[:5]}"
    assert not strange, f"never to be written: {strange[:5]} of {len(strange)}"
    return len(found)


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[System]:
    running = systems.named(getattr(request, "param", "penstock"), tmp_path / "data").start()
    prepare(running, COUNTS)
    yield running
    running.kill()


@pytest.fixture
def under_fire(broker: System, tmp_path: Path, seed: int) -> Iterator[Callable[..., None]]:
    drivers: list[Driver] = []

    def run(master: str, kills: list[str], executors: Callable[[], list[int]] | None = None) -> None:
        command = [
            sys.executable,
            "-m",
            "tests.chaos.spark_job",
            master,
            broker.bootstrap,
            str(tmp_path / "checkpoint"),
        ]
        driver = Driver(command, tmp_path / "driver")
        drivers.append(driver)
        begun_s = time.monotonic()
        under_way = Run(broker, driver, executors or driver.executors, [QUERY], seed)
        under_way.go(kills)
        rows = finish(under_way, broker.bootstrap)
        print(f"{under_way.killed}, {under_way.feeder.sent} events, {rows} rows, {time.monotonic() - begun_s:.0f} s")
        assert rows > 10 * len(kills), "too little happened"

    yield run
    for driver in drivers:
        driver.end()


@pytest.mark.timeout(900)
def test_a_query_writes_exactly_once_through_kills(under_fire: Any, seed: int) -> None:
    kills = ["executor", "driver", "broker"]
    random.Random(seed).shuffle(kills)
    under_fire("local-cluster[2,1,1024]", kills)


long_only = pytest.mark.skipif("config.getoption('--chaos') != 'long'", reason="takes minutes: --chaos=long")


@long_only
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("broker", ["penstock", "kafka"], indirect=True)
def test_a_local_query_writes_exactly_once_through_many_kills(under_fire: Any, seed: int) -> None:
    under_fire("local[2]", random.Random(seed).choices(["driver", "broker"], k=20))


@long_only
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("broker", ["penstock", "kafka"], indirect=True)
def test_a_query_on_a_cluster_writes_exactly_once_through_many_kills(
    under_fire: Any, cluster: StandaloneCluster, seed: int
) -> None:
    kills = random.Random(seed).choices(["executor", "driver", "broker"], k=20)
    under_fire(cluster.url, kills, cluster.executors)
