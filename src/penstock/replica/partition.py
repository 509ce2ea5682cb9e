"""One partition on this broker: the log, who leads it, what is committed, and who waits for that."""

from __future__ import annotations

import asyncio
from typing import Protocol

from penstock.background import Background
from penstock.log.group_commit import GroupCommit
from penstock.log.log import Log
from penstock.log.storage import FileSlice
from penstock.metadata.image import INTERNAL_TOPICS, PartitionState
from penstock.replica._leading import ALL_REPLICAS as ALL_REPLICAS
from penstock.replica._leading import Leading
from penstock.replica.isr import committed_offset
from penstock.waiters import OffsetWaiters
from penstock.wire._kernel import Batch
from penstock.wire.errors import ApiError, ErrorCode


class Watcher(Protocol):
    """Somebody who wants to know when a partition can give more than before."""

    def wake(self) -> None: ...


class Partition(Leading):
    """A partition that this broker has a replica of.

    `append` and `read` are plain functions, called in arrival order by the event loop: that keeps records in order, and
    nothing here needs a lock. What a caller must wait for is returned as a future.

    The leader's own position counts towards the high watermark only as far as it promised durability: with
    flush.messages=1, as far as it is synced. So neither a producer nor a consumer ever sees a record that a power cut
    could take back.
    """

    def __init__(
        self, topic: str, index: int, topic_id: bytes, broker_id: int, log: Log, background: Background
    ) -> None:
        self.topic = topic
        self.index = index
        self.topic_id = topic_id
        self.is_internal = topic in INTERNAL_TOPICS
        self.log = log
        self._broker_id = broker_id
        self._state = PartitionState((), (), -1, -1, -1)
        self._is_alone = False  # no other replica is in sync
        self.is_leader = False
        self.leader_epoch = -1
        self._follower_offsets: dict[int, int] = {}
        self._committed = OffsetWaiters()
        self._commits = GroupCommit(log, background, self._flushed)
        self._watchers = set()
        self.is_offline = False

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def leader_id(self) -> int:
        return self._state.leader

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    # ---- leadership ----

    def update(self, state: PartitionState) -> None:
        """Follow what the metadata says now."""
        is_new_epoch = state.leader_epoch > self.leader_epoch
        self._state = state
        self._is_alone = state.isr == (self._broker_id,)
        self.leader_epoch = state.leader_epoch
        was_leader = self.is_leader
        self.is_leader = state.leader == self._broker_id and not self.is_offline
        if was_leader and not self.is_leader:
            self._committed.fail(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} has another leader now"))
        if self.is_leader and is_new_epoch:
            self._follower_offsets.clear()
            self.log.epochs.assign(state.leader_epoch, self.log.end_offset)
        if self.is_leader:
            if self.log.is_flush_due:  # what recovery found may not be on disk yet
                self._commits.request()
            self._advance()

    def check_leader(self) -> None:
        """Refuse what only the leader may do."""
        if self.is_offline:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk that holds {self.name} has failed")
        if not self.is_leader:
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self._broker_id} does not lead {self.name}")

    def check_epoch(self, epoch: int) -> None:
        """Refuse a request of somebody whose metadata is older, or newer, than ours. -1 is anybody's."""
        if epoch == -1 or epoch == self.leader_epoch:
            return
        if epoch < self.leader_epoch:
            raise ApiError(
                ErrorCode.FENCED_LEADER_EPOCH, f"{self.name}: epoch {epoch} is older than {self.leader_epoch}"
            )
        raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"{self.name}: epoch {epoch} is newer than {self.leader_epoch}")

    # ---- writing ----

    # `append` is native (`Leading`).

    def _check_in_sync(self) -> None:
        """Refuse a batch for acks=all that too few replicas would have."""
        if len(self._state.isr) < self.log.config.min_insync_replicas:
            raise ApiError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self.name} has {len(self._state.isr)} in-sync replicas; "
                f"min.insync.replicas={self.log.config.min_insync_replicas}",
            )

    def acknowledgement(self, batch: Batch, acks: int, timeout_ms: int) -> asyncio.Future[bool] | None:
        """What an answer to the producer of an appended batch has to wait for; None if it need not wait.

        The future resolves to False when the time is up.
        """
        next_offset = batch.next_offset
        if acks == ALL_REPLICAS and next_offset > self.log.high_watermark:
            return self._committed.wait(next_offset, timeout_ms / 1000)
        if self.log.is_synced_by_count and self.log.is_flush_due and next_offset > self.log.recovery_point:
            return self._commits.wait(next_offset, timeout_ms / 1000)
        return None

    def request_flush(self) -> None:
        self._commits.request()

    def _flushed(self) -> None:
        if self.is_leader:
            self._advance()

    def _in_sync_offset(self, own: int) -> int:
        """The offset up to which all in-sync replicas have the log; the leader counts as far as `own`."""
        return committed_offset(self._broker_id, own, self._follower_offsets, self._state.isr)

    # ---- reading ----

    def upper_bound(self, *, is_committed_only: bool) -> int:
        """The offset up to which consumers may read."""
        return self.log.last_stable_offset if is_committed_only else self.log.high_watermark

    def read(self, offset: int, bytes_max: int, upper_bound: int, *, is_first: bool) -> FileSlice | None:
        return self.log.read(offset, bytes_max, upper_bound, is_first=is_first)

    def watch(self, watcher: Watcher) -> None:
        """Wake `watcher` whenever consumers may read more."""
        self._watchers.add(watcher)

    def unwatch(self, watcher: Watcher) -> None:
        self._watchers.discard(watcher)

    # ---- other requests ----

    def delete_records(self, offset: int) -> int:
        """Drop the records below an offset (-1: all committed ones); returns where the log starts now."""
        self.check_leader()
        if offset < -1:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{self.name}: there is no offset {offset}")
        self.log.advance_start(self.log.high_watermark if offset == -1 else offset)
        return self.log.start_offset

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(epoch, end offset) of the largest epoch here that is not above `epoch`."""
        return self.log.epochs.end_offset_for(epoch, self.log.end_offset)

    def go_offline(self) -> None:
        """The disk failed: nothing can be served, and nobody who waits will get what they wait for."""
        self.is_offline = True
        self.is_leader = False
        self._committed.fail(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk that holds {self.name} has failed"))
        for watcher in self._watchers:
            watcher.wake()

    def close(self) -> None:
        """The partition is not here any more."""
        self.is_leader = False
        self._committed.fail(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.name} was removed"))
        for watcher in self._watchers:
            watcher.wake()
