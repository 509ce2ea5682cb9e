from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.background import Background
from penstock.config.topic import TopicConfig
from penstock.log.validation import own_batch
from penstock.metadata.image import PartitionState
from penstock.replica.partition import ALL_REPLICAS, Partition
from penstock.wire._kernel import Batch
from penstock.wire.errors import ApiError, ErrorCode
from tests.log.gated import GatedStorage
from tests.log.samples import config_of, data_batch, marker_batch, open_at, records_from, txn_batch

ID = bytes(range(16))
ALONE = PartitionState(replicas=(1,), isr=(1,), leader=1, leader_epoch=3, partition_epoch=0)
WITH_FOLLOWER = PartitionState(replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=3, partition_epoch=0)
LEADER, ALL = 1, ALL_REPLICAS


class Stage:
    """A partition of broker 1 on a disk whose syncs wait for the test."""

    def __init__(
        self, path: Path, config: TopicConfig, storage: GatedStorage, background: Background, is_clean: bool
    ) -> None:
        self.gate = storage
        self.failures: list[OSError] = []
        self.log = open_at(path / "t-0", config, storage=storage, is_clean=is_clean, on_failure=self.failures.append)
        self.partition = Partition("t", 0, ID, 1, self.log, background)

    def append(self, *values: bytes, acks: int = ALL) -> Batch:
        return self.partition.append(own_batch(data_batch(*values)), acks)


def run(
    path: Path,
    scenario: Callable[[Stage], Awaitable[None]],
    *,
    state: PartitionState | None = ALONE,
    is_clean: bool = True,
    **settings: Any,
) -> None:
    async def main() -> None:
        background = Background(asyncio.get_running_loop(), 2)
        storage = GatedStorage()
        stage = Stage(path, config_of(**settings), storage, background, is_clean)
        if state is not None:
            stage.partition.update(state)
        try:
            await scenario(stage)
        finally:
            storage.let_sync_end(1000)
            background.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def code_of(action: Callable[..., Any], *arguments: Any, **options: Any) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        action(*arguments, **options)
    return caught.value.code


class Watcher:
    def __init__(self) -> None:
        self.woken = 0
        self.is_woken = asyncio.Event()

    def wake(self) -> None:
        self.woken += 1
        self.is_woken.set()


# ---- acknowledgements ----


def test_a_leader_alone_commits_at_once(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        for acks in (0, LEADER, ALL):
            result = stage.append(b"a", b"b", acks=acks)
            assert stage.partition.high_watermark == result.last_offset + 1
            assert stage.partition.acknowledgement(result, acks, 1000) is None
        assert stage.gate.sync_count == 0

    run(tmp_path, scenario)


def test_acks_all_waits_until_every_in_sync_replica_has_it(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        partition = stage.partition
        result = stage.append(b"a")
        future = partition.acknowledgement(result, ALL, 60000)
        assert future is not None
        assert partition.high_watermark == 0
        assert partition.acknowledgement(result, LEADER, 60000) is None
        partition.update(replace(WITH_FOLLOWER, isr=(1,), partition_epoch=1))  # the follower fell behind
        assert partition.high_watermark == 1
        assert await future is True

    run(tmp_path, scenario, state=WITH_FOLLOWER)


def test_acks_all_gives_false_when_the_time_is_up(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        future = stage.partition.acknowledgement(stage.append(b"a"), ALL, 1)
        assert future is not None
        assert await future is False

    run(tmp_path, scenario, state=WITH_FOLLOWER)


def test_too_few_in_sync_replicas_refuse_acks_all_and_nothing_else(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        assert code_of(stage.append, b"a") is ErrorCode.NOT_ENOUGH_REPLICAS
        assert stage.log.end_offset == 0
        stage.append(b"a", acks=LEADER)
        stage.append(b"b", acks=0)
        assert stage.log.end_offset == 2
        stage.partition.update(replace(WITH_FOLLOWER, partition_epoch=1))
        stage.append(b"c")

    run(tmp_path, scenario, min_insync_replicas=2)


# ---- flush.messages=1 ----


@pytest.mark.parametrize("acks", [LEADER, ALL])
def test_with_flush_messages_1_a_record_is_acknowledged_after_it_is_synced(tmp_path: Path, acks: int) -> None:
    async def scenario(stage: Stage) -> None:
        result = stage.append(b"a", acks=acks)
        future = stage.partition.acknowledgement(result, acks, 60000)
        assert future is not None
        await stage.gate.sync_begins()
        assert not future.done()
        stage.gate.let_sync_end(10)
        assert await future is True
        assert stage.log.recovery_point == 1
        assert stage.partition.high_watermark == 1

    run(tmp_path, scenario, flush_messages=1)


def test_with_flush_messages_1_nobody_reads_what_is_not_synced(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        partition = stage.partition
        watcher = Watcher()
        partition.watch(watcher)
        future = partition.acknowledgement(stage.append(b"a"), ALL, 60000)
        await stage.gate.sync_begins()
        for is_committed_only in (True, False):
            assert partition.upper_bound(is_committed_only=is_committed_only) == 0
        assert watcher.woken == 0
        assert partition.read(0, 100, partition.upper_bound(is_committed_only=False), is_first=True) is None
        stage.gate.let_sync_end(10)
        assert future is not None
        await future
        assert partition.upper_bound(is_committed_only=False) == 1
        assert partition.read(0, 100, 1, is_first=True) is not None
        assert watcher.woken == 1

    run(tmp_path, scenario, flush_messages=1)


def test_with_flush_messages_1_many_appends_share_syncs(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        futures = [stage.partition.acknowledgement(stage.append(b"first"), ALL, 60000)]
        await stage.gate.sync_begins()
        futures += [stage.partition.acknowledgement(stage.append(b"v"), ALL, 60000) for _ in range(50)]
        stage.gate.let_sync_end(10)
        assert await asyncio.gather(*[future for future in futures if future is not None]) == [True] * 51
        assert stage.gate.sync_count == 2

    run(tmp_path, scenario, flush_messages=1)


def test_with_flush_messages_1_one_record_costs_one_sync(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.gate.let_sync_end(100)
        for _ in range(5):
            future = stage.partition.acknowledgement(stage.append(b"a", acks=LEADER), LEADER, 60000)
            assert future is not None
            assert await future is True
        assert stage.gate.sync_count == 5

    run(tmp_path, scenario, flush_messages=1)


def test_with_a_larger_interval_only_the_last_record_of_it_waits(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        partition = stage.partition
        for _ in range(2):
            assert partition.acknowledgement(stage.append(b"a", acks=LEADER), LEADER, 60000) is None
        future = partition.acknowledgement(stage.append(b"a", acks=LEADER), LEADER, 60000)
        assert future is not None
        stage.gate.let_sync_end(10)
        assert await future is True
        assert stage.log.recovery_point == 3

    run(tmp_path, scenario, flush_messages=3)


def test_what_recovery_found_is_synced_before_it_is_read(tmp_path: Path) -> None:
    open_at(tmp_path / "t-0", config_of()).append(own_batch(data_batch(b"a", b"b")), 0)
    storage = GatedStorage()
    storage.let_sync_end(10)
    log = open_at(tmp_path / "t-0", config_of(flush_messages=1), storage=storage, is_clean=False)
    assert storage.sync_count == 1
    assert log.recovery_point == 2

    async def serve() -> int:
        background = Background(asyncio.get_running_loop(), 1)
        partition = Partition("t", 0, ID, 1, log, background)
        partition.update(ALONE)
        background.close()
        return partition.high_watermark

    assert asyncio.run(serve()) == 2, "nobody sees the log shorter than it was"


def test_a_failed_sync_fails_the_producers_that_wait(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        future = stage.partition.acknowledgement(stage.append(b"a", acks=LEADER), LEADER, 60000)
        stage.gate.error = OSError(errno.EIO, "I/O error")
        stage.gate.let_sync_end(10)
        assert future is not None
        with pytest.raises(ApiError) as caught:
            await future
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert [error.errno for error in stage.failures] == [errno.EIO]
        assert stage.partition.high_watermark == 0

    run(tmp_path, scenario, flush_messages=1)


# ---- leadership ----


def test_a_broker_that_does_not_lead_takes_nothing(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        partition = stage.partition
        assert not partition.is_leader
        assert code_of(stage.append, b"a") is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert code_of(partition.check_leader) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert code_of(partition.delete_records, 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition.update(ALONE)
        partition.check_leader()
        stage.append(b"a")
        partition.update(replace(ALONE, leader=2, leader_epoch=4))
        assert partition.leader_id == 2
        assert code_of(stage.append, b"a") is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert stage.log.end_offset == 1

    run(tmp_path, scenario, state=None)


def test_records_have_the_epoch_of_their_leader(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.append(b"a")
        stage.partition.update(replace(ALONE, leader_epoch=8))
        stage.append(b"b")
        assert stage.log.epochs.entries == ((3, 0), (8, 1))
        assert stage.partition.leader_epoch == 8
        assert stage.partition.end_offset_for_epoch(3) == (3, 1)
        assert stage.partition.end_offset_for_epoch(8) == (8, 2)
        assert stage.partition.end_offset_for_epoch(9) == (-1, -1)

    run(tmp_path, scenario)


def test_an_epoch_is_known_as_soon_as_it_begins(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        assert stage.partition.end_offset_for_epoch(3) == (3, 0)

    run(tmp_path, scenario)


def test_requests_of_other_epochs_are_refused(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        check = stage.partition.check_epoch
        check(-1)
        check(3)
        assert code_of(check, 2) is ErrorCode.FENCED_LEADER_EPOCH
        assert code_of(check, 4) is ErrorCode.UNKNOWN_LEADER_EPOCH

    run(tmp_path, scenario)


def test_a_duplicate_is_acknowledged_like_the_first_one(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        data = data_batch(b"a", producer=1, sequence=0)
        first = stage.partition.append(own_batch(bytearray(data)), ALL)
        again = stage.partition.append(own_batch(bytearray(data)), ALL)
        assert again.is_duplicate
        assert (again.base_offset, again.last_offset) == (first.base_offset, first.last_offset)
        assert stage.partition.acknowledgement(again, ALL, 60000) is not None

    run(tmp_path, scenario, state=WITH_FOLLOWER)


# ---- readers ----


def test_watchers_are_woken_when_there_is_more_to_read(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        watchers = [Watcher(), Watcher()]
        for watcher in watchers:
            stage.partition.watch(watcher)
        stage.append(b"a")
        assert [watcher.woken for watcher in watchers] == [1, 1]
        stage.partition.unwatch(watchers[0])
        stage.append(b"b")
        assert [watcher.woken for watcher in watchers] == [1, 2]
        stage.partition.unwatch(watchers[0])  # twice is fine

    run(tmp_path, scenario)


def test_watchers_sleep_while_nothing_is_committed(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        watcher = Watcher()
        stage.partition.watch(watcher)
        stage.append(b"a")
        assert watcher.woken == 0
        stage.partition.update(replace(WITH_FOLLOWER, isr=(1,), partition_epoch=1))
        assert watcher.woken == 1

    run(tmp_path, scenario, state=WITH_FOLLOWER)


def test_readers_of_committed_records_wait_for_transactions(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        partition = stage.partition
        stage.append(b"plain")
        partition.append(own_batch(txn_batch(1, b"a")), ALL)
        assert partition.upper_bound(is_committed_only=False) == 2
        assert partition.upper_bound(is_committed_only=True) == 1
        partition.append(own_batch(marker_batch(1, is_commit=True)), ALL)
        assert partition.upper_bound(is_committed_only=True) == 3

    run(tmp_path, scenario)


# ---- deleting records ----


def test_records_are_deleted_up_to_an_offset(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        for _ in range(5):
            stage.append(b"a")
        partition = stage.partition
        assert partition.delete_records(3) == 3
        assert partition.delete_records(2) == 3
        assert [record.offset for record in records_from(stage.log, 3)] == [3, 4]
        assert code_of(partition.delete_records, 6) is ErrorCode.OFFSET_OUT_OF_RANGE
        assert partition.delete_records(-1) == 5

    run(tmp_path, scenario)


@pytest.mark.parametrize("offset", [-2, -100])
def test_other_negative_offsets_are_out_of_range(tmp_path: Path, offset: int) -> None:
    async def scenario(stage: Stage) -> None:
        stage.append(b"a")
        assert code_of(stage.partition.delete_records, offset) is ErrorCode.OFFSET_OUT_OF_RANGE

    run(tmp_path, scenario)


# ---- the end ----


def test_going_offline_fails_producers_and_wakes_readers(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        partition = stage.partition
        future = partition.acknowledgement(stage.append(b"a"), ALL, 60000)
        watcher = Watcher()
        partition.watch(watcher)
        partition.go_offline()
        assert future is not None
        with pytest.raises(ApiError) as caught:
            await future
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert watcher.woken == 1
        assert code_of(stage.append, b"b") is ErrorCode.KAFKA_STORAGE_ERROR
        assert code_of(partition.check_leader) is ErrorCode.KAFKA_STORAGE_ERROR

    run(tmp_path, scenario, state=WITH_FOLLOWER)


def test_a_partition_that_is_offline_stays_so_when_the_metadata_changes(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        stage.partition.go_offline()
        stage.partition.update(replace(ALONE, leader_epoch=9, partition_epoch=1))
        assert code_of(stage.append, b"a") is ErrorCode.KAFKA_STORAGE_ERROR

    run(tmp_path, scenario)


def test_a_removed_partition_fails_producers_and_wakes_readers(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        partition = stage.partition
        future = partition.acknowledgement(stage.append(b"a"), ALL, 60000)
        watcher = Watcher()
        partition.watch(watcher)
        partition.close()
        assert future is not None
        with pytest.raises(ApiError) as caught:
            await future
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert watcher.woken == 1

    run(tmp_path, scenario, state=WITH_FOLLOWER)


def test_producers_that_wait_are_told_when_another_broker_leads(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        future = stage.partition.acknowledgement(stage.append(b"a"), ALL, 5000)
        assert future is not None
        stage.partition.update(replace(WITH_FOLLOWER, leader=2, leader_epoch=4))
        assert future.done()
        error = future.exception()
        assert isinstance(error, ApiError)
        assert error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    run(tmp_path, scenario, state=WITH_FOLLOWER)
