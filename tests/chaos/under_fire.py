"""A Spark job under fire: events come in all the time, and now and then something is killed with kill -9.

A job is a program, `python -m MODULE MASTER BOOTSTRAP FOLDER`, that runs until it is killed. A test module names its
own as the fixture `job`; `conftest.py` has what goes with it.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from penstock import Admin, Consumer, Producer
from penstock.client.cluster import Cluster
from penstock.client.shared_transaction import SharedTransaction
from penstock.spark import session
from tests.support.spark_processes import Driver, kill
from tests.support.systems import System

EVENTS, PROFILES = "events", "profiles"
MINUTE_MS = 60_000
PARTITIONS = 3
USERS = 40
ROUND_S = 0.3
STALLED_S = 240.0  # without any progress: something hangs
MONTH_MS = 30 * 24 * 60 * MINUTE_MS  # at a minute each moment, more than any run sends

long_only = pytest.mark.skipif("config.getoption('--chaos') != 'long'", reason="takes minutes: --chaos=long")


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
    """A job under fire, of some queries, which can be told to die and to come back."""

    def __init__(
        self, system: System, driver: Driver, executors: Callable[[], list[int]], queries: Sequence[str], seed: int
    ) -> None:
        self._system = system
        self._queries = queries
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
            self.wait(lambda: bool(self._executors()))
            kill(self._chance.choice(self._executors()))
        self.killed[what] += 1
        print(f"{time.strftime('%X')} killed {what}", flush=True)

    def _await_progress(self) -> None:
        """Until one more batch is committed."""
        before = self._batches()
        self.wait(lambda: self._batches() > before)

    def _batches(self) -> int:
        return sum(self._committed(f"{query}.batches") for query in self._queries)

    def wait(self, is_true: Callable[[], bool]) -> None:
        """Until something is so, as long as the job lives."""
        deadline = time.monotonic() + STALLED_S
        while not is_true():
            assert self.feeder.is_alive() or self.feeder.stopping.is_set(), "the feeder has failed"
            assert self._driver.is_alive, f"the query has ended by itself:\n{self._driver.log[-4000:]}"
            assert time.monotonic() < deadline, f"no progress:\n{self._driver.log[-4000:]}"
            time.sleep(0.1)

    def come_back(self) -> None:
        """Kill the driver once more, and wait until a new one has done what it had to do.

        The last batches are done again, which must not be seen. One more event is read, and its offsets committed.
        """
        self._driver.kill()
        self._driver.start()
        with Producer(self._system.bootstrap) as producer:
            producer.send_and_wait(EVENTS, "0", key="user-0", timestamp=self.feeder.end_ms)
        ends = len(read(self._system.bootstrap, EVENTS))
        readers = [query for query in self._queries if self._committed(query, EVENTS)]
        self.wait(lambda: all(self._committed(query, EVENTS) == ends for query in readers))

    def _committed(self, group: str, topic: str | None = None) -> int:
        with Cluster(self._system.bootstrap) as cluster:
            found = SharedTransaction(cluster, group).committed(group)
        return sum(one.offset for place, one in found.items() if topic in (None, place.topic))


def prepare(system: System, *outputs: str) -> None:
    """Topics, and who is who."""
    with Admin(system.bootstrap) as admin:
        for name in (EVENTS, PROFILES, *outputs):
            admin.create_topic(name, partitions=PARTITIONS, config={"retention.ms": "-1"})
    with Producer(system.bootstrap) as producer:
        for number in range(USERS):
            producer.send(PROFILES, f"segment-{number % 7}", key=f"user-{number}")


@dataclass(frozen=True)
class Job:
    """What is put under fire. `finish` waits for the last row and checks all; it returns how many there are."""

    module: str
    outputs: tuple[str, ...]
    queries: tuple[str, ...]
    finish: Callable[[Run, str], int]


Fire = Callable[..., None]  # with the master, what to kill, and perhaps what tells the executors


@contextmanager
def fire_at(job: Job, system: System, folder: Path, seed: int) -> Iterator[Fire]:
    """What runs a job and kills; nothing of it is left in the end."""
    drivers: list[Driver] = []

    def run(master: str, kills: list[str], executors: Callable[[], list[int]] | None = None) -> None:
        command = [sys.executable, "-m", job.module, master, system.bootstrap, str(folder / "state")]
        driver = Driver(command, folder / "driver")
        drivers.append(driver)
        begun_s = time.monotonic()
        under_way = Run(system, driver, executors or driver.executors, job.queries, seed)
        under_way.go(kills)
        rows = job.finish(under_way, system.bootstrap)
        print(f"{under_way.killed}, {under_way.feeder.sent} events, {rows} rows, {time.monotonic() - begun_s:.0f} s")
        assert rows > 10 * len(kills), "too little happened"

    try:
        yield run
    finally:
        for driver in drivers:
            driver.end()


def job_session(master: str, app: str) -> SparkSession:
    """The session of a job."""
    return session(
        master, app=app, spark_sql_shuffle_partitions=2, spark_driver_host="127.0.0.1", spark_ui_enabled="false"
    )
