"""Ranges: nothing is read twice, nothing is left out, whatever the limits are."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.partitions import TopicPartition
from penstock.spark.ranges import OffsetRange, backlog, from_json, limited, split, to_json

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "d-1"]), st.integers(0, 5))
spans = st.dictionaries(partitions, st.tuples(st.integers(0, 10_000), st.integers(0, 5_000)), max_size=8)


@given(
    spans=spans, tasks_min=st.one_of(st.none(), st.integers(1, 40)), largest=st.one_of(st.none(), st.integers(1, 3000))
)
def test_splitting_keeps_every_offset_once(
    spans: dict[TopicPartition, tuple[int, int]], tasks_min: int | None, largest: int | None
) -> None:
    ranges = [OffsetRange(partition, start, start + size) for partition, (start, size) in spans.items()]
    parts = split(ranges, tasks_min, largest)
    assert all(part.size > 0 for part in parts)
    assert largest is None or all(part.size <= largest for part in parts)
    for one in ranges:
        mine = sorted((part.start, part.end) for part in parts if part.partition == one.partition)
        bounds = [one.start, *(end for _, end in mine)]
        assert [start for start, _ in mine] == bounds[:-1]
        assert bounds[-1] == one.end
    total = sum(one.size for one in ranges)
    if tasks_min and total >= tasks_min:
        assert len(parts) >= tasks_min


@given(spans=spans, most=st.integers(1, 20_000))
def test_a_limit_is_shared_by_what_there_is(spans: dict[TopicPartition, tuple[int, int]], most: int) -> None:
    start = {partition: first for partition, (first, _) in spans.items()}
    end = {partition: first + size for partition, (first, size) in spans.items()}
    found = limited(start, end, most)
    assert found.keys() == end.keys()
    for partition in end:
        assert start[partition] <= found[partition] <= end[partition]
        assert (found[partition] > start[partition]) == (end[partition] > start[partition]), "nobody is left to starve"
    read = sum(backlog(start, found).values())
    assert read <= max(most, 0) + len(spans)


@given(offsets=st.dictionaries(partitions, st.integers(0, 2**62)))
def test_offsets_survive_the_way_through_a_checkpoint(offsets: dict[TopicPartition, int]) -> None:
    assert from_json(to_json(offsets)) == offsets
