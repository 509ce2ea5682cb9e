"""kill -9 of Spark's driver and executors and of the broker: every row comes out, and once."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.chaos.spark_job import COUNTS, QUERY, counts_of
from tests.chaos.under_fire import EVENTS, PROFILES, Fire, Job, Run, long_only, read
from tests.support.spark_processes import StandaloneCluster


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
def job() -> Job:
    return Job("tests.chaos.spark_job", (COUNTS,), (QUERY,), finish)


@pytest.mark.timeout(900)
def test_a_query_writes_exactly_once_through_kills(under_fire: Fire, seed: int) -> None:
    kills = ["executor", "driver", "broker"]
    random.Random(seed).shuffle(kills)
    under_fire("local-cluster[2,1,1024]", kills)


@long_only
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fired_at", ["penstock", "kafka"], indirect=True)
def test_a_local_query_writes_exactly_once_through_many_kills(under_fire: Fire, seed: int) -> None:
    under_fire("local[2]", random.Random(seed).choices(["driver", "broker"], k=20))


@long_only
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("fired_at", ["penstock", "kafka"], indirect=True)
def test_a_query_on_a_cluster_writes_exactly_once_through_many_kills(
    under_fire: Fire, cluster: StandaloneCluster, seed: int
) -> None:
    kills = random.Random(seed).choices(["executor", "driver", "broker"], k=20)
    under_fire(cluster.url, kills, cluster.executors)
