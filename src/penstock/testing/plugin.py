"""Fixtures for pytest. Installing Penstock is enough to have them.

def test_orders_arrive(penstock_broker, penstock_topic):
    with Producer(penstock_broker.bootstrap) as producer:
        producer.send(penstock_topic, b"...")
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from penstock.testing.brokers import RunningBroker

_NAME_LENGTH_MAX = 80
_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def penstock_broker() -> Iterator[RunningBroker]:
    """A broker in this process, for all tests of the session. See `penstock.testing.broker`."""
    from penstock.testing.brokers import broker

    with broker() as running:
        yield running


@pytest.fixture
def penstock_topic(penstock_broker: RunningBroker, request: pytest.FixtureRequest) -> str:
    """The name of a topic that was made for this test: one partition, no records."""
    from penstock.client.admin import Admin

    name = f"{_topic_name(request.node.name)}-{next(_numbers)}"
    with Admin(penstock_broker.bootstrap) as admin:
        admin.create_topic(name, partitions=1)
    return name


def _topic_name(test: str) -> str:
    """A test's name as far as a topic's name can have it."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", test)[:_NAME_LENGTH_MAX].strip("-")
