from __future__ import annotations

import struct
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.clock import ManualClock
from penstock.config.topic import TopicConfig
from penstock.log.segment import Segment
from penstock.log.storage import Storage
from penstock.wire._kernel import stamp_timestamp
from penstock.wire.batch import batches_in, parse_header
from penstock.wire.compression import Codec
from penstock.wire.errors import CorruptBatch
from tests.log.samples import T0, config_of, data_batch

BASE = 100


def segment_at(path: Path | str, config: TopicConfig | None = None, base: int = BASE) -> Segment:
    return Segment.create(Storage(), str(path), base, config or config_of(), ManualClock(T0))


def reopened(path: Path | str, config: TopicConfig | None = None, base: int = BASE) -> Segment:
    return Segment.open(Storage(), str(path), base, config or config_of(), ManualClock(T0))


def put(segment: Segment, data: bytearray, offset: int) -> int:
    """Append a batch at an offset; returns the next offset."""
    data[0:8] = struct.pack(">q", offset)
    batch = parse_header(data)
    segment.append(data, batch.last_offset, batch.max_timestamp, is_forced=True)
    return batch.next_offset


def fill(segment: Segment, *batches: bytearray, offset: int = BASE) -> int:
    for data in batches:
        offset = put(segment, data, offset)
    return offset


def offsets_read(segment: Segment, offset: int, bytes_max: int, *, is_first: bool) -> list[int] | None:
    found = segment.read(offset, bytes_max, segment.size, is_first=is_first)
    return None if found is None else [batch.base_offset for batch in batches_in(found.read())]


# ---- files ----


def test_a_compacted_segment_ends_in_time_to_be_compacted(tmp_path: Path) -> None:
    for policy, is_too_old in (("delete", False), ("compact", True)):
        config = config_of(cleanup_policy=(policy,), max_compaction_lag_ms=1000)
        segment = Segment.create(Storage(), str(tmp_path), 0, config, ManualClock(T0))
        segment.append(data_batch(timestamp=T0), 0, T0)
        assert segment.append(data_batch(timestamp=T0 + 1000), 1, T0 + 1000)
        assert segment.append(data_batch(timestamp=T0 + 1001), 2, T0 + 1001) is not is_too_old


def test_a_segments_files_are_named_after_its_base_offset(tmp_path: Path) -> None:
    segment = segment_at(tmp_path, config_of(index_interval_bytes=0), base=1234)
    fill(segment, data_batch(), data_batch(), offset=1234)
    segment.become_inactive()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        "00000000000000001234.index",
        "00000000000000001234.log",
        "00000000000000001234.timeindex",
    ]


def test_a_log_file_holds_the_batches_and_nothing_else(tmp_path: Path) -> None:
    segment = segment_at(tmp_path)
    first, second = data_batch(b"a"), data_batch(b"b", b"c")
    fill(segment, first, second)
    assert (tmp_path / f"{BASE:020d}.log").read_bytes() == bytes(first + second)
    assert segment.size == len(first) + len(second)


def test_a_new_segment_empties_files_that_stand_in_its_place(tmp_path: Path) -> None:
    for suffix in ("log", "index", "timeindex", "txnindex"):
        (tmp_path / f"{BASE:020d}.{suffix}").write_bytes(b"left over" * 20)
    segment = segment_at(tmp_path)
    assert segment.size == 0
    assert segment.offset_index.entries == 0
    assert segment.time_index.entries == 0
    assert segment.txn_index.entries == []
    put(segment, data_batch(b"a"), BASE)
    assert offsets_read(segment, BASE, 1000, is_first=True) == [BASE]


def test_a_preallocated_segment_has_its_full_size_until_it_is_complete(tmp_path: Path) -> None:
    segment = segment_at(tmp_path, config_of(preallocate=True, segment_bytes=5000))
    data = data_batch(b"a")
    put(segment, data, BASE)
    path = tmp_path / f"{BASE:020d}.log"
    assert path.stat().st_size == 5000
    assert segment.size == len(data)
    segment.become_inactive()
    assert path.read_bytes() == bytes(data)


# ---- reading ----


def test_reading_begins_with_the_batch_that_holds_the_offset(tmp_path: Path) -> None:
    segment = segment_at(tmp_path)
    fill(segment, data_batch(b"a", b"b", b"c"), data_batch(b"d", b"e"), data_batch(b"f"))
    for offset, base in [(100, 100), (102, 100), (103, 103), (104, 103), (105, 105)]:
        assert offsets_read(segment, offset, 1, is_first=True) == [base]
    assert segment.read(106, 1000, segment.size, is_first=True) is None


def test_offsets_below_the_first_batch_find_the_first_batch(tmp_path: Path) -> None:
    segment = segment_at(tmp_path)
    fill(segment, data_batch(b"a"), offset=BASE + 5)
    assert offsets_read(segment, BASE, 1000, is_first=True) == [BASE + 5]


def test_an_offset_in_a_gap_finds_the_batch_behind_it(tmp_path: Path) -> None:
    segment = segment_at(tmp_path)
    put(segment, data_batch(b"a"), 100)
    put(segment, data_batch(b"b"), 110)
    assert offsets_read(segment, 105, 1000, is_first=True) == [110]


def test_a_limit_cuts_the_slice_but_never_the_first_batch(tmp_path: Path) -> None:
    segment = segment_at(tmp_path)
    data = data_batch(b"x" * 200)
    fill(segment, *[bytearray(data) for _ in range(4)])
    size = len(data)

    def length(bytes_max: int, *, is_first: bool, end: int | None = None) -> int:
        found = segment.read(BASE, bytes_max, segment.size if end is None else end, is_first=is_first)
        assert found is not None
        return len(found)

    assert length(0, is_first=True) == size
    assert length(size + 1, is_first=True) == size + 1
    assert length(10**6, is_first=True) == 4 * size
    assert length(10, is_first=False) == 10
    assert length(0, is_first=False) == 0
    assert length(10**6, is_first=True, end=2 * size) == 2 * size
    assert length(0, is_first=True, end=0) == 0


def test_a_slice_is_readable_after_the_segment_is_deleted(tmp_path: Path) -> None:
    segment = segment_at(tmp_path)
    data = data_batch(b"a")
    put(segment, data, BASE)
    found = segment.read(BASE, 1000, segment.size, is_first=True)
    for path in segment.mark_deleted():
        Path(path).unlink()
    del segment
    assert found is not None
    assert found.read() == bytes(data)


def test_a_batch_larger_than_the_search_window_is_found_and_passed(tmp_path: Path) -> None:
    segment = segment_at(tmp_path, config_of(index_interval_bytes=10**6))
    fill(segment, data_batch(b"x" * 30_000), data_batch(b"y" * 30_000), data_batch(b"z"))
    assert [segment.locate(BASE + n)[2] for n in range(3)] == [BASE, BASE + 1, BASE + 2]  # type: ignore[index]
    assert segment.locate(BASE + 3) is None


def test_a_torn_header_in_the_file_is_an_error_and_no_endless_search(tmp_path: Path) -> None:
    segment = segment_at(tmp_path)
    put(segment, data_batch(b"a"), BASE)
    with (tmp_path / f"{BASE:020d}.log").open("ab") as file:
        file.write(b"\0" * 30)
    segment = reopened(tmp_path)
    with pytest.raises(CorruptBatch):
        segment.locate(BASE + 1)
    with pytest.raises(CorruptBatch):
        list(segment.batches())


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 300), st.integers(0, 3)), min_size=1, max_size=30),
    st.sampled_from([0, 100, 500, 4096]),
    st.booleans(),
)
def test_every_offset_is_located_whatever_the_index_holds(
    shapes: list[tuple[int, int, int]], interval: int, is_reopened: bool
) -> None:
    with TemporaryDirectory() as path:
        config = config_of(index_interval_bytes=interval)
        segment = segment_at(path, config)
        offset, spans, position = BASE, [], 0
        for count, size, gap in shapes:
            offset += gap
            data = data_batch(*[b"v" * size] * count)
            after = put(segment, data, offset)
            spans.append((offset, after, position, len(data)))
            offset, position = after, position + len(data)
        if is_reopened:
            segment.become_inactive()
            segment.close()
            segment = reopened(path, config)
            assert segment.next_offset() == offset
        for wanted in range(BASE, offset):
            base, _, at, size = next(span for span in spans if span[1] > wanted)
            assert segment.locate(wanted) == (at, size, base)
        assert segment.locate(offset) is None


# ---- indexes ----


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(-1, 50)), min_size=1, max_size=40),
    st.sampled_from([0, 100, 1000]),
)
def test_index_entries_come_in_kafkas_rhythm(shapes: list[tuple[int, int]], interval: int) -> None:
    """An entry for a batch when more than the interval was written since the last one; never for the first batch."""
    with TemporaryDirectory() as path:
        segment = segment_at(path, config_of(index_interval_bytes=interval))
        offsets: list[tuple[int, int]] = []
        times: list[tuple[int, int]] = []
        since, position, newest = 0, 0, (-1, BASE)
        for number, (size, timestamp) in enumerate(shapes):
            data = data_batch(b"v" * size, timestamp=timestamp)
            put(segment, data, BASE + number)
            if timestamp > newest[0]:
                newest = (timestamp, BASE + number)
            if since > interval:
                offsets.append((BASE + number, position))
                if newest[0] > (times[-1][0] if times else -1):
                    times.append(newest)
                since = 0
            since += len(data)
            position += len(data)
        segment.become_inactive()
        if newest[0] > (times[-1][0] if times else -1):
            times.append(newest)
        index, time_index = segment.offset_index, segment.time_index
        assert [index.entry(n) for n in range(index.entries)] == offsets
        assert [time_index.entry(n) for n in range(time_index.entries)] == times
        assert (segment.max_timestamp, segment.offset_of_max_timestamp) == newest
        again = reopened(path)
        assert again.max_timestamp == newest[0]


def test_a_scan_rebuilds_the_same_indexes(tmp_path: Path) -> None:
    config = config_of(index_interval_bytes=200)
    segment = segment_at(tmp_path, config)
    fill(segment, *[data_batch(b"v" * (n * 37 % 250), timestamp=T0 + n * 7 % 31) for n in range(60)])
    segment.become_inactive()
    wanted = {name: (tmp_path / f"{BASE:020d}.{name}").read_bytes() for name in ("index", "timeindex")}
    assert all(wanted.values())
    again = reopened(tmp_path, config)
    again.rebuild_indexes()
    assert {name: (tmp_path / f"{BASE:020d}.{name}").read_bytes() for name in wanted} == wanted
    assert again.max_timestamp == segment.max_timestamp
    assert again.offset_of_max_timestamp == segment.offset_of_max_timestamp


# ---- room ----


def has_room(segment: Segment, *, added: int = 10, last_offset: int = BASE, newest: int = T0, now: int = T0) -> bool:
    """Whether so many bytes would go into the segment; nothing is written."""

    class Reached(Exception):
        pass

    with patch.object(segment, "_write_at", side_effect=Reached), patch.object(segment, "_clock", ManualClock(now)):
        try:
            return segment.append(bytes(added), last_offset, newest)
        except Reached:
            return True


def test_a_segment_has_room_up_to_its_size(tmp_path: Path) -> None:
    segment = segment_at(tmp_path, config_of(segment_bytes=1000))
    data = data_batch(b"a")
    put(segment, data, BASE)
    assert has_room(segment, added=1000 - len(data))
    assert not has_room(segment, added=1001 - len(data))


def test_a_segment_has_room_up_to_its_age_in_the_records_time(tmp_path: Path) -> None:
    segment = segment_at(tmp_path, config_of(segment_ms=1000))
    put(segment, data_batch(b"a", b"b", timestamp=(T0 - 5, T0)), BASE)
    assert has_room(segment, newest=T0 + 1000, now=T0 + 10**9)
    assert not has_room(segment, newest=T0 + 1001)
    assert has_room(segment, newest=T0 - 10**6)


def test_without_timestamps_the_age_is_counted_by_the_clock(tmp_path: Path) -> None:
    segment = segment_at(tmp_path, config_of(segment_ms=1000))
    put(segment, data_batch(timestamp=-1), BASE)
    assert has_room(segment, newest=-1, now=T0 + 1000)
    assert not has_room(segment, newest=-1, now=T0 + 1001)


def test_an_empty_segment_is_never_too_old(tmp_path: Path) -> None:
    segment = segment_at(tmp_path, config_of(segment_ms=1000))
    assert has_room(segment, newest=T0 + 10**9, now=T0 + 10**9)


def test_the_age_goes_on_from_the_first_batch_after_reopening(tmp_path: Path) -> None:
    config = config_of(segment_ms=1000)
    segment = segment_at(tmp_path, config)
    fill(segment, data_batch(timestamp=T0), data_batch(timestamp=T0 + 900))
    segment.become_inactive()
    segment = reopened(tmp_path, config)
    assert has_room(segment, newest=T0 + 1000)
    assert not has_room(segment, newest=T0 + 1001)


def test_jitter_ends_a_segment_early_by_at_most_that_much(tmp_path: Path) -> None:
    ages = set()
    for _ in range(60):
        segment = segment_at(tmp_path, config_of(segment_ms=1000, segment_jitter_ms=10))
        put(segment, data_batch(timestamp=T0), BASE)
        ages.add(next(age for age in range(985, 1010) if not has_room(segment, newest=T0 + age)) - 1)
    assert ages <= set(range(991, 1001))
    assert len(ages) > 3


def test_offsets_that_the_index_cannot_hold_need_a_new_segment(tmp_path: Path) -> None:
    segment = segment_at(tmp_path)
    assert has_room(segment, last_offset=BASE + 2**31 - 1)
    assert not has_room(segment, last_offset=BASE + 2**31)


@pytest.mark.parametrize("is_reopened", [False, True])
def test_a_segment_with_a_full_index_has_no_room(tmp_path: Path, is_reopened: bool) -> None:
    config = config_of(segment_index_bytes=24, index_interval_bytes=0)  # three offsets, two timestamps
    segment = segment_at(tmp_path, config)
    offset = fill(segment, data_batch(), data_batch(timestamp=T0 + 1))
    assert has_room(segment)
    fill(segment, data_batch(timestamp=T0 + 2), offset=offset)
    if is_reopened:
        segment.become_inactive()
        segment = reopened(tmp_path, config)
    assert not has_room(segment)


# ---- truncation ----


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(-1, 30)), min_size=1, max_size=25),
    st.integers(0, 80),
    st.sampled_from([0, 150, 10**6]),
    st.booleans(),
)
def test_truncation_leaves_the_segment_as_if_the_rest_had_never_been_written(
    shapes: list[tuple[int, int]], at: int, interval: int, is_reopened: bool
) -> None:
    with TemporaryDirectory() as path, TemporaryDirectory() as other_path:
        config = config_of(index_interval_bytes=interval)
        batches = [data_batch(*[b"value"] * count, timestamp=timestamp) for count, timestamp in shapes]
        segment, other = segment_at(path, config), segment_at(other_path, config)
        offset, kept = BASE, []
        for data in batches:
            after = put(segment, data, offset)
            if after <= BASE + at:
                put(other, data, offset)
                kept.append(parse_header(data))
            offset = after
        if is_reopened:
            segment.become_inactive()
            segment = reopened(path, config)
        segment.truncate(BASE + at)
        assert segment.size == other.size
        assert Path(segment.file.path).read_bytes() == Path(other.file.path).read_bytes()
        assert segment.max_timestamp == max((batch.max_timestamp for batch in kept), default=-1)
        assert [batch.base_offset for _, batch in segment.batches()] == [batch.base_offset for batch in kept]
        assert [segment.offset_index.entry(n) for n in range(segment.offset_index.entries)] == [
            other.offset_index.entry(n) for n in range(other.offset_index.entries)
        ]
        # It grows on as before.
        end = max(BASE + at, kept[-1].next_offset if kept else BASE)
        put(segment, data_batch(b"new", timestamp=T0), end)
        assert offsets_read(segment, end, 10**6, is_first=True) == [end]
        assert segment.max_timestamp == T0


# ---- timestamps ----


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=4), min_size=1, max_size=20),
    st.integers(0, 42),
    st.integers(0, 30),
    st.sampled_from([0, 150, 10**6]),
    st.sampled_from([Codec.NONE, Codec.ZSTD]),
    st.booleans(),
)
def test_the_first_record_that_is_not_older_is_found(
    timestamps: list[list[int]], wanted: int, skipped: int, interval: int, codec: Codec, is_reopened: bool
) -> None:
    with TemporaryDirectory() as path:
        config = config_of(index_interval_bytes=interval)
        segment = segment_at(path, config)
        batches = [
            data_batch(*[b"v"] * len(times), timestamp=times, codec=codec, leader_epoch=3) for times in timestamps
        ]
        fill(segment, *batches)
        if is_reopened:
            segment.become_inactive()
            segment = reopened(path, config)
        flat = list(enumerate((t for times in timestamps for t in times), BASE))
        start = BASE + skipped
        expected = next(((t, offset, 3) for offset, t in flat if t >= wanted and offset >= start), None)
        assert segment.find_timestamp(wanted, start) == expected
        newest = max(t for _, t in flat)
        assert segment.find_max_timestamp() == next((t, offset, 3) for offset, t in flat if t == newest)


def test_the_first_record_of_a_batch_of_log_append_time_is_found(tmp_path: Path) -> None:
    segment = segment_at(tmp_path)
    data = data_batch(b"a", b"b", timestamp=(5, 6))
    batch = parse_header(data)
    stamp_timestamp(data, batch, True, 70)
    put(segment, data, BASE)
    assert segment.find_timestamp(70, BASE) == (70, BASE, -1)
    assert segment.find_timestamp(71, BASE) is None


def test_an_empty_segment_has_no_timestamps(tmp_path: Path) -> None:
    segment = segment_at(tmp_path)
    assert segment.max_timestamp == -1
    assert segment.first_timestamp == -1
    assert segment.find_timestamp(0, BASE) is None
    assert segment.find_max_timestamp() is None


def test_without_timestamps_a_segment_is_as_old_as_its_file(tmp_path: Path) -> None:
    segment = segment_at(tmp_path)
    put(segment, data_batch(timestamp=-1), BASE)
    path = tmp_path / f"{BASE:020d}.log"
    assert segment.largest_timestamp() == path.stat().st_mtime_ns // 1_000_000
    put(segment, data_batch(timestamp=5), BASE + 1)
    assert segment.largest_timestamp() == 5


# ---- removal ----


def test_deleted_files_get_another_name_first(tmp_path: Path) -> None:
    segment = segment_at(tmp_path)
    put(segment, data_batch(), BASE)
    segment.become_inactive()
    deleted = segment.mark_deleted()
    assert sorted(deleted) == sorted(str(entry) for entry in tmp_path.iterdir())
    assert sorted(Path(path).name for path in deleted) == [
        f"{BASE:020d}.index.deleted",
        f"{BASE:020d}.log.deleted",
        f"{BASE:020d}.timeindex.deleted",
    ]


def test_a_segment_follows_its_folder_to_a_new_name(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    segment = segment_at(tmp_path / "old", config_of(index_interval_bytes=0))
    offset = fill(segment, data_batch(), data_batch())
    (tmp_path / "old").rename(tmp_path / "new")
    segment.move(str(tmp_path / "new"))
    put(segment, data_batch(), offset)
    segment.become_inactive()
    segment.sync_files(with_indexes=True)
    assert (tmp_path / "new" / f"{BASE:020d}.index").stat().st_size == 16
    assert not (tmp_path / "old").exists()
