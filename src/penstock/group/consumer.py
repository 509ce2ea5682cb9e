"""A consumer group (KIP-848): the broker computes who reads what, and members follow by heartbeats. Pure.

Three epochs tell how far things are. Whenever members or topics change, the *group epoch* grows. The *assignment epoch*
is the group epoch for which the target was computed. Each member has an epoch of its own: it reaches the assignment
epoch when it has given up what it must give up, and gets the rest as soon as others have given it up (`reconcile.py`).

Nothing changes but by a record. `change.py` makes them, `heartbeat.py` says when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from penstock.group.assignors import Assigned
from penstock.group.classic import NEVER
from penstock.group.reconcile import MemberState, Progress
from penstock.group.records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupRecord,
)
from penstock.metadata.image import Image
from penstock.wire.errors import ApiError, ErrorCode

LEAVE = -1
LEAVE_FOR_A_WHILE = -2  # a static member that will be back
NOTHING: Assigned = {}


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    regex: str = ""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMemberMetadata | None = None  # set for a member that speaks the classic protocol
    progress: Progress = field(default_factory=Progress)

    @property
    def epoch(self) -> int:
        return self.progress.epoch


class ResolvedRegex(NamedTuple):
    topics: frozenset[str]
    version: int
    timestamp: int


@dataclass(slots=True)
class Timers:
    """Until when things have to happen; by member."""

    session: dict[str, int] = field(default_factory=dict)
    revocation: dict[str, tuple[Progress, int]] = field(default_factory=dict)  # -> (what to leave, deadline)
    join: dict[str, int] = field(default_factory=dict)  # classic members: to join again
    sync: dict[str, int] = field(default_factory=dict)  # classic members: to fetch their assignment

    def forget(self, member_id: str) -> None:
        for timers in (self.session, self.revocation, self.join, self.sync):
            timers.pop(member_id, None)

    @property
    def next_ms(self) -> int:
        return min(
            min(self.session.values(), default=NEVER),
            min((deadline for _, deadline in self.revocation.values()), default=NEVER),
            min(self.join.values(), default=NEVER),
            min(self.sync.values(), default=NEVER),
        )


class ConsumerGroup:
    """The state of one group."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.assignment_epoch = 0
        self.members: dict[str, ConsumerMember] = {}
        self.instances: dict[str, str] = {}  # instance id -> member id
        self.target: dict[str, Assigned] = {}
        self.owners: dict[tuple[bytes, int], int] = {}  # partition -> epoch of the member that has it
        self.regexes: dict[str, ResolvedRegex] = {}
        self.checked_image: Image | None = None  # for which topics the epoch is right
        self.timers = Timers()

    def draft(self) -> ConsumerGroup:
        """A copy to try a change on. Timers are shared: they are no state that must survive."""
        draft = copy(self)
        draft.members = dict(self.members)
        draft.instances = dict(self.instances)
        draft.target = dict(self.target)
        draft.owners = dict(self.owners)
        draft.regexes = dict(self.regexes)
        return draft

    # ---- asking ----

    @property
    def state(self) -> str:
        """Named as Kafka's tools show it."""
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.progress.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    def preferred_assignor(self, default: str) -> str:
        """The assignor that most members ask for."""
        votes = Counter(m.server_assignor for m in self.members.values() if m.server_assignor is not None)
        return votes.most_common(1)[0][0] if votes else default

    def subscribed_topics(self, member: ConsumerMember) -> frozenset[str]:
        resolved = self.regexes.get(member.regex) if member.regex else None
        return member.topic_names | resolved.topics if resolved is not None else member.topic_names

    def is_subscribed_to(self, topic: str) -> bool:
        return any(topic in self.subscribed_topics(member) for member in self.members.values())

    def find_member(self, member_id: str) -> ConsumerMember:
        member = self.members.get(member_id)
        if member is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    def find(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        """A member by what its request names it by."""
        return self.find_member(member_id) if instance_id is None else self.find_static(member_id, instance_id)

    def find_static(self, member_id: str, instance_id: str) -> ConsumerMember:
        known = self.instances.get(instance_id)
        if known is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        if known != member_id:
            raise ApiError(
                ErrorCode.FENCED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} was fenced by member {known}.",
            )
        return self.members[known]

    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, version: int, *, in_txn: bool = False
    ) -> None:
        """Whether offsets may be committed by this member; from outside, only while the group is empty."""
        if epoch < 0 and not self.members:
            return
        member = self.find_member(member_id)
        if version < 9 and member.classic is None and not in_txn:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
            )
        self._check_epoch_of(member, epoch)

    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Whether a member may ask for committed offsets; whoever is none may always."""
        if not member_id and epoch < 0:
            return
        self._check_epoch_of(self.find_member(member_id or ""), epoch)

    def _check_epoch_of(self, member: ConsumerMember, epoch: int) -> None:
        if epoch != member.epoch:
            if member.classic is not None:
                raise ApiError(
                    ErrorCode.ILLEGAL_GENERATION,
                    f"The request generation id {epoch} is not equal to the member epoch {member.epoch}.",
                )
            raise ApiError(
                ErrorCode.STALE_MEMBER_EPOCH, f"The received member epoch {epoch} does not match {member.epoch}."
            )

    # ---- following the records ----

    def apply(self, record: GroupRecord) -> None:
        """Take over what one record says."""
        _APPLY[type(record.key)](self, record.key, record.value)

    def _set_epoch(self, key: Any, value: ConsumerGroupMetadataValue | None) -> None:
        self.epoch = value.epoch if value is not None else 0
        self.metadata_hash = value.metadata_hash if value is not None else 0

    def _set_member(self, key: ConsumerGroupMemberMetadataKey, value: ConsumerGroupMemberMetadataValue | None) -> None:
        member_id = key.member_id
        old = self.members.get(member_id)
        if old is not None and old.instance_id is not None and self.instances.get(old.instance_id) == member_id:
            del self.instances[old.instance_id]
        if value is None:
            self.members.pop(member_id, None)
            return
        self.members[member_id] = replace(
            old or ConsumerMember(member_id),
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=frozenset(value.subscribed_topic_names),
            regex=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )
        if value.instance_id is not None:
            self.instances[value.instance_id] = member_id

    def _set_assignment_epoch(self, key: Any, value: ConsumerGroupTargetAssignmentMetadataValue | None) -> None:
        self.assignment_epoch = value.assignment_epoch if value is not None else 0

    def _set_target(
        self, key: ConsumerGroupTargetAssignmentMemberKey, value: ConsumerGroupTargetAssignmentMemberValue | None
    ) -> None:
        if value is None:
            self.target.pop(key.member_id, None)
        else:
            self.target[key.member_id] = {t.topic_id: frozenset(t.partitions) for t in value.topic_partitions}

    def _set_progress(
        self, key: ConsumerGroupCurrentMemberAssignmentKey, value: ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        member = self.members.get(key.member_id)
        if member is None:
            if value is None:
                return
            # Compaction may leave this record before the one that says what the member reads.
            member = ConsumerMember(key.member_id)
        for topic_id, partition in _each(member.progress.assigned, member.progress.revoking):
            self.owners.pop((topic_id, partition), None)
        if value is None:
            progress = Progress(epoch=LEAVE, previous_epoch=LEAVE)
        else:
            progress = Progress(
                epoch=value.member_epoch,
                previous_epoch=value.previous_member_epoch,
                state=MemberState(value.state),
                assigned={t.topic_id: frozenset(t.partitions) for t in value.assigned_partitions},
                revoking={t.topic_id: frozenset(t.partitions) for t in value.partitions_pending_revocation},
            )
        for topic_id, partition in _each(progress.assigned, progress.revoking):
            self.owners[topic_id, partition] = progress.epoch
        self.members[key.member_id] = replace(member, progress=progress)

    def _set_regex(
        self, key: ConsumerGroupRegularExpressionKey, value: ConsumerGroupRegularExpressionValue | None
    ) -> None:
        if value is None:
            self.regexes.pop(key.regular_expression, None)
        else:
            self.regexes[key.regular_expression] = ResolvedRegex(
                frozenset(value.topics), value.version, value.timestamp
            )

    # ---- time ----

    def touch(self, member_id: str, now_ms: int, session_timeout_ms: int) -> None:
        """A member was heard of, and its change is applied."""
        member = self.members.get(member_id)
        if member is None:
            self.timers.forget(member_id)
            return
        timers = self.timers
        if member.classic is not None:
            session_timeout_ms = member.classic.session_timeout_ms
        timers.session[member_id] = now_ms + session_timeout_ms
        if member.progress.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
            begun = timers.revocation.get(member_id)
            if begun is None or begun[0] != member.progress:
                timers.revocation[member_id] = (member.progress, now_ms + member.rebalance_timeout_ms)
        elif member_id in timers.revocation:
            del timers.revocation[member_id]

    def overdue(self, now_ms: int) -> dict[str, str]:
        """Members whose time is up, and why."""
        timers = self.timers
        found = {m: "its session expired" for m, deadline in timers.session.items() if deadline <= now_ms}
        for member_id, (progress, deadline) in list(timers.revocation.items()):
            if member_id not in self.members or self.members[member_id].progress != progress:
                del timers.revocation[member_id]  # it was replaced, or takes a break
            elif deadline <= now_ms:
                found[member_id] = "it did not give up its partitions within the rebalance timeout"
        found |= {
            m: "it did not join again within the rebalance timeout" for m, d in timers.join.items() if d <= now_ms
        }
        found |= {m: "it did not fetch its assignment in time" for m, d in timers.sync.items() if d <= now_ms}
        return found

    def begin_sessions(self, now_ms: int, session_timeout_ms: int) -> None:
        """After loading: every member has a full session to be heard of again."""
        for member_id in self.members:
            self.touch(member_id, now_ms, session_timeout_ms)


_APPLY: dict[type, Callable[[ConsumerGroup, Any, Any], None]] = {
    ConsumerGroupMetadataKey: ConsumerGroup._set_epoch,
    ConsumerGroupMemberMetadataKey: ConsumerGroup._set_member,
    ConsumerGroupTargetAssignmentMetadataKey: ConsumerGroup._set_assignment_epoch,
    ConsumerGroupTargetAssignmentMemberKey: ConsumerGroup._set_target,
    ConsumerGroupCurrentMemberAssignmentKey: ConsumerGroup._set_progress,
    ConsumerGroupRegularExpressionKey: ConsumerGroup._set_regex,
}


def _each(*assigned: Assigned) -> Iterable[tuple[bytes, int]]:
    return ((topic_id, p) for one in assigned for topic_id, partitions in one.items() for p in partitions)
