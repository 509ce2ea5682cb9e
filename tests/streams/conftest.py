"""One Spark session for all tests of running applications."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from penstock.spark.session import session
from penstock.streams import Application
from penstock.testing.streams import TopologyTestDriver

Driven = Callable[[Application], TopologyTestDriver]


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    running = session("local[2]", app="penstock-streams-tests", log_level="OFF", spark_sql_shuffle_partitions=2)
    yield running
    running.stop()


@pytest.fixture
def driven(spark: Any) -> Iterator[Driven]:
    """A driver for an application; it ends with the test."""
    with ExitStack() as drivers:
        yield lambda application: drivers.enter_context(TopologyTestDriver(application, spark=spark))
