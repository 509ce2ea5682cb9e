"""The bare client that Spark's driver and tasks use: what it remembers, and when it asks again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import penstock.testing
from penstock.client.cluster import Cluster
from penstock.client.shared_transaction import SharedTransaction
from penstock.testing.brokers import RunningBroker


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with penstock.testing.broker() as running:
        yield running


def test_a_coordinator_is_looked_up_once(broker: RunningBroker) -> None:
    with Cluster(broker.bootstrap) as cluster, broker.faults.delay("FindCoordinator", seconds=0) as lookups:
        transaction = SharedTransaction(cluster, "writer")
        for _ in range(3):
            transaction.begin()
            transaction.committed("group")
    assert lookups.hits == 2


@pytest.mark.parametrize("code", ["NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS"])
def test_a_coordinator_that_has_moved_is_looked_up_again(broker: RunningBroker, code: str) -> None:
    with Cluster(broker.bootstrap) as cluster, broker.faults.delay("FindCoordinator", seconds=0) as lookups:
        transaction = SharedTransaction(cluster, "writer")
        before = transaction.begin()
        with broker.faults.error("InitProducerId", code=code, times=1) as moved:
            after = transaction.begin()
        assert moved.hits == 1
        assert lookups.hits == 2
        assert (after.producer_id, after.producer_epoch) == (before.producer_id, before.producer_epoch + 1)


def test_a_broker_that_comes_back_is_found_again(broker: RunningBroker) -> None:
    with Cluster(broker.bootstrap) as cluster:
        transaction = SharedTransaction(cluster, "writer")
        before = transaction.begin()
        broker.restart()
        assert transaction.begin().producer_epoch == before.producer_epoch + 1
