"""Applications that run in a test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from penstock.streams import Application
from penstock.testing.streams import TopologyTestDriver

Driven = Callable[[Application], TopologyTestDriver]


@pytest.fixture
def driven(spark: Any) -> Iterator[Driven]:
    """A driver for an application; it ends with the test."""
    with ExitStack() as drivers:
        yield lambda application: drivers.enter_context(TopologyTestDriver(application, spark=spark))
