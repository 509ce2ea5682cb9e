from __future__ import annotations

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from penstock.background import Background
from penstock.log.group_commit import GroupCommit
from penstock.log.log import Log
from penstock.wire.errors import ApiError, ErrorCode
from tests.log.gated import GatedStorage
from tests.log.samples import append, config_of, data_batch, open_at


@dataclass
class Stage:
    storage: GatedStorage
    log: Log
    commits: GroupCommit
    flushed_at: list[int] = field(default_factory=list)
    failures: list[OSError] = field(default_factory=list)

    def append(self, count: int = 1) -> int:
        """Append records; returns the end of the log."""
        for _ in range(count):
            append(self.log, data_batch(b"v"))
        return self.log.end_offset

    async def syncs_so_far(self) -> int:
        """How many syncs there were, with those that are still to come for what was asked so far."""
        self.storage.let_sync_end(10)
        await self.commits.wait(self.append())
        return self.storage.sync_count - 1


@asynccontextmanager
async def stage(path: Path) -> AsyncIterator[Stage]:
    background = Background(asyncio.get_running_loop(), 2)
    storage = GatedStorage()
    failures: list[OSError] = []
    log = open_at(path, config_of(), storage=storage, on_failure=failures.append)
    made = Stage(storage, log, GroupCommit(log, background, lambda: made.flushed_at.append(log.recovery_point)))
    made.failures = failures
    try:
        yield made
    finally:
        storage.let_sync_end(1000)
        background.close()


def run(path: Path, scenario: Callable[[Stage], Awaitable[None]]) -> None:
    async def main() -> None:
        async with stage(path) as made:
            await scenario(made)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_everyone_who_waits_for_what_is_written_shares_one_sync(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        end = stage.append(10)
        waiting = [stage.commits.wait(offset) for offset in range(1, end + 1)]
        await stage.storage.sync_begins()
        assert not any(future.done() for future in waiting)
        stage.storage.let_sync_end()
        assert await asyncio.gather(*waiting) == [True] * 10
        assert stage.log.recovery_point == 10
        assert await stage.syncs_so_far() == 1

    run(tmp_path, scenario)


def test_those_who_come_during_a_sync_share_the_next_one(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        first = stage.commits.wait(stage.append())
        await stage.storage.sync_begins()
        later = [stage.commits.wait(stage.append()) for _ in range(20)]
        stage.storage.let_sync_end()
        assert await first is True
        assert stage.log.recovery_point == 1
        assert not any(future.done() for future in later)
        await stage.storage.sync_begins()
        stage.storage.let_sync_end()
        assert await asyncio.gather(*later) == [True] * 20
        assert stage.flushed_at == [1, 21]
        assert await stage.syncs_so_far() == 2

    run(tmp_path, scenario)


def test_nobody_waits_for_what_is_durable_already(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.storage.let_sync_end()
        await stage.commits.wait(stage.append(3))
        for offset in (0, 1, 3):
            future = stage.commits.wait(offset)
            assert future.done()
            assert future.result() is True
        assert await stage.syncs_so_far() == 1

    run(tmp_path, scenario)


def test_a_wait_that_lasts_too_long_gives_false(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        impatient = stage.commits.wait(stage.append(), timeout_s=0.001)
        patient = stage.commits.wait(1, timeout_s=60)
        assert await impatient is False
        stage.storage.let_sync_end()
        assert await patient is True

    run(tmp_path, scenario)


def test_a_failed_sync_fails_all_who_wait_and_the_log(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        first = stage.commits.wait(stage.append())
        await stage.storage.sync_begins()
        second = stage.commits.wait(stage.append())
        stage.storage.error = OSError(errno.EIO, "I/O error")
        stage.storage.let_sync_end()
        for result in await asyncio.gather(first, second, return_exceptions=True):
            assert isinstance(result, ApiError)
            assert result.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert [error.errno for error in stage.failures] == [errno.EIO]
        assert stage.log.recovery_point == 0
        assert stage.flushed_at == []
        assert stage.storage.sync_count == 1  # what a second one would say could not be trusted

    run(tmp_path, scenario)


def test_a_request_during_a_sync_is_served_by_one_more(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.append()
        stage.commits.request()
        await stage.storage.sync_begins()
        stage.append()
        for _ in range(5):
            stage.commits.request()
        stage.storage.let_sync_end()
        await stage.storage.sync_begins()
        stage.storage.let_sync_end()
        assert await stage.commits.wait(2) is True
        assert await stage.syncs_so_far() == 2

    run(tmp_path, scenario)


def test_asking_for_what_a_running_sync_covers_causes_no_other(tmp_path: Path) -> None:
    """With flush.messages=1, an append asks for a sync and then the producer's answer waits for it."""

    async def scenario(stage: Stage) -> None:
        end = stage.append()
        stage.commits.request()
        await stage.storage.sync_begins()
        future = stage.commits.wait(end)
        stage.storage.let_sync_end()
        assert await future is True
        assert await stage.syncs_so_far() == 1

    run(tmp_path, scenario)


def test_the_log_is_told_before_those_who_wait(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        seen: list[int] = []
        future = stage.commits.wait(stage.append())
        future.add_done_callback(lambda _: seen.append(stage.log.recovery_point))
        stage.storage.let_sync_end()
        await future
        await asyncio.sleep(0)
        assert seen == [1]
        assert stage.flushed_at == [1]

    run(tmp_path, scenario)


def test_a_flush_that_failed_for_another_reason_is_not_taken_for_durable(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        future = stage.commits.wait(stage.append())
        await stage.storage.sync_begins()
        stage.storage.error = ValueError("a bug")  # type: ignore[assignment]
        stage.storage.let_sync_end()
        with pytest.raises(ApiError) as caught:
            await future
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert stage.log.recovery_point == 0

    run(tmp_path, scenario)
