"""The shell around groups: finds the shard, appends the records, keeps the time, gives the answers.

Every request names a group, and every group lives in one partition of `__consumer_offsets`; who leads that partition
coordinates the group. A decision is made in memory, its records are appended, and the answer goes out when they are
committed. What is loaded is dropped when the leadership goes.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from penstock.background import Background
from penstock.clock import Clock
from penstock.config.broker import BrokerConfig
from penstock.group import heartbeat as heartbeats
from penstock.group import migration
from penstock.group.change import Change
from penstock.group.classic import (
    CONSUMER_PROTOCOL_TYPE,
    ClassicGroup,
    Join,
    Saved,
    Timing,
    refused_join,
)
from penstock.group.consumer import LEAVE_FOR_A_WHILE, ConsumerGroup, ConsumerMember
from penstock.group.heartbeat import Heartbeat
from penstock.group.offsets import Committed, is_expired, tombstone, tombstones
from penstock.group.protocol import decode_subscription
from penstock.group.records import GroupMetadataKey, GroupRecord, OffsetCommitKey, decode_record, encode_record
from penstock.group.shard import Group, Shard
from penstock.log.producer_state import Origin
from penstock.log.storage import FileSlice
from penstock.log.validation import own_batch
from penstock.metadata.image import Delta, Image
from penstock.replica.partition import ALL_REPLICAS
from penstock.replica.replicas import Replicas
from penstock.wire.batch import batches_in, decode_records, encode_batch
from penstock.wire.errors import ApiError, DecodeError, ErrorCode
from penstock.wire.messages.join_group import JoinGroupResponse
from penstock.wire.messages.sync_group import SyncGroupResponse
from penstock.wire.record import Record

OFFSETS_TOPIC = "__consumer_offsets"

_RETRY_MS = 1000  # after which a member is removed that could not be removed
_LOAD_AGAIN_MS = 10_000  # after which a shard is loaded that could not be loaded
_TELLS_MISSING_GROUP = 9  # the version of OffsetCommit from which on clients know GROUP_ID_NOT_FOUND

logger = logging.getLogger(__name__)

# What a failed append means for those who asked.
_APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def java_hash(text: str) -> int:
    """String.hashCode of Java: it decides which partition a group lives in."""
    code = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(data), 2):
        code = (31 * code + (data[at] << 8 | data[at + 1])) & 0xFFFFFFFF
    return code - (1 << 32) if code & 0x80000000 else code


def partition_of(key: str, partition_count: int) -> int:
    code = abs(java_hash(key))
    return (code if code <= 0x7FFFFFFF else 0) % partition_count  # Java has no abs of its smallest number


class GroupCoordinator:
    """All groups that this broker coordinates. Owned by the event loop."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        config: Callable[[], BrokerConfig],
        image: Callable[[], Image],
        clock: Clock,
        background: Background,
    ) -> None:
        self._replicas = replicas
        self._config = config
        self._image = image
        self._clock = clock
        self._background = background
        self._shards: dict[int, Shard] = {}
        self._alarms: dict[str, tuple[int, asyncio.TimerHandle]] = {}
        self._loading: set[asyncio.Task[None]] = set()

    # ---- leading ----

    def start(self) -> None:
        self.follow()
        self._schedule_expiry()

    def stop(self) -> None:
        """Coordinate nothing any more; who waits is told."""
        for index in list(self._shards):
            self._unload(index)

    def follow(self, delta: Delta | None = None) -> None:
        """Coordinate what this broker leads now, and nothing else."""
        image = self._image()
        topic = image.topics.get(OFFSETS_TOPIC)
        led = {}
        if topic is not None:
            for index in topic.partitions:
                partition = self._replicas.get(OFFSETS_TOPIC, index)
                if partition is not None and partition.is_leader:
                    led[index] = partition
        for index, shard in list(self._shards.items()):
            partition = led.get(index)
            if partition is not shard.partition or shard.leader_epoch != partition.leader_epoch:
                self._unload(index)
        for index, partition in led.items():
            if index not in self._shards:
                shard = self._shards[index] = Shard(partition, self._new_classic)
                if partition.log.end_offset == partition.log.start_offset:
                    shard.finish_loading()
                else:
                    task = asyncio.get_running_loop().create_task(self._load(index, shard))
                    self._loading.add(task)
                    task.add_done_callback(self._loading.discard)
        if delta is not None and delta.deleted_topics:
            self._forget_topics(set(delta.deleted_topics))

    async def _load(self, index: int, shard: Shard) -> None:
        """Read the whole partition; the decoding is done in a thread."""
        log = shard.partition.log
        offset, end_offset = log.start_offset, log.end_offset
        try:
            while offset < end_offset and self._shards.get(index) is shard:
                part = log.read(offset, self._config().offsets_load_buffer_size, end_offset)
                if part is None:
                    break
                records, offset = await self._background.run(partial(_decode_part, part, offset))
                shard.load(records)
        except (OSError, ApiError, DecodeError):
            logger.exception("cannot load %s-%d: its groups are not available; trying again", OFFSETS_TOPIC, index)
            if self._shards.get(index) is shard:
                del self._shards[index]
                self._background.later(_LOAD_AGAIN_MS, self.follow)
            return
        if self._shards.get(index) is not shard:
            return
        shard.finish_loading()
        now_ms = self._now_ms()
        for group in shard.groups.values():
            if isinstance(group, ClassicGroup):
                group.begin_sessions(now_ms)
                self._arm(shard, group, group.wake_ms)
            else:
                group.begin_sessions(now_ms, self._config().group_consumer_session_timeout_ms)
                self._arm(shard, group, group.timers.next_ms)
        logger.info("loaded %s-%d: %d groups", OFFSETS_TOPIC, index, len(shard.groups))

    def _unload(self, index: int) -> None:
        shard = self._shards.pop(index)
        for group_id, group in shard.groups.items():
            if isinstance(group, ClassicGroup):
                group.fail_waiting(ErrorCode.NOT_COORDINATOR)
            self._disarm(group_id)
        shard.groups.clear()  # so that nothing that is still under way wakes them

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def shard(self, group_id: str) -> Shard:
        """Where a group lives, if that is here and loaded."""
        topic = self._image().topics.get(OFFSETS_TOPIC)
        if topic is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        shard = self._shards.get(partition_of(group_id, len(topic.partitions)))
        if shard is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        if not shard.is_loaded:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    @property
    def shards(self) -> list[Shard]:
        return list(self._shards.values())

    # ---- appending ----

    def _append(self, shard: Shard, records: Sequence[GroupRecord]) -> asyncio.Future[bool] | None:
        """Append records; the future is for when they are committed, None if they are. Raises ApiError."""
        now_ms = self._clock.time_ms()
        entries = [Record(n, now_ms, *encode_record(record)) for n, record in enumerate(records)]
        try:
            batch = shard.partition.append(own_batch(encode_batch(entries)), ALL_REPLICAS, Origin.COORDINATOR)
        except ApiError as error:
            raise ApiError(_APPEND_ERRORS.get(error.code, error.code), error.message) from error
        return shard.partition.acknowledgement(batch, ALL_REPLICAS, self._config().offsets_commit_timeout_ms)

    def _write(self, shard: Shard, records: Sequence[GroupRecord], then: Callable[[ErrorCode], None]) -> None:
        """Append records and say how it went, at once or later."""
        if not records:
            then(ErrorCode.NONE)
            return
        try:
            future = self._append(shard, records)
        except ApiError as error:
            then(error.code)
            return
        if future is None:
            then(ErrorCode.NONE)
        else:
            future.add_done_callback(lambda done: then(_outcome(done)))

    # ---- time ----

    def _arm(self, shard: Shard, group: Group, when_ms: int) -> None:
        """See to it that a group is looked at no later than this."""
        armed = self._alarms.get(group.group_id)
        if armed is not None:
            if armed[0] <= when_ms:
                return
            armed[1].cancel()
        delay_s = max(when_ms - self._now_ms(), 0) / 1000
        if delay_s > 1e9:
            self._alarms.pop(group.group_id, None)
            return
        handle = asyncio.get_running_loop().call_later(delay_s, self._ring, shard, group.group_id)
        self._alarms[group.group_id] = (when_ms, handle)

    def _disarm(self, group_id: str) -> None:
        armed = self._alarms.pop(group_id, None)
        if armed is not None:
            armed[1].cancel()

    def _ring(self, shard: Shard, group_id: str) -> None:
        self._alarms.pop(group_id, None)
        group = shard.groups.get(group_id)
        now_ms = self._now_ms()
        if isinstance(group, ClassicGroup):
            group.expire(now_ms)
            self._arm(shard, group, group.wake_ms)
        elif group is not None:
            retry_ms = 0
            for member_id, reason in group.overdue(now_ms).items():
                group = shard.groups.get(group_id)
                if isinstance(group, ConsumerGroup) and member_id in group.members:
                    logger.info("group %s: removing member %s: %s", group_id, member_id, reason)
                    try:
                        self._fence(shard, group, member_id)
                    except ApiError as error:
                        logger.warning("group %s: cannot remove member %s: %s", group_id, member_id, error)
                        retry_ms = now_ms + _RETRY_MS
                elif isinstance(group, ConsumerGroup):
                    group.timers.forget(member_id)
            group = shard.groups.get(group_id)
            if isinstance(group, ConsumerGroup):
                self._arm(shard, group, max(group.timers.next_ms, retry_ms))

    # ---- classic groups ----

    def _new_classic(self, shard: Shard, group_id: str) -> ClassicGroup:
        def save(record: GroupRecord, saved: Saved) -> None:
            def then(error: ErrorCode) -> None:
                saved(error, self._now_ms())
                if shard.groups.get(group_id) is group:
                    self._arm(shard, group, group.wake_ms)

            self._write(shard, [record], then)

        group = ClassicGroup(group_id, self._timing, save, self._clock.time_ms)
        return group

    def _timing(self) -> Timing:
        config = self._config()
        return Timing(config.group_initial_rebalance_delay_ms, size_max=config.group_max_size)

    def join(self, group_id: str, request: Join) -> JoinGroupResponse | asyncio.Future[JoinGroupResponse]:
        """A JoinGroup; the answer may take as long as a rebalance."""
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        config = self._config()
        if not config.group_min_session_timeout_ms <= request.session_timeout_ms <= config.group_max_session_timeout_ms:
            raise ApiError(ErrorCode.INVALID_SESSION_TIMEOUT)
        shard = self.shard(group_id)
        group = shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup) and group.members:
            return self._join_consumer(shard, group, request)
        if not isinstance(group, ClassicGroup):
            if request.member_id:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            if group is not None:
                self._append(shard, self._group_tombstones(group))
                self._disarm(group_id)
            group = shard.make_classic(group_id)
        future: asyncio.Future[JoinGroupResponse] = asyncio.get_running_loop().create_future()
        name = request.instance_id or request.client_id
        group.join(request, lambda: f"{name}-{uuid.uuid4()}", _resolver(future), self._now_ms())
        self._arm(shard, group, group.wake_ms)
        return future

    def sync(
        self,
        group_id: str,
        *,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol_type: str | None,
        protocol: str | None,
        assignments: Mapping[str, bytes],
    ) -> SyncGroupResponse | asyncio.Future[SyncGroupResponse]:
        """A SyncGroup; the answer may have to wait for the leader's."""
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        shard = self.shard(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        if isinstance(group, ConsumerGroup):
            return self._sync_consumer(shard, group, member_id, instance_id, generation, protocol_type, protocol)
        future: asyncio.Future[SyncGroupResponse] = asyncio.get_running_loop().create_future()
        group.sync(
            member_id=member_id,
            instance_id=instance_id,
            generation=generation,
            protocol_type=protocol_type,
            protocol=protocol,
            assignments=assignments,
            reply=_resolver(future),
            now_ms=self._now_ms(),
        )
        self._arm(shard, group, group.wake_ms)
        return future

    def heartbeat(self, group_id: str, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """A Heartbeat of a member that speaks the classic protocol."""
        if not group_id:
            return ErrorCode.INVALID_GROUP_ID
        shard = self.shard(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if isinstance(group, ClassicGroup):
            return group.heartbeat(member_id, instance_id, generation, self._now_ms())
        member = migration.find_classic_member(group, member_id, instance_id)
        migration.check_generation(member, generation)
        self._touch(shard, group, member_id)
        if not migration.needs_to_rejoin(group, member):
            return ErrorCode.NONE
        deadline_ms = group.timers.join.setdefault(member_id, self._now_ms() + member.rebalance_timeout_ms)
        self._arm(shard, group, deadline_ms)
        return ErrorCode.REBALANCE_IN_PROGRESS

    def leave(self, group_id: str, members: Iterable[tuple[str, str | None]]) -> list[ErrorCode]:
        """Members that go, as (member id, instance id)."""
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        shard = self.shard(group_id)
        results = []
        for member_id, instance_id in members:
            group = shard.groups.get(group_id)
            if group is None:
                results.append(ErrorCode.UNKNOWN_MEMBER_ID)
            elif isinstance(group, ClassicGroup):
                results.append(group.leave(member_id, instance_id, self._now_ms()))
                self._arm(shard, group, group.wake_ms)
            else:
                results.append(self._leave_as_classic(shard, group, member_id, instance_id))
        return results

    # ---- consumer groups ----

    def _change(self, group: ConsumerGroup) -> Change:
        default = next(iter(self._config().group_consumer_assignors), "uniform")
        return Change(group, self._image(), self._clock.time_ms(), default)

    def _commit(self, shard: Shard, change: Change) -> asyncio.Future[bool] | None:
        """Make a change true. Returns what an answer has to wait for."""
        future = self._append(shard, change.records) if change.records else None
        shard.groups[change.group.group_id] = change.group
        return future

    def _touch(self, shard: Shard, group: ConsumerGroup, member_id: str) -> None:
        group.touch(member_id, self._now_ms(), self._config().group_consumer_session_timeout_ms)
        deadline_ms = group.timers.session.get(member_id)
        if deadline_ms is not None:
            revocation = group.timers.revocation.get(member_id)
            self._arm(shard, group, min(deadline_ms, revocation[1]) if revocation is not None else deadline_ms)

    def beat(self, group_id: str, beat: Heartbeat) -> tuple[ConsumerMember | None, bool, asyncio.Future[bool] | None]:
        """A ConsumerGroupHeartbeat.

        Returns the member (None: it has left), whether it has to be told its assignment, and what the answer has to
        wait for.
        """
        shard = self.shard(group_id)
        group = shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup) and heartbeats.is_settled(group, beat, self._image()):
            self._touch(shard, group, beat.member_id)
            return group.members[beat.member_id], beat.is_full, None
        if beat.epoch < 0:
            return self._leave_consumer(shard, shard.consumer(group_id), beat)
        change = self._change_for(shard, group_id, beat)
        size_max = self._config().group_consumer_max_size
        if len(change.group.members) >= size_max and beat.member_id not in change.group.members:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {size_max} members.",
            )
        before = change.group.members.get(beat.member_id)
        had = before.progress.assigned if before is not None else {}
        member = heartbeats.beat(change, beat)
        future = self._commit(shard, change)
        if isinstance(group, ClassicGroup):
            group.fail_waiting(ErrorCode.REBALANCE_IN_PROGRESS)
            for member_id in change.group.members:
                self._touch(shard, change.group, member_id)
        self._touch(shard, change.group, beat.member_id)
        return member, beat.is_full or member.progress.assigned != had, future

    def _change_for(self, shard: Shard, group_id: str, beat: Heartbeat) -> Change:
        """A change of the group that a heartbeat is for; a new member may have to make it, or to convert it."""
        group = shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return self._change(group)
        if beat.epoch != 0:
            what = (
                f"Consumer group {group_id} not found."
                if group is None
                else f"Group {group_id} is not a consumer group."
            )
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, what)
        change = self._change(ConsumerGroup(group_id))
        if group is None:
            change.set_epoch(1)
            return change
        if group.is_empty:
            if not group.is_simple:
                change.records.append(GroupRecord(GroupMetadataKey(group_id), None))
            change.set_epoch(1)
            return change
        config = self._config()
        problem = None
        if config.group_consumer_migration_policy not in ("upgrade", "bidirectional"):
            problem = "the online upgrade is disabled"
        elif group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            problem = "the group does not use the consumer embedded protocol"
        elif len(group.members) > config.group_consumer_max_size:
            problem = "the group exceeds the consumer group maximum size"
        if problem is not None:
            raise ApiError(
                ErrorCode.GROUP_ID_NOT_FOUND,
                f"Cannot upgrade classic group {group_id} to consumer group because {problem}.",
            )
        migration.upgrade(group, change, self._image())
        logger.info("group %s: changing from the classic to the consumer protocol", group_id)
        return change

    def _leave_consumer(
        self, shard: Shard, group: ConsumerGroup, beat: Heartbeat
    ) -> tuple[None, bool, asyncio.Future[bool] | None]:
        if beat.epoch == LEAVE_FOR_A_WHILE:
            change = self._change(group)
            heartbeats.take_a_break(change, beat.member_id, beat.instance_id)
            return None, False, self._commit(shard, change)
        member = group.find(beat.member_id, beat.instance_id)
        return None, False, self._fence(shard, group, member.member_id)

    def _fence(self, shard: Shard, group: ConsumerGroup, member_id: str) -> asyncio.Future[bool] | None:
        """Remove a member; the group may become a classic one by that."""
        config = self._config()
        if (
            config.group_consumer_migration_policy in ("downgrade", "bidirectional")
            and migration.can_downgrade(group, member_id)
            and len(group.members) - 1 <= config.group_max_size
        ):
            return self._downgrade(shard, group, member_id)
        change = self._change(group)
        change.fence(member_id)
        future = self._commit(shard, change)
        group.timers.forget(member_id)
        return future

    def _downgrade(self, shard: Shard, group: ConsumerGroup, without: str) -> asyncio.Future[bool] | None:
        classic = self._new_classic(shard, group.group_id)
        migration.downgrade(group, classic, without, self._image())
        future = self._append(shard, [*self._group_tombstones(group), classic.record()])
        shard.groups[group.group_id] = classic
        self._disarm(group.group_id)
        now_ms = self._now_ms()
        classic.begin_sessions(now_ms)
        classic.rebalance(now_ms)
        self._arm(shard, classic, classic.wake_ms)
        logger.info("group %s: changing from the consumer to the classic protocol", group.group_id)
        return future

    def _join_consumer(
        self, shard: Shard, group: ConsumerGroup, request: Join
    ) -> JoinGroupResponse | asyncio.Future[JoinGroupResponse]:
        """A JoinGroup to a consumer group."""
        member_id = request.member_id or str(uuid.uuid4())
        if len(group.members) >= self._config().group_consumer_max_size and member_id not in group.members:
            raise ApiError(ErrorCode.GROUP_MAX_SIZE_REACHED)
        migration.check_protocols(group, request, member_id)
        if request.needs_known_id:
            return refused_join(ErrorCode.MEMBER_ID_REQUIRED, member_id)
        change = self._change(group)
        member = migration.join(change, request, member_id, self._image())
        replaced = group.instances.get(request.instance_id or "")
        future = self._commit(shard, change)
        if replaced not in (None, member_id):
            group.timers.forget(replaced or "")
        changed = change.group
        changed.timers.join.pop(member_id, None)
        deadline_ms = self._now_ms() + request.rebalance_timeout_ms
        changed.timers.sync[member_id] = deadline_ms
        self._touch(shard, changed, member_id)
        self._arm(shard, changed, deadline_ms)
        response = JoinGroupResponse(
            generation_id=member.epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=request.protocols[0].name,
            member_id=member_id,
        )
        return after(future, response, lambda code: refused_join(code, member_id))

    def _sync_consumer(
        self,
        shard: Shard,
        group: ConsumerGroup,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol_type: str | None,
        protocol: str | None,
    ) -> SyncGroupResponse:
        member = migration.find_classic_member(group, member_id, instance_id)
        migration.check_sync(group, member, generation, protocol_type, protocol)
        group.timers.sync.pop(member_id, None)
        self._touch(shard, group, member_id)
        assignment = migration.encode_for(member, member.progress.assigned, self._image())
        return SyncGroupResponse(protocol_type=protocol_type, protocol_name=protocol, assignment=assignment)

    def _leave_as_classic(
        self, shard: Shard, group: ConsumerGroup, member_id: str, instance_id: str | None
    ) -> ErrorCode:
        if not member_id and instance_id is not None:
            member_id = group.instances.get(instance_id, "")
        try:
            member = migration.find_classic_member(group, member_id, instance_id)
            self._fence(shard, group, member.member_id)
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    # ---- offsets ----

    def check_commit(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, version: int
    ) -> Shard:
        """Whether someone may commit offsets of a group. Returns where to."""
        shard = self.shard(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            if generation >= 0:
                raise ApiError(
                    ErrorCode.GROUP_ID_NOT_FOUND if version >= _TELLS_MISSING_GROUP else ErrorCode.ILLEGAL_GENERATION
                )
        elif isinstance(group, ClassicGroup):
            group.check_commit(member_id, instance_id, generation)
            group.touch(member_id, self._now_ms())
        else:
            group.check_commit(member_id, instance_id, generation, version)
        return shard

    def commit(
        self, shard: Shard, group_id: str, offsets: Sequence[tuple[str, int, Committed]]
    ) -> asyncio.Future[bool] | None:
        """Commit offsets, as (topic, partition, offset). They count when the future is done; None: at once."""
        records = [committed.record(group_id, topic, partition) for topic, partition, committed in offsets]
        future = self._append(shard, records)
        _when_good(future, lambda: self._committed(shard, group_id, offsets))
        return future

    def _append_offsets(self, shard: Shard, records: Sequence[GroupRecord]) -> asyncio.Future[bool] | None:
        """Append records, and follow what they say of offsets in the order of the log: when they are committed."""
        future = self._append(shard, records)
        offsets = [record for record in records if type(record.key) is OffsetCommitKey]
        _when_good(future, lambda: shard.load(offsets))
        return future

    def _committed(self, shard: Shard, group_id: str, offsets: Sequence[tuple[str, int, Committed]]) -> None:
        for topic, partition, committed in offsets:
            shard.offsets.set(group_id, topic, partition, committed)
        if group_id not in shard.groups:
            shard.make_classic(group_id)

    def delete_offsets(
        self, group_id: str, partitions: Sequence[tuple[str, int]]
    ) -> tuple[dict[tuple[str, int], ErrorCode], asyncio.Future[bool] | None]:
        """Delete committed offsets of topics that the group does not read."""
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        shard = self.shard(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        read = self._topics_read_by(group)
        if read is None:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)
        results = {
            (topic, partition): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topic in read else ErrorCode.NONE
            for topic, partition in partitions
        }
        gone = [
            (topic, partition)
            for (topic, partition), code in results.items()
            if not code and shard.offsets.get(group_id, topic, partition) is not None
        ]
        future = self._append_offsets(shard, [tombstone(group_id, *where) for where in gone]) if gone else None
        return results, future

    def _topics_read_by(self, group: Group) -> frozenset[str] | None:
        """The topics that the members of a group read; None if nobody can tell."""
        if isinstance(group, ConsumerGroup):
            return frozenset().union(*(group.subscribed_topics(member) for member in group.members.values()))
        if not group.members:
            return frozenset()
        if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        try:
            return frozenset(
                topic
                for member in group.members.values()
                for topic in decode_subscription(member.metadata(group.protocol) or member.protocols[0].metadata).topics
            )
        except DecodeError:
            return None

    def delete_group(self, group_id: str) -> asyncio.Future[bool] | None:
        """Delete a group without members, and its offsets."""
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        shard = self.shard(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if not _is_without_members(group):
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"Group {group_id} is not empty.")
        records = [*tombstones(shard.offsets, group_id), *self._group_tombstones(group)]
        future = self._append_offsets(shard, records)
        shard.groups.pop(group_id, None)
        self._disarm(group_id)
        return future

    def _group_tombstones(self, group: Group) -> list[GroupRecord]:
        if isinstance(group, ClassicGroup):
            return [GroupRecord(GroupMetadataKey(group.group_id), None)]
        change = self._change(group)
        change.tombstones()
        return change.records

    # ---- forgetting ----

    def _schedule_expiry(self) -> None:
        def expire() -> None:
            for shard in self.shards:
                if shard.is_loaded:
                    self.expire_offsets(shard)
            self._schedule_expiry()

        self._background.later(self._config().offsets_retention_check_interval_ms, expire)

    def expire_offsets(self, shard: Shard) -> None:
        """Forget offsets that are too old, and groups that have neither members nor offsets."""
        retention_ms = self._config().offsets_retention_minutes * 60_000
        now_ms = self._clock.time_ms()
        for group_id, group in list(shard.groups.items()):
            read = self._topics_read_by(group)
            idle_since_ms = group.changed_wall_ms if isinstance(group, ClassicGroup) else None
            gone = [
                (topic, partition)
                for topic, partitions in shard.offsets.of(group_id).items()
                if read is not None and topic not in read
                for partition, committed in partitions.items()
                if is_expired(committed, idle_since_ms, retention_ms, now_ms)
            ]
            records = [tombstone(group_id, *where) for where in gone]
            has_left = sum(len(partitions) for partitions in shard.offsets.of(group_id).values()) > len(gone)
            is_over = not has_left and _is_without_members(group)
            if is_over:
                records += self._group_tombstones(group)
            if not records:
                continue
            try:
                self._append_offsets(shard, records)
            except ApiError as error:
                logger.warning("group %s: cannot forget old offsets: %s", group_id, error)
                return
            if is_over:
                shard.groups.pop(group_id, None)
                self._disarm(group_id)

    def _forget_topics(self, names: set[str]) -> None:
        """Offsets of a topic go with it."""
        for shard in self.shards:
            gone = [
                (group_id, topic, partition)
                for group_id in list(shard.offsets.groups())
                for topic in names & shard.offsets.of(group_id).keys()
                for partition in shard.offsets.of(group_id)[topic]
            ]
            if not gone or not shard.is_loaded:
                continue
            try:
                self._append_offsets(shard, [tombstone(*where) for where in gone])
            except ApiError as error:
                logger.warning("cannot forget the offsets of %s: %s", ", ".join(sorted(names)), error)


def _decode_part(part: FileSlice, start_offset: int) -> tuple[list[GroupRecord], int]:
    """The records of a part of the log, and the offset behind them. Runs in a thread."""
    content = part.read()
    found = []
    next_offset = start_offset
    for batch in batches_in(content):
        next_offset = batch.next_offset
        if batch.is_control:
            continue
        for entry in decode_records(content, batch):
            if entry.offset >= start_offset and entry.key is not None:
                record = decode_record(bytes(entry.key), None if entry.value is None else bytes(entry.value))
                if record is not None:
                    found.append(record)
    if next_offset == start_offset:
        raise DecodeError(f"no whole batch at offset {start_offset}")
    return found, next_offset


def _is_without_members(group: Group) -> bool:
    return group.is_empty if isinstance(group, ClassicGroup) else not group.members


def _resolver(future: asyncio.Future[Any]) -> Callable[[Any], None]:
    def resolve(response: Any) -> None:
        if not future.done():
            future.set_result(response)

    return resolve


def _outcome(done: asyncio.Future[bool]) -> ErrorCode:
    """How it went with records that were appended."""
    if done.cancelled():
        return ErrorCode.NOT_COORDINATOR
    error = done.exception()
    if error is None:
        return ErrorCode.NONE if done.result() else ErrorCode.COORDINATOR_NOT_AVAILABLE
    code = error.code if isinstance(error, ApiError) else ErrorCode.UNKNOWN_SERVER_ERROR
    return _APPEND_ERRORS.get(code, code)


def _when_good(future: asyncio.Future[bool] | None, action: Callable[[], None]) -> None:
    """Act when records are committed; not at all if they cannot be."""
    if future is None:
        action()
    else:
        future.add_done_callback(lambda done: None if _outcome(done) else action())


async def settled(future: asyncio.Future[bool] | None) -> ErrorCode:
    """How it went with records that were appended, when that is known."""
    if future is None:
        return ErrorCode.NONE
    await asyncio.wait([future])
    return _outcome(future)


def after(
    future: asyncio.Future[bool] | None, response: Any, refused: Callable[[ErrorCode], Any]
) -> Any | asyncio.Future[Any]:
    """The response when the future is done, or another if it fails."""
    if future is None:
        return response
    answer = asyncio.get_running_loop().create_future()

    def done(future: asyncio.Future[bool]) -> None:
        if not answer.done():
            code = _outcome(future)
            answer.set_result(refused(code) if code else response)

    future.add_done_callback(done)
    return answer
