"""kill -9 while a streams application runs: what it writes is what a batch over all records says."""

from __future__ import annotations

import random
import time
from collections import Counter
from dataclasses import asdict

import pytest

from penstock.streams.pieces import cut
from tests.chaos.streams_job import OUTPUTS, Results, application
from tests.chaos.under_fire import EVENTS, PROFILES, Fire, Job, Run, long_only, read
from tests.support.spark_processes import StandaloneCluster


def found(bootstrap: str) -> Results:
    return Results.found({topic: read(bootstrap, topic) for topic in OUTPUTS})


def differences(found: Results, wanted: Results) -> list[str]:
    """What is not as it should be, with some examples."""
    told = []
    for name, is_so in asdict(found).items():
        should_be = getattr(wanted, name)
        if isinstance(is_so, dict):
            is_so, should_be = ([f"{key}: {value}" for key, value in one.items()] for one in (is_so, should_be))
        lost, strange = Counter(should_be) - Counter(is_so), Counter(is_so) - Counter(should_be)
        if lost or strange:
            told.append(
                f"{name}: lost {sorted(lost)[:5]} of {len(lost)}, strange {sorted(strange)[:5]} of {len(strange)}"
            )
    return told


def finish(run: Run, bootstrap: str) -> int:
    """Wait for the last rows, and check all; returns how many there are."""

    def wanted() -> Results:
        return Results.of(read(bootstrap, EVENTS), read(bootstrap, PROFILES), run.feeder.end_ms)

    def is_all_there() -> bool:
        is_so, should_be = found(bootstrap), wanted()
        return len(is_so.minutes) >= len(should_be.minutes) and len(is_so.sessions) >= len(should_be.sessions)

    run.wait(is_all_there)
    run.come_back()
    deadline = time.monotonic() + 120  # tables follow their changelogs
    while (told := differences(found(bootstrap), wanted())) and time.monotonic() < deadline:
        time.sleep(1)
    assert not told, "\n".join(told)
    return sum(len(one) for one in asdict(wanted()).values())


@pytest.fixture
def job() -> Job:
    queries = tuple(piece.name for piece in cut(application("").topology).pieces)
    return Job("tests.chaos.streams_job", OUTPUTS, queries, finish)


@pytest.mark.timeout(900)
def test_an_application_is_exact_through_kills(under_fire: Fire, seed: int) -> None:
    kills = ["driver", "broker"]
    random.Random(seed).shuffle(kills)
    under_fire("local[2]", kills)


@long_only
@pytest.mark.timeout(2400)
@pytest.mark.parametrize("fired_at", ["penstock", "kafka"], indirect=True)
def test_an_application_is_exact_through_many_kills(under_fire: Fire, cluster: StandaloneCluster, seed: int) -> None:
    kills = random.Random(seed).choices(["executor", "driver", "broker"], k=20)
    under_fire(cluster.url, kills, cluster.executors)
