"""What all tests share: the two systems under test, Kafka's Java tools, unique names."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import settings

from tests.support import systems
from tests.support.java_tools import JavaTools
from tests.support.systems import System

# How long an example takes says something about the machine, not about what is tested.
settings.register_profile("penstock", deadline=None)
settings.load_profile("penstock")

_NO_PARAMETERS = SimpleNamespace(params={})


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--chaos", choices=("short", "long"), default="short", help="how long the chaos tests run")
    parser.addoption("--chaos-seed", type=int, default=None, help="replay a chaos test with the seed it printed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that fails on real Kafka is tried again there: what is Kafka's own to mend must not stop us.

    On Penstock none is.
    """
    for item in items:
        if isinstance(item, pytest.Function) and "kafka" in getattr(item, "callspec", _NO_PARAMETERS).params.values():
            item.add_marker(pytest.mark.flaky(reruns=2, reruns_delay=5))


@pytest.fixture(scope="session")
def running_systems() -> Iterator[dict[str, System]]:
    """What has been started for tests, by name; it runs until the last of them."""
    running: dict[str, System] = {}
    yield running
    for system in running.values():
        system.kill()


@pytest.fixture(scope="session", params=["penstock", "kafka"])
def system(
    request: pytest.FixtureRequest, running_systems: dict[str, System], tmp_path_factory: pytest.TempPathFactory
) -> System:
    """A running broker: Penstock in ring 2, real Kafka in ring 3."""
    name = request.param
    if name not in running_systems:
        running_systems[name] = systems.named(name, tmp_path_factory.mktemp(name) / "data").start()
    return running_systems[name]


@pytest.fixture(scope="session")
def java() -> Iterator[JavaTools]:
    tools = JavaTools()
    yield tools
    tools.close()


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """One Spark session for all tests, on two cores of this machine."""
    from penstock.spark.session import session  # most tests need no Spark

    running = session("local[2]", app="penstock-tests", log_level="OFF", spark_sql_shuffle_partitions=2)
    yield running
    running.stop()


_numbers = itertools.count()


@pytest.fixture
def unique(request: pytest.FixtureRequest) -> Callable[[str], str]:
    """Names that no other test uses."""
    return lambda name: f"{name}-{next(_numbers)}"


@pytest.fixture
def topic(unique: Callable[[str], str]) -> str:
    return unique("topic")
