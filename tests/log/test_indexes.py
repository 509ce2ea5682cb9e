from __future__ import annotations

import ctypes
import mmap
import os
import struct
from bisect import bisect_left, bisect_right
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.log.offset_index import OffsetIndex
from penstock.log.storage import Storage
from penstock.log.time_index import TimeIndex
from penstock.log.txn_index import AbortedTxn, TxnIndex

BASE = 1_000


def offset_index(path: Path | str, *entries: tuple[int, int], base: int = BASE, bytes_max: int = 1024) -> OffsetIndex:
    index = OffsetIndex(Storage(), os.path.join(path, "x.index"), base, bytes_max)
    fill_offsets(index, entries)
    return index


def fill_offsets(index: OffsetIndex, entries: object) -> None:
    assert index.entries >= 0
    for offset, position in entries:  # type: ignore[attr-defined]
        index.append(offset, position)


def time_index(path: Path | str, *entries: tuple[int, int], base: int = BASE, bytes_max: int = 1024) -> TimeIndex:
    index = TimeIndex(Storage(), os.path.join(path, "x.timeindex"), base, bytes_max)
    for timestamp, offset in entries:
        index.maybe_append(timestamp, offset)
    return index


@st.composite
def ascending_entries(draw: st.DrawFn) -> list[tuple[int, int]]:
    steps = draw(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 5000)), max_size=40))
    offset, position, entries = BASE - 1, 0, []
    for offset_step, position_step in steps:
        offset, position = offset + offset_step, position + position_step
        entries.append((offset, position))
    return entries


# ---- the offset index ----


@settings(deadline=None)
@given(ascending_entries(), st.booleans())
def test_a_position_lookup_gives_the_last_entry_not_above_the_offset(
    entries: list[tuple[int, int]], is_reopened: bool
) -> None:
    with TemporaryDirectory() as path:
        index = offset_index(path, *entries)
        if is_reopened:
            index.trim()
            index = offset_index(path)
        offsets = [offset for offset, _ in entries]
        for wanted in range(BASE - 2, BASE + 1 + (offsets[-1] - BASE if offsets else 0) + 2):
            at = bisect_right(offsets, wanted)
            assert index.position_before(wanted) == (entries[at - 1][1] if at else 0)
        assert index.last_offset() == (offsets[-1] if offsets else BASE)
        assert [index.entry(n) for n in range(index.entries)] == entries


@settings(deadline=None)
@given(ascending_entries(), st.integers(-1, 210_000))
def test_the_offset_behind_a_position_is_that_of_the_first_entry_there(
    entries: list[tuple[int, int]], position: int
) -> None:
    with TemporaryDirectory() as path:
        index = offset_index(path, *entries)
        at = bisect_left([entry_position for _, entry_position in entries], position)
        assert index.offset_after(position) == (entries[at][0] if at < len(entries) else None)


@settings(deadline=None)
@given(ascending_entries(), st.integers(-2, 60), st.booleans())
def test_truncating_the_offset_index_keeps_exactly_what_is_below(
    entries: list[tuple[int, int]], at: int, is_reopened: bool
) -> None:
    with TemporaryDirectory() as path:
        index = offset_index(path, *entries)
        if is_reopened:
            index.trim()
            index = offset_index(path)
        cut = BASE + at * 5
        index.truncate(cut)
        kept = [entry for entry in entries if entry[0] < cut]
        assert [index.entry(n) for n in range(index.entries)] == kept
        following = (max(cut, kept[-1][0] + 1 if kept else BASE), 500_000)
        index.append(*following)
        index.trim()
        assert [offset_index(path).entry(n) for n in range(len(kept) + 1)] == [*kept, following]


def test_an_offset_index_on_disk_is_kafkas(tmp_path: Path) -> None:
    index = offset_index(tmp_path, (BASE + 5, 70), (BASE + 260, 65_536))
    index.trim()
    assert (tmp_path / "x.index").read_bytes() == bytes.fromhex("00000005 00000046 00000104 00010000")


def test_an_active_offset_index_has_its_full_size_with_zeros_behind_the_entries(tmp_path: Path) -> None:
    index = offset_index(tmp_path, (BASE + 5, 70), bytes_max=30)
    content = (tmp_path / "x.index").read_bytes()
    assert content == struct.pack(">ii", 5, 70) + bytes(16)  # 30 bytes hold three whole entries
    assert index.size == 8


def test_an_entry_brings_only_its_own_page_into_memory(tmp_path: Path) -> None:
    """A disk may read megabytes ahead, and a broker has thousands of indexes that are nearly empty."""
    index = offset_index(tmp_path, (BASE + 1, 0), bytes_max=10 * 1024 * 1024)
    assert _pages_in_memory(index.readable_map()) <= 4, "the entry's page, and what reserving its blocks has touched"


def _pages_in_memory(mapped: mmap.mmap) -> int:
    content = (ctypes.c_char * len(mapped)).from_buffer(mapped)
    pages = (ctypes.c_ubyte * -(-len(mapped) // mmap.PAGESIZE))()
    assert (
        ctypes.CDLL(None).mincore(ctypes.c_void_p(ctypes.addressof(content)), ctypes.c_size_t(len(mapped)), pages) == 0
    )
    return sum(page & 1 for page in pages)


def test_an_index_without_entries_is_an_empty_file_after_trimming(tmp_path: Path) -> None:
    offset_index(tmp_path).trim()
    time_index(tmp_path).trim()
    assert (tmp_path / "x.index").read_bytes() == b""
    assert (tmp_path / "x.timeindex").read_bytes() == b""


def test_a_trimmed_index_can_be_read_and_written_again(tmp_path: Path) -> None:
    index = offset_index(tmp_path, (BASE + 1, 10))
    index.trim()
    assert index.position_before(BASE + 7) == 10
    index.append(BASE + 2, 20)
    assert index.position_before(BASE + 7) == 20
    index.trim()
    assert (tmp_path / "x.index").stat().st_size == 16


def test_lookups_in_an_index_whose_file_does_not_exist_find_nothing_and_make_no_file(tmp_path: Path) -> None:
    offsets, times = offset_index(tmp_path), time_index(tmp_path)
    assert offsets.position_before(BASE + 7) == 0
    assert offsets.offset_after(0) is None
    assert offsets.last_offset() == BASE
    assert times.offset_before(7) == BASE
    assert times.last_entry() == (-1, BASE)
    offsets.truncate(0)
    times.truncate(0)
    assert list(tmp_path.iterdir()) == []


def test_an_index_is_full_when_no_further_entry_fits(tmp_path: Path) -> None:
    index = offset_index(tmp_path, (BASE, 0), bytes_max=23)  # room for two
    assert not index.is_full
    index.append(BASE + 1, 9)
    assert index.is_full
    index.truncate(BASE + 1)
    assert not index.is_full


def test_an_index_that_was_full_is_full_after_reopening(tmp_path: Path) -> None:
    offset_index(tmp_path, (BASE, 0), (BASE + 1, 9), bytes_max=16).trim()
    assert offset_index(tmp_path, bytes_max=16).is_full


def test_a_file_that_ends_within_an_entry_is_read_up_to_the_last_whole_one(tmp_path: Path) -> None:
    (tmp_path / "x.index").write_bytes(struct.pack(">ii", 5, 70) + b"\0\0\0")
    index = offset_index(tmp_path)
    assert index.entries == 1
    assert index.position_before(BASE + 5) == 70


def test_an_index_of_a_larger_limit_keeps_its_entries_under_a_smaller_one(tmp_path: Path) -> None:
    entries = [(BASE + n, 100 * n) for n in range(1, 11)]
    offset_index(tmp_path, *entries, bytes_max=80).trim()
    index = offset_index(tmp_path, bytes_max=40)
    assert index.is_full
    index.make_writable()
    assert [index.entry(n) for n in range(index.entries)] == entries


def test_rewriting_replaces_all_entries(tmp_path: Path) -> None:
    index = offset_index(tmp_path, *[(BASE + n, n) for n in range(1, 9)])
    index.rewrite(struct.pack(">ii", 3, 33))
    assert index.entries == 1
    assert index.position_before(BASE + 100) == 33


def test_a_closed_index_opens_again_by_itself(tmp_path: Path) -> None:
    index = offset_index(tmp_path, (BASE + 1, 10))
    index.trim()
    index.close()
    assert index.position_before(BASE + 1) == 10


def test_an_index_follows_its_file_to_a_new_name(tmp_path: Path) -> None:
    index = offset_index(tmp_path, (BASE + 1, 10))
    os.rename(tmp_path / "x.index", tmp_path / "y.index")
    index.rename(str(tmp_path / "y.index"))
    index.trim()
    assert index.position_before(BASE + 1) == 10
    assert not (tmp_path / "x.index").exists()


# ---- the time index ----


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(-1, 60), st.integers(0, 30)), max_size=30), st.integers(-1, 62), st.booleans())
def test_a_time_lookup_starts_behind_the_last_entry_that_is_older(
    added: list[tuple[int, int]], wanted: int, is_reopened: bool
) -> None:
    with TemporaryDirectory() as path:
        index = time_index(path)
        entries: list[tuple[int, int]] = []
        for timestamp, offset_step in added:
            offset = (entries[-1][1] if entries else BASE) + offset_step
            index.maybe_append(timestamp, offset)
            if timestamp >= 0 and (not entries or timestamp > entries[-1][0]):
                entries.append((timestamp, offset))
        if is_reopened:
            index.trim()
            index = time_index(path)
        assert [index.entry(n) for n in range(index.entries)] == entries
        older = [offset for timestamp, offset in entries if timestamp < wanted]
        assert index.offset_before(wanted) == (older[-1] if older else BASE)
        assert index.last_entry() == (entries[-1] if entries else (-1, BASE))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), max_size=20), st.integers(0, 120))
def test_truncating_the_time_index_keeps_exactly_what_is_below(steps: list[tuple[int, int]], at: int) -> None:
    with TemporaryDirectory() as path:
        entries, timestamp, offset = [], 0, BASE
        for timestamp_step, offset_step in steps:
            timestamp, offset = timestamp + timestamp_step, offset + offset_step
            entries.append((timestamp, offset))
        index = time_index(path, *entries)
        index.truncate(BASE + at)
        assert [index.entry(n) for n in range(index.entries)] == [e for e in entries if e[1] < BASE + at]


def test_a_time_index_on_disk_is_kafkas(tmp_path: Path) -> None:
    index = time_index(tmp_path, (0x0102030405060708, BASE + 9))
    index.trim()
    assert (tmp_path / "x.timeindex").read_bytes() == bytes.fromhex("0102030405060708 00000009")


def test_a_time_index_grows_only_with_larger_timestamps(tmp_path: Path) -> None:
    index = time_index(tmp_path, (50, BASE + 1), (50, BASE + 2), (49, BASE + 3), (-1, BASE + 4), (51, BASE + 5))
    assert [index.entry(n) for n in range(index.entries)] == [(50, BASE + 1), (51, BASE + 5)]


def test_a_full_time_index_takes_no_more(tmp_path: Path) -> None:
    index = time_index(tmp_path, (1, BASE), (2, BASE + 1), (3, BASE + 2), bytes_max=24)
    assert index.is_full
    assert index.last_entry() == (2, BASE + 1)


# ---- the transaction index ----


def txn_index(path: Path | str, *txns: AbortedTxn) -> TxnIndex:
    index = TxnIndex(Storage(), os.path.join(path, "x.txnindex"))
    for txn in txns:
        index.append(txn)
    return index


def test_a_transaction_index_on_disk_is_kafkas(tmp_path: Path) -> None:
    txn_index(tmp_path, AbortedTxn(7, 10, 20, 15))
    assert (tmp_path / "x.txnindex").read_bytes() == struct.pack(">hqqqq", 0, 7, 10, 20, 15)
    assert len((tmp_path / "x.txnindex").read_bytes()) == 34


def test_a_segment_without_aborted_transactions_has_no_transaction_index_file(tmp_path: Path) -> None:
    index = txn_index(tmp_path)
    assert index.entries == []
    assert index.collect(0, 100) == ([], False)
    index.truncate(0)
    index.reset()
    index.sync()
    assert list(tmp_path.iterdir()) == []


def test_aborted_transactions_are_found_again_after_reopening(tmp_path: Path) -> None:
    txns = [AbortedTxn(1, 0, 5, 6), AbortedTxn(2, 3, 8, 9)]
    txn_index(tmp_path, *txns)
    assert txn_index(tmp_path).entries == txns


def test_an_aborted_transaction_must_follow_the_last_one(tmp_path: Path) -> None:
    index = txn_index(tmp_path, AbortedTxn(1, 0, 5, 6))
    with pytest.raises(ValueError, match="does not follow"):
        index.append(AbortedTxn(2, 1, 5, 6))
    assert (tmp_path / "x.txnindex").stat().st_size == 34


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 12)), max_size=12), st.integers(0, 60), st.integers(0, 60))
def test_collecting_gives_every_transaction_that_reaches_into_the_range(
    steps: list[tuple[int, int]], low: int, size: int
) -> None:
    with TemporaryDirectory() as path:
        spans, last = [], 0
        for step, length in steps:
            last += step
            spans.append((max(0, last - length), last))
        txns = [
            AbortedTxn(n, first, last, min((other for other, _ in spans[n + 1 :] if other <= last), default=last + 1))
            for n, (first, last) in enumerate(spans)
        ]
        found, is_complete = txn_index(path, *txns).collect(low, low + size)
        wanted = [txn for txn in txns if txn.last_offset >= low and txn.first_offset < low + size]
        assert found == wanted
        if is_complete:
            assert any(txn.last_stable_offset >= low + size for txn in txns)


def test_collecting_stops_when_no_later_transaction_can_begin_before_the_bound(tmp_path: Path) -> None:
    index = txn_index(tmp_path, AbortedTxn(1, 0, 5, 6), AbortedTxn(2, 7, 9, 30))
    assert index.collect(0, 6) == ([AbortedTxn(1, 0, 5, 6)], True)
    assert index.collect(0, 7) == ([AbortedTxn(1, 0, 5, 6)], True)
    assert index.collect(0, 31) == ([AbortedTxn(1, 0, 5, 6), AbortedTxn(2, 7, 9, 30)], False)


def test_truncating_forgets_transactions_whose_markers_are_gone(tmp_path: Path) -> None:
    index = txn_index(tmp_path, AbortedTxn(1, 0, 5, 6), AbortedTxn(2, 3, 8, 9))
    index.truncate(8)
    assert index.entries == [AbortedTxn(1, 0, 5, 6)]
    assert txn_index(tmp_path).entries == [AbortedTxn(1, 0, 5, 6)]
    index.append(AbortedTxn(4, 6, 7, 8))
    assert len(txn_index(tmp_path).entries) == 2


@pytest.mark.parametrize("content", [b"\0", bytes(33), bytes(35), b"\0\1" + bytes(32)])
def test_a_damaged_transaction_index_is_noticed(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.txnindex").write_bytes(content)
    with pytest.raises(ValueError, match="corrupt"):
        txn_index(tmp_path).collect(0, 10)


def test_room_on_the_disk_is_reserved_before_the_map_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A store into a hole of a mapped file would end the process when the disk is full; this is an OSError instead."""
    index = offset_index(tmp_path, bytes_max=1 << 20)

    def no_space(fd: int, offset: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    fill_offsets(index, [(BASE + n, n) for n in range(1, 2049)])  # fills what was reserved first
    monkeypatch.setattr(os, "posix_fallocate", no_space)
    with pytest.raises(OSError, match="No space"):
        index.append(BASE + 5000, 5000)
    assert index.entries == 2048
    monkeypatch.undo()
    index.append(BASE + 5000, 5000)
    assert index.entry(2048) == (BASE + 5000, 5000)
