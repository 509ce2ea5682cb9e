"""Power cuts: with syncs before use a transaction is whole or not there, although the disk forgets what is not synced.

Two producers write to two topics and commit offsets; at random moments, what a power cut would leave is set aside, with
what the producers had been told by then. A new broker is started on each.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.wire.errors import ErrorCode
from tests.group.brokers import Host
from tests.log.forgetful import ForgetfulStorage
from tests.txn.producers import Producer, committed, host, is_stable, read, until

NONE, BUSY = ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS
NAMES = ("one", "two")
CUTS = 6


@dataclass
class Told:
    """What a producer knows of its transactions, by number."""

    tried: int = 0
    committed: set[int] = field(default_factory=set)
    aborted: set[int] = field(default_factory=set)

    def copy(self) -> Told:
        return Told(self.tried, set(self.committed), set(self.aborted))


async def claimed(producer: Producer) -> None:
    while (code := await producer.claim()) == BUSY:  # noqa: ASYNC110
        await asyncio.sleep(0.002)
    assert code == NONE


async def transact(producer: Producer, told: Told, chance: random.Random, is_over: asyncio.Event) -> None:
    await claimed(producer)
    while not is_over.is_set():
        number = told.tried
        told.tried += 1
        for topic in ("a", "b"):
            while (code := await producer.produce(topic, f"{producer.id}:{number}")) == BUSY:  # noqa: ASYNC110
                await asyncio.sleep(0.002)
            assert code == NONE
        assert await producer.commit_offset(f"group-{producer.id}", "a", number + 1) == NONE
        is_commit = chance.random() < 0.7
        if not is_commit:
            told.aborted.add(number)
        while (code := await producer.end(commit=is_commit)) == BUSY:  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        assert code == NONE
        if is_commit:
            told.committed.add(number)


async def check(running: Host, told: dict[str, Told]) -> None:
    for name in NAMES:
        await claimed(Producer(running, name))  # ends what is open
    await until(lambda: is_stable(running, "a") and is_stable(running, "b"))
    for name, known in told.items():
        seen, other = (
            [int(value.split(":")[1]) for value in read(running, topic) if value.startswith(f"{name}:")]
            for topic in ("a", "b")
        )
        assert seen == other
        assert seen == sorted(set(seen))
        assert known.committed <= set(seen) <= set(range(known.tried)) - known.aborted
        code, offset = await committed(running, f"group-{name}", "a")
        assert (code, offset) == (NONE, seen[-1] + 1 if seen else -1)


@pytest.mark.parametrize("seed", range(3))
def test_a_transaction_is_whole_or_not_there_after_a_power_cut(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    cuts: list[tuple[Path, dict[str, Told]]] = []

    async def live() -> None:
        storage = ForgetfulStorage(tmp_path / "data")
        async with host(tmp_path / "data", storage=storage, log_flush_interval_messages="1") as running:
            await running.make_topics(a=1, b=1)
            told = {name: Told() for name in NAMES}
            is_over = asyncio.Event()
            writers = [
                asyncio.ensure_future(transact(Producer(running, name), told[name], random.Random(seed), is_over))
                for name in NAMES
            ]
            for number in range(CUTS):
                wanted = sum(len(known.committed) for known in told.values()) + chance.randrange(2, 6)
                await until(lambda wanted=wanted: sum(len(known.committed) for known in told.values()) >= wanted)
                await asyncio.sleep(chance.uniform(0, 0.01))
                known = {name: one.copy() for name, one in told.items()}
                storage.crash_to(tmp_path / str(number), chance if number % 2 else None)
                cuts.append((tmp_path / str(number), known))
            is_over.set()
            await asyncio.gather(*writers)

    async def look(data: Path, told: dict[str, Told]) -> None:
        async with host(data, log_flush_interval_messages="1") as running:
            await check(running, told)

    asyncio.run(asyncio.wait_for(live(), 60))
    for data, told in cuts:
        asyncio.run(asyncio.wait_for(look(data, told), 60))
