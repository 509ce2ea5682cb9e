"""Handing over records that were fetched ahead: no broker needed."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.client._records import Record
from penstock.client.pace import Pace
from penstock.client.prefetch import Prefetch

PARTITIONS = st.integers(0, 2)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("load"), st.lists(PARTITIONS, max_size=6)),
        st.tuples(st.just("take"), st.integers(1, 4)),
        st.tuples(st.just("pause"), PARTITIONS),
        st.tuples(st.just("resume"), PARTITIONS),
        st.tuples(st.just("settle"), st.none()),
    ),
    max_size=30,
)


@given(STEPS)
def test_each_record_is_handed_over_once_in_order_and_positions_follow(steps: list[tuple[str, Any]]) -> None:
    """A consumer's use of it: fetch when nothing waits, take, hold back partitions and let them go again."""
    prefetch = Prefetch()
    offsets = {partition: itertools.count() for partition in range(3)}
    held: dict[int, list[Record[Any, Any]]] = {}
    handed: dict[int, list[int]] = {partition: [] for partition in range(3)}
    positions: dict[tuple[str, int], int] = {}
    for step, argument in steps:
        if step == "load" and prefetch.peek() is None:
            positions |= prefetch.settle()
            if not prefetch.load_returned():
                fetched = [partition for partition in argument if partition not in held]
                prefetch.load([Record("t", partition, next(offsets[partition])) for partition in fetched])
        elif step == "take":
            expected = prefetch.peek()
            for record in itertools.islice(prefetch.waiting, argument):
                assert expected is None or record == expected
                expected = None
                handed[record.partition].append(record.offset)
        elif step == "pause":
            held.setdefault(argument, []).extend(prefetch.take_out({("t", argument)}))
        elif step == "resume":
            records = held.pop(argument, [])
            if records:
                prefetch.put_back(records)
        elif step == "settle":
            positions |= prefetch.settle()
        assert all(record.partition not in held for record in prefetch.take_out(()))
    positions |= prefetch.settle()
    for partition, seen in handed.items():
        assert seen == list(range(len(seen)))
        assert positions.get(("t", partition), 0) == len(seen)


def test_the_last_record_taken_is_not_finished() -> None:
    prefetch = Prefetch()
    prefetch.load([Record("t", 0, 5), Record("t", 1, 8), Record("t", 0, 6)])
    assert prefetch.finished() == {}
    list(itertools.islice(prefetch.waiting, 2))
    assert prefetch.finished() == {("t", 0): 6}
    next(prefetch.waiting)
    assert prefetch.finished() == {("t", 0): 6, ("t", 1): 9}
    prefetch.forget_finished()
    assert prefetch.finished() == {}


def test_a_loop_under_way_goes_on_with_what_is_left() -> None:
    prefetch = Prefetch()
    prefetch.load([Record("t", number % 2, number) for number in range(10)])
    seen = []
    for record in prefetch.waiting:
        seen.append(record.offset)
        if record.offset == 3:
            prefetch.take_out({("t", 0)})
    assert seen == [0, 1, 2, 3, 5, 7, 9]


def test_batches_grow_for_quick_programs_and_shrink_for_slow_ones() -> None:
    pace = Pace(100)
    for _ in range(10):
        pace.took(0.001)
    assert pace.size == 100
    pace.took(0.1)
    assert pace.size == 100
    pace.took(10.0)
    assert pace.size == 1
    pace.took(1.0)
    assert pace.size == 1
