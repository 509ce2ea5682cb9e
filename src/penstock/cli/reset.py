"""Where a group is to go on: from what was typed to an offset for each partition."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from penstock.cli.mistakes import Failure, Mistake
from penstock.cli.session import check_topics
from penstock.client.admin import Admin
from penstock.client.partitions import TopicPartition

Offsets = dict[TopicPartition, int]


@dataclass(frozen=True)
class Reset:
    """Where to: the earliest or latest offsets or a time, an offset, a number of records away, or a list of offsets."""

    at: Literal["earliest", "latest"] | int | None
    offset: int | None
    shift: int | None
    given: Offsets | None


@dataclass(frozen=True)
class Move:
    topic: str
    partition: int
    current: int | None
    new: int


def plan(admin: Admin, group: str, reset: Reset, topics: list[str] | None) -> list[Move]:
    """What would change. Offsets that a partition does not have (any more) become the nearest that it has."""
    current = {partition: one.offset for partition, one in admin.group_offsets(group).items()}
    wanted = list(reset.given) if reset.given is not None else _partitions(admin, topics, current)
    if not wanted:
        raise Failure(f"group {group!r} has committed nothing yet; name the topics to move it in with --topic")
    check_topics(admin, {topic for topic, _ in wanted})
    if reset.at is not None:
        new = {partition: info.offset for partition, info in admin.partition_offsets(wanted, reset.at).items()}
    else:
        new = _clamped(admin, {partition: _target(reset, partition, current) for partition in wanted})
    return [Move(*partition, current.get(partition), new[partition]) for partition in sorted(new)]


def _target(reset: Reset, partition: TopicPartition, current: Offsets) -> int:
    if reset.given is not None:
        return reset.given[partition]
    if reset.offset is not None:
        return reset.offset
    if partition not in current:
        raise Failure(
            f"nothing was committed for partition {partition.partition} of {partition.topic!r} that could be shifted"
        )
    return current[partition] + (reset.shift or 0)


def _clamped(admin: Admin, offsets: Offsets) -> Offsets:
    first, last = admin.partition_offsets(offsets, "earliest"), admin.partition_offsets(offsets, "latest")
    return {one: min(max(offset, first[one].offset), last[one].offset) for one, offset in offsets.items()}


def _partitions(admin: Admin, topics: list[str] | None, current: Iterable[TopicPartition]) -> list[TopicPartition]:
    if not topics:
        return sorted(current)
    check_topics(admin, [text.partition(":")[0] for text in topics])
    found: list[TopicPartition] = []
    for text in topics:
        name, colon, numbers = text.partition(":")
        (topic,) = admin.describe_topics([name])
        known = [one.partition for one in topic.partitions]
        chosen = [_number(number, text) for number in numbers.split(",")] if colon else known
        for number in chosen:
            if number not in known:
                raise Mistake(f"--topic {text}: {name!r} has no partition {number}; it has {len(known)}")
        found += [TopicPartition(name, number) for number in chosen]
    return found


def _number(text: str, option: str) -> int:
    if not text.strip().isdigit():
        raise Mistake(f"--topic {option}: write partitions like {option.partition(':')[0]}:0,1")
    return int(text)


def read_offsets(path: str) -> Offsets:
    """A file with lines of topic,partition,offset."""
    offsets: Offsets = {}
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if not line.strip() or line.startswith("#"):
                continue
            try:
                topic, partition, offset = line.strip().rsplit(",", 2)
                offsets[TopicPartition(topic.strip(' "'), int(partition))] = int(offset)
            except ValueError:
                raise Mistake(f"{path}, line {number}: write it as topic,partition,offset") from None
    if not offsets:
        raise Mistake(f"{path} has no offsets in it")
    return offsets
