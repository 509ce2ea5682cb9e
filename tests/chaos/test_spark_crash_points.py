"""A driver that dies at each step of a batch, as of kill -9: the next one goes on, and every record is there once."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Admin, Consumer, Producer
from tests.chaos.spark_crash import BATCH_RECORDS, SOURCE, STEPS, TARGET
from tests.support import systems
from tests.support.spark_processes import Processes
from tests.support.systems import System

PARTITIONS = 2
POINTS = [f"{when} {step}" for step in STEPS for when in ("before", "after")]
# Where different things are left behind: an open transaction with records, one with offsets too, a committed one.
SHORT = ["after first write", "before EndTxn", "after EndTxn"]


@pytest.fixture(params=["penstock", "kafka"])
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[System]:
    if request.param == "kafka" and request.config.getoption("--chaos") == "short":
        pytest.skip("takes minutes: --chaos=long")
    running = systems.named(request.param, tmp_path / "data").start()
    with Admin(running.bootstrap) as admin:
        for name in (SOURCE, TARGET):
            admin.create_topic(name, partitions=PARTITIONS)
    yield running
    running.kill()


def committed(system: System) -> list[int]:
    with Consumer(system.bootstrap, auto_offset_reset="earliest", stop_at_end=True) as consumer:
        consumer.assign([(TARGET, index) for index in range(PARTITIONS)])
        return sorted(int(record.value) for record in consumer)


@pytest.mark.timeout(1200)
def test_a_driver_may_die_at_any_point(broker: System, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Each driver does again what the one before has left, goes on, and dies at the next point."""
    points = SHORT if request.config.getoption("--chaos") == "short" else POINTS
    count = BATCH_RECORDS * (len(points) + 2)
    with Producer(broker.bootstrap, linger_ms=5) as producer:
        for number in range(count):
            producer.send(SOURCE, str(number), partition=number % PARTITIONS)
    for number, point in enumerate([*points, "never"]):
        command = [sys.executable, "-m", "tests.chaos.spark_crash", broker.bootstrap, str(tmp_path / "checkpoint")]
        driver = Processes([*command, point], tmp_path / f"driver-{number}.log")
        try:
            code = driver.wait(120)
        finally:
            driver.end()
        assert code == (0 if point == "never" else -9), f"{point}: {driver.log[-4000:]}"
        found = committed(broker)
        assert len(found) == len(set(found)), f"doubled after it died {point}"
    assert committed(broker) == list(range(count))
