"""kill -9 of Spark's driver and executors and of the broker: every row comes out, and once."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Admin, Consumer, Producer
from penstock.client.cluster import Cluster
from penstock.client.shared_transaction import SharedTransaction
from tests.chaos.spark_job import COUNTS, EVENTS, MINUTE_MS, PROFILES, QUERY, counts_of
from tests.support import systems
from tests.support.spark_processes import Driver, StandaloneCluster, kill
from tests.support.systems import System

PARTITIONS = 3
USERS = 40
ROUND_S = 0.3
STALLED_S = 240.0  # without any progress: something hangs
MONTH_MS = 30 * 24 * 60 * MINUTE_MS  # at a minute each moment, more than any run sends


class Feeder(threading.Thread):
    """Sends a minute's events every moment. A minute is all there before the next begins, so none comes too late."""

    def __init__(self, bootstrap: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._brokers = bootstrap
        self._chance = random.Random(seed)
        self.first_ms = (int(time.time() * 1000) - MONTH_MS) // MINUTE_MS * MINUTE_MS
        self.end_ms = self.first_ms + MONTH_MS  # far behind all that is sent meanwhile
        self.sent = 0
        self.stopping = threading.Event()

    def run(self) -> None:
        with Producer(self._brokers, linger_ms=5) as producer:
            minute_ms = self.first_ms
            while not self.stopping.wait(ROUND_S):
                for _ in range(self._chance.randint(USERS, 3 * USERS)):
                    self._send(producer, minute_ms + self._chance.randrange(MINUTE_MS))
                producer.flush()
                minute_ms += MINUTE_MS
            self._send(producer, self.end_ms)

    def _send(self, producer: Producer, timestamp_ms: int) -> None:
        user = f"user-{self._chance.randrange(USERS)}"
        producer.send(EVENTS, str(self.sent), key=user, timestamp=timestamp_ms)
        self.sent += 1


def read(bootstrap: str, topic: str) -> list[Any]:
    """All committed records."""
    with Consumer(bootstrap, auto_offset_reset="earliest", stop_at_end=True) as consumer:
        consumer.assign([(topic, index) for index in range(PARTITIONS)])
        return list(consumer)


class Run:
    """A job under fire."""

    def __init__(self, system: System, driver: Driver, executors: Callable[[], list[int]], seed: int) -> None:
        self._system = system
        self._driver = driver
        self._executors = executors
        self._chance = random.Random(seed)
        self.feeder = Feeder(system.bootstrap, seed)
        self.killed: Counter[str] = Counter()

    def go(self, kills: list[str]) -> None:
        self.feeder.start()
        for what in kills:
            if self.killed.total() == 0 or self._chance.random() < 0.8:  # else what was killed may not yet be back
                self._await_progress()
            time.sleep(self._chance.uniform(0, 1.5))
            self._kill(what)
        self._await_progress()
        self.feeder.stopping.set()
        self.feeder.join(STALLED_S)
        assert not self.feeder.is_alive(), "the feeder hangs"

    def _kill(self, what: str) -> None:
        if what == "broker":
            self._system.kill()
            self._system.start()
        elif what == "driver":
            self._driver.kill()
            self._driver.start()
        else:
            self._wait(lambda: bool(self._executors()))
            kill(self._chance.choice(self._executors()))
        self.killed[what] += 1
        print(f"{time.strftime('%X')} killed {what}", flush=True)

    def _await_progress(self) -> None:
        """Until one more batch is committed."""
        before = self._batches()
        self._wait(lambda: self._batches() > before)

    def _batches(self) -> int:
        return self._committed(f"{QUERY}.batches")

    def _wait(self, is_true: Callable[[], bool]) -> None:
        deadline = time.monotonic() + STALLED_S
        while not is_true():
            assert self.feeder.is_alive() or self.feeder.stopping.is_set(), "the feeder has failed"
            assert self._driver.is_alive, f"the query has ended by itself:\n{self._driver.log[-4000:]}"
            assert time.monotonic() < deadline, f"no progress:\n{self._driver.log[-4000:]}"
            time.sleep(0.1)

    def finish(self) -> int:
        """Wait for the last row, and check all; returns how many there are."""
        bootstrap = self._system.bootstrap
        wanted = counts_of(read(bootstrap, EVENTS), read(bootstrap, PROFILES), self.feeder.end_ms)
        self._wait(lambda: len(read(bootstrap, COUNTS)) >= len(wanted))
        self._driver.kill()
        self._driver.start()  # the last batch is done again, and must not be seen
        self._await_idle()
        found = sorted(record.value.decode() for record in read(bootstrap, COUNTS))
        doubled = [row for row, count in Counter(found).items() if count > 1]
        assert not doubled, f"doubled: {doubled[:5]} of {len(doubled)}"
        lost, strange = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
        assert not lost, f"lost: {lost[:5]} of {len(lost)}; in their place {strange[:5]}"
        assert not strange, f"never to be written: {strange[:5]} of {len(strange)}"
        return len(found)

    def _await_idle(self) -> None:
        """Until a new driver has done what it had to do: one more event is read, and its offset committed."""
        with Producer(self._system.bootstrap) as producer:
            producer.send_and_wait(EVENTS, "0", key="user-0", timestamp=self.feeder.end_ms)
        ends = len(read(self._system.bootstrap, EVENTS))
        self._wait(lambda: self._committed(QUERY) == ends)

    def _committed(self, group: str) -> int:
        with Cluster(self._system.bootstrap) as cluster:
            return sum(one.offset for one in SharedTransaction(cluster, QUERY).committed(group).values())


def prepare(system: System) -> None:
    """Topics, and who is who."""
    with Admin(system.bootstrap) as admin:
        for name in (EVENTS, PROFILES, COUNTS):
            admin.create_topic(name, partitions=PARTITIONS, config={"retention.ms": "-1"})
    with Producer(system.bootstrap) as producer:
        for number in range(USERS):
            producer.send(PROFILES, f"segment-{number % 7}", key=f"user-{number}")


def job(master: str, system: System, folder: Path) -> Driver:
    command = [sys.executable, "-m", "tests.chaos.spark_job", master, system.bootstrap, str(folder / "checkpoint")]
    return Driver(command, folder / "driver")


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[System]:
    running = systems.named(getattr(request, "param", "penstock"), tmp_path / "data").start()
    prepare(running)
    yield running
    running.kill()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StandaloneCluster]:
    running = StandaloneCluster(tmp_path / "cluster")
    yield running
    running.end()


@pytest.fixture
def under_fire(broker: System, tmp_path: Path, seed: int) -> Iterator[Callable[..., None]]:
    drivers: list[Driver] = []

    def run(master: str, kills: list[str], executors: Callable[[], list[int]] | None = None) -> None:
        driver = job(master, broker, tmp_path)
        drivers.append(driver)
        begun_s = time.monotonic()
        under_way = Run(broker, driver, executors or driver.executors, seed)
        under_way.go(kills)
        rows = under_way.finish()
        print(f"{under_way.killed}, {under_way.feeder.sent} events, {rows} rows, {time.monotonic() - begun_s:.0f} s")
        assert rows > 10 * len(kills), "too little happened"

    yield run
    for driver in drivers:
        driver.end()


@pytest.mark.timeout(900)
def test_a_query_writes_exactly_once_through_kills(under_fire: Any, seed: int) -> None:
    kills = ["executor", "driver", "broker"]
    random.Random(seed).shuffle(kills)
    under_fire("local-cluster[2,1,1024]", kills)


long_only = pytest.mark.skipif("config.getoption('--chaos') != 'long'", reason="takes minutes: --chaos=long")


@long_only
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("broker", ["penstock", "kafka"], indirect=True)
def test_a_local_query_writes_exactly_once_through_many_kills(under_fire: Any, seed: int) -> None:
    under_fire("local[2]", random.Random(seed).choices(["driver", "broker"], k=20))


@long_only
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("broker", ["penstock", "kafka"], indirect=True)
def test_a_query_on_a_cluster_writes_exactly_once_through_many_kills(
    under_fire: Any, cluster: StandaloneCluster, seed: int
) -> None:
    kills = random.Random(seed).choices(["executor", "driver", "broker"], k=20)
    under_fire(cluster.url, kills, cluster.executors)
