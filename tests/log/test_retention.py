from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config.topic import TopicConfig
from penstock.log.retention import SegmentAge, deletable_count

NOW = 1_000_000


def count(*segments: tuple[int, int, int], start: int = 0, high_watermark: int = 10**9, **config: Any) -> int:
    """How many of the segments (end offset, size, newest timestamp) may go."""
    config = {"retention_ms": -1, "retention_bytes": -1, **config}
    number, reason = deletable_count(
        [SegmentAge(*segment) for segment in segments],
        TopicConfig(**config),
        start_offset=start,
        high_watermark=high_watermark,
        now_ms=NOW,
    )
    assert bool(reason) == bool(number)
    return number


YOUNG = [(10, 100, NOW), (20, 100, NOW), (30, 100, NOW)]


def aged(*ages_ms: int) -> list[tuple[int, int, int]]:
    return [(10 * n, 100, NOW - age) for n, age in enumerate(ages_ms, 1)]


@pytest.mark.parametrize(
    ("segments", "settings", "expected"),
    [
        # without limits everything stays
        (YOUNG, {}, 0),
        (aged(10**9, 10**9), {}, 0),
        # by age: more than retention.ms, counted from the newest record of the segment
        (aged(500, 400, 300), {"retention_ms": 500}, 0),
        (aged(501, 500, 300), {"retention_ms": 500}, 1),
        (aged(600, 501, 300), {"retention_ms": 500}, 2),
        (aged(600, 501, 501), {"retention_ms": 500}, 3),  # the active one too: it is replaced by a new one
        (aged(300, 900, 900), {"retention_ms": 500}, 0),  # only from the oldest on
        (aged(900, 300, 900), {"retention_ms": 500}, 1),
        (aged(0, 0), {"retention_ms": 0}, 0),
        (aged(1, 0), {"retention_ms": 0}, 1),
        (aged(-50, -50), {"retention_ms": 0}, 0),  # from the future
        # by size: while the log without the segment is not smaller than retention.bytes
        (YOUNG, {"retention_bytes": 300}, 0),
        (YOUNG, {"retention_bytes": 201}, 0),
        (YOUNG, {"retention_bytes": 200}, 1),
        (YOUNG, {"retention_bytes": 199}, 1),
        (YOUNG, {"retention_bytes": 100}, 2),
        (YOUNG, {"retention_bytes": 1}, 2),
        (YOUNG, {"retention_bytes": 0}, 3),
        ([(10, 1000, NOW), (20, 1, NOW)], {"retention_bytes": 500}, 0),
        ([(10, 1, NOW), (20, 1000, NOW), (30, 5, NOW)], {"retention_bytes": 500}, 1),
        # by start offset
        (YOUNG, {"start": 9}, 0),
        (YOUNG, {"start": 10}, 1),
        (YOUNG, {"start": 25}, 2),
        (YOUNG, {"start": 30}, 2),  # never the active one
        # together: each segment for its own reason
        (aged(900, 0, 0), {"retention_ms": 500, "retention_bytes": 100}, 2),
        (aged(0, 900, 0), {"start": 10, "retention_ms": 500}, 2),
        # only the delete policy deletes by age and size
        (aged(900, 900), {"retention_ms": 500, "cleanup_policy": ("compact",)}, 0),
        (YOUNG, {"retention_bytes": 0, "cleanup_policy": ("compact",)}, 0),
        (YOUNG, {"start": 20, "cleanup_policy": ("compact",)}, 2),
        (aged(900, 900), {"retention_ms": 500, "cleanup_policy": ("compact", "delete")}, 2),
        (aged(900, 900), {"retention_ms": 500, "cleanup_policy": ()}, 0),
        # nothing that is not replicated yet
        (aged(900, 900, 900), {"retention_ms": 500, "high_watermark": 30}, 3),
        (aged(900, 900, 900), {"retention_ms": 500, "high_watermark": 29}, 2),
        (aged(900, 900, 900), {"retention_ms": 500, "high_watermark": 20}, 2),
        (aged(900, 900, 900), {"retention_ms": 500, "high_watermark": 9}, 0),
        (YOUNG, {"retention_bytes": 0, "high_watermark": 15}, 1),
        # an empty active segment stays; an empty old one goes
        ([(10, 100, 0), (10, 0, 0)], {"retention_ms": 1}, 1),
        ([(0, 0, 0)], {"retention_ms": 1}, 0),
        ([(0, 0, 0)], {"retention_bytes": 0}, 0),
        ([(10, 0, 0), (20, 50, 0)], {"retention_ms": 1}, 2),
    ],
)
def test_old_segments_may_go(segments: list[tuple[int, int, int]], settings: dict[str, Any], expected: int) -> None:
    assert count(*segments, **settings) == expected


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 10), st.integers(0, 200), st.integers(0, 1000)), min_size=1, max_size=8),
    st.integers(-1, 800),
    st.integers(-1, 1000),
    st.integers(0, 80),
    st.integers(0, 80),
)
def test_what_stays_is_never_less_than_the_limits_allow(
    shapes: list[tuple[int, int, int]], retention_bytes: int, retention_ms: int, start: int, high_watermark: int
) -> None:
    end, segments = 0, []
    for length, size, age in shapes:
        end += length
        segments.append((end, size, NOW - age))
    number = count(
        *segments,
        start=start,
        high_watermark=high_watermark,
        retention_bytes=retention_bytes,
        retention_ms=retention_ms,
    )
    gone, kept = segments[:number], segments[number:]
    assert all(segment_end <= high_watermark for segment_end, _, _ in gone)
    for segment_end, _, newest in gone:
        has_expired = 0 <= retention_ms < NOW - newest
        lies_before_start = segment_end <= start
        rest_bytes = sum(size for other_end, size, _ in segments if other_end > segment_end)
        is_in_excess = 0 <= retention_bytes <= rest_bytes
        assert has_expired or lies_before_start or is_in_excess
    if kept and kept[0][0] <= high_watermark and len(kept) > 1:
        first_end, first_size, newest = kept[0]
        assert not first_end <= start
        assert not 0 <= retention_ms < NOW - newest
        assert not 0 <= retention_bytes <= sum(size for _, size, _ in kept) - first_size
