from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock.testing
from penstock import Admin, Producer
from penstock.testing import RunningBroker
from tests.cli.running import Command


@pytest.fixture(scope="package")
def broker() -> Iterator[RunningBroker]:
    with penstock.testing.broker() as running:
        yield running


@pytest.fixture(autouse=True)
def _own_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests must not see the profiles of whoever runs them."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    for name in ("PENSTOCK_BOOTSTRAP", "PENSTOCK_PROFILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run(broker: RunningBroker) -> Command:
    return Command(broker.bootstrap)


@pytest.fixture
def anywhere() -> Command:
    """The command without a cluster."""
    return Command(None)


@pytest.fixture(scope="package")
def numbers(broker: RunningBroker) -> str:
    """A topic to read: ten records in two partitions, with keys k0 to k9 and JSON values with n from 0 to 9."""
    return _fill(broker, "numbers")


@pytest.fixture
def filled(broker: RunningBroker, topic: str) -> str:
    """The same for one test, which may change it."""
    return _fill(broker, topic)


def _fill(broker: RunningBroker, topic: str) -> str:
    with Admin(broker.bootstrap) as admin, Producer(broker.bootstrap, idempotence=False) as producer:
        admin.create_topic(topic, partitions=2)
        for number in range(10):
            value = f'{{"n": {number}, "name": "n{number}"}}'.encode()
            part = number % 2
            producer.send(topic, value, key=f"k{number}".encode(), partition=part, headers={"part": str(part)})
    return topic
