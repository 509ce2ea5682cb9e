"""One compaction of one log."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from penstock.log._cleaner import OffsetMap, portable_crc32c, sip_hash_128
from penstock.log.cleaner import CleaningAborted, CleaningFailed
from penstock.log.cleaning_plan import dirt_in, plan_for
from penstock.log.log import Log
from penstock.log.producer_state import Origin
from penstock.wire._kernel import crc32c, stamp_timestamp, verify
from penstock.wire.batch import DELETE_HORIZON, encode_batch
from penstock.wire.compression import Codec
from penstock.wire.errors import CorruptBatch
from penstock.wire.record import Record
from tests.log.cleaning import clean, cleaner_for
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
SMALL = config_of(segment_bytes=400, cleanup_policy=("compact",))


def _fill(log: Log, count: int = 40, keys: int = 5) -> None:
    for number in range(count):
        append(log, data_batch(b"v%d" % number, key=b"k%d" % (number % keys)))
    log.advance_high_watermark(log.end_offset)


def _closed(log: Log) -> Log:
    log.roll()
    log.advance_high_watermark(log.end_offset)
    return log


# ---- keys ----


def test_keys_are_hashed_with_siphash() -> None:
    """The first of the published values for SipHash-2-4 with 128 bits, and one of several words."""
    secret = bytes(range(16))
    assert sip_hash_128(secret, b"").hex() == "a3817f04ba25a8e66df67214c7550293"
    assert sip_hash_128(secret, b"\0").hex() == "da87c1d86b99af44347659119b22fc45"


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 1000])
def test_checksums_are_the_same_without_the_processors_help(size: int) -> None:
    data = bytes(number * 31 % 256 for number in range(size))
    assert portable_crc32c(data) == crc32c(data)


def test_a_map_remembers_the_last_offset_of_each_key_until_it_is_full() -> None:
    offset_map = OffsetMap(100_000)
    count = offset_map.size_max
    assert 2500 < count < 4166  # 24 bytes per key, and the table
    assert all(offset_map.put(b"%d" % number, number) for number in range(count))
    assert offset_map.is_full
    assert not offset_map.put(b"one more", 1)
    assert offset_map.put(b"7", 1000)  # this one is there already
    assert offset_map.get(b"7") == 1000
    assert all(offset_map.get(b"%d" % number) == number for number in range(8, count))
    assert offset_map.get(b"one more") == -1


def test_a_map_needs_room_for_one_key() -> None:
    with pytest.raises(ValueError, match="too few"):
        OffsetMap(10)


# ---- what stays ----


def test_the_last_record_of_each_key_stays_at_its_offset(tmp_path: Path) -> None:
    log = open_at(tmp_path, SMALL)
    _fill(_closed(log), 38)
    assert clean(_closed(log), now_ms=T0) == 38
    assert [(record.offset, record.value) for record in records_from(log, 0)] == [
        (number, b"v%d" % number) for number in range(33, 38)
    ]
    assert values_from(log, 35) == [b"v35", b"v36", b"v37"]
    assert log.start_offset == 0
    assert log.end_offset == 38


def test_small_segments_become_one(tmp_path: Path) -> None:
    log = open_at(tmp_path, config_of(segment_bytes=2000, cleanup_policy=("compact",)))
    for number in range(10):
        append(log, data_batch(b"v%d" % number, key=b"k%d" % number))
        log.roll()
    assert len(log.segments) == 11
    log.advance_high_watermark(log.end_offset)
    clean(log, now_ms=T0)
    assert [segment.base_offset for segment in log.segments] == [0, 10]
    assert values_from(log, 0) == [b"v%d" % number for number in range(10)]
    assert sorted(name for name in files_in(tmp_path) if name.endswith(".log")) == [f"{0:020d}.log", f"{10:020d}.log"]


def test_the_new_segment_is_as_old_as_the_last_that_it_replaces(tmp_path: Path) -> None:
    log = open_at(tmp_path, SMALL)
    _fill(log, 12)
    for number, segment in enumerate(log.segments):
        os.utime(segment.file.path, (1000 + number, 1000 + number))
    clean(_closed(log), now_ms=T0)
    assert int(os.stat(log.segments[0].file.path).st_mtime) in (1000, 1001, 1002)


def test_records_without_a_key_go(tmp_path: Path) -> None:
    """They are from before the topic was compacted."""
    log = open_at(tmp_path, SMALL)
    append(log, data_batch(b"a", key=None))
    append(log, data_batch(b"b", key=b"k"))
    clean(_closed(log), now_ms=T0)
    assert values_from(log, 0) == [b"b"]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_of_which_all_stays_keeps_its_bytes_and_another_its_codec(tmp_path: Path, codec: Codec) -> None:
    log = open_at(tmp_path, config_of(cleanup_policy=("compact",)))
    whole = encode_batch([Record(n, T0 + n, b"a%d" % n, b"x" * 50, (("h", b"1"),)) for n in range(3)], codec=codec)
    part = encode_batch([Record(n, T0 + n, b"b%d" % (n % 2), b"y" * 50, (("h", None),)) for n in range(4)], codec=codec)
    append(log, whole)
    append(log, part)
    clean(_closed(log), now_ms=T0)
    (_, _), (second, records) = batches_from(log, 0)
    assert bytes(log.read(0, 10**6, 3).read()) == bytes(whole)  # type: ignore[union-attr]
    assert (second.codec, second.base_offset, second.last_offset, second.count) == (codec, 3, 6, 2)
    assert records == [Record(o, T0 + o - 3, b"b%d" % (o % 2 == 0), b"y" * 50, (("h", None),)) for o in (5, 6)]
    assert second.max_timestamp == T0 + 3


def test_the_largest_timestamp_is_that_of_the_records_that_stay(tmp_path: Path) -> None:
    log = open_at(tmp_path, config_of(cleanup_policy=("compact",)))
    append(log, encode_batch([Record(0, T0 + 9, b"a", b"1"), Record(1, T0 + 5, b"b", b"2"), Record(2, T0, b"a", b"3")]))
    clean(_closed(log), now_ms=T0)
    ((batch, _),) = batches_from(log, 0)
    assert batch.max_timestamp == T0 + 5
    assert log.offset_of_max_timestamp() == (T0 + 5, 1, 0)


def test_records_dated_by_the_broker_keep_its_time(tmp_path: Path) -> None:
    log = open_at(tmp_path, config_of(cleanup_policy=("compact",)))
    data = encode_batch([Record(0, T0, b"a", b"1"), Record(1, T0, b"b", None), Record(2, T0, b"a", b"3")])
    stamp_timestamp(data, verify(data), True, T0 + 777)
    append(log, data)
    clean(_closed(log), now_ms=T0 + 1000)
    ((batch, records),) = batches_from(log, 0)
    assert batch.is_log_append_time
    assert batch.attributes & DELETE_HORIZON
    assert [(record.offset, record.timestamp) for record in records] == [(1, T0 + 777), (2, T0 + 777)]


def test_a_deletion_stays_for_delete_retention_ms_after_it_was_first_met(tmp_path: Path) -> None:
    log = open_at(tmp_path, SMALL)
    append(log, data_batch(b"v", key=b"k", timestamp=T0))
    append(log, data_batch(None, key=b"k", timestamp=T0 + 1))
    clean(_closed(log), now_ms=T0 + 10 * DAY_MS)
    ((batch, records),) = batches_from(log, 0)
    assert records == [Record(1, T0 + 1, b"k", None)]
    assert batch.attributes & DELETE_HORIZON
    assert batch.base_timestamp == T0 + 11 * DAY_MS
    append(log, data_batch(b"w", key=b"l"))
    clean(_closed(log), now_ms=T0 + 11 * DAY_MS - 1)
    assert [record.value for record in records_from(log, 0)] == [None, b"w"]
    append(log, data_batch(b"x", key=b"m"))
    clean(_closed(log), now_ms=T0 + 11 * DAY_MS)
    assert values_from(log, 0) == [b"w", b"x"]


def test_a_full_map_cleans_the_part_that_it_holds(tmp_path: Path) -> None:
    log = open_at(tmp_path, SMALL)
    for number in range(300):
        append(log, data_batch(b"v%d" % number, key=b"k%d" % (number % 100)))
    _closed(log)
    expected = {record.key: record.value for record in records_from(log, 0)}
    cleaned: int | None = None
    rounds = []
    while cleaned != log.end_offset:
        cleaned = clean(log, cleaned, now_ms=T0, map_bytes=2000)
        rounds.append(cleaned)
        assert {record.key: record.value for record in records_from(log, 0)} == expected
    assert len(rounds) > 3
    assert rounds == sorted(set(rounds))
    assert len(values_from(log, 0)) == 100


def test_a_map_that_cannot_hold_one_batch_is_told(tmp_path: Path) -> None:
    log = open_at(tmp_path, config_of(cleanup_policy=("compact",)))
    append(log, encode_batch([Record(n, T0, b"%d" % n, b"") for n in range(100)]))
    with pytest.raises(CleaningFailed, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        clean(_closed(log), now_ms=T0, map_bytes=1000)


# ---- producers and transactions ----


def test_a_producers_last_batch_stays_without_its_records_so_that_its_sequence_goes_on(tmp_path: Path) -> None:
    log = open_at(tmp_path, SMALL)
    append(log, data_batch(b"1", b"2", key=b"k", producer=9, sequence=0))
    append(log, data_batch(b"3", b"4", key=b"k", producer=9, sequence=2))
    append(log, data_batch(b"newer", key=b"k"))
    append(log, data_batch(b"end", key=b"l"))
    clean(_closed(log), now_ms=T0)
    assert values_from(log, 0) == [b"newer", b"end"]
    (empty, records), *_ = batches_from(log, 0)
    assert (empty.base_offset, empty.last_offset, empty.base_sequence, empty.last_sequence) == (2, 3, 2, 3)
    assert records == []
    log.close_files()
    (tmp_path / f"{log.active.base_offset:020d}.snapshot").unlink()
    log = open_at(tmp_path, SMALL, is_clean=False)
    batch = append(log, data_batch(b"5", key=b"k", producer=9, sequence=4))
    assert batch.base_offset == 6


def test_the_marker_that_alone_tells_a_producers_epoch_stays(tmp_path: Path) -> None:
    log = open_at(tmp_path, SMALL)
    append(log, txn_batch(9, b"1"))
    append(log, marker_batch(9, is_commit=False, epoch=1), origin=Origin.COORDINATOR)  # the newer epoch fences
    append(log, data_batch(b"end", key=b"z"))
    for days in range(4):
        clean(_closed(log), now_ms=T0 + days * 2 * DAY_MS)
    found = [(batch.is_control, batch.producer_epoch, len(records)) for batch, records in batches_from(log, 0)]
    assert found == [(True, 1, 0), (False, -1, 1)]


def test_aborted_records_go_and_never_hide_what_they_overwrote(tmp_path: Path) -> None:
    log = open_at(tmp_path, SMALL)
    append(log, data_batch(b"good", key=b"k"))
    append(log, txn_batch(9, b"bad"))
    append(log, marker_batch(9, is_commit=False))
    append(log, txn_batch(9, b"end", sequence=1))
    append(log, marker_batch(9, is_commit=True))
    _closed(log)
    append(log, data_batch(b"k2", key=b"k2"))
    clean(_closed(log), now_ms=T0)
    # "end" has the same key as "good": both are committed
    assert values_from(log, 0) == [b"end", b"k2"]


def test_nothing_is_cleaned_behind_an_open_transaction(tmp_path: Path) -> None:
    log = open_at(tmp_path, SMALL)
    _fill(log, 10)
    append(log, txn_batch(9, b"open"))
    _fill(log, 20)
    _closed(log)
    flush(log)
    dirt = dirt_in(log, None, T0)
    assert dirt.end_offset <= 10
    clean(log, now_ms=T0)
    assert len(values_from(log, 10)) == 21


def test_nothing_is_cleaned_behind_the_high_watermark_or_what_is_durable(tmp_path: Path) -> None:
    log = open_at(tmp_path, SMALL)
    for number in range(20):
        append(log, data_batch(b"%d" % number))
    log.roll()
    flush(log)
    assert dirt_in(log, None, T0).end_offset == 0
    log.advance_high_watermark(log.end_offset)
    assert dirt_in(log, None, T0).end_offset == 20
    log.recovery_point = 0  # as if the sync were still to come
    assert dirt_in(log, None, T0).end_offset == 0


# ---- changes while it goes on ----


def test_a_log_that_was_truncated_meanwhile_stays_as_it_is(tmp_path: Path) -> None:
    log = open_at(tmp_path, SMALL)
    _fill(log)
    flush(log)
    plan = plan_for(log, dirt_in(log, None, T0), T0)
    cleaner = cleaner_for(plan)
    cleaner.build_map()
    cleaned = cleaner.clean(plan.segments)
    log.truncate(12)
    before = values_from(log, 0)
    assert log.replace_segments(cleaned) is None
    cleaner.discard(cleaned)
    assert values_from(log, 0) == before == [b"v%d" % number for number in range(12)]
    assert not [name for name in files_in(tmp_path) if name.endswith(".cleaned")]


def test_a_log_that_was_truncated_and_written_again_meanwhile_stays_as_it_is(tmp_path: Path) -> None:
    """The segments are the same ones then, but what is in them is not."""
    log = open_at(tmp_path, SMALL)
    _fill(log)
    flush(log)
    plan = plan_for(log, dirt_in(log, None, T0), T0)
    cleaner = cleaner_for(plan)
    cleaner.build_map()
    cleaned = cleaner.clean(plan.segments[:3])
    log.truncate(12)
    _fill(log, 20)
    assert log.segments[:3] == plan.segments[:3]
    before = values_from(log, 0)
    assert log.replace_segments(cleaned) is None
    assert values_from(log, 0) == before


def test_a_log_whose_segments_expired_meanwhile_stays_as_it_is(tmp_path: Path) -> None:
    log = open_at(tmp_path, SMALL)
    _fill(log)
    flush(log)
    plan = plan_for(log, dirt_in(log, None, T0), T0)
    cleaner = cleaner_for(plan)
    cleaner.build_map()
    cleaned = cleaner.clean(plan.segments)
    log.advance_start(7)
    assert log.delete_old_segments()
    assert log.replace_segments(cleaned) is None
    assert values_from(log, 7) == [b"v%d" % number for number in range(7, 40)]


def test_records_may_be_deleted_meanwhile(tmp_path: Path) -> None:
    log = open_at(tmp_path, SMALL)
    _fill(log)
    flush(log)
    plan = plan_for(log, dirt_in(log, None, T0), T0)
    cleaner = cleaner_for(plan)
    cleaner.build_map()
    log.advance_start(33)
    assert log.replace_segments(cleaner.clean(plan.segments)) is not None
    assert log.start_offset == 33
    assert values_from(log, 33) == [b"v%d" % number for number in range(33, 40)]


def test_segments_may_expire_while_they_are_read(tmp_path: Path) -> None:
    """The thread goes on with the open files; only then it is found that there is no place for the result."""
    log = open_at(tmp_path, SMALL)
    _fill(log)
    flush(log)
    plan = plan_for(log, dirt_in(log, None, T0), T0)
    cleaner = cleaner_for(plan)
    log.advance_start(30)
    for path in log.delete_old_segments():
        os.unlink(path)
    cleaner.build_map()
    assert log.replace_segments(cleaner.clean(plan.segments)) is None


def test_a_reader_keeps_what_it_was_given(tmp_path: Path) -> None:
    log = open_at(tmp_path, SMALL)
    _fill(log)
    given = log.read(0, 10**6, log.end_offset)
    assert given is not None
    before = given.read()
    clean(log, now_ms=T0)
    assert given.read() == before


def test_a_stopped_compaction_leaves_nothing_behind(tmp_path: Path) -> None:
    log = open_at(tmp_path, SMALL)
    _fill(log)
    flush(log)
    stop = threading.Event()
    plan = plan_for(log, dirt_in(log, None, T0), T0)
    cleaner = cleaner_for(plan, stop=stop)
    cleaner.build_map()
    stop.set()
    before = files_in(tmp_path)
    with pytest.raises(CleaningAborted):
        cleaner.clean(plan.segments)
    assert files_in(tmp_path) == before


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_damaged_batch_is_not_copied(tmp_path: Path, codec: Codec) -> None:
    log = open_at(tmp_path, config_of(cleanup_policy=("compact",)))
    for number in range(5):
        append(log, data_batch(b"value %d" % number, key=b"%d" % number, codec=codec))
    _closed(log)
    position = log.segments[0].locate(2)[0]  # type: ignore[index]
    with open(log.segments[0].file.path, "r+b") as file:
        file.seek(position + 70)
        file.write(b"\xff\xff")
    before = files_in(tmp_path)
    with pytest.raises(CorruptBatch, match="checksum"):
        clean(log, now_ms=T0)
    assert files_in(tmp_path) == before
