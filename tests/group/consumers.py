"""A consumer group without a broker: clients that follow it, topics that change, and a log of all its records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, cast

from penstock.group import heartbeat as heartbeats
from penstock.group.assignors import Assigned
from penstock.group.change import Change
from penstock.group.classic import ClassicGroup, Timing
from penstock.group.consumer import ConsumerGroup, ConsumerMember
from penstock.group.heartbeat import Heartbeat
from penstock.group.records import GroupRecord, decode_record, encode_record
from penstock.group.shard import Shard
from penstock.metadata.image import Image
from penstock.replica.partition import Partition
from penstock.wire.errors import ApiError, ErrorCode
from tests.controller.samples import image_of, topic
from tests.group.samples import T0

Partitions = set[tuple[bytes, int]]
REBALANCE_MS = 60_000


def flat(assigned: Assigned) -> Partitions:
    return {(topic_id, p) for topic_id, partitions in assigned.items() for p in partitions}


def grouped(partitions: Iterable[tuple[bytes, int]]) -> dict[bytes, frozenset[int]]:
    found: dict[bytes, set[int]] = {}
    for topic_id, p in partitions:
        found.setdefault(topic_id, set()).add(p)
    return {topic_id: frozenset(indexes) for topic_id, indexes in found.items()}


def facts(group: ConsumerGroup) -> dict[str, Any]:
    """All of a group that must survive."""
    return {
        "epoch": group.epoch,
        "hash": group.metadata_hash,
        "assignment epoch": group.assignment_epoch,
        "members": group.members,
        "instances": group.instances,
        "target": group.target,
        "owners": group.owners,
        "regexes": group.regexes,
    }


class _NoPartition:
    leader_epoch = 0


def replayed(records: Iterable[GroupRecord]) -> Shard:
    """What a coordinator knows that reads these records."""

    def new_classic(shard: Shard, group_id: str) -> ClassicGroup:
        return ClassicGroup(group_id, lambda: Timing(0), lambda record, saved: None, lambda: T0)

    shard = Shard(cast(Partition, _NoPartition()), new_classic)
    shard.load(records)
    shard.finish_loading()
    return shard


def compacted(records: Iterable[GroupRecord]) -> list[GroupRecord]:
    """What compaction leaves in the end: the last record of each key, and no tombstones."""
    last: dict[bytes, GroupRecord] = {}
    for record in records:
        key, _ = encode_record(record)
        last.pop(key, None)
        last[key] = record
    return [record for record in last.values() if record.value is not None]


class Topics:
    """The topics of a cluster."""

    def __init__(self) -> None:
        self._counts: dict[str, tuple[bytes, int]] = {}
        self._made = 0
        self.image = Image()

    def set(self, name: str, partitions: int) -> None:
        """Make a topic, or make it larger; 0 deletes it."""
        if partitions == 0:
            self._counts.pop(name, None)
        elif name in self._counts:
            self._counts[name] = (self._counts[name][0], partitions)
        else:
            self._made += 1
            self._counts[name] = (self._made.to_bytes(16), partitions)
        self.image = image_of(
            *[topic(name, *[[1]] * count, topic_id=topic_id) for name, (topic_id, count) in self._counts.items()]
        )

    def partitions_of(self, names: Iterable[str]) -> Partitions:
        return {
            (self._counts[name][0], p) for name in names if name in self._counts for p in range(self._counts[name][1])
        }

    def count(self, name: str) -> int:
        return self._counts[name][1] if name in self._counts else 0

    def id_of(self, name: str) -> bytes:
        return self._counts[name][0]


class Coordinator:
    """One consumer group and its log. What cannot be appended has not happened."""

    def __init__(self, topics: Topics) -> None:
        self.topics = topics
        self.group = ConsumerGroup("g")
        self.log: list[GroupRecord] = []

    def change(self) -> Change:
        return Change(self.group, self.topics.image, T0)

    def commit(self, change: Change) -> None:
        for record in change.records:
            copy = decode_record(*encode_record(record))
            assert copy == record
            self.log.append(copy)
        self.group = change.group

    def beat(self, beat: Heartbeat, *, is_appended: bool = True) -> tuple[ConsumerMember, bool]:
        """A heartbeat. Returns the member, and whether it is told its assignment."""
        if heartbeats.is_settled(self.group, beat, self.topics.image):
            return self.group.members[beat.member_id], beat.is_full
        change = self.change()
        before = self.group.members.get(beat.member_id)
        member = heartbeats.beat(change, beat)
        if not is_appended:
            raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.commit(change)
        had = before.progress.assigned if before is not None else {}
        return member, beat.is_full or member.progress.assigned != had

    def fence(self, member_id: str) -> None:
        change = self.change()
        change.fence(member_id)
        self.commit(change)

    def take_a_break(self, member_id: str, instance_id: str) -> None:
        change = self.change()
        heartbeats.take_a_break(change, member_id, instance_id)
        self.commit(change)


@dataclass(eq=False)
class Client:
    """A consumer as Kafka's behaves: it gives up first, then takes; after trouble it says everything again."""

    member_id: str
    names: frozenset[str] = frozenset()
    regex: str | None = None
    instance: str | None = None
    assignor: str | None = None
    epoch: int = 0
    owned: Partitions = field(default_factory=set)
    target: Partitions | None = None  # what it was told last
    told: Partitions | None = None  # the same, while it is not there yet
    says_all: bool = True
    is_slow: bool = False  # takes its time to give up partitions

    def request(self) -> Heartbeat:
        says_all = self.says_all or self.epoch == 0
        return Heartbeat(
            self.member_id,
            self.epoch,
            self.instance,
            None,
            REBALANCE_MS if says_all else -1,
            self.names if says_all else None,
            self.regex if says_all else None,
            self.assignor if says_all else None,
            grouped(self.owned) if says_all else None,
            "client",
            "/host",
        )

    def hear(self, member: ConsumerMember, is_told: bool) -> None:
        self.says_all = False
        self.epoch = member.epoch
        if is_told and self.target != flat(member.progress.assigned):
            self.target = self.told = flat(member.progress.assigned)
        if not self.is_slow:
            self.follow()

    def follow(self) -> None:
        """Take over the assignment, and say so."""
        if self.told is not None:
            self.owned, self.told, self.says_all = self.told, None, True

    def start_over(self) -> None:
        self.epoch, self.owned, self.target, self.told, self.says_all = 0, set(), None, None, True
