"""The coordinator in a real broker: what it waits for, what it does again, what it forgets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.coordination.appends import Committing
from penstock.txn.markers import Marker
from penstock.txn.transaction import EPOCH_MAX, State, TopicPartition, Transaction
from penstock.wire.batch import encode_batch
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.list_transactions import ListTransactionsRequest
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.record import Record
from tests.group.brokers import Host
from tests.group.test_coordinator import commit
from tests.log.gated import GatedStorage
from tests.txn.producers import Producer, committed, coordinator, host, is_stable, loaded, read, until

NONE = ErrorCode.NONE
DAY_MS = 24 * 60 * 60 * 1000


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))


def found(running: Host, transactional_id: str = "id") -> Transaction:
    return coordinator(running).find(transactional_id)[1]


async def in_state(running: Host, state: State) -> None:
    await until(lambda: found(running).state is state)


class Gate:
    """Stands before the writer of markers and lets them through or not."""

    def __init__(self, running: Host) -> None:
        self._writer = running.broker.markers
        self.error: ErrorCode | None = None
        self.refused: list[TopicPartition] = []
        coordinator(running)._markers = self

    def write(self, where: TopicPartition, marker: Marker) -> Committing:
        if self.error is not None:
            self.refused.append(where)
            raise ApiError(self.error)
        return self._writer.write(where, marker)


# ---- markers ----


@pytest.mark.parametrize(
    "error",
    [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS],
)
def test_a_marker_that_cannot_be_written_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: ErrorCode
) -> None:
    monkeypatch.setattr("penstock.txn.coordinator._RETRY_MS", 10)

    async def test() -> None:
        async with host(tmp_path) as running:
            await running.make_topics(a=2)
            producer = Producer(running)
            await producer.claim()
            for partition in (0, 1):
                assert await producer.produce("a", "x", partition) == NONE
            gate = Gate(running)
            gate.error = error
            assert await producer.end(commit=True) == NONE  # decided is decided
            await until(lambda: len(gate.refused) >= 6)
            assert found(running).state is State.PREPARE_COMMIT
            response = await running.call(DescribeTransactionsRequest(["id"]))
            (state,) = response.transaction_states
            assert (state.transaction_state, state.topics[0].partitions) == ("PrepareCommit", [0, 1])
            gate.error = None
            await in_state(running, State.COMPLETE_COMMIT)
            assert read(running, "a") == read(running, "a", 1) == ["x"]

    run(test)


def test_while_a_transaction_is_being_ended_the_next_one_waits(tmp_path: Path) -> None:
    async def test() -> None:
        async with host(tmp_path) as running:
            await running.make_topics(a=2)
            producer = Producer(running)
            await producer.claim()
            assert await producer.produce("a", "x") == NONE
            gate = Gate(running)
            gate.error = ErrorCode.NOT_ENOUGH_REPLICAS
            assert await producer.end(commit=True) == NONE
            busy = ErrorCode.CONCURRENT_TRANSACTIONS
            assert await producer.produce("a", "y", 1) == busy
            assert await producer.commit_offset("g", "a", 1) == busy
            assert await producer.claim() == busy
            assert read(running, "a", 1) == []

    run(test)


def test_a_topic_that_is_gone_needs_no_marker(tmp_path: Path) -> None:
    async def test() -> None:
        async with host(tmp_path) as running:
            await running.make_topics(a=1, b=1)
            producer = Producer(running)
            await producer.claim()
            for topic in ("a", "b"):
                assert await producer.produce(topic, "x") == NONE
            response = await running.call(DeleteTopicsRequest([DeleteTopicState("b")]))
            assert response.responses[0].error_code == 0
            assert await producer.end(commit=True) == NONE
            await in_state(running, State.COMPLETE_COMMIT)
            assert read(running, "a") == ["x"]

    run(test)


def test_a_partition_with_a_newer_epoch_holds_up_nothing(tmp_path: Path) -> None:
    async def test() -> None:
        async with host(tmp_path) as running:
            await running.make_topics(a=1, b=1)
            producer = Producer(running)
            await producer.claim()
            for topic in ("a", "b"):
                assert await producer.produce(topic, "x") == NONE
            marker = Marker(producer.producer_id, producer.epoch + 5, False, 0, 0)
            running.broker.markers.write(TopicPartition("b", 0), marker)
            assert await producer.end(commit=True) == NONE
            await in_state(running, State.COMPLETE_COMMIT)
            assert (read(running, "a"), read(running, "b")) == (["x"], [])

    run(test)


def test_offsets_that_are_being_loaded_take_no_marker(tmp_path: Path) -> None:
    """A coordinator of groups that has read a part of its log would never hear of it."""

    async def test() -> None:
        async with host(tmp_path) as running:
            await running.make_topics(a=1)
            producer = Producer(running)
            await producer.claim()
            assert await producer.commit_offset("g", "a", 7) == NONE
            index = running.groups.shards.partition_of("g")
            shard = running.groups.shards.of("g")
            shard.is_loaded = False
            where = TopicPartition("__consumer_offsets", index)
            marker = Marker(producer.producer_id, producer.epoch + 1, True, 0, 2)
            with pytest.raises(ApiError) as caught:
                running.broker.markers.write(where, marker)
            assert caught.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            shard.is_loaded = True
            assert await producer.end(commit=True) == NONE
            await in_state(running, State.COMPLETE_COMMIT)
            assert await committed(running, "g", "a") == (NONE, 7)

    run(test)


# ---- with a disk that is waited for ----


@pytest.mark.parametrize("commit", [True, False])
def test_with_syncs_before_use_all_steps_wait_for_the_disk(tmp_path: Path, commit: bool) -> None:
    async def test() -> None:
        async with host(tmp_path, log_flush_interval_messages="1") as running:
            await running.make_topics(a=1, b=1)
            producer = Producer(running)
            assert await producer.claim() == NONE
            for value in ("x", "y"):
                assert await producer.produce("a", value) == NONE
            assert await producer.commit_offset("g", "a", 7) == NONE
            assert await committed(running, "g", "a") == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
            assert await producer.end(commit=commit) == NONE
            await in_state(running, State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)
            await until(lambda: is_stable(running, "a"))
            assert read(running, "a") == (["x", "y"] if commit else [])
            assert await committed(running, "g", "a") == (NONE, 7 if commit else -1)

    run(test)


def test_a_change_that_is_not_on_disk_yet_lets_nobody_else_in(tmp_path: Path) -> None:
    async def test() -> None:
        storage = GatedStorage(is_open=True)
        async with host(tmp_path, storage=storage, log_flush_interval_messages="1") as running:
            await running.make_topics(a=2)
            producer = Producer(running)
            assert await producer.claim() == NONE
            who = found(running).identity
            storage.is_open = False
            try:
                future = coordinator(running).add_partitions("id", who, frozenset({TopicPartition("a", 0)}), 2)
                assert future is not None
                assert found(running).state is State.EMPTY
                assert await producer.end(commit=True) == ErrorCode.CONCURRENT_TRANSACTIONS
                with pytest.raises(ApiError) as caught:
                    coordinator(running).add_partitions("id", who, frozenset({TopicPartition("a", 1)}), 2)
                assert caught.value.code == ErrorCode.CONCURRENT_TRANSACTIONS
                assert not future.done()
            finally:
                storage.is_open = True
                storage.let_sync_end(100)  # more than can be waiting
            assert await future
            assert found(running).state is State.ONGOING

    run(test)


# ---- time ----


def test_a_transaction_that_times_out_is_aborted_once(tmp_path: Path) -> None:
    async def test() -> None:
        clock = ManualClock()
        async with host(tmp_path, clock=clock) as running:
            await running.make_topics(a=1)
            producer = Producer(running, timeout_ms=1_000)
            await producer.claim()
            assert await producer.produce("a", "x") == NONE
            clock.advance_ms(1_000)
            coordinator(running).abort_timed_out()
            await asyncio.sleep(0)
            assert found(running).state is State.ONGOING
            clock.advance_ms(1)
            coordinator(running).abort_timed_out()
            coordinator(running).abort_timed_out()
            await in_state(running, State.COMPLETE_ABORT)
            assert found(running).epoch == producer.epoch + 1
            assert await producer.produce("a", "late") == ErrorCode.INVALID_PRODUCER_EPOCH
            assert read(running, "a") == []

    run(test)


def test_a_producer_whose_epochs_run_out_gets_a_new_id(tmp_path: Path) -> None:
    async def test() -> None:
        clock = ManualClock()
        async with host(tmp_path, clock=clock) as running:
            await running.make_topics(a=1)
            producer = Producer(running, timeout_ms=1_000)
            await producer.claim()
            shard, txn = coordinator(running).find("id")
            last = Transaction("id", txn.producer_id, EPOCH_MAX - 1, 1_000, update_ms=clock.time_ms())
            coordinator(running)._write(shard, last)
            first_id, producer.epoch = producer.producer_id, EPOCH_MAX - 1
            assert await producer.produce("a", "x") == NONE
            assert await producer.end(commit=True) == NONE
            assert (producer.producer_id != first_id, producer.epoch) == (True, 0)
            assert await producer.produce("a", "y") == NONE
            assert await producer.end(commit=True) == NONE
            assert read(running, "a") == ["x", "y"]
            # And when the coordinator has to abort with the last epoch.
            shard, txn = coordinator(running).find("id")
            producer.epoch = EPOCH_MAX - 1
            last = Transaction("id", txn.producer_id, EPOCH_MAX - 1, 1_000, update_ms=clock.time_ms())
            coordinator(running)._write(shard, last)
            producer.sequences.clear()
            assert await producer.produce("a", "z") == NONE
            clock.advance_ms(1_001)
            coordinator(running).abort_timed_out()
            await in_state(running, State.COMPLETE_ABORT)
            assert found(running).producer_id != producer.producer_id
            assert read(running, "a") == ["x", "y"]

    run(test)


def test_an_id_that_nobody_uses_is_forgotten(tmp_path: Path) -> None:
    async def test() -> None:
        clock = ManualClock()
        async with host(tmp_path, clock=clock) as running:
            await running.make_topics(a=1)
            idle, busy = Producer(running, "idle"), Producer(running, "busy")
            await idle.claim()
            await busy.claim()
            assert await busy.produce("a", "x") == NONE
            clock.advance_ms(7 * DAY_MS - 1)
            coordinator(running).expire()
            assert {txn.transactional_id for txn in coordinator(running).all()} == {"idle", "busy"}
            clock.advance_ms(1)
            coordinator(running).expire()
            assert {txn.transactional_id for txn in coordinator(running).all()} == {"busy"}
            assert await idle.end(commit=True) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
        async with host(tmp_path, clock=clock) as running:
            assert {txn.transactional_id for txn in coordinator(running).all()} == {"busy"}
            idle.running = running
            assert await idle.claim() == NONE

    run(test)


# ---- loading ----


def test_what_is_being_loaded_is_not_available(tmp_path: Path) -> None:
    async def test() -> None:
        async with host(tmp_path) as running:
            await running.make_topics(a=1)
            producer = Producer(running)
            await producer.claim()
            for shard in coordinator(running).shards:
                shard.is_loaded = False
            loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert await producer.claim() == loading
            assert await producer.end(commit=True) == loading
            assert await producer.produce("a", "x") == ErrorCode.NOT_ENOUGH_REPLICAS
            assert (await running.call(ListTransactionsRequest())).error_code == loading
            for shard in coordinator(running).shards:
                shard.is_loaded = True
            assert await producer.claim() == NONE

    run(test)


def test_a_coordinator_that_lost_its_shard_does_nothing_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.txn.coordinator._RETRY_MS", 10)

    async def test() -> None:
        async with host(tmp_path) as running:
            await running.make_topics(a=1)
            producer = Producer(running)
            await producer.claim()
            assert await producer.produce("a", "x") == NONE
            gate = Gate(running)
            gate.error = ErrorCode.NOT_ENOUGH_REPLICAS
            assert await producer.end(commit=True) == NONE
            shards = coordinator(running).shards
            shards.unload(shards.partition_of("id"))
            refused = len(gate.refused)
            assert await producer.claim() == ErrorCode.NOT_COORDINATOR
            await asyncio.sleep(0.05)
            assert len(gate.refused) == refused
            gate.error = None
            shards.follow()  # it leads again, and goes on with what is in the log
            await loaded(running)
            await in_state(running, State.COMPLETE_COMMIT)
            assert read(running, "a") == ["x"]

    run(test)


def test_pending_offsets_survive_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        async with host(tmp_path) as running:
            await running.make_topics(a=1)
            commits, aborts, stays = (Producer(running, name) for name in ("one", "two", "three"))
            for number, producer in enumerate((commits, aborts, stays)):
                await producer.claim()
                assert await producer.commit_offset(f"g{number}", "a", 7 + number) == NONE
            assert await commits.end(commit=True) == NONE
            assert await aborts.end(commit=False) == NONE
        async with host(tmp_path) as running:
            assert await committed(running, "g0", "a") == (NONE, 7)
            assert await committed(running, "g1", "a") == (NONE, -1)
            assert await committed(running, "g2", "a") == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
            assert await committed(running, "g2", "a", stable=False) == (NONE, -1)
            stays.running = running
            assert await stays.end(commit=True) == NONE
            await until(lambda: not running.shard("g2").offsets.pending_places())
            assert await committed(running, "g2", "a") == (NONE, 9)

    run(test)


def test_an_offset_that_was_committed_later_stays(tmp_path: Path) -> None:
    """Also when the log is read again."""

    async def test() -> None:
        async with host(tmp_path) as running:
            await running.make_topics(t=1)
            producer = Producer(running)
            await producer.claim()
            assert await producer.commit_offset("g", "t", 7) == NONE
            assert await commit(running, 9) == NONE
            assert await producer.end(commit=True) == NONE
            assert await committed(running, "g", "t") == (NONE, 9)
        async with host(tmp_path) as running:
            assert await committed(running, "g", "t") == (NONE, 9)

    run(test)


def test_offsets_and_groups_with_a_pending_commit_do_not_expire(tmp_path: Path) -> None:
    async def test() -> None:
        clock = ManualClock()
        async with host(tmp_path, clock=clock) as running:
            await running.make_topics(t=1)
            assert await commit(running, 5) == NONE
            producer, other = Producer(running), Producer(running, "other")
            for one, group in ((producer, "g"), (other, "only-pending")):
                await one.claim()
                assert await one.commit_offset(group, "t", 7) == NONE
            clock.advance_ms(8 * DAY_MS)
            running.groups.commits.expire_all()
            assert await committed(running, "g", "t", stable=False) == (NONE, 5)
            assert "only-pending" in running.shard("only-pending").groups
            for one in (producer, other):
                assert await one.end(commit=False) == NONE
            running.groups.commits.expire_all()
            assert await committed(running, "g", "t") == (NONE, -1)
            assert "only-pending" not in running.shard("only-pending").groups

    run(test)


# ---- admission ----


@pytest.mark.parametrize("is_verified", [True, False])
def test_verification_can_be_switched_off(tmp_path: Path, is_verified: bool) -> None:
    async def test() -> None:
        settings = {"transaction_partition_verification_enable": str(is_verified).lower()}
        async with host(tmp_path, **settings) as running:
            await running.make_topics(a=1)
            producer = Producer(running)
            await producer.claim()
            batch = encode_batch(
                [Record(0, 0, None, b"x")],
                is_transactional=True,
                producer_id=producer.producer_id,
                producer_epoch=0,
                base_sequence=0,
            )
            twice = [PartitionProduceData(0, memoryview(batch)), PartitionProduceData(0, memoryview(batch))]
            request = ProduceRequest("id", -1, 1_000, [TopicProduceData("a", partition_data=twice)])
            response = await running.call(request, 10)
            codes = {result.error_code for result in response.responses[0].partition_responses}
            assert codes == {ErrorCode.INVALID_TXN_STATE if is_verified else NONE}
            end_offset = running.broker.replicas.find("a", 0).log.end_offset
            assert end_offset == (0 if is_verified else 1)

    run(test)
