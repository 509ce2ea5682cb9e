from __future__ import annotations

import asyncio

import pytest

from penstock.waiters import OffsetWaiters


def test_all_who_wait_for_a_reached_offset_are_told_and_nobody_else() -> None:
    async def run() -> None:
        waiters = OffsetWaiters()
        futures = {offset: waiters.wait(offset) for offset in (7, 3, 5)}
        waiters.reached(5)
        assert {offset: future.done() for offset, future in futures.items()} == {3: True, 5: True, 7: False}
        assert futures[3].result() is True
        waiters.reached(100)
        assert futures[7].result() is True
        assert not waiters.waiting

    asyncio.run(run())


def test_whose_time_is_up_is_told_so() -> None:
    async def run() -> None:
        waiters = OffsetWaiters()
        assert await waiters.wait(5, 0.01) is False

    asyncio.run(run())


def test_a_failure_reaches_all() -> None:
    async def run() -> None:
        waiters = OffsetWaiters()
        futures = [waiters.wait(offset) for offset in (1, 2)]
        waiters.fail(RuntimeError("gone"))
        for future in futures:
            with pytest.raises(RuntimeError, match="gone"):
                await future

    asyncio.run(run())


def test_those_whose_time_is_up_do_not_pile_up() -> None:
    async def run() -> None:
        waiters = OffsetWaiters()
        lasting = waiters.wait(5000)
        for _ in range(20):
            await asyncio.gather(*(waiters.wait(1000, 0.001) for _ in range(100)))
        assert len(waiters.waiting) < 500
        waiters.reached(5000)
        assert lasting.result() is True

    asyncio.run(run())
