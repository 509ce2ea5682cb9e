"""What is committed: the rule that makes replication safe. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping


def committed_offset(
    leader_id: int, leader_offset: int, follower_offsets: Mapping[int, int], isr: Collection[int]
) -> int:
    """The offset below which every in-sync replica has everything.

    A follower in the in-sync set that has not reported yet holds it back: it is never assumed to have anything.
    """
    return min(
        (leader_offset if replica == leader_id else follower_offsets.get(replica, 0) for replica in isr),
        default=leader_offset,
    )
