"""How far groups have read. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

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

    def record(self, group_id: str, topic: str, partition: int) -> GroupRecord:
        value = OffsetCommitValue(self.offset, self.leader_epoch, self.metadata, self.commit_ms, self.expire_ms)
        return GroupRecord(OffsetCommitKey(group_id, topic, partition), value)


class Offsets:
    """The committed offsets of the groups of one shard."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, dict[int, Committed]]] = {}

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

    def remove(self, group_id: str, topic: str, partition: int) -> None:
        topics = self._by_group.get(group_id, {})
        partitions = topics.get(topic, {})
        partitions.pop(partition, None)
        if not partitions:
            topics.pop(topic, None)
        if not topics:
            self._by_group.pop(group_id, None)

    def apply(self, key: OffsetCommitKey, value: OffsetCommitValue | None) -> None:
        if value is None:
            self.remove(key.group, key.topic, key.partition)
            return
        committed = Committed(
            value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp
        )
        self.set(key.group, key.topic, key.partition, committed)


def tombstone(group_id: str, topic: str, partition: int) -> GroupRecord:
    return GroupRecord(OffsetCommitKey(group_id, topic, partition), None)


def tombstones(offsets: Offsets, group_id: str) -> list[GroupRecord]:
    return [tombstone(group_id, topic, p) for topic, partitions in offsets.of(group_id).items() for p in partitions]


def is_expired(committed: Committed, idle_since_ms: int | None, retention_ms: int, now_ms: int) -> bool:
    """Whether an offset is old enough to be forgotten: counted from the commit, or from when the group became empty."""
    if committed.expire_ms >= 0:
        return now_ms >= committed.expire_ms
    since_ms = committed.commit_ms if idle_since_ms is None else max(idle_since_ms, committed.commit_ms)
    return now_ms - since_ms >= retention_ms
