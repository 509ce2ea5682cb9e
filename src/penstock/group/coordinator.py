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
from typing import Any

from penstock.background import Background
from penstock.clock import Clock
from penstock.config.broker import BrokerConfig
from penstock.config.group import GroupConfig, group_config
from penstock.coordination.appends import Committing, after, when_done
from penstock.coordination.shards import Shards
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
from penstock.group.commits import OffsetCommits, append_records
from penstock.group.consumer import LEAVE_FOR_A_WHILE, ConsumerGroup, ConsumerMember
from penstock.group.heartbeat import Heartbeat
from penstock.group.offsets import tombstones
from penstock.group.records import GroupMetadataKey, GroupRecord, decode_record
from penstock.group.shard import Group, Shard, is_without_members
from penstock.metadata.image import Delta, Image, ResourceType
from penstock.replica.replicas import Replicas
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.join_group import JoinGroupResponse
from penstock.wire.messages.sync_group import SyncGroupResponse

OFFSETS_TOPIC = "__consumer_offsets"

_RETRY_MS = 1000  # after which a member is removed that could not be removed

logger = logging.getLogger(__name__)


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
        self._config = config
        self._image = image
        self._clock = clock
        self._background = background
        self._alarms: dict[str, tuple[int, asyncio.TimerHandle]] = {}
        self.shards: Shards[Shard] = Shards(
            OFFSETS_TOPIC,
            replicas=replicas,
            image=image,
            background=background,
            buffer_bytes=lambda: config().offsets_load_buffer_size,
            decode=decode_record,
            make=lambda partition: Shard(partition, self._new_classic),
            loaded=self._loaded,
            unloaded=self._unloaded,
        )
        self.commits = OffsetCommits(
            self.shards, config, clock, self._now_ms, self._group_tombstones, self._forget_group
        )

    # ---- leading ----

    def start(self) -> None:
        self.shards.follow()
        self._background.every(self._config().offsets_retention_check_interval_ms, self.commits.expire_all)

    def stop(self) -> None:
        """Coordinate nothing any more; who waits is told."""
        self.shards.stop()

    def follow(self, delta: Delta | None = None) -> None:
        """Coordinate what this broker leads now, and nothing else."""
        self.shards.follow()
        if delta is not None and delta.deleted_topics:
            self.commits.forget_topics(set(delta.deleted_topics))

    def _loaded(self, shard: Shard) -> None:
        now_ms = self._now_ms()
        for group in shard.groups.values():
            if isinstance(group, ClassicGroup):
                group.begin_sessions(now_ms)
                self._arm(shard, group, group.wake_ms)
            else:
                group.begin_sessions(now_ms, self.settings(group.group_id).consumer_session_timeout_ms)
                self._arm(shard, group, group.timers.next_ms)
        logger.info("loaded %s: %d groups", shard.partition.name, len(shard.groups))

    def _unloaded(self, shard: Shard) -> None:
        for group_id, group in shard.groups.items():
            if isinstance(group, ClassicGroup):
                group.fail_waiting(ErrorCode.NOT_COORDINATOR)
            self._disarm(group_id)
        shard.groups.clear()  # so that nothing that is still under way wakes them

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)

    def shard(self, group_id: str) -> Shard:
        """Where a group lives, if that is here and loaded."""
        return self.shards.of(group_id)

    def settings(self, group_id: str) -> GroupConfig:
        return group_config(self._config(), self._image().config(ResourceType.GROUP, group_id))

    # ---- appending ----

    def _append(self, shard: Shard, records: Sequence[GroupRecord]) -> Committing:
        """Append records; the future is for when they are committed, None if they are. Raises ApiError."""
        return append_records(shard, records, self._clock.time_ms(), self._config().offsets_commit_timeout_ms)[1]

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
        when_done(future, then)

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

    def _commit(self, shard: Shard, change: Change) -> Committing:
        """Make a change true. Returns what an answer has to wait for."""
        future = self._append(shard, change.records) if change.records else None
        shard.groups[change.group.group_id] = change.group
        return future

    def _touch(self, shard: Shard, group: ConsumerGroup, member_id: str) -> None:
        group.touch(member_id, self._now_ms(), self.settings(group.group_id).consumer_session_timeout_ms)
        deadline_ms = group.timers.session.get(member_id)
        if deadline_ms is not None:
            revocation = group.timers.revocation.get(member_id)
            self._arm(shard, group, min(deadline_ms, revocation[1]) if revocation is not None else deadline_ms)

    def beat(self, group_id: str, beat: Heartbeat) -> tuple[ConsumerMember | None, bool, Committing]:
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

    def _leave_consumer(self, shard: Shard, group: ConsumerGroup, beat: Heartbeat) -> tuple[None, bool, Committing]:
        if beat.epoch == LEAVE_FOR_A_WHILE:
            change = self._change(group)
            heartbeats.take_a_break(change, beat.member_id, beat.instance_id)
            return None, False, self._commit(shard, change)
        member = group.find(beat.member_id, beat.instance_id)
        return None, False, self._fence(shard, group, member.member_id)

    def _fence(self, shard: Shard, group: ConsumerGroup, member_id: str) -> Committing:
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

    def _downgrade(self, shard: Shard, group: ConsumerGroup, without: str) -> Committing:
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

    # ---- deleting ----

    def delete_group(self, group_id: str) -> Committing:
        """Delete a group without members, and its offsets."""
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        shard = self.shard(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if not is_without_members(group):
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"Group {group_id} is not empty.")
        return self.commits.remove_group(shard, group, tombstones(shard.offsets, group_id))

    def _forget_group(self, shard: Shard, group_id: str) -> None:
        shard.groups.pop(group_id, None)
        self._disarm(group_id)

    def _group_tombstones(self, group: Group) -> list[GroupRecord]:
        if isinstance(group, ClassicGroup):
            return [GroupRecord(GroupMetadataKey(group.group_id), None)]
        change = self._change(group)
        change.tombstones()
        return change.records


def _resolver(future: asyncio.Future[Any]) -> Callable[[Any], None]:
    def resolve(response: Any) -> None:
        if not future.done():
            future.set_result(response)

    return resolve
