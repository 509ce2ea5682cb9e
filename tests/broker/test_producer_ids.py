from __future__ import annotations

import asyncio

import pytest

from penstock.broker.producer_ids import ProducerIds


class Allocator:
    """Gives out blocks of three, when the test lets it."""

    def __init__(self) -> None:
        self.calls = 0
        self.called = asyncio.Event()
        self.gate = asyncio.Event()
        self.gate.set()
        self.error: Exception | None = None

    async def __call__(self) -> range:
        self.calls += 1
        self.called.set()
        first = 3 * (self.calls - 1)
        await self.gate.wait()
        if self.error is not None:
            error, self.error = self.error, None
            raise error
        return range(first, first + 3)


def test_ids_come_from_blocks_and_none_comes_twice() -> None:
    async def scenario() -> None:
        allocator = Allocator()
        ids = ProducerIds(allocator)
        assert [await ids.next() for _ in range(7)] == list(range(7))
        assert allocator.calls == 3

    asyncio.run(scenario())


def test_those_who_ask_at_once_share_a_block() -> None:
    async def scenario() -> None:
        allocator = Allocator()
        allocator.gate.clear()
        ids = ProducerIds(allocator)
        asked = [asyncio.ensure_future(ids.next()) for _ in range(8)]
        await allocator.called.wait()
        assert allocator.calls == 1
        allocator.gate.set()
        assert sorted(await asyncio.gather(*asked)) == list(range(8))
        assert allocator.calls == 3

    asyncio.run(scenario())


def test_nothing_is_taken_before_it_is_needed() -> None:
    async def scenario() -> None:
        allocator = Allocator()
        ids = ProducerIds(allocator)
        assert allocator.calls == 0
        for _ in range(3):
            await ids.next()
        assert allocator.calls == 1

    asyncio.run(scenario())


def test_a_failed_allocation_fails_those_who_wait_and_the_next_one_tries_again() -> None:
    async def scenario() -> None:
        allocator = Allocator()
        allocator.gate.clear()
        allocator.error = OSError("no disk")
        ids = ProducerIds(allocator)
        asked = [asyncio.ensure_future(ids.next()) for _ in range(3)]
        await allocator.called.wait()
        allocator.gate.set()
        results = await asyncio.gather(*asked, return_exceptions=True)
        assert all(isinstance(result, OSError) for result in results)
        assert await ids.next() == 3

    asyncio.run(scenario())


def test_one_who_gives_up_does_not_take_the_block_from_the_others() -> None:
    async def scenario() -> None:
        allocator = Allocator()
        allocator.gate.clear()
        ids = ProducerIds(allocator)
        first = asyncio.ensure_future(ids.next())
        second = asyncio.ensure_future(ids.next())
        await allocator.called.wait()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        allocator.gate.set()
        assert await second == 0
        assert allocator.calls == 1

    asyncio.run(scenario())
