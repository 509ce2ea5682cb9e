"""How long the chaos tests run, and with which dice."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.under_fire import Fire, Job, fire_at, prepare
from tests.support import systems
from tests.support.spark_processes import StandaloneCluster
from tests.support.systems import System


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    return 20 if request.config.getoption("--chaos") == "short" else 200


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Printed with a failure; `--chaos-seed` replays it."""
    given = request.config.getoption("--chaos-seed")
    chosen = given if given is not None else random.randrange(2**32)
    print(f"seed {chosen}")
    return int(chosen)


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StandaloneCluster]:
    running = StandaloneCluster(tmp_path / "cluster")
    yield running
    running.end()


@pytest.fixture
def fired_at(request: pytest.FixtureRequest, job: Job, tmp_path: Path) -> Iterator[System]:
    """A broker for a job: Penstock, or what the test says."""
    running = systems.named(getattr(request, "param", "penstock"), tmp_path / "data").start()
    prepare(running, *job.outputs)
    yield running
    running.kill()


@pytest.fixture
def under_fire(job: Job, fired_at: System, tmp_path: Path, seed: int) -> Iterator[Fire]:
    with fire_at(job, fired_at, tmp_path, seed) as fire:
        yield fire
