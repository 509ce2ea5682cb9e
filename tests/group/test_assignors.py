"""What every assignment has to be: complete, only to readers, even, and close to the one before."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.group.assignors import ASSIGNORS, Assigned, Reader, assign_range, assign_uniform

Partition = tuple[bytes, int]

TOPICS = [bytes([n]) * 16 for n in range(1, 6)]
many = settings(deadline=None, max_examples=60)
both = pytest.mark.parametrize("name", ASSIGNORS)


def reader(
    member_id: str, topics: frozenset[bytes], had: Assigned | None = None, instance: str | None = None
) -> Reader:
    return Reader(member_id, instance, topics, had or {})


def flat(assigned: Assigned) -> set[Partition]:
    return {(topic_id, p) for topic_id, partitions in assigned.items() for p in partitions}


def again(readers: list[Reader], given: dict[str, Assigned]) -> list[Reader]:
    """The same readers with what they were given."""
    return [Reader(r.member_id, r.instance_id, r.topics, given.get(r.member_id, {})) for r in readers]


def moved(before: dict[str, Assigned], after: dict[str, Assigned]) -> set[Partition]:
    """Partitions that had an owner and have another now."""
    owner = {partition: member_id for member_id, assigned in before.items() for partition in flat(assigned)}
    return {
        partition
        for member_id, assigned in after.items()
        for partition in flat(assigned)
        if owner.get(partition, member_id) != member_id
    }


counts_of_topics = st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 12), min_size=1)
histories = st.dictionaries(
    st.sampled_from(TOPICS), st.frozensets(st.integers(0, 14), min_size=1, max_size=8), max_size=3
)


@st.composite
def groups(draw: st.DrawFn, *, is_equal: bool = False) -> tuple[list[Reader], dict[bytes, int]]:
    """Readers with any history, also an impossible one: partitions that two had, or that are gone."""
    counts = draw(counts_of_topics)
    subsets = st.frozensets(st.sampled_from(sorted(counts)))
    same = draw(subsets)
    readers = [
        Reader(
            f"m{n}",
            draw(st.none() | st.just(f"i{n}")),
            same if is_equal else draw(subsets),
            draw(histories),
        )
        for n in draw(st.permutations(range(draw(st.integers(0, 7)))))
    ]
    return readers, counts


# ---- any assignor ----


@both
@given(group=groups())
@many
def test_every_partition_that_is_read_goes_to_exactly_one_of_its_readers(name: str, group: Any) -> None:
    readers, counts = group
    result = ASSIGNORS[name](readers, counts)
    assert result.keys() == {r.member_id for r in readers}
    topics_of = {r.member_id: r.topics for r in readers}
    given = Counter(partition for assigned in result.values() for partition in flat(assigned))
    read = set().union(*topics_of.values()) if readers else set()
    assert given == Counter((topic_id, p) for topic_id in read for p in range(counts[topic_id]))
    assert all(topic_id in topics_of[member_id] for member_id, assigned in result.items() for topic_id in assigned)
    assert all(partitions for assigned in result.values() for partitions in assigned.values())


@both
@given(group=groups())
@many
def test_the_same_question_has_the_same_answer(name: str, group: Any) -> None:
    readers, counts = group
    assert ASSIGNORS[name](readers, counts) == ASSIGNORS[name](list(readers), dict(counts))


@both
@given(group=groups())
@many
def test_an_assignment_that_is_made_again_stays_as_it_is(name: str, group: Any) -> None:
    readers, counts = group
    first = ASSIGNORS[name](readers, counts)
    assert ASSIGNORS[name](again(readers, first), counts) == first


@both
def test_a_group_without_members_gets_nothing(name: str) -> None:
    assert ASSIGNORS[name]([], {TOPICS[0]: 3}) == {}


# ---- uniform ----


@given(group=groups(is_equal=True))
@many
def test_members_that_read_the_same_have_the_same_share(group: Any) -> None:
    readers, counts = group
    sizes = [len(flat(assigned)) for assigned in assign_uniform(readers, counts).values()]
    assert not sizes or max(sizes) - min(sizes) <= 1


@given(group=groups())
@many
def test_no_single_move_would_make_it_more_even(group: Any) -> None:
    readers, counts = group
    result = assign_uniform(readers, counts)
    sizes = {member_id: len(flat(assigned)) for member_id, assigned in result.items()}
    for giver, assigned in result.items():
        for topic_id in assigned:
            takers = [r.member_id for r in readers if topic_id in r.topics]
            assert all(sizes[giver] - sizes[taker] <= 1 for taker in takers)


@given(group=groups(is_equal=True))
@many
def test_a_new_member_gets_its_share_and_nothing_else_moves(group: Any) -> None:
    readers, counts = group
    before = assign_uniform(readers, counts)
    if not readers:
        return
    joined = [*again(readers, before), reader("new", readers[0].topics)]
    after = assign_uniform(joined, counts)
    assert moved(before, after) == flat(after["new"])
    total = sum(len(flat(assigned)) for assigned in before.values())
    assert len(flat(after["new"])) == total // len(joined)


@given(group=groups(is_equal=True), number=st.integers(0, 6))
@many
def test_only_the_partitions_of_a_member_that_left_move(group: Any, number: int) -> None:
    readers, counts = group
    if not readers:
        return
    before = assign_uniform(readers, counts)
    gone = readers[number % len(readers)].member_id
    after = assign_uniform([r for r in again(readers, before) if r.member_id != gone], counts)
    for member_id, assigned in after.items():
        assert flat(assigned) >= flat(before[member_id])


@given(counts=counts_of_topics, grown=st.integers(1, 5), members=st.integers(1, 6))
@many
def test_new_partitions_do_not_move_old_ones_without_need(counts: dict[bytes, int], grown: int, members: int) -> None:
    topics = frozenset(counts)
    readers = [reader(f"m{n}", topics) for n in range(members)]
    before = assign_uniform(readers, counts)
    largest = {topic_id: count + grown for topic_id, count in counts.items()}
    after = assign_uniform(again(readers, before), largest)
    assert moved(before, after) == set()


# ---- range ----


@given(group=groups())
@many
def test_a_range_is_without_gaps_and_in_the_order_of_the_members(group: Any) -> None:
    readers, counts = group
    result = assign_range(readers, counts)
    for topic_id in counts:
        shares = [sorted(assigned[topic_id]) for assigned in result.values() if topic_id in assigned]
        assert all(share == list(range(share[0], share[-1] + 1)) for share in shares)
        takers = [r for r in readers if topic_id in r.topics]
        sizes = [len(result[r.member_id].get(topic_id, ())) for r in takers]
        assert not sizes or max(sizes) - min(sizes) <= 1


@given(count=st.integers(0, 12), members=st.integers(1, 6))
@many
def test_topics_of_the_same_size_and_readers_are_cut_alike(count: int, members: int) -> None:
    topics = frozenset(TOPICS[:3])
    result = assign_range([reader(f"m{n}", topics) for n in range(members)], dict.fromkeys(TOPICS[:3], count))
    for assigned in result.values():
        assert len({assigned.get(topic_id) for topic_id in topics}) == 1


def test_a_static_member_keeps_its_range_under_another_id() -> None:
    topics = frozenset(TOPICS[:1])
    before = assign_range([reader("z", topics, instance="b"), reader("a", topics)], {TOPICS[0]: 4})
    after = assign_range([reader("0", topics, instance="b"), reader("a", topics)], {TOPICS[0]: 4})
    assert before["z"] == after["0"] == {TOPICS[0]: frozenset({0, 1})}
    assert before["a"] == after["a"]


# ---- size ----


def calls_during(work: Any) -> int:
    """How many functions of this project a piece of work calls: its length, on any machine."""
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return calls


def chain(members: int) -> list[Reader]:
    """Each member shares a topic with the next one, and the first has everything it can have."""
    return [
        reader(
            f"m{n:04}",
            frozenset({n.to_bytes(16), (n + 1).to_bytes(16)}),
            {n.to_bytes(16): frozenset({0}), (n + 1).to_bytes(16): frozenset({0})},
        )
        for n in range(members)
    ]


@pytest.mark.parametrize("kind", ["equal", "all on one", "chain"])
def test_a_thousand_members_and_partitions_are_assigned_in_bounded_work(kind: str) -> None:
    size = 1000
    topic, other = TOPICS[:2]
    counts = {topic: size, other: 1}
    readers = [reader(f"m{n:04}", frozenset({topic})) for n in range(size)]
    if kind == "all on one":
        readers[0] = reader("m0000", frozenset({topic, other}), {topic: frozenset(range(size))})
    elif kind == "chain":
        readers, counts = chain(size), {n.to_bytes(16): 1 for n in range(size + 1)}
    assert calls_during(lambda: assign_uniform(readers, counts)) <= 5 * size * size
    assert calls_during(lambda: assign_range(readers, counts)) <= 10 * size
