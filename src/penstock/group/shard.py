"""The groups of one partition of `__consumer_offsets`: the sum of its records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from penstock.coordination.shards import NO_PRODUCER, Entry
from penstock.group.classic import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from penstock.group.consumer import ConsumerGroup
from penstock.group.offsets import Offsets
from penstock.group.protocol import decode_subscription
from penstock.group.records import (
    ConsumerGroupMetadataKey,
    GroupMetadataKey,
    GroupRecord,
    OffsetCommitKey,
)
from penstock.replica.partition import Partition
from penstock.wire.errors import ApiError, DecodeError, ErrorCode
from penstock.wire.record import EndTxnMarker

Group = ClassicGroup | ConsumerGroup


class Shard:
    """The groups and offsets of one partition."""

    def __init__(self, partition: Partition, new_classic: Callable[[Shard, str], ClassicGroup]) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.is_loaded = False
        self.groups: dict[str, Group] = {}
        self.offsets = Offsets()
        self._new_classic = new_classic

    # ---- finding ----

    def classic(self, group_id: str) -> ClassicGroup:
        """A classic group that must be there."""
        group = self.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            kind = "not found" if group is None else "is not a classic group"
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {kind}.")
        return group

    def consumer(self, group_id: str) -> ConsumerGroup:
        """A consumer group that must be there."""
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            kind = "not found" if group is None else "is not a consumer group"
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {kind}.")
        return group

    def make_classic(self, group_id: str) -> ClassicGroup:
        """A new classic group."""
        group = self._new_classic(self, group_id)
        self.groups[group_id] = group
        return group

    # ---- following the records ----

    def replay(self, entries: Sequence[Entry]) -> None:
        """Take over what a part of the log says. A record that cannot be applied is a mistake of ours: it is raised."""
        for offset, producer_id, record in entries:
            if isinstance(record, EndTxnMarker):
                self.end_transaction(producer_id, is_commit=record.is_commit)
            elif producer_id != NO_PRODUCER and type(record.key) is OffsetCommitKey and record.value is not None:
                self.offsets.apply_pending(producer_id, record.key, record.value, offset)
            else:
                self._apply(record, offset)

    def load(self, records: Iterable[GroupRecord]) -> None:
        """The same with records of which nobody knows where in the log they are."""
        for record in records:
            self._apply(record, -1)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """The marker of a transaction is in the log."""
        for group_id in self.offsets.end_transaction(producer_id, is_commit=is_commit):
            if self.is_loaded and group_id not in self.groups:
                self.make_classic(group_id)

    def _apply(self, record: GroupRecord, offset: int) -> None:
        key = record.key
        if type(key) is OffsetCommitKey:
            self.offsets.apply(key, record.value, offset)
        elif type(key) is GroupMetadataKey:
            self._apply_classic(key.group, record)
        else:
            self._apply_consumer(key.group_id, record)

    def _apply_classic(self, group_id: str, record: GroupRecord) -> None:
        if record.value is None:
            if isinstance(self.groups.get(group_id), ClassicGroup):
                del self.groups[group_id]
            return
        self.make_classic(group_id).restore(record.value)

    def _apply_consumer(self, group_id: str, record: GroupRecord) -> None:
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                return
            group = self.groups[group_id] = ConsumerGroup(group_id)
        group.apply(record)
        if type(record.key) is ConsumerGroupMetadataKey and record.value is None:
            del self.groups[group_id]

    def finish_loading(self) -> None:
        """Groups that have only offsets are groups too, also if those are still pending."""
        for group_id in {*self.offsets.groups(), *(place[0] for place in self.offsets.pending_places())}:
            if group_id not in self.groups:
                self.make_classic(group_id)
        self.is_loaded = True


def is_without_members(group: Group) -> bool:
    return group.is_empty if isinstance(group, ClassicGroup) else not group.members


def topics_read_by(group: Group) -> frozenset[str] | None:
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
