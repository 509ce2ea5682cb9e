from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.log.log import Log, TimestampOffset
from penstock.log.producer_state import Origin
from penstock.log.txn_index import AbortedTxn
from penstock.wire.batch import batches_in
from penstock.wire.compression import Codec
from penstock.wire.errors import ApiError, CorruptBatch, ErrorCode
from tests.log.samples import (
    T0,
    append,
    batches_from,
    config_of,
    data_batch,
    files_in,
    flush,
    marker_batch,
    open_at,
    records_from,
    txn_batch,
    values_from,
)

DAY_MS = 86_400_000
WEEK_MS = 7 * DAY_MS


def bases(log: Log) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def log_names(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir() if entry.name.endswith(".log"))


def code_of(action: object, *arguments: object) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        action(*arguments)  # type: ignore[operator]
    return caught.value.code


# ---- appending ----


def test_offsets_and_leader_epochs_are_assigned_in_order(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    first = append(log, data_batch(b"a", b"b"), epoch=4)
    second = append(log, data_batch(b"c"), epoch=5)
    assert (first.base_offset, first.last_offset, first.is_duplicate) == (0, 1, False)
    assert (second.base_offset, second.last_offset) == (2, 2)
    assert log.end_offset == 3
    assert [(batch.base_offset, batch.leader_epoch) for batch, _ in batches_from(log, 0)] == [(0, 4), (2, 5)]
    assert values_from(log, 0) == [b"a", b"b", b"c"]
    assert log.epochs.entries == ((4, 0), (5, 2))


def test_an_append_does_not_change_the_checksum(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, data_batch(b"a"))
    append(log, data_batch(b"b"), epoch=9)
    content = (tmp_path / f"{0:020d}.log").read_bytes()
    assert len(list(batches_in(content))) == 2  # batches_in verifies each


def test_an_epoch_is_on_disk_before_its_first_record(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    log.epochs.assign(7, 0)
    assert not (tmp_path / "leader-epoch-checkpoint").exists()
    append(log, data_batch(), epoch=7)
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n1\n7 0\n"


def test_a_batch_sent_twice_is_appended_once_and_answered_with_its_first_place(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, data_batch(b"x"))
    sent = [data_batch(b"a", b"b", producer=1, sequence=2 * n) for n in range(5)]
    first = [append(log, bytearray(data)) for data in sent]
    again = [append(log, bytearray(data)) for data in sent]
    assert [result.is_duplicate for result in again] == [True] * 5
    assert [(batch.base_offset, batch.last_offset) for batch in again] == [
        (batch.base_offset, batch.last_offset) for batch in first
    ]
    assert log.end_offset == 11


def test_a_refused_batch_leaves_no_trace(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, data_batch(b"a", producer=1, sequence=0))
    before = files_in(tmp_path)
    wrong = data_batch(b"b", producer=1, sequence=5)
    assert code_of(append, log, wrong) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert code_of(append, log, wrong, 8) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.end_offset == 1
    assert log.epochs.latest == 0
    assert files_in(tmp_path) == before


def test_a_coordinators_batch_is_not_taken_for_a_duplicate(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    for _ in range(2):
        result = append(log, txn_batch(1, b"a", sequence=-1), origin=Origin.COORDINATOR)
        assert not result.is_duplicate
    assert log.end_offset == 2


# ---- rolling ----


def test_a_segment_ends_where_the_next_batch_would_not_fit(tmp_path: Path) -> None:
    size = len(data_batch(b"x" * 100))
    log = open_at(tmp_path, config_of(segment_bytes=2 * size))
    for n in range(5):
        append(log, data_batch(bytes([65 + n]) * 100))
    assert bases(log) == [0, 2, 4]
    assert log_names(tmp_path) == [f"{n:020d}.log" for n in (0, 2, 4)]
    assert [segment.size for segment in log.segments] == [2 * size, 2 * size, size]
    assert log.size == 5 * size
    assert values_from(log, 0) == [bytes([65 + n]) * 100 for n in range(5)]


def test_a_batch_larger_than_a_segment_gets_one_of_its_own(tmp_path: Path) -> None:
    log = open_at(tmp_path, config_of(segment_bytes=100))
    for n in range(3):
        append(log, data_batch(bytes([65 + n]) * 500))
    assert bases(log) == [0, 1, 2]
    assert len(records_from(log, 0)) == 3


def test_a_segment_ends_by_the_records_time(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    log = open_at(tmp_path, config_of(segment_ms=1000), clock=clock)
    append(log, data_batch(timestamp=T0))
    clock.advance_ms(WEEK_MS)
    append(log, data_batch(timestamp=T0 + 1000))
    assert bases(log) == [0]
    append(log, data_batch(timestamp=T0 + 1001))
    assert bases(log) == [0, 2]
    append(log, data_batch(timestamp=T0))  # an old record does not end a segment
    assert bases(log) == [0, 2]


def test_a_segment_of_records_without_timestamps_ends_by_the_clock(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    log = open_at(tmp_path, config_of(segment_ms=1000), clock=clock)
    append(log, data_batch(timestamp=-1))
    clock.advance_ms(1000)
    append(log, data_batch(timestamp=-1))
    assert bases(log) == [0]
    clock.advance_ms(1)
    append(log, data_batch(timestamp=-1))
    assert bases(log) == [0, 2]


def test_a_segment_ends_when_its_offset_index_is_full(tmp_path: Path) -> None:
    log = open_at(tmp_path, config_of(segment_index_bytes=24, index_interval_bytes=0))
    for _ in range(9):
        append(log, data_batch(timestamp=T0))
    # The first batch of a segment has no entry; three entries fill it.
    assert bases(log) == [0, 4, 8]


def test_a_segment_ends_when_its_time_index_is_full(tmp_path: Path) -> None:
    log = open_at(tmp_path, config_of(segment_index_bytes=24, index_interval_bytes=0))
    for n in range(7):
        append(log, data_batch(timestamp=T0 + n))
    assert bases(log) == [0, 3, 6]
    assert [segment.max_timestamp for segment in log.segments] == [T0 + 2, T0 + 5, T0 + 6]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_segment_whose_index_was_full_at_the_end_of_the_last_run_is_followed_by_a_new_one(
    tmp_path: Path, is_clean: bool
) -> None:
    config = config_of(segment_index_bytes=24, index_interval_bytes=0)
    log = open_at(tmp_path, config)
    for _ in range(4):
        append(log, data_batch(timestamp=T0))
    if is_clean:
        log.close()
    log = open_at(tmp_path, config, is_clean=is_clean)
    for _ in range(4):
        append(log, data_batch(timestamp=T0))
    assert [record.offset for record in records_from(log, 0)] == list(range(8))
    assert bases(log) == [0, 4]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_goes_on_after_its_index_limit_was_lowered(tmp_path: Path, is_clean: bool) -> None:
    log = open_at(tmp_path, config_of(segment_index_bytes=1024, index_interval_bytes=0))
    for n in range(50):
        append(log, data_batch(timestamp=T0 + n))
    if is_clean:
        log.close()
    log = open_at(tmp_path, config_of(segment_index_bytes=120, index_interval_bytes=0), is_clean=is_clean)
    for n in range(50, 70):
        append(log, data_batch(timestamp=T0 + n))
    assert [record.offset for record in records_from(log, 0)] == list(range(70))
    assert log.offset_for_timestamp(T0 + 44) == (T0 + 44, 44, 0)
    assert log.segments[0].max_timestamp == T0 + 49
    log.truncate(33)
    assert log.end_offset == 33
    assert [record.offset for record in records_from(log, 20)] == list(range(20, 33))


@pytest.mark.parametrize("index_bytes", [4, 8, 11, 12])
def test_the_smallest_index_limits_work(tmp_path: Path, index_bytes: int) -> None:
    log = open_at(tmp_path, config_of(segment_index_bytes=index_bytes, index_interval_bytes=0))
    for n in range(6):
        append(log, data_batch(timestamp=T0 + n))
    assert [record.offset for record in records_from(log, 0)] == list(range(6))
    assert log.offset_for_timestamp(T0 + 4) == (T0 + 4, 4, 0)
    log.close()
    assert len(records_from(open_at(tmp_path, config_of(segment_index_bytes=index_bytes)), 0)) == 6


def test_a_far_offset_from_a_leader_begins_a_new_segment(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    log.append_as_follower(data_batch(b"a", base_offset=5, leader_epoch=1))
    log.append_as_follower(data_batch(b"b", base_offset=2**31 - 1, leader_epoch=1))
    assert bases(log) == [0]
    log.append_as_follower(data_batch(b"c", base_offset=2**31, leader_epoch=1))
    assert bases(log) == [0, 2**31]
    assert [record.offset for record in records_from(log, 0)] == [5, 2**31 - 1, 2**31]


def test_rolling_writes_the_producers_down_and_trims_the_indexes(tmp_path: Path) -> None:
    log = open_at(tmp_path, config_of(index_interval_bytes=0))
    for n in range(3):
        append(log, data_batch(producer=1, sequence=n))
    log.roll()
    assert log.needs_flush
    files = files_in(tmp_path)
    assert len(files[f"{0:020d}.index"]) == 2 * 8
    assert len(files[f"{0:020d}.timeindex"]) == 12
    assert files[f"{3:020d}.snapshot"] == log.producers.encode()
    assert f"{0:020d}.txnindex" not in files


def test_rolling_an_empty_segment_changes_nothing(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    assert log.roll() is log.active
    assert bases(log) == [0]


# ---- reading ----


@pytest.fixture
def three_segments(tmp_path: Path) -> Log:
    """Batches of three records; two batches in each of three segments."""
    size = len(data_batch(b"0", b"0", b"0"))
    log = open_at(tmp_path, config_of(segment_bytes=2 * size))
    for n in range(6):
        append(log, data_batch(*[str(3 * n + i).encode()[-1:] for i in range(3)]))
    assert bases(log) == [0, 6, 12]
    return log


def test_reading_from_inside_a_batch_gives_the_whole_batch(three_segments: Log) -> None:
    for offset in range(18):
        found = three_segments.read(offset, 1, 18)
        assert found is not None
        [batch] = batches_in(found.read())
        assert batch.base_offset == offset - offset % 3


def test_reading_goes_on_from_segment_to_segment(three_segments: Log) -> None:
    for offset in range(19):
        assert [record.offset for record in records_from(three_segments, offset)] == list(range(offset, 18))


def test_a_read_stays_within_one_segment(three_segments: Log) -> None:
    found = three_segments.read(0, 10**6, 18)
    assert found is not None
    assert [batch.base_offset for batch in batches_in(found.read())] == [0, 3]


@pytest.mark.parametrize("upper_bound", [0, 3, 6, 9, 12, 15, 18])
def test_nothing_at_or_above_the_upper_bound_is_read(three_segments: Log, upper_bound: int) -> None:
    for offset in range(18):
        found = [record.offset for record in records_from(three_segments, offset, upper_bound)]
        assert found == list(range(offset, upper_bound))


def test_an_upper_bound_inside_a_batch_leaves_the_batch_out(three_segments: Log) -> None:
    assert [record.offset for record in records_from(three_segments, 0, 8)] == list(range(6))
    assert three_segments.read(7, 100, 8) is None


def test_reading_at_the_end_gives_nothing(three_segments: Log) -> None:
    assert three_segments.read(18, 100, 18) is None


@pytest.mark.parametrize("offset", [-1, 19, 10**12])
def test_offsets_that_are_not_in_the_log_are_out_of_range(three_segments: Log, offset: int) -> None:
    assert code_of(three_segments.read, offset, 100, 18) is ErrorCode.OFFSET_OUT_OF_RANGE


def test_offsets_before_the_start_are_out_of_range(three_segments: Log) -> None:
    three_segments.advance_high_watermark(18)
    three_segments.advance_start(4)
    assert code_of(three_segments.read, 3, 100, 18) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert [record.offset for record in records_from(three_segments, 4)] == list(range(4, 18))


def test_only_the_first_batch_of_an_answer_may_exceed_the_limit(three_segments: Log) -> None:
    first = three_segments.read(0, 10, 18, is_first=True)
    later = three_segments.read(0, 10, 18, is_first=False)
    assert first is not None
    assert later is not None
    assert len(first) == len(data_batch(b"0", b"1", b"2"))
    assert len(later) == 10
    assert three_segments.read(0, 0, 18, is_first=False) is None


def test_gaps_between_batches_and_segments_are_skipped(tmp_path: Path) -> None:
    log = open_at(tmp_path, config_of(segment_bytes=250))
    for offset in (0, 10, 20, 30):
        log.append_as_follower(data_batch(b"x" * 40, base_offset=offset, leader_epoch=0))
    assert bases(log) == [0, 20]
    for offset in range(32):
        assert [r.offset for r in records_from(log, offset)] == [o for o in (0, 10, 20, 30) if o >= offset]


# ---- offsets by time ----


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_the_first_record_not_older_than_a_time_is_found_in_any_segment(tmp_path: Path, codec: Codec) -> None:
    log = open_at(tmp_path, config_of(index_interval_bytes=0))
    timestamps = [100, 110, 105, 120, 120, 90, 130, 140, 135, 150]
    for n in range(0, 10, 2):
        append(log, data_batch(b"a", b"b", timestamp=timestamps[n : n + 2], codec=codec), epoch=n)
        if n in (2, 4):
            log.roll()
    assert bases(log) == [0, 4, 6]
    for wanted in range(85, 152):
        expected = next(((t, o, o - o % 2) for o, t in enumerate(timestamps) if t >= wanted), None)
        assert log.offset_for_timestamp(wanted) == expected


def test_records_before_the_start_are_not_found_by_time(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, data_batch(b"a", b"b", b"c", timestamp=(100, 100, 100)))
    log.advance_high_watermark(3)
    log.advance_start(2)
    assert log.offset_for_timestamp(50) == TimestampOffset(100, 2, 0)


def test_the_record_with_the_largest_timestamp_is_the_first_that_has_it(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, data_batch(b"a", b"b", timestamp=(10, 30)), epoch=1)
    log.roll()
    append(log, data_batch(b"c", b"d", b"e", timestamp=(20, 50, 50)), epoch=2)
    append(log, data_batch(b"f", timestamp=50), epoch=3)
    log.roll()
    append(log, data_batch(b"g", timestamp=40), epoch=4)
    assert log.offset_of_max_timestamp() == TimestampOffset(50, 3, 2)


def test_an_empty_log_has_no_largest_timestamp(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    assert log.offset_of_max_timestamp() is None
    assert log.offset_for_timestamp(0) is None


# ---- the high watermark and the start ----


def test_the_high_watermark_only_grows_and_never_beyond_the_end(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, data_batch(b"a", b"b", b"c"))
    log.advance_high_watermark(2)
    log.advance_high_watermark(1)
    assert log.high_watermark == 2
    log.advance_high_watermark(99)
    assert log.high_watermark == 3


def test_the_start_moves_forward_up_to_the_high_watermark(three_segments: Log) -> None:
    log = three_segments
    log.advance_high_watermark(9)
    assert code_of(log.advance_start, 10) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.start_offset == 0
    assert log.advance_start(7) is True
    assert log.advance_start(7) is False
    assert log.advance_start(3) is False
    assert log.start_offset == 7
    assert log.recovery_point == 7
    assert log.epochs.entries == ((0, 7),)


# ---- retention ----


def retention_log(path: Path, clock: ManualClock, **settings: object) -> Log:
    """Segments of two batches of one record each; one batch per day."""
    size = len(data_batch(b"0" * 50))
    log = open_at(path, config_of(segment_bytes=2 * size, **settings), clock=clock)
    for n in range(6):
        append(log, data_batch(b"0" * 50, timestamp=T0 + n * DAY_MS, producer=1, sequence=n))
    assert bases(log) == [0, 2, 4]
    log.advance_high_watermark(6)
    return log


def test_segments_go_when_their_newest_record_is_too_old(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    log = retention_log(tmp_path, clock, retention_ms=WEEK_MS)
    clock.advance_ms(DAY_MS + WEEK_MS)
    assert log.delete_old_segments() == []
    clock.advance_ms(1)
    deleted = log.delete_old_segments()
    assert bases(log) == [2, 4]
    assert log.start_offset == 2
    assert sorted(Path(path).name for path in deleted) == [
        f"{0:020d}.{suffix}.deleted" for suffix in ("index", "log", "timeindex")
    ]
    assert all(os.path.exists(path) for path in deleted)
    assert code_of(log.read, 1, 100, 6) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert [record.offset for record in records_from(log, 2)] == [2, 3, 4, 5]


def test_the_producer_snapshot_of_a_deleted_segment_goes_with_it(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    log = retention_log(tmp_path, clock, retention_ms=WEEK_MS)
    clock.advance_ms(WEEK_MS + 3 * DAY_MS + 1)
    deleted = log.delete_old_segments()
    assert bases(log) == [4]
    assert str(tmp_path / f"{2:020d}.snapshot") in deleted
    assert str(tmp_path / f"{4:020d}.snapshot") not in deleted


def test_segments_go_while_the_log_stays_at_least_as_large_as_its_limit(tmp_path: Path) -> None:
    log = retention_log(tmp_path, ManualClock(T0), retention_bytes=1000, retention_ms=-1)
    segment_bytes = log.segments[0].size
    log.reconfigure(replace(log.config, retention_bytes=2 * segment_bytes + 1))
    assert log.delete_old_segments() == []
    log.reconfigure(replace(log.config, retention_bytes=2 * segment_bytes))
    assert log.delete_old_segments() != []
    assert bases(log) == [2, 4]


def test_segments_before_the_start_go_even_without_the_delete_policy(tmp_path: Path) -> None:
    log = retention_log(tmp_path, ManualClock(T0), cleanup_policy=("compact",), retention_ms=0, retention_bytes=0)
    assert log.delete_old_segments() == []
    log.advance_start(3)
    assert log.delete_old_segments() != []
    assert bases(log) == [2, 4]
    assert log.start_offset == 3


def test_nothing_goes_that_is_not_replicated_yet(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    log = retention_log(tmp_path, clock, retention_ms=1)
    log.high_watermark = 3
    clock.advance_ms(WEEK_MS * 10)
    log.delete_old_segments()
    assert bases(log) == [2, 4]


def test_a_log_that_expires_as_a_whole_goes_on_in_a_new_segment(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    log = retention_log(tmp_path, clock, retention_ms=1)
    clock.advance_ms(WEEK_MS * 10)
    deleted = log.delete_old_segments()
    assert bases(log) == [6]
    assert (log.start_offset, log.end_offset, log.size) == (6, 6, 0)
    assert len([path for path in deleted if path.endswith(".log.deleted")]) == 3
    assert log.delete_old_segments() == []  # an empty active segment stays
    assert append(log, data_batch(b"new")).base_offset == 6
    assert append(log, data_batch(b"dup", producer=1, sequence=6)).base_offset == 7


def test_deleted_segments_do_not_come_back(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    log = retention_log(tmp_path, clock, retention_ms=WEEK_MS)
    clock.advance_ms(WEEK_MS + DAY_MS + 1)
    assert log.delete_old_segments()
    log = open_at(tmp_path, log.config, is_clean=False)
    assert bases(log) == [2, 4]
    assert log.start_offset == 2
    assert not [name for name in files_in(tmp_path) if name.endswith(".deleted")]


# ---- truncation ----


@pytest.mark.parametrize("offset", range(19))
def test_truncation_removes_every_batch_that_reaches_the_offset(tmp_path: Path, offset: int) -> None:
    size = len(data_batch(b"0", b"0", b"0"))
    log = open_at(tmp_path, config_of(segment_bytes=2 * size, index_interval_bytes=0))
    for n in range(6):
        append(log, data_batch(b"0", b"0", b"0"), epoch=n)
    log.advance_high_watermark(5)
    flush(log)
    log.truncate(offset)
    assert log.end_offset == offset
    assert log.recovery_point == offset
    assert log.high_watermark == min(5, offset)
    kept = offset - offset % 3
    assert [record.offset for record in records_from(log, 0)] == list(range(kept))
    assert [entry.start_offset for entry in log.epochs.entries] == list(range(0, offset, 3))
    result = append(log, data_batch(b"new"), epoch=9)
    assert result.base_offset == offset
    assert records_from(log, offset)[0].value == b"new"
    assert [record.offset for record in records_from(log, 0)] == [*range(kept), offset]
    assert log.epochs.latest == 9
    again = open_at(tmp_path, log.config, is_clean=False)
    assert records_from(again, 0) == records_from(log, 0)


def test_truncation_at_or_beyond_the_end_changes_nothing(three_segments: Log) -> None:
    three_segments.truncate(18)
    three_segments.truncate(100)
    assert three_segments.end_offset == 18


def test_truncation_removes_the_files_of_whole_segments(three_segments: Log) -> None:
    three_segments.truncate(7)
    names = sorted(os.listdir(three_segments.directory))
    assert [name for name in names if name.endswith(".log")] == [f"{0:020d}.log", f"{6:020d}.log"]
    assert f"{12:020d}.snapshot" not in names


def test_producers_follow_a_truncation(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, data_batch(producer=1, sequence=0))
    append(log, data_batch(producer=2, sequence=0))
    log.roll()
    append(log, data_batch(producer=1, sequence=1))
    append(log, txn_batch(3, b"t"))
    log.truncate(3)
    assert set(log.producers.producers) == {1, 2}
    assert log.producers.first_unstable_offset is None
    assert append(log, data_batch(producer=1, sequence=1)).is_duplicate
    log.truncate(2)
    assert code_of(append, log, data_batch(producer=1, sequence=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert append(log, data_batch(producer=1, sequence=1)).base_offset == 2


def test_truncation_opens_a_transaction_again_whose_end_it_removes(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, txn_batch(1, b"a"))
    append(log, marker_batch(1, is_commit=False))
    assert log.active.txn_index.entries == [AbortedTxn(1, 0, 1, 2)]
    log.truncate(1)
    assert log.active.txn_index.entries == []
    assert log.producers.first_unstable_offset == 0
    append(log, marker_batch(1, is_commit=True))
    assert log.active.txn_index.entries == []
    assert log.producers.producers[1].txn_first_offset == -1


def test_a_producer_that_a_truncation_removed_does_not_come_back_from_an_old_snapshot(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    for n in range(5):
        append(log, data_batch(producer=1, sequence=n))
    log.close()  # writes a snapshot at offset 5
    log = open_at(tmp_path)
    log.truncate(0)
    for n in range(9):
        append(log, data_batch(producer=2, sequence=n))
    log.truncate(7)  # the state is rebuilt, from no snapshot that tells of the records that are gone
    assert set(log.producers.producers) == {2}
    assert append(log, data_batch(producer=1, sequence=0)).base_offset == 7


def test_truncating_fully_begins_anew_at_any_offset(three_segments: Log) -> None:
    log = three_segments
    log.truncate_fully(1000)
    assert bases(log) == [1000]
    assert (log.start_offset, log.end_offset, log.high_watermark) == (1000, 1000, 1000)
    assert log.epochs.entries == ()
    assert append(log, data_batch(b"a")).base_offset == 1000


def test_truncating_fully_keeps_start_and_recovery_point_in_order(three_segments: Log) -> None:
    three_segments.truncate_fully(1000)
    assert three_segments.start_offset <= three_segments.recovery_point <= three_segments.end_offset


def test_truncating_fully_forgets_all_producers(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, data_batch(producer=1, sequence=0))
    log.close()
    log = open_at(tmp_path)
    log.truncate_fully(50)
    assert log.producers.producers == {}
    assert append(log, data_batch(producer=1, sequence=77)).base_offset == 50


# ---- transactions ----


def test_the_last_stable_offset_waits_for_open_transactions(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, data_batch(b"plain"))
    append(log, txn_batch(1, b"a", b"b"))
    append(log, txn_batch(2, b"c"))
    log.advance_high_watermark(4)
    assert log.last_stable_offset == 1
    append(log, marker_batch(1, is_commit=True))
    assert log.last_stable_offset == 1  # the marker is not replicated yet
    log.advance_high_watermark(5)
    assert log.last_stable_offset == 3
    append(log, marker_batch(2, is_commit=False))
    log.advance_high_watermark(6)
    assert log.last_stable_offset == 6


def test_the_last_stable_offset_never_passes_the_high_watermark(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, data_batch(b"a", b"b"))
    assert log.last_stable_offset == 0
    log.advance_high_watermark(1)
    assert log.last_stable_offset == 1


def test_a_transaction_that_ended_below_the_high_watermark_is_stable_after_a_truncation(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, txn_batch(1, b"a"))
    append(log, marker_batch(1, is_commit=True))
    log.advance_high_watermark(2)
    assert log.last_stable_offset == 2
    append(log, data_batch(b"b"))
    log.truncate(2)
    assert log.high_watermark == 2
    assert log.last_stable_offset == 2


def test_aborted_transactions_with_records_in_a_slice_are_listed(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, txn_batch(1, b"a"))  # 0
    append(log, txn_batch(2, b"b"))  # 1
    append(log, marker_batch(1, is_commit=False))  # 2
    append(log, data_batch(b"plain"))  # 3
    log.roll()
    append(log, txn_batch(2, b"c", sequence=1))  # 4
    append(log, marker_batch(2, is_commit=False))  # 5
    append(log, txn_batch(1, b"d", sequence=1))  # 6
    append(log, marker_batch(1, is_commit=True))  # 7
    log.advance_high_watermark(8)
    first, second = AbortedTxn(1, 0, 2, 1), AbortedTxn(2, 1, 5, 6)

    def aborted(offset: int) -> list[AbortedTxn]:
        part = log.read(offset, 10**6, 8)
        assert part is not None
        return log.aborted_transactions(offset, part, 8)

    assert aborted(0) == [first, second]
    assert aborted(2) == [first, second]
    assert aborted(3) == [second]
    assert aborted(4) == [second]
    assert aborted(6) == []


def test_committed_and_empty_transactions_are_not_listed(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, marker_batch(1, is_commit=False))
    append(log, txn_batch(2, b"b"))
    append(log, marker_batch(2, is_commit=True))
    part = log.read(0, 10**6, 3)
    assert part is not None
    assert log.aborted_transactions(0, part, 3) == []
    assert not (tmp_path / f"{0:020d}.txnindex").exists()


def test_a_small_slice_may_list_more_than_it_needs_but_never_less(tmp_path: Path) -> None:
    log = open_at(tmp_path, config_of(index_interval_bytes=0))
    for producer in range(20):
        append(log, txn_batch(producer, b"a"))
        append(log, marker_batch(producer, is_commit=False))
    for offset in range(40):
        part = log.read(offset, 1, 40)
        assert part is not None
        [batch] = batches_in(part.read())
        listed = {txn.first_offset for txn in log.aborted_transactions(offset, part, 40)}
        needed = {batch.base_offset} if batch.base_offset % 2 == 0 else set()
        assert needed <= listed
        assert all(first < batch.base_offset + 4 for first in listed)


def test_markers_of_old_epochs_are_refused(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, txn_batch(1, b"a", epoch=5))
    assert code_of(append, log, marker_batch(1, is_commit=True, epoch=4)) is ErrorCode.INVALID_PRODUCER_EPOCH
    append(log, marker_batch(1, is_commit=True, epoch=5, coordinator_epoch=3))
    old = marker_batch(1, is_commit=True, epoch=5, coordinator_epoch=2)
    assert code_of(append, log, old) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert log.end_offset == 2


# ---- following a leader ----


def test_a_follower_keeps_offsets_epochs_and_bytes(tmp_path: Path) -> None:
    leader = open_at(tmp_path / "leader")
    append(leader, data_batch(b"a", b"b"), epoch=1)
    append(leader, txn_batch(7, b"c"), epoch=3)
    append(leader, marker_batch(7, is_commit=False), epoch=3)
    content = (tmp_path / "leader" / f"{0:020d}.log").read_bytes()
    follower = open_at(tmp_path / "follower")
    follower.append_as_follower(content)
    assert (tmp_path / "follower" / f"{0:020d}.log").read_bytes() == content
    assert follower.end_offset == leader.end_offset
    assert follower.epochs.entries == leader.epochs.entries
    assert follower.producers.producers == leader.producers.producers
    assert follower.active.txn_index.entries == [AbortedTxn(7, 2, 3, 4)]


def test_a_follower_ignores_a_torn_batch_at_the_end(tmp_path: Path) -> None:
    whole = data_batch(b"a", base_offset=0, leader_epoch=0)
    torn = data_batch(b"b", base_offset=1, leader_epoch=0)
    for size in (1, 60, 61, len(torn) - 1):
        log = open_at(tmp_path / str(size))
        log.append_as_follower(whole + torn[:size])
        assert log.end_offset == 1


def test_a_follower_refuses_offsets_below_its_end(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    log.append_as_follower(data_batch(b"a", b"b", base_offset=5, leader_epoch=0))
    with pytest.raises(ApiError):
        log.append_as_follower(data_batch(b"c", base_offset=6, leader_epoch=0))
    log.append_as_follower(data_batch(b"d", base_offset=7, leader_epoch=0))
    assert [record.offset for record in records_from(log, 0)] == [5, 6, 7]


def test_a_follower_refuses_corrupt_batches(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    data = data_batch(b"abc", base_offset=0, leader_epoch=0)
    data[-2] ^= 1
    with pytest.raises(CorruptBatch):
        log.append_as_follower(data)
    assert log.end_offset == 0
    assert log.size == 0


# ---- settings, flushing, closing ----


def test_new_settings_count_from_the_next_append_on(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, data_batch(b"x" * 100))
    assert not log.is_synced_before_use
    log.reconfigure(replace(log.config, segment_bytes=150, flush_messages=1, max_message_bytes=77))
    append(log, data_batch(b"x" * 100))
    assert bases(log) == [0, 1]
    assert log.is_synced_before_use
    assert log.needs_flush
    assert log.rules.bytes_max == 77


def test_a_flush_is_due_after_that_many_records(tmp_path: Path) -> None:
    log = open_at(tmp_path, config_of(flush_messages=3))
    append(log, data_batch(b"a", b"b"))
    assert not log.needs_flush
    assert not log.is_flush_due
    append(log, data_batch(b"c"))
    assert log.needs_flush
    assert log.is_flush_due
    assert log.unflushed_records == 3
    flush(log)
    assert (log.needs_flush, log.is_flush_due, log.unflushed_records) == (False, False, 0)


def test_a_flush_covers_what_was_there_when_it_began(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    log = open_at(tmp_path, clock=clock)
    append(log, data_batch(b"a"))
    job = log.flush_job()
    append(log, data_batch(b"b"))
    clock.advance_ms(5)
    job.run()
    log.flushed(job)
    assert log.recovery_point == 1
    assert log.last_flush_ms == T0 + 5


def test_a_flush_that_ends_after_a_truncation_does_not_count_what_is_gone(tmp_path: Path) -> None:
    log = open_at(tmp_path)
    append(log, data_batch(b"a"))
    append(log, data_batch(b"b"))
    job = log.flush_job()
    job.run()
    log.truncate(1)
    append(log, data_batch(b"c"))
    log.flushed(job)
    assert log.recovery_point <= 1


def test_a_closed_log_opens_as_it_was(tmp_path: Path) -> None:
    config = config_of(index_interval_bytes=100, segment_bytes=900)
    log = open_at(tmp_path, config)
    for n in range(20):
        append(log, data_batch(b"v" * 50, timestamp=T0 + n, producer=n % 3, sequence=n // 3), epoch=n // 7)
    append(log, txn_batch(9, b"open"), epoch=2)
    records = records_from(log, 0)
    log.close()
    again = open_at(tmp_path, config)
    assert records_from(again, 0) == records
    assert again.end_offset == again.recovery_point == 21
    assert again.epochs.entries == log.epochs.entries
    assert again.producers.encode() == log.producers.encode()
    assert again.producers.first_unstable_offset == 20
    assert [s.max_timestamp for s in again.segments] == [s.max_timestamp for s in log.segments]
    assert append(again, data_batch(b"more"), epoch=2).base_offset == 21


def test_a_closed_log_has_no_room_left_in_its_files(tmp_path: Path) -> None:
    log = open_at(tmp_path, config_of(index_interval_bytes=0, preallocate=True, segment_bytes=5000))
    for _ in range(3):
        append(log, data_batch(b"a"))
    log.close()
    files = files_in(tmp_path)
    assert len(files[f"{0:020d}.log"]) == 3 * len(data_batch(b"a"))
    assert len(files[f"{0:020d}.index"]) == 16
    assert len(files[f"{0:020d}.timeindex"]) == 12
    assert f"{3:020d}.snapshot" in files


def test_a_log_follows_its_folder_to_a_new_name(tmp_path: Path) -> None:
    log = open_at(tmp_path / "old-0")
    append(log, data_batch(b"a"))
    os.rename(tmp_path / "old-0", tmp_path / "new-0")
    log.move(str(tmp_path / "new-0"))
    assert log.name == "new-0"
    append(log, data_batch(b"b"), epoch=2)
    log.roll()
    log.close()
    assert values_from(open_at(tmp_path / "new-0"), 0) == [b"a", b"b"]
    assert not (tmp_path / "old-0").exists()
