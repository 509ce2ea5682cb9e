"""On which brokers the replicas of new partitions go. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from typing import NamedTuple

from penstock.wire.errors import ApiError, ErrorCode


class Candidate(NamedTuple):
    """A broker that may hold replicas."""

    broker_id: int
    rack: str | None


def place_replicas(
    candidates: Iterable[Candidate],
    partition_count: int,
    replication_factor: int,
    *,
    start: int,
    first_partition: int = 0,
) -> list[list[int]]:
    """The replicas of each partition; the first of each is its preferred leader.

    Leaders go round the brokers, and the brokers are ordered so that neighbours are in different racks. The followers
    of a partition come from racks it is not in yet, as long as there are some; where they begin shifts with every
    round, so that the partitions of one leader do not all share their followers. `start` is where the first leader is
    taken.
    """
    ordered = _alternate_racks(candidates)
    if replication_factor > len(ordered):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Unable to replicate the partition {replication_factor} time(s): The target replication factor of "
            f"{replication_factor} cannot be reached because only {len(ordered)} broker(s) are registered.",
        )
    return [
        _place_one(ordered, replication_factor, start + number, number // len(ordered))
        for number in range(first_partition, first_partition + partition_count)
    ]


def _alternate_racks(candidates: Iterable[Candidate]) -> list[Candidate]:
    racks: dict[str | None, list[Candidate]] = {}
    for candidate in sorted(candidates, key=lambda c: c.broker_id):
        racks.setdefault(candidate.rack, []).append(candidate)
    by_rack = [racks[rack] for rack in sorted(racks, key=lambda rack: rack or "")]
    return [candidate for round_ in zip_longest(*by_rack) for candidate in round_ if candidate is not None]


def _place_one(ordered: list[Candidate], replication_factor: int, leader_at: int, shift: int) -> list[int]:
    count = len(ordered)
    leader = ordered[leader_at % count]
    others = [ordered[(leader_at + 1 + (shift + step) % max(count - 1, 1)) % count] for step in range(count - 1)]
    chosen = [leader]
    racks = {leader.rack}
    all_racks = {candidate.rack for candidate in ordered}
    while len(chosen) < replication_factor:
        if racks == all_racks:
            racks = set()
        pick = next((candidate for candidate in others if candidate.rack not in racks), others[0])
        others.remove(pick)
        chosen.append(pick)
        racks.add(pick.rack)
        if all(candidate.rack in racks for candidate in others):
            racks = set()
    return [candidate.broker_id for candidate in chosen]
