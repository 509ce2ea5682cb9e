"""How long the chaos tests run, and with which dice."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.spark_processes import StandaloneCluster


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
