from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.controller.placement import Candidate, place_replicas
from penstock.wire.errors import ApiError, ErrorCode


def brokers(*racks: str | None) -> list[Candidate]:
    return [Candidate(number, rack) for number, rack in enumerate(racks, 1)]


CLUSTERS = [
    pytest.param(brokers(*[rack_of(n) for n in range(count)]), id=f"{count}-{label}")
    for count in range(1, 7)
    for label, rack_of in [
        ("no racks", lambda n: None),
        ("one rack", lambda n: "a"),
        ("two racks", lambda n: "ab"[n % 2]),
        ("three racks", lambda n: "abc"[n % 3]),
        ("a small and a large rack", lambda n: "a" if n == 0 else "b"),
        ("own racks", lambda n: f"rack{n}"),
        ("some without", lambda n: None if n % 2 else "a"),
    ]
]


@pytest.mark.parametrize("candidates", CLUSTERS)
def test_replicas_are_on_different_brokers_and_racks_and_leaders_are_spread_evenly(
    candidates: list[Candidate],
) -> None:
    rack_of = {candidate.broker_id: candidate.rack for candidate in candidates}
    rack_count = len(set(rack_of.values()))
    for factor, start, partition_count in product(range(1, len(candidates) + 1), (0, 1, 5, 65535), (1, 7, 24)):
        placed = place_replicas(candidates, partition_count, factor, start=start)
        assert len(placed) == partition_count
        for replicas in placed:
            assert len(replicas) == factor
            assert len(set(replicas)) == factor
            assert set(replicas) <= set(rack_of)
            assert len({rack_of[broker] for broker in replicas}) == min(factor, rack_count)
        leaders = Counter(replicas[0] for replicas in placed)
        counts = [leaders[candidate.broker_id] for candidate in candidates]
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("count", range(2, 7))
def test_without_racks_all_replicas_are_spread_evenly(count: int) -> None:
    for factor in range(1, count + 1):
        rounds = count * max(count - 1, 1)
        placed = place_replicas(brokers(*[None] * count), rounds, factor, start=3)
        load = Counter(broker for replicas in placed for broker in replicas)
        assert max(load.values()) == min(load.values())


def test_partitions_of_one_leader_do_not_all_share_their_followers() -> None:
    placed = place_replicas(brokers(*[None] * 4), 12, 2, start=0)
    followers = {replicas[1] for replicas in placed if replicas[0] == 1}
    assert followers == {2, 3, 4}


def test_the_start_decides_who_leads_the_first_partition() -> None:
    leaders = {place_replicas(brokers(None, None, None), 1, 1, start=start)[0][0] for start in range(3)}
    assert leaders == {1, 2, 3}


def test_added_partitions_go_on_where_the_first_ones_ended() -> None:
    candidates = brokers("a", "b", "c", "a")
    for first in range(1, 9):
        whole = place_replicas(candidates, 12, 3, start=5)
        added = place_replicas(candidates, 12 - first, 3, start=5, first_partition=first)
        assert whole[first:] == added


def test_the_order_in_which_brokers_are_named_does_not_matter() -> None:
    candidates = brokers("a", "b", "a", "c", None)
    assert place_replicas(candidates, 9, 3, start=2) == place_replicas(reversed(candidates), 9, 3, start=2)


@pytest.mark.parametrize(("count", "factor"), [(0, 1), (1, 2), (3, 4), (2, 100)])
def test_too_few_brokers_are_refused(count: int, factor: int) -> None:
    with pytest.raises(ApiError) as caught:
        place_replicas(brokers(*[None] * count), 1, factor, start=0)
    assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
    assert caught.value.message == (
        f"Unable to replicate the partition {factor} time(s): The target replication factor of {factor} cannot be "
        f"reached because only {count} broker(s) are registered."
    )


@settings(deadline=None, max_examples=300)
@given(
    st.lists(st.sampled_from([None, "a", "b", "c", "d"]), min_size=1, max_size=10),
    st.data(),
)
def test_no_rack_gets_a_second_replica_before_all_have_one(racks: list[str | None], data: st.DataObject) -> None:
    candidates = brokers(*racks)
    factor = data.draw(st.integers(1, len(racks)))
    start = data.draw(st.integers(0, 65535))
    for replicas in place_replicas(candidates, 20, factor, start=start):
        per_rack = Counter(racks[broker - 1] for broker in replicas)
        if factor >= len(set(racks)):
            assert set(per_rack) == set(racks)
        else:
            assert max(per_rack.values()) == 1
