"""What is dirty, which segments go together: tables in, values out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from penstock.config.definition import LONG_MAX
from penstock.log.cleaned_transactions import CleanedTransactions
from penstock.log.compaction import dirt_of, first_dirty_offset, grouped, overlapping
from penstock.log.pace import Pace
from penstock.log.txn_index import AbortedTxn
from penstock.wire.record import ControlType
from tests.log.samples import T0, config_of

HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Piece:
    """A segment as the decisions see it."""

    base_offset: int
    size: int = 100
    newest: int = T0
    first_timestamp: int = T0
    indexes: tuple[int, int] = (8, 12)

    def largest_timestamp(self) -> int:
        return self.newest

    def index_sizes(self) -> tuple[int, int]:
        return self.indexes


SEGMENTS = [Piece(0), Piece(10), Piece(20), Piece(30), Piece(40, size=50)]  # the last one is active


def _dirt(first: int, stable: int = 45, **settings: Any) -> tuple[int, int, int, int]:
    dirt = dirt_of(SEGMENTS, config_of(**settings), first_offset=first, stable_offset=stable, now_ms=T0 + HOUR_MS)
    return dirt.first_offset, dirt.end_offset, dirt.clean_bytes, dirt.dirty_bytes


@pytest.mark.parametrize(
    ("cleaned", "start", "end", "first"),
    [
        (None, 0, 50, 0),
        (None, 7, 50, 7),
        (20, 0, 50, 20),
        (50, 0, 50, 50),
        (5, 7, 50, 7),  # what was clean is deleted
        (60, 7, 50, 7),  # the log was cut: nothing is known about what came instead
    ],
)
def test_the_dirty_part_begins_where_the_last_compaction_ended(
    cleaned: int | None, start: int, end: int, first: int
) -> None:
    assert first_dirty_offset(cleaned, start, end) == first


@pytest.mark.parametrize(
    ("first", "stable", "expected"),
    [
        (0, 45, (0, 40, 0, 400)),  # all but the active segment
        (20, 45, (20, 40, 200, 200)),
        (25, 45, (25, 40, 300, 200)),  # a partly clean segment counts on both sides
        (0, 40, (0, 40, 0, 400)),
        (0, 39, (0, 30, 0, 300)),  # a segment that is not stable to its end stays out
        (0, 5, (0, 0, 0, 0)),
        (40, 45, (40, 40, 400, 0)),
        (45, 45, (40, 40, 400, 0)),
    ],
)
def test_nothing_is_cleaned_that_is_active_or_not_stable(
    first: int, stable: int, expected: tuple[int, int, int, int]
) -> None:
    assert _dirt(first, stable) == expected


def test_what_is_younger_than_the_minimum_lag_is_left_alone() -> None:
    segments = [Piece(0), Piece(10, newest=T0 + HOUR_MS), Piece(20), Piece(30)]
    config = config_of(min_compaction_lag_ms=1000)
    dirt = dirt_of(segments, config, first_offset=0, stable_offset=40, now_ms=T0 + HOUR_MS + 999)
    assert (dirt.end_offset, dirt.dirty_bytes) == (10, 100)
    dirt = dirt_of(segments, config, first_offset=0, stable_offset=40, now_ms=T0 + HOUR_MS + 1000)
    assert dirt.end_offset == 30


@pytest.mark.parametrize(
    ("first", "ratio", "lag_ms", "is_due"),
    [
        (20, 0.49, LONG_MAX, True),
        (20, 0.5, LONG_MAX, False),  # more than the ratio, not just as much
        (20, 0.9, HOUR_MS - 1, True),
        (20, 0.9, HOUR_MS, False),
        (40, 0.0, 1, False),  # nothing is dirty
        (0, 1.0, LONG_MAX, False),
    ],
)
def test_a_log_is_due_by_its_ratio_or_by_its_age(first: int, ratio: float, lag_ms: int, is_due: bool) -> None:
    config = config_of(min_cleanable_dirty_ratio=ratio, max_compaction_lag_ms=lag_ms)
    dirt = dirt_of(SEGMENTS, config, first_offset=first, stable_offset=45, now_ms=T0 + HOUR_MS)
    assert dirt.is_due(config) is is_due


@pytest.mark.parametrize(
    ("first", "end", "bases"),
    [(0, 40, [0, 10, 20, 30]), (10, 40, [10, 20, 30]), (15, 21, [10, 20]), (-1, 10, [0]), (99, 100, [40]), (0, 0, [])],
)
def test_segments_are_found_by_offsets(first: int, end: int, bases: list[int]) -> None:
    assert [segment.base_offset for segment in overlapping(SEGMENTS, first, end)] == bases


def _groups(segments: list[Piece], end: int = 1000, **settings: Any) -> list[list[int]]:
    groups = grouped(segments, config_of(**settings), end)
    return [[segment.base_offset for segment in group] for group in groups]


def test_segments_are_put_together_up_to_the_segment_size() -> None:
    pieces = [Piece(0, 40), Piece(10, 40), Piece(20, 40), Piece(30, 120), Piece(40, 10)]
    assert _groups(pieces, segment_bytes=100) == [[0, 10], [20], [30], [40]]
    assert _groups(pieces, segment_bytes=1000) == [[0, 10, 20, 30, 40]]


def test_segments_are_put_together_as_far_as_one_index_can_hold_their_entries() -> None:
    pieces = [Piece(number * 10, 1, indexes=(8, 24)) for number in range(4)]
    assert _groups(pieces, segment_index_bytes=48) == [[0, 10], [20, 30]]
    pieces = [Piece(number * 10, 1, indexes=(24, 12)) for number in range(4)]
    assert _groups(pieces, segment_index_bytes=72) == [[0, 10, 20], [30]]


def test_segments_are_put_together_as_far_as_31_bits_can_count() -> None:
    limit = 2**31
    assert _groups([Piece(0), Piece(5), Piece(limit)], limit + 5) == [[0, 5], [limit]]
    assert _groups([Piece(0), Piece(5), Piece(limit - 10)], limit) == [[0, 5, limit - 10]]
    # An empty one holds no offset that must be counted.
    assert _groups([Piece(0), Piece(5), Piece(limit, 0)], limit + 5) == [[0, 5, limit]]


# ---- transactions ----


def test_records_of_aborted_transactions_are_known_by_producer_and_place() -> None:
    transactions = CleanedTransactions([AbortedTxn(7, 10, 19, 10), AbortedTxn(7, 30, 39, 30)])
    assert not transactions.is_aborted(7, 9)
    assert not transactions.is_marker_obsolete(7, 9, ControlType.COMMIT)
    assert transactions.is_aborted(7, 12)
    assert not transactions.is_aborted(8, 13)
    assert not transactions.is_marker_obsolete(7, 19, ControlType.ABORT)
    assert not transactions.is_aborted(7, 21)
    assert not transactions.is_marker_obsolete(7, 22, ControlType.COMMIT)
    assert transactions.is_marker_obsolete(7, 39, ControlType.ABORT)
    assert transactions.take_retained() == [AbortedTxn(7, 10, 19, 10)]
    assert transactions.take_retained() == []


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
def test_a_marker_without_records_before_it_is_obsolete(kind: ControlType) -> None:
    transactions = CleanedTransactions([AbortedTxn(7, 1, 5, 1)] if kind == ControlType.ABORT else [])
    assert transactions.is_marker_obsolete(7, 5, kind)
    assert transactions.take_retained() == []


def test_other_control_records_stay_and_emptied_ones_go() -> None:
    assert not CleanedTransactions([]).is_marker_obsolete(7, 5, ControlType.LEADER_CHANGE)
    assert CleanedTransactions([]).is_marker_obsolete(7, 5, None)


# ---- the rate ----


def test_the_pace_keeps_the_average() -> None:
    now = 100.0
    pace = Pace(lambda: 1000.0, lambda: now)
    assert pace.delay_s(100) == 0.0  # a little may be done at once
    assert pace.delay_s(1000) == pytest.approx(1.0)
    now += 1.0
    assert pace.delay_s(500) == pytest.approx(0.5)
    now += 60.0
    assert pace.delay_s(100) == 0.0
    assert pace.delay_s(2000) == pytest.approx(2.0)  # an hour of silence does not pay for a rush


def test_without_a_rate_nobody_waits() -> None:
    assert Pace(lambda: 1.7976931348623157e308, lambda: 0.0).delay_s(1 << 30) == 0.0
    assert Pace(lambda: 0.0, lambda: 0.0).delay_s(1 << 30) == 0.0
