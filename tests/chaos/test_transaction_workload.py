"""Transactions under fire: kills, pauses and cut connections, and no promise is broken (Jepsen's Kafka workload)."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from penstock import Admin
from tests.chaos.txn_history import Outcome, Polled, Written, anomalies
from tests.chaos.txn_workload import Proxy, Reader, Writer
from tests.support.systems import System, free_port

TOPIC, PARTITIONS, WRITERS, READERS = "t", 4, 4, 2


@pytest.fixture
def proxy_port() -> int:
    return free_port()


@pytest.fixture
def broker(tmp_path: Path, proxy_port: int) -> Iterator[System]:
    options = {
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy_port}",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
    }
    running = System("penstock", tmp_path / "data", options).start()
    yield running
    running.kill()


@pytest.fixture
def proxy(broker: System, proxy_port: int) -> Iterator[Proxy]:
    running = Proxy(proxy_port, broker.port)
    yield running
    running.close()


def test_no_promise_is_broken_under_kills_pauses_and_cuts(
    broker: System, proxy: Proxy, proxy_port: int, request: pytest.FixtureRequest, seed: int
) -> None:
    seconds = 30.0 if request.config.getoption("--chaos") == "short" else 300.0
    chance = random.Random(seed)
    bootstrap = f"127.0.0.1:{proxy_port}"
    with Admin(bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=PARTITIONS)
    values = itertools.count()
    writers = [
        Writer(f"writer-{n}", bootstrap, TOPIC, PARTITIONS, values, chance.randrange(2**32)) for n in range(WRITERS)
    ]
    readers = [Reader(f"reader-{n}", bootstrap, TOPIC, PARTITIONS) for n in range(READERS)]
    for thread in (*writers, *readers):
        thread.start()
    _harass(broker, proxy, chance, seconds)
    for thread in (*writers, *readers):
        thread.stopping.set()
    for thread in (*writers, *readers):
        thread.join(120)
        assert not thread.is_alive(), f"{thread.name} hangs"
    final = _committed(bootstrap)
    history = [one for writer in writers for one in writer.history]
    found = anomalies(history, [session for reader in readers for session in reader.polled], final)
    assert not found, "\n".join(found[:20])
    outcomes = [one.outcome for one in history]
    assert min(outcomes.count(Outcome.COMMITTED), outcomes.count(Outcome.ABORTED)) > 10, "too little happened"
    assert sum(len(session.records) for reader in readers for session in reader.polled) > 100


def _harass(broker: System, proxy: Proxy, chance: random.Random, seconds: float) -> None:
    def kill() -> None:
        broker.kill()
        broker.start()

    def pause() -> None:
        os.kill(broker.pid, signal.SIGSTOP)
        time.sleep(chance.uniform(0.2, 2.0))
        os.kill(broker.pid, signal.SIGCONT)

    faults: list[Callable[[], None]] = [kill, pause, proxy.cut]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(chance.uniform(0.5, 2.5))
        chance.choice(faults)()


def _committed(bootstrap: str) -> dict[int, list[tuple[int, int]]]:
    """All committed records, when nothing is open any more."""
    found: dict[int, list[tuple[int, int]]] = {index: [] for index in range(PARTITIONS)}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "final",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    ended: set[int] = set()
    while len(ended) < PARTITIONS:
        message = consumer.poll(60)
        assert message is not None, "the end of a partition is not reached: a transaction hangs"
        if message.error():
            ended.add(message.partition())
        else:
            found[message.partition()].append((message.offset(), int(message.value())))
    consumer.close()
    return found


COMMITTED = [Written("w", [(0, 1), (1, 2)], Outcome.COMMITTED), Written("w", [(0, 3)], Outcome.COMMITTED)]
FINAL = {0: [(0, 1), (2, 3)], 1: [(0, 2)]}


@pytest.mark.parametrize(
    ("written", "polled", "final", "expected"),
    [
        (COMMITTED, [[(0, 0, 1), (1, 0, 2), (0, 2, 3)]], FINAL, None),
        (COMMITTED, [[(0, 0, 1)]], {0: [(0, 1), (2, 3)], 1: []}, "lost-write"),
        (COMMITTED, [], {0: [(0, 1), (2, 3), (4, 1)], 1: [(0, 2)]}, "duplicate"),
        ([Written("w", [(0, 1)], Outcome.ABORTED)], [], {0: [(0, 1)]}, "G1a"),
        ([Written("w", [(0, 1), (1, 2)], Outcome.UNKNOWN)], [], {0: [(0, 1)], 1: []}, "torn transaction"),
        ([Written("w", [(0, 1), (1, 2)], Outcome.UNKNOWN)], [], {0: [], 1: []}, None),
        (COMMITTED, [], {0: [(0, 3), (2, 1)], 1: [(0, 2)]}, "nonmonotonic-send"),
        (COMMITTED, [[(0, 2, 3)]], FINAL, "poll-skip"),
        (COMMITTED, [[(0, 0, 1), (0, 2, 3), (0, 0, 1)]], FINAL, "nonmonotonic-poll"),
        (COMMITTED, [[(0, 0, 9)]], FINAL, "inconsistent-offsets"),
        (COMMITTED, [[(0, 1, 9)]], FINAL, "G1a"),
        (COMMITTED, [], {0: [(0, 1), (2, 3), (4, 7)], 1: [(0, 2)]}, "unknown"),
    ],
)
def test_broken_promises_are_noticed(written: Any, polled: Any, final: Any, expected: str | None) -> None:
    found = anomalies(written, [Polled("r", records) for records in polled], final)
    assert [one.split(":")[0] for one in found[:1]] == ([expected] if expected else []), found
