"""How a member of a consumer group gets from what it has to what it should have, step by step. Pure.

A partition is given to a member only after nobody else has it. So a member first gives up what it must
(UNREVOKED_PARTITIONS: its epoch stays until it has), then moves to the new epoch with what is free, and waits for the
rest (UNRELEASED_PARTITIONS).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from penstock.group.assignors import Assigned


class MemberState(IntEnum):
    """With Kafka's numbers, as they are in records."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a member is."""

    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Assigned = field(default_factory=dict)
    revoking: Assigned = field(default_factory=dict)  # still has it, must give it up

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == epoch


def is_subset(owned: Assigned, assigned: Assigned) -> bool:
    return all(partitions <= assigned.get(topic_id, frozenset()) for topic_id, partitions in owned.items())


def next_step(
    progress: Progress,
    target_epoch: int,
    target: Assigned,
    owned: Assigned | None,
    owners: Mapping[tuple[bytes, int], int],
) -> Progress:
    """Where a member is after a heartbeat.

    `owned` is what it says it has (None: as before), `owners` are the partitions that anybody has.
    """
    if progress.is_reconciled_to(target_epoch):
        return progress
    if progress.state is MemberState.UNREVOKED_PARTITIONS and (owned is None or _overlap(owned, progress.revoking)):
        return progress
    keep: dict[bytes, frozenset[int]] = {}
    revoke: dict[bytes, frozenset[int]] = {}
    add: dict[bytes, frozenset[int]] = {}
    is_waiting = False
    for topic_id in sorted({*target, *progress.assigned}):
        wanted = target.get(topic_id, frozenset())
        has = progress.assigned.get(topic_id, frozenset())
        missing = wanted - has
        free = frozenset(partition for partition in missing if (topic_id, partition) not in owners)
        is_waiting = is_waiting or free != missing
        _put(keep, topic_id, wanted & has)
        _put(revoke, topic_id, has - wanted)
        _put(add, topic_id, free)
    if revoke and (owned is None or _overlap(owned, revoke)):
        return Progress(progress.epoch, progress.previous_epoch, MemberState.UNREVOKED_PARTITIONS, keep, revoke)
    for topic_id, free in add.items():
        keep[topic_id] = keep.get(topic_id, frozenset()) | free
    return Progress(
        epoch=target_epoch,
        previous_epoch=progress.epoch if progress.epoch != target_epoch else progress.previous_epoch,
        state=MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE,
        assigned=keep,
    )


def _overlap(one: Assigned, other: Assigned) -> bool:
    return any(not partitions.isdisjoint(other.get(topic_id, frozenset())) for topic_id, partitions in one.items())


def _put(into: dict[bytes, frozenset[int]], topic_id: bytes, partitions: frozenset[int]) -> None:
    if partitions:
        into[topic_id] = partitions
