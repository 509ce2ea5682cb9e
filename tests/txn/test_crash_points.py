"""The process dies at any point of a transaction's end: what was decided is carried out, what was not is not.

Every write to a log goes through the storage. Just before each, the data directory is copied, once without it and once
with half of it: what a process leaves behind that is killed there. A new broker is started on each copy.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from penstock.log.storage import Buffer, File, Storage
from penstock.txn.transaction import State
from penstock.wire.errors import ErrorCode
from tests.txn.producers import Producer, committed, coordinator, host, is_stable, read, until

NONE = ErrorCode.NONE


class Witness(Storage):
    """Copies the data directory before every write to a log."""

    def __init__(self, data: Path, copies: Path) -> None:
        self._data = data
        self._copies = copies
        self.is_watching = False
        self.points: list[tuple[Path, str]] = []  # a copy, and what was about to be written to

    def open(self, path: str, *, create: bool = False) -> File:
        file = super().open(path, create=create)
        return _WatchedFile(self, file) if path.endswith(".log") else file

    def about_to_write(self, path: str, half: bytes | None, position: int) -> None:
        if not self.is_watching:
            return
        copy = self._copies / str(len(self.points))
        shutil.copytree(self._data, copy)
        if half is not None:
            with open(copy / Path(path).relative_to(self._data), "r+b") as torn:
                torn.seek(position)
                torn.write(half)
        self.points.append((copy, Path(path).parent.name))


class _WatchedFile(File):
    __slots__ = ("_file", "_witness")

    def __init__(self, witness: Witness, file: File) -> None:
        super().__init__(file.path, os.dup(file.fd))
        self._witness = witness

    def write_at(self, data: Buffer, position: int) -> None:
        self._witness.about_to_write(self.path, None, position)
        self._witness.about_to_write(self.path, bytes(data)[: len(data) // 2], position)
        super().write_at(data, position)


async def ended(running: Any) -> None:
    """The transaction of "id" is over, by whatever way, and nothing waits for it."""
    txns = coordinator(running)
    await until(lambda: txns.find("id")[1].state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT))
    await until(lambda: is_stable(running, "a") and is_stable(running, "b"))


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_a_decision_survives_a_crash_at_any_point(tmp_path: Path, commit: bool, version: int) -> None:
    data, copies = tmp_path / "data", tmp_path / "copies"
    witness = Witness(data, copies)

    async def live() -> None:
        async with host(data, storage=witness) as running:
            await running.make_topics(a=1, b=1)
            producer = Producer(running, version=version)
            assert await producer.claim() == NONE
            for topic in ("a", "b"):
                assert await producer.produce(topic, "x") == NONE
            assert await producer.commit_offset("g", "a", 7) == NONE
            witness.is_watching = True
            assert await producer.end(commit=commit) == NONE
            await ended(running)
            witness.is_watching = False
            witness.points.append((shutil.copytree(data, copies / "last"), "the end"))

    async def check(copy: Path, before: str, is_decided: bool) -> None:
        async with host(copy) as running:
            producer = Producer(running, version=version)
            if is_decided:
                await ended(running)
            else:
                assert coordinator(running).find("id")[1].state is State.ONGOING
                assert await producer.claim() == ErrorCode.CONCURRENT_TRANSACTIONS  # aborts what is open
                await ended(running)
            is_seen = commit and is_decided
            assert read(running, "a") == read(running, "b") == (["x"] if is_seen else []), before
            await until(lambda: not running.shard("g").offsets.pending_places())
            assert await committed(running, "g", "a") == (NONE, 7 if is_seen else -1), before
            assert await producer.claim() == NONE  # and the id can be used again
            assert await producer.produce("a", "y") == NONE
            assert await producer.end(commit=True) == NONE
            await ended(running)
            assert read(running, "a") == (["x", "y"] if is_seen else ["y"])

    asyncio.run(asyncio.wait_for(live(), 60))
    written = [name for _, name in witness.points]
    # The decision, three markers, the completion; each of them not at all and half.
    assert [name.rsplit("-", 1)[0] for name in written] == [
        *["__transaction_state"] * 2,
        *["__consumer_offsets"] * 2,
        *["a"] * 2,
        *["b"] * 2,
        *["__transaction_state"] * 2,
        "the end",
    ]
    for number, (copy, name) in enumerate(witness.points):
        asyncio.run(asyncio.wait_for(check(copy, f"before {name} (point {number})", number >= 2), 60))


def test_a_write_that_was_admitted_is_in_the_transaction_whatever_happens(tmp_path: Path) -> None:
    """The partition is in the log of transactions before the records are in the partition."""
    data, copies = tmp_path / "data", tmp_path / "copies"
    witness = Witness(data, copies)

    async def live() -> None:
        async with host(data, storage=witness) as running:
            await running.make_topics(a=1, b=1)
            producer = Producer(running)
            assert await producer.claim() == NONE
            witness.is_watching = True
            assert await producer.produce("a", "x") == NONE
            assert await producer.commit_offset("g", "a", 7) == NONE
            witness.is_watching = False
            witness.points.append((shutil.copytree(data, copies / "last"), "the end"))

    async def check(copy: Path) -> None:
        async with host(copy) as running:
            producer = Producer(running)
            if await producer.claim() == ErrorCode.CONCURRENT_TRANSACTIONS:  # aborts what is open
                await until(lambda: coordinator(running).find("id")[1].state is State.COMPLETE_ABORT)
                assert await producer.claim() == NONE
            await until(lambda: is_stable(running, "a"))
            assert read(running, "a") == []
            await until(lambda: not running.shard("g").offsets.pending_places())
            assert await committed(running, "g", "a") == (NONE, -1)

    asyncio.run(asyncio.wait_for(live(), 60))
    assert [name.rsplit("-", 1)[0] for _, name in witness.points] == [
        *["__transaction_state"] * 2,
        *["a"] * 2,
        *["__transaction_state"] * 2,
        *["__consumer_offsets"] * 2,
        "the end",
    ]
    for copy, _ in witness.points:
        asyncio.run(asyncio.wait_for(check(copy), 60))
