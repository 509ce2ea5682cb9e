"""A classic group: its members choose a leader's assignment in rounds of JoinGroup and SyncGroup. Pure.

    EMPTY -> PREPARING_REBALANCE -> COMPLETING_REBALANCE -> STABLE
                     ^---------------------'------------------'

While a rebalance is prepared, the answers to JoinGroup are held back until everybody has come, or the time is up. Then
a new generation begins: everyone gets an answer, the leader with the list of members. While it is completed, the
answers to SyncGroup are held back until the leader hands in the assignment, which is saved first.

Time comes in as an argument (milliseconds that never go back). `wake_ms` says when `expire` must be called next; it may
be called earlier, or more often. Answers go out through the callables that came with the requests, and what has to be
durable through `save`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

from penstock.group.records import GroupMetadataKey, GroupMetadataValue, GroupRecord, MemberMetadata
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from penstock.wire.messages.sync_group import SyncGroupResponse

NEVER = 1 << 62
CONSUMER_PROTOCOL_TYPE = "consumer"

Reply = Callable[[Any], None]
Saved = Callable[[ErrorCode, int], None]  # how it went, and what time it is by then
Save = Callable[[GroupRecord, Saved], None]


class State(Enum):
    """Named as Kafka's tools show them."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Protocol(NamedTuple):
    """A way of assignment that a member offers, and what it tells the leader under it."""

    name: str
    metadata: bytes


@dataclass(frozen=True)
class Timing:
    """What the broker's settings say about classic groups."""

    initial_delay_ms: int
    new_member_timeout_ms: int = 300_000
    size_max: int = 0x7FFFFFFF


@dataclass(slots=True, eq=False)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes = b""
    join_reply: Reply | None = None
    sync_reply: Reply | None = None
    is_new: bool = True  # has not got through its first JoinGroup
    deadline_ms: int = NEVER

    def metadata(self, protocol: str | None) -> bytes:
        return next((offered.metadata for offered in self.protocols if offered.name == protocol), b"")


@dataclass(frozen=True, slots=True)
class Join:
    """A JoinGroup request."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    protocol_type: str
    protocols: tuple[Protocol, ...]
    rebalance_timeout_ms: int
    session_timeout_ms: int
    needs_known_id: bool = False  # a new member is sent back with an id, and has to come again
    can_skip_assignment: bool = False


def refused_join(code: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """An answer to JoinGroup that is none to be glad of."""
    return JoinGroupResponse(error_code=code, member_id=member_id)


class ClassicGroup:
    """One group. The caller calls `expire` at `wake_ms`, and drops the group when it is dead."""

    def __init__(self, group_id: str, timing: Callable[[], Timing], save: Save, now_wall_ms: Callable[[], int]) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, Member] = {}
        self.changed_wall_ms: int | None = None  # when the state changed last, for the expiry of offsets
        self.wake_ms = NEVER
        self._timing = timing
        self._save = save
        self._now_wall_ms = now_wall_ms
        self._instances: dict[str, str] = {}  # instance id -> member id
        self._offers: Counter[str] = Counter()  # protocol -> how many members offer it
        self._pending: dict[str, int] = {}  # member ids that were given out and have not come back -> deadline
        self._unsynced: set[str] = set()  # members of this generation that have not asked for their assignment
        self._join_deadline_ms = NEVER
        self._sync_deadline_ms = NEVER
        self._initial_ms_left: int | None = None  # set while the first members of a group gather
        self._has_grown = False  # since the initial delay was last prolonged

    # ---- asking ----

    @property
    def is_simple(self) -> bool:
        """Whether it only has offsets: nobody ever joined it."""
        return self.protocol_type is None and not self.members and not self._pending

    @property
    def is_empty(self) -> bool:
        """Those that were given an id but have not come back do not count."""
        return self.state is State.EMPTY

    def static_member_id(self, instance_id: str) -> str | None:
        return self._instances.get(instance_id)

    def check_member(self, member_id: str, instance_id: str | None) -> Member:
        """The member, or the reason why the one who asks is none."""
        if instance_id is not None:
            known = self._instances.get(instance_id)
            if known is None:
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
            if known != member_id:
                raise ApiError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, *, in_txn: bool = False) -> None:
        """Whether offsets may be committed by this member; from outside, only while the group is empty."""
        if generation >= 0 or member_id or instance_id is not None:
            if generation < 0 and self.state is State.EMPTY and not in_txn:
                return
            self.check_member(member_id, instance_id)
            if generation != self.generation:
                raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        elif self.state is not State.EMPTY and not in_txn:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        if self.state is State.COMPLETING_REBALANCE and not in_txn:
            raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)

    # ---- joining ----

    def join(self, request: Join, new_id: Callable[[], str], reply: Reply, now_ms: int) -> None:
        """A JoinGroup. `new_id` makes a member id that nobody else has."""
        if not self._has_room_for(request.member_id):
            if request.member_id in self.members:  # the group was larger once: nobody waits for this one any more
                self._remove(self.members[request.member_id])
            reply(refused_join(ErrorCode.GROUP_MAX_SIZE_REACHED))
        elif not self._supports(request):
            reply(refused_join(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
        elif request.member_id:
            self._join_known(request, reply, now_ms)
        elif request.instance_id is not None:
            self._join_static(request, new_id(), reply, now_ms)
        elif request.needs_known_id:
            member_id = new_id()
            self._pending[member_id] = now_ms + request.session_timeout_ms
            reply(refused_join(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(request, new_id(), reply, now_ms)
        self._go_on(now_ms)

    def _has_room_for(self, member_id: str) -> bool:
        size_max = self._timing().size_max
        if len(self.members) < size_max or self.state is State.EMPTY:
            return True
        if self.state is State.PREPARING_REBALANCE:
            member = self.members.get(member_id)
            waiting = sum(other.join_reply is not None for other in self.members.values())
            return (member is not None and member.join_reply is not None) or waiting < size_max
        return member_id in self.members

    def _supports(self, request: Join) -> bool:
        if not request.protocol_type or not request.protocols:
            return False
        if not self.members:
            return True
        return request.protocol_type == self.protocol_type and any(
            self._offers[offered.name] == len(self.members) for offered in request.protocols
        )

    def _join_known(self, request: Join, reply: Reply, now_ms: int) -> None:
        if request.instance_id is None and self._pending.pop(request.member_id, None) is not None:
            self._add(request, request.member_id, reply, now_ms)
            return
        try:
            member = self.check_member(request.member_id, request.instance_id)
        except ApiError as error:
            reply(refused_join(error.code, request.member_id))
            return
        is_same = member.protocols == request.protocols
        if self.state is State.COMPLETING_REBALANCE and is_same:
            # It has not heard the answer to the last JoinGroup.
            reply(self._joined(member))
        elif self.state is State.STABLE and is_same and member.member_id != self.leader:
            reply(self._joined(member))
        else:
            self._update(member, request, reply, now_ms)
            self._prepare_rebalance(now_ms)

    def _add(self, request: Join, member_id: str, reply: Reply, now_ms: int) -> None:
        member = Member(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.rebalance_timeout_ms,
            request.session_timeout_ms,
            request.protocols,
            join_reply=reply,
            deadline_ms=now_ms + self._timing().new_member_timeout_ms,
        )
        if not self.members:
            self.protocol_type = request.protocol_type
        self.members[member_id] = member
        self._offers.update(offered.name for offered in member.protocols)
        if member.instance_id is not None:
            self._instances[member.instance_id] = member_id
        if self.leader is None:
            self.leader = member_id
        self._has_grown = True
        self._prepare_rebalance(now_ms)

    def _update(self, member: Member, request: Join, reply: Reply, now_ms: int) -> None:
        self._set_protocols(member, request.protocols)
        member.rebalance_timeout_ms = request.rebalance_timeout_ms
        member.session_timeout_ms = request.session_timeout_ms
        if member.join_reply is not None:  # the answer to its earlier request will never be read
            member.join_reply(refused_join(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        member.join_reply = reply
        member.deadline_ms = now_ms + member.session_timeout_ms

    def _set_protocols(self, member: Member, protocols: tuple[Protocol, ...]) -> None:
        self._offers.subtract(offered.name for offered in member.protocols)
        self._offers.update(offered.name for offered in protocols)
        member.protocols = protocols

    def _join_static(self, request: Join, member_id: str, reply: Reply, now_ms: int) -> None:
        """A static member that starts: if its predecessor is still known, it takes its place."""
        assert request.instance_id is not None
        old_id = self._instances.get(request.instance_id)
        if old_id is None:
            self._add(request, member_id, reply, now_ms)
            return
        old_leader = self.leader
        member = self._replace_static(old_id, member_id, request.instance_id)
        old_protocols, old_timeouts = member.protocols, (member.rebalance_timeout_ms, member.session_timeout_ms)
        self._update(member, request, reply, now_ms)
        if self.state is not State.STABLE:
            self._prepare_rebalance(now_ms)
            return
        if self._select_protocol() != self.protocol:
            self._prepare_rebalance(now_ms)
            return
        generation = self.generation

        def saved(error: ErrorCode, now_ms: int) -> None:
            if member.join_reply is not reply or self.generation != generation or self.state is not State.STABLE:
                return  # it was replaced itself, or a rebalance has begun and will answer it
            member.join_reply = None
            member.deadline_ms = now_ms + member.session_timeout_ms
            if error:
                self._replace_static(member_id, old_id, request.instance_id or "")
                self._set_protocols(member, old_protocols)
                member.rebalance_timeout_ms, member.session_timeout_ms = old_timeouts
                reply(refused_join(error))
                return
            reply(self._joined_again(member, old_leader, can_skip=request.can_skip_assignment))

        self._save(self.record(), saved)

    def _joined_again(self, member: Member, old_leader: str | None, *, can_skip: bool) -> JoinGroupResponse:
        """For a static member that came back into a stable group: nobody need compute an assignment."""
        response = self._joined(member)
        if can_skip:
            response.skip_assignment = member.member_id == self.leader
        else:
            # It must not take itself for the leader: then it would hand in a new assignment.
            response.leader = old_leader or ""
            response.members = []
        return response

    def _replace_static(self, old_id: str, new_id: str, instance_id: str) -> Member:
        """Let a member live on under a new id; whoever uses the old one is told that it was fenced."""
        member = self.members.pop(old_id)
        if member.join_reply is not None:
            member.join_reply(refused_join(ErrorCode.FENCED_INSTANCE_ID, old_id))
            member.join_reply = None
        if member.sync_reply is not None:
            member.sync_reply(SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID))
            member.sync_reply = None
        member.member_id = new_id
        self.members[new_id] = member
        self._instances[instance_id] = new_id
        if old_id in self._unsynced:
            self._unsynced.remove(old_id)
            self._unsynced.add(new_id)
        if self.leader == old_id:
            self.leader = new_id
        return member

    # ---- rebalancing ----

    def _set_state(self, state: State) -> None:
        self.state = state
        self.changed_wall_ms = self._now_wall_ms()

    def _prepare_rebalance(self, now_ms: int) -> None:
        """Begin to gather the members again, unless that has begun."""
        if self.state in (State.PREPARING_REBALANCE, State.DEAD):
            return
        if self.state is State.COMPLETING_REBALANCE:
            self._propagate_assignment(ErrorCode.REBALANCE_IN_PROGRESS, now_ms)
        self._unsynced.clear()
        self._sync_deadline_ms = NEVER
        is_first = self.state is State.EMPTY
        self._set_state(State.PREPARING_REBALANCE)
        if is_first:
            # The first member is seldom alone: its comrades get a little time, so that not each makes a rebalance.
            delay_ms = self._timing().initial_delay_ms
            self._initial_ms_left = max(self._rebalance_timeout_ms - delay_ms, 0)
            self._has_grown = False
            self._join_deadline_ms = now_ms + delay_ms
        else:
            self._initial_ms_left = None
            self._join_deadline_ms = now_ms + self._rebalance_timeout_ms

    @property
    def _rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def _maybe_complete_join(self, now_ms: int) -> None:
        """Begin the next generation if all are here. A group that just begins waits for its delay all the same."""
        if (
            self.state is State.PREPARING_REBALANCE
            and self._initial_ms_left is None
            and not self._pending
            and all(member.join_reply is not None for member in self.members.values())
        ):
            self._complete_join(now_ms)

    def _join_time_is_up(self, now_ms: int) -> None:
        if self._initial_ms_left and self._has_grown:
            self._has_grown = False
            delay_ms = min(self._timing().initial_delay_ms, self._initial_ms_left)
            self._initial_ms_left -= delay_ms
            self._join_deadline_ms = now_ms + delay_ms
            return
        self._complete_join(now_ms)

    def _complete_join(self, now_ms: int) -> None:
        """Begin a new generation with those who have come. Static members that have not are kept."""
        self._initial_ms_left = None
        for member in [m for m in self.members.values() if m.join_reply is None and m.instance_id is None]:
            self._remove(member)
        if self.members and not self._elect_leader():
            self._join_deadline_ms = now_ms + self._rebalance_timeout_ms  # only absent static members: wait on
            return
        self._join_deadline_ms = NEVER
        self._begin_generation()
        if not self.members:
            self._save(self.record(), lambda error, now_ms: None)
            return
        for member in self.members.values():
            if member.join_reply is not None:
                answer, member.join_reply = member.join_reply, None
                answer(self._joined(member))
            member.is_new = False
            member.deadline_ms = now_ms + member.session_timeout_ms
            self._unsynced.add(member.member_id)
        self._sync_deadline_ms = now_ms + self._rebalance_timeout_ms

    def _begin_generation(self) -> None:
        self.generation = 0 if self.generation == 0x7FFFFFFF else self.generation + 1
        self._unsynced.clear()
        if self.members:
            self.protocol = self._select_protocol()
            self._set_state(State.COMPLETING_REBALANCE)
        else:
            self.protocol = None
            self._set_state(State.EMPTY)

    def _elect_leader(self) -> bool:
        leader = self.members.get(self.leader or "")
        if leader is not None and leader.join_reply is not None:
            return True
        joined = next((member for member in self.members.values() if member.join_reply is not None), None)
        if joined is None:
            return False
        self.leader = joined.member_id
        return True

    def _select_protocol(self) -> str:
        """The protocol that most members like best, of those that all offer."""
        members = list(self.members.values())
        common = [offered.name for offered in members[0].protocols if self._offers[offered.name] == len(members)]
        votes = dict.fromkeys(common, 0)
        for member in members:
            favourite = next((offered.name for offered in member.protocols if offered.name in votes), None)
            if favourite is not None:
                votes[favourite] += 1
        return max(votes, key=votes.__getitem__)

    def _joined(self, member: Member) -> JoinGroupResponse:
        members = []
        if member.member_id == self.leader:
            members = [
                JoinGroupResponseMember(other.member_id, other.instance_id, other.metadata(self.protocol))
                for other in self.members.values()
            ]
        return JoinGroupResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol,
            leader=self.leader or "",
            member_id=member.member_id,
            members=members,
        )

    # ---- syncing ----

    def sync(
        self,
        *,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol_type: str | None,
        protocol: str | None,
        assignments: Mapping[str, bytes],
        reply: Reply,
        now_ms: int,
    ) -> None:
        """A SyncGroup. The leader's brings the assignments."""
        try:
            member = self.check_member(member_id, instance_id)
            if generation != self.generation:
                raise ApiError(ErrorCode.ILLEGAL_GENERATION)
            if protocol_type not in (None, self.protocol_type) or protocol not in (None, self.protocol):
                raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if self.state is State.PREPARING_REBALANCE:
                raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS)
            if self.state not in (State.COMPLETING_REBALANCE, State.STABLE):
                raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)
        except ApiError as error:
            reply(SyncGroupResponse(error_code=error.code))
            return
        self._unsynced.discard(member_id)
        if not self._unsynced:
            self._sync_deadline_ms = NEVER
        if self.state is State.STABLE:
            member.deadline_ms = now_ms + member.session_timeout_ms
            reply(self._synced(member))
            self._set_alarm()
            return
        if member.sync_reply is not None:
            member.sync_reply(SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_reply = reply
        if member_id == self.leader:
            self._hand_in(assignments)
        self._set_alarm()

    def _hand_in(self, assignments: Mapping[str, bytes]) -> None:
        """The leader's assignment counts when it is durable."""
        generation = self.generation

        def saved(error: ErrorCode, now_ms: int) -> None:
            if self.state is not State.COMPLETING_REBALANCE or self.generation != generation:
                return
            if error:
                self._propagate_assignment(error, now_ms)
                self._prepare_rebalance(now_ms)
            else:
                for member in self.members.values():
                    member.assignment = assignments.get(member.member_id, b"")
                self._propagate_assignment(ErrorCode.NONE, now_ms)
                self._set_state(State.STABLE)
            self._set_alarm()

        self._save(self.record(assignments), saved)

    def _propagate_assignment(self, error: ErrorCode, now_ms: int) -> None:
        """Answer all who wait for their assignment."""
        for member in self.members.values():
            if error:
                member.assignment = b""
            if member.sync_reply is not None:
                answer, member.sync_reply = member.sync_reply, None
                member.deadline_ms = now_ms + member.session_timeout_ms
                answer(SyncGroupResponse(error_code=error) if error else self._synced(member))

    def _synced(self, member: Member) -> SyncGroupResponse:
        return SyncGroupResponse(
            protocol_type=self.protocol_type, protocol_name=self.protocol, assignment=member.assignment
        )

    # ---- staying and leaving ----

    def heartbeat(self, member_id: str, instance_id: str | None, generation: int, now_ms: int) -> ErrorCode:
        """Note that a member is alive; REBALANCE_IN_PROGRESS tells it to join again."""
        if instance_id is not None:
            self.check_member(member_id, instance_id)
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        member.deadline_ms = now_ms + member.session_timeout_ms
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is State.PREPARING_REBALANCE else ErrorCode.NONE

    def touch(self, member_id: str, now_ms: int) -> None:
        """A commit is a sign of life too."""
        member = self.members.get(member_id)
        if member is not None:
            member.deadline_ms = now_ms + member.session_timeout_ms

    def leave(self, member_id: str, instance_id: str | None, now_ms: int) -> ErrorCode:
        """A member goes; a static one can be sent away by its instance id alone."""
        if not member_id and instance_id is not None:
            member_id = self._instances.get(instance_id, "")
        elif self._pending.pop(member_id, None) is not None:
            self._go_on(now_ms)
            return ErrorCode.NONE
        try:
            member = self.check_member(member_id, instance_id)
        except ApiError as error:
            return error.code
        self._remove_and_rebalance(member, now_ms)
        self._go_on(now_ms)
        return ErrorCode.NONE

    def _remove(self, member: Member) -> None:
        del self.members[member.member_id]
        self._offers.subtract(offered.name for offered in member.protocols)
        self._unsynced.discard(member.member_id)
        if member.instance_id is not None:
            self._instances.pop(member.instance_id, None)
        if member.join_reply is not None:
            member.join_reply(refused_join(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id))
        if member.sync_reply is not None:
            member.sync_reply(SyncGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID))
        member.join_reply = member.sync_reply = None
        if self.leader == member.member_id:
            self.leader = next(iter(self.members), None)

    def _remove_and_rebalance(self, member: Member, now_ms: int) -> None:
        self._remove(member)
        if self.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self._prepare_rebalance(now_ms)

    # ---- time ----

    def expire(self, now_ms: int) -> None:
        """Act on everything whose time is up."""
        for member_id in [member_id for member_id, deadline_ms in self._pending.items() if deadline_ms <= now_ms]:
            del self._pending[member_id]
        for member in [member for member in self.members.values() if member.deadline_ms <= now_ms]:
            if not member.is_new and (member.join_reply is not None or member.sync_reply is not None):
                member.deadline_ms = now_ms + member.session_timeout_ms  # it waits for us
            elif member.member_id in self.members:
                self._remove_and_rebalance(member, now_ms)
        if self._sync_deadline_ms <= now_ms:
            self._sync_deadline_ms = NEVER
            for member_id in list(self._unsynced):
                self._remove_and_rebalance(self.members[member_id], now_ms)
        self._go_on(now_ms)

    def _go_on(self, now_ms: int) -> None:
        """After any change: begin the next generation if it is time to, and see when to look again."""
        self._maybe_complete_join(now_ms)
        if self.state is State.PREPARING_REBALANCE and self._join_deadline_ms <= now_ms:
            self._join_time_is_up(now_ms)
        self._set_alarm()

    def _set_alarm(self) -> None:
        self.wake_ms = min(
            self._join_deadline_ms if self.state is State.PREPARING_REBALANCE else NEVER,
            self._sync_deadline_ms,
            min(self._pending.values(), default=NEVER),
            min((member.deadline_ms for member in self.members.values()), default=NEVER),
        )

    def fail_waiting(self, error: ErrorCode) -> None:
        """Answer all requests that are held back: the group moves to another coordinator, or to another protocol."""
        for member in self.members.values():
            if member.join_reply is not None:
                member.join_reply(refused_join(error, member.member_id))
            if member.sync_reply is not None:
                member.sync_reply(SyncGroupResponse(error_code=error))
            member.join_reply = member.sync_reply = None

    # ---- on disk ----

    def record(self, assignments: Mapping[str, bytes] | None = None) -> GroupRecord:
        """The group as it is, or as it will be with a new assignment."""
        members = [
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata(self.protocol),
                assignment=member.assignment if assignments is None else assignments.get(member.member_id, b""),
            )
            for member in self.members.values()
        ]
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol,
            leader=self.leader,
            current_state_timestamp=-1 if self.changed_wall_ms is None else self.changed_wall_ms,
            members=members,
        )
        return GroupRecord(GroupMetadataKey(self.group_id), value)

    def restore(self, value: GroupMetadataValue) -> None:
        """Take over what a record says, while the group is loaded."""
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol = value.protocol
        self.leader = value.leader
        self.changed_wall_ms = value.current_state_timestamp if value.current_state_timestamp >= 0 else None
        self.state = State.STABLE if value.members else State.EMPTY
        self.members = {saved.member_id: _restored(saved, value.protocol or "") for saved in value.members}
        self._instances = {m.instance_id: m.member_id for m in self.members.values() if m.instance_id is not None}
        self._offers = Counter(offered.name for member in self.members.values() for offered in member.protocols)

    def take_members(self, members: list[Member]) -> None:
        """Begin with members of another group; they must all join again."""
        self.members = {member.member_id: member for member in members}
        self._instances = {m.instance_id: m.member_id for m in members if m.instance_id is not None}
        self._offers = Counter(offered.name for member in members for offered in member.protocols)
        self.leader = next(iter(self.members), None)
        self.protocol = self._select_protocol()
        self._set_state(State.STABLE)

    def rebalance(self, now_ms: int) -> None:
        """Let all members join again."""
        self._prepare_rebalance(now_ms)
        self._go_on(now_ms)

    def begin_sessions(self, now_ms: int) -> None:
        """After loading: every member has a full session to be heard of again."""
        for member in self.members.values():
            member.deadline_ms = now_ms + member.session_timeout_ms
        self._set_alarm()


def _restored(saved: MemberMetadata, protocol: str) -> Member:
    return Member(
        saved.member_id,
        saved.group_instance_id,
        saved.client_id,
        saved.client_host,
        saved.rebalance_timeout if saved.rebalance_timeout >= 0 else saved.session_timeout,
        saved.session_timeout,
        (Protocol(protocol, bytes(saved.subscription)),),
        bytes(saved.assignment),
        is_new=False,
    )
