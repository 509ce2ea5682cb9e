"""How far groups have read. Pure.

An offset that is committed within a transaction is pending until the transaction's marker is in the log: a commit makes
it count, an abort forgets it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from penstock.group.records import GroupRecord, OffsetCommitKey, OffsetCommitValue

NO_OFFSET = -1


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed offset."""

    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    expire_ms: int = -1  # set by old clients only
    log_offset: int = field(default=-1, compare=False)  # where its record is: of two, the later one counts

    def record(self, group_id: str, topic: str, partition: int) -> GroupRecord:
        value = OffsetCommitValue(self.offset, self.leader_epoch, self.metadata, self.commit_ms, self.expire_ms)
        return GroupRecord(OffsetCommitKey(group_id, topic, partition), value)


Place = tuple[str, str, int]  # group, topic, partition


class Offsets:
    """The committed offsets of the groups of one shard, and those that wait for the end of their transaction."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, dict[int, Committed]]] = {}
        self._pending: dict[int, dict[Place, Committed]] = {}  # by producer

    def __bool__(self) -> bool:
        return bool(self._by_group)

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._by_group

    def groups(self) -> Iterator[str]:
        return iter(self._by_group)

    def of(self, group_id: str) -> dict[str, dict[int, Committed]]:
        """By topic and partition. Not to be changed."""
        return self._by_group.get(group_id, {})

    def get(self, group_id: str, topic: str, partition: int) -> Committed | None:
        return self._by_group.get(group_id, {}).get(topic, {}).get(partition)

    def set(self, group_id: str, topic: str, partition: int, committed: Committed) -> None:
        self._by_group.setdefault(group_id, {}).setdefault(topic, {})[partition] = committed

    def maybe_set(self, place: Place, committed: Committed) -> None:
        """The same, unless one is there already whose record comes later."""
        before = self.get(*place)
        if before is None or before.log_offset < committed.log_offset:
            self.set(*place, committed)

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._by_group.get(group_id, {})
        partitions = topics.get(topic, {})
        partitions.pop(partition, None)
        if not partitions:
            topics.pop(topic, None)
        if not topics:
            self._by_group.pop(group_id, None)

    def apply(self, key: OffsetCommitKey, value: OffsetCommitValue | None, log_offset: int = -1) -> None:
        if value is None:
            self.remove(key.group, key.topic, key.partition)
            self._remove_pending((key.group, key.topic, key.partition))
        else:
            self.set(key.group, key.topic, key.partition, _committed(value, log_offset))

    # ---- within transactions ----

    def set_pending(self, producer_id: int, place: Place, committed: Committed) -> None:
        self._pending.setdefault(producer_id, {})[place] = committed

    def apply_pending(self, producer_id: int, key: OffsetCommitKey, value: OffsetCommitValue, log_offset: int) -> None:
        self.set_pending(producer_id, (key.group, key.topic, key.partition), _committed(value, log_offset))

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> frozenset[str]:
        """A producer's transaction has ended. Returns the groups whose offsets it committed.

        An offset that was committed outside of the transaction, but after it was sent within it, stays.
        """
        ended = self._pending.pop(producer_id, {})
        if not is_commit:
            return frozenset()
        for place, committed in ended.items():
            self.maybe_set(place, committed)
        return frozenset(group_id for group_id, _, _ in ended)

    def is_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether a transaction is open that may change this offset."""
        return any((group_id, topic, partition) in places for places in self._pending.values())

    def has(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether there is an offset, or may be one when a transaction ends."""
        committed = self.get(group_id, topic, partition)
        return committed is not None or self.is_pending(group_id, topic, partition)

    def has_pending(self, group_id: str) -> bool:
        return any(place[0] == group_id for places in self._pending.values() for place in places)

    def pending_places(self) -> frozenset[Place]:
        return frozenset(place for places in self._pending.values() for place in places)

    def _remove_pending(self, place: Place) -> None:
        for producer_id, places in list(self._pending.items()):
            if places.pop(place, None) is not None and not places:
                del self._pending[producer_id]


def located(committed: Committed, log_offset: int) -> Committed:
    """A committed offset whose record is in the log now."""
    return replace(committed, log_offset=log_offset)


def _committed(value: OffsetCommitValue, log_offset: int) -> Committed:
    return Committed(
        value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp, log_offset
    )


def tombstone(group_id: str, topic: str, partition: int) -> GroupRecord:
    return GroupRecord(OffsetCommitKey(group_id, topic, partition), None)


def tombstones(offsets: Offsets, group_id: str) -> list[GroupRecord]:
    """What removes all offsets of a group, those that are pending too."""
    places = {(group_id, topic, p) for topic, partitions in offsets.of(group_id).items() for p in partitions}
    places |= {place for place in offsets.pending_places() if place[0] == group_id}
    return [tombstone(*place) for place in sorted(places)]


def is_expired(committed: Committed, idle_since_ms: int | None, retention_ms: int, now_ms: int) -> bool:
    """Whether an offset is old enough to be forgotten: counted from the commit, or from when the group became empty."""
    if committed.expire_ms >= 0:
        return now_ms >= committed.expire_ms
    since_ms = committed.commit_ms if idle_since_ms is None else max(idle_since_ms, committed.commit_ms)
    return now_ms - since_ms >= retention_ms
