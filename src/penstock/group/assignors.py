"""How partitions are given to the members of a consumer group. Pure.

An assignor gets what each member reads and had, and how many partitions each topic has, and says what each member gets.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass

Assigned = Mapping[bytes, frozenset[int]]  # topic id -> partitions


@dataclass(frozen=True, slots=True)
class Reader:
    """A member, as an assignor sees it."""

    member_id: str
    instance_id: str | None
    topics: frozenset[bytes]
    had: Assigned


Assignor = Callable[[list[Reader], Mapping[bytes, int]], dict[str, Assigned]]


def assign_range(readers: list[Reader], partition_counts: Mapping[bytes, int]) -> dict[str, Assigned]:
    """Each topic is cut into as many pieces as it has readers, of neighbouring partitions.

    Topics with the same number of partitions and the same readers are cut alike: who has partition 3 of the one also
    has partition 3 of the other.
    """
    result: dict[str, dict[bytes, frozenset[int]]] = {reader.member_id: {} for reader in readers}
    # Static members first and by their own name: so they keep their place when they come back with another id.
    in_order = sorted(readers, key=lambda r: (r.instance_id is None, r.instance_id or r.member_id))
    for topic_id, count in partition_counts.items():
        subscribed = [reader for reader in in_order if topic_id in reader.topics]
        if not subscribed:
            continue
        share, extra = divmod(count, len(subscribed))
        start = 0
        for number, reader in enumerate(subscribed):
            size = share + (number < extra)
            if size:
                result[reader.member_id][topic_id] = frozenset(range(start, start + size))
            start += size
    return dict(result)


def assign_uniform(readers: list[Reader], partition_counts: Mapping[bytes, int]) -> dict[str, Assigned]:
    """Everyone gets about the same number of partitions, and keeps as many as possible of those they had."""
    held: dict[str, set[tuple[bytes, int]]] = {reader.member_id: set() for reader in readers}
    topics_of = {reader.member_id: reader.topics for reader in readers}
    free = _keep_what_they_had(readers, partition_counts, held)
    if len({reader.topics for reader in readers}) <= 1:
        _level_equals(held, free, sum(partition_counts.get(t, 0) for t in readers[0].topics) if readers else 0)
    else:
        _level_unequals(held, topics_of, free)
    return {member_id: _by_topic(partitions) for member_id, partitions in held.items()}


def _keep_what_they_had(
    readers: list[Reader], partition_counts: Mapping[bytes, int], held: dict[str, set[tuple[bytes, int]]]
) -> list[tuple[bytes, int]]:
    """Give each reader what it had and still reads. Returns the partitions that are left."""
    taken: set[tuple[bytes, int]] = set()
    for reader in readers:
        mine = held[reader.member_id]
        for topic_id, partitions in reader.had.items():
            if topic_id in reader.topics:
                count = partition_counts.get(topic_id, 0)
                for partition in sorted(partitions):
                    if partition < count and (topic_id, partition) not in taken:
                        taken.add((topic_id, partition))
                        mine.add((topic_id, partition))
    wanted = set().union(*(reader.topics for reader in readers)) if readers else set()
    return [
        (topic_id, partition)
        for topic_id, count in partition_counts.items()
        if topic_id in wanted
        for partition in range(count)
        if (topic_id, partition) not in taken
    ]


def _level_equals(held: dict[str, set[tuple[bytes, int]]], free: list[tuple[bytes, int]], total: int) -> None:
    """All read the same topics: everyone gets the same share, the first few one more."""
    if not held:
        return
    share, extra = divmod(total, len(held))
    for mine in sorted(held.values(), key=len, reverse=True):  # those who have most keep one more
        quota = share + (extra > 0)
        if len(mine) >= quota:
            extra -= extra > 0
        surplus = len(mine) - quota
        if surplus > 0:
            for partition in sorted(mine)[quota:]:
                mine.remove(partition)
                free.append(partition)
    free.sort(reverse=True)
    for mine in held.values():
        while len(mine) < share:
            mine.add(free.pop())
    for mine in held.values():
        if not free:
            return
        if len(mine) == share:
            mine.add(free.pop())


def _level_unequals(
    held: dict[str, set[tuple[bytes, int]]], topics_of: Mapping[str, frozenset[bytes]], free: list[tuple[bytes, int]]
) -> None:
    """The members read different topics: give to the poorest reader, then move from rich to poor while it helps."""
    readers_of: dict[bytes, list[str]] = {}
    for member_id, topics in topics_of.items():
        for topic_id in topics:
            readers_of.setdefault(topic_id, []).append(member_id)
    free.sort(key=lambda partition: (len(readers_of[partition[0]]), partition))
    for partition in free:
        poorest = min(readers_of[partition[0]], key=lambda member_id: (len(held[member_id]), member_id))
        held[poorest].add(partition)
    is_moving = True
    while is_moving:
        is_moving = False
        rich = [(-len(partitions), member_id) for member_id, partitions in held.items()]
        heapq.heapify(rich)
        while rich:
            _, giver = heapq.heappop(rich)
            for partition in sorted(held[giver]):
                taker = min(readers_of[partition[0]], key=lambda member_id: (len(held[member_id]), member_id))
                if len(held[giver]) - len(held[taker]) > 1:
                    held[giver].remove(partition)
                    held[taker].add(partition)
                    is_moving = True


def _by_topic(partitions: set[tuple[bytes, int]]) -> dict[bytes, frozenset[int]]:
    grouped: dict[bytes, set[int]] = {}
    for topic_id, partition in partitions:
        grouped.setdefault(topic_id, set()).add(partition)
    return {topic_id: frozenset(indexes) for topic_id, indexes in sorted(grouped.items())}


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
