from __future__ import annotations

import os
import random
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.log.log import Log
from penstock.log.storage import File, Storage
from penstock.log.txn_index import AbortedTxn
from tests.log.samples import (
    T0,
    append,
    config_of,
    data_batch,
    files_in,
    flush,
    marker_batch,
    open_at,
    opened_as,
    records_from,
    txn_batch,
    values_from,
)

CONFIG = config_of(index_interval_bytes=150, segment_bytes=700)
INDEXES = (".index", ".timeindex", ".txnindex")


def name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def crashed(path: Path | str, config: Any = CONFIG, **options: Any) -> Log:
    """The log as the next start finds it when the last run did not end in good order."""
    return open_at(path, config, is_clean=False, **options)


def copy_of(path: Path, to: Path) -> Path:
    shutil.copytree(path, to)
    return to


def filled(path: Path, count: int = 20) -> Log:
    """Three segments or more, with producers, epochs and an aborted transaction in each part of the log."""
    log = open_at(path, CONFIG)
    for n in range(count):
        if n % 5 == 3:
            append(log, txn_batch(50 + n, b"gone", timestamp=T0 + n), epoch=n // 6)
            append(log, marker_batch(50 + n, is_commit=n % 2 == 0, timestamp=T0 + n), epoch=n // 6)
        append(log, data_batch(b"v%d" % n, b"w" * 40, timestamp=T0 + n, producer=1, sequence=2 * n), epoch=n // 6)
    assert len(log.segments) >= 3
    return log


# ---- torn tails ----


def test_a_torn_tail_is_cut_off_after_a_crash_wherever_it_was_torn(tmp_path: Path) -> None:
    log = open_at(tmp_path / "log", CONFIG)
    append(log, data_batch(b"a", b"b", producer=1, sequence=0))
    append(log, data_batch(b"c", producer=1, sequence=2))
    whole = log.size
    last = data_batch(b"torn", b"batch", producer=1, sequence=3)
    append(log, last)
    content = (tmp_path / "log" / name(0, ".log")).read_bytes()
    for size in range(len(last)):
        path = copy_of(tmp_path / "log", tmp_path / str(size))
        (path / name(0, ".log")).write_bytes(content[: whole + size])
        again = crashed(path)
        assert again.end_offset == 3
        assert (path / name(0, ".log")).read_bytes() == content[:whole]
        assert values_from(again, 0) == [b"a", b"b", b"c"]
        assert append(again, data_batch(b"torn", b"batch", producer=1, sequence=3)).base_offset == 3
        assert values_from(again, 3) == [b"torn", b"batch"]


@pytest.mark.parametrize("tail", [bytes(5000), b"\xff" * 300, random.Random(5).randbytes(500), b"\0"])
def test_a_tail_of_zeros_or_garbage_is_cut_off(tmp_path: Path, tail: bytes) -> None:
    log = filled(tmp_path)
    records = records_from(log, 0)
    active = name(log.active.base_offset, ".log")
    with (tmp_path / active).open("ab") as file:
        file.write(tail)
    again = crashed(tmp_path)
    assert records_from(again, 0) == records
    assert again.end_offset == log.end_offset


@pytest.mark.parametrize("is_behind_empty", [False, True])
def test_a_segment_behind_one_that_lost_its_last_batches_goes_with_them(tmp_path: Path, is_behind_empty: bool) -> None:
    log = filled(tmp_path)
    records = records_from(log, 0)
    lost, behind = log.segments[-2], log.segments[-1]
    (*_, (last_position, last_batch)) = lost.batches()
    (tmp_path / name(lost.base_offset, ".log")).write_bytes(lost.file.read_at(last_position, 0))
    if is_behind_empty:
        (tmp_path / name(behind.base_offset, ".log")).write_bytes(b"")
    again = crashed(tmp_path)
    assert again.end_offset == last_batch.base_offset
    assert again.active.base_offset == lost.base_offset
    assert records_from(again, 0) == [record for record in records if record.offset < last_batch.base_offset]


def test_a_compacted_log_may_lack_the_end_of_a_segment(tmp_path: Path) -> None:
    config = config_of(index_interval_bytes=150, segment_bytes=700, cleanup_policy=("compact",))
    log = filled(tmp_path)
    lost = log.segments[-2]
    (*_, (last_position, _)) = lost.batches()
    (tmp_path / name(lost.base_offset, ".log")).write_bytes(lost.file.read_at(last_position, 0))
    again = crashed(tmp_path, config)
    assert again.end_offset == log.end_offset
    assert again.active.base_offset == log.active.base_offset


def test_a_preallocated_segment_is_cut_to_its_records(tmp_path: Path) -> None:
    config = config_of(preallocate=True, segment_bytes=100_000)
    log = open_at(tmp_path, config)
    append(log, data_batch(b"a"))
    assert (tmp_path / name(0, ".log")).stat().st_size == 100_000
    again = crashed(tmp_path, config)
    assert again.end_offset == 1
    append(again, data_batch(b"b"))
    assert values_from(again, 0) == [b"a", b"b"]


def test_a_batch_of_an_offset_that_was_there_already_ends_the_log(tmp_path: Path) -> None:
    log = open_at(tmp_path, CONFIG)
    append(log, data_batch(b"a", b"b"))
    path = tmp_path / name(0, ".log")
    content = path.read_bytes()
    path.write_bytes(content + content)
    again = crashed(tmp_path)
    assert again.end_offset == 2
    assert path.read_bytes() == content


def test_an_empty_log_survives_a_crash(tmp_path: Path) -> None:
    open_at(tmp_path, CONFIG)
    again = crashed(tmp_path)
    assert (again.start_offset, again.end_offset) == (0, 0)
    assert append(again, data_batch(b"a")).base_offset == 0


# ---- damage in the middle ----


@pytest.mark.parametrize("seed", range(8))
def test_a_corrupt_batch_cuts_the_log_there(tmp_path: Path, seed: int) -> None:
    log = filled(tmp_path)
    records = records_from(log, 0)
    rng = random.Random(seed)
    segment = rng.choice(log.segments)
    batches = list(segment.batches())
    position, batch = rng.choice(batches)
    at = position + rng.randrange(17, batch.size)  # anything the checksum covers, or the checksum itself
    path = Path(segment.file.path)
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << rng.randrange(8)
    path.write_bytes(content)
    again = crashed(tmp_path)
    assert again.end_offset == batch.base_offset
    assert records_from(again, 0) == [record for record in records if record.offset < batch.base_offset]
    assert [s.base_offset for s in again.segments] == [
        s.base_offset for s in log.segments if s.base_offset <= segment.base_offset
    ]
    later = [n for n in os.listdir(tmp_path) if n[:1] == "0" and int(n[:20]) > segment.base_offset]
    assert later == []
    append(again, data_batch(b"new"), epoch=9)
    assert values_from(again, batch.base_offset) == [b"new"]
    assert records_from(crashed(tmp_path), 0) == records_from(again, 0)


# ---- indexes ----


def damage_nothing(path: Path) -> None:
    pass


def damage_remove(path: Path) -> None:
    path.unlink()


def damage_empty(path: Path) -> None:
    path.write_bytes(b"")


def damage_zeros(path: Path) -> None:
    path.write_bytes(bytes(4096))


def damage_garbage(path: Path) -> None:
    path.write_bytes(random.Random(1).randbytes(333))


def damage_cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-5])


@pytest.mark.parametrize("suffix", INDEXES)
@pytest.mark.parametrize(
    "damage", [damage_nothing, damage_remove, damage_empty, damage_zeros, damage_garbage, damage_cut]
)
def test_after_a_crash_all_indexes_are_as_if_there_had_been_none(tmp_path: Path, suffix: str, damage: Any) -> None:
    log = filled(tmp_path / "log")
    copy = copy_of(tmp_path / "log", tmp_path / "copy")
    log.close()
    wanted = {n: c for n, c in files_in(tmp_path / "log").items() if n.endswith(INDEXES)}
    assert {Path(n).suffix for n in wanted} == set(INDEXES)
    for file in copy.iterdir():
        if file.name.endswith(suffix):
            damage(file)
    again = crashed(copy)
    again.close()
    assert {n: c for n, c in files_in(copy).items() if n.endswith(INDEXES)} == wanted


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_the_missing_index_of_an_old_segment_is_made_anew(tmp_path: Path, suffix: str) -> None:
    log = filled(tmp_path)
    times = {n: log.offset_for_timestamp(T0 + n) for n in range(20)}
    log.close()
    wanted = files_in(tmp_path)
    (tmp_path / name(0, suffix)).unlink()
    again = open_at(tmp_path, CONFIG)
    assert {n: again.offset_for_timestamp(T0 + n) for n in range(20)} == times
    assert again.segments[0].max_timestamp == log.segments[0].max_timestamp
    assert files_in(tmp_path)[name(0, suffix)] == wanted[name(0, suffix)]


def test_an_index_without_its_log_file_is_removed(tmp_path: Path) -> None:
    filled(tmp_path).close()
    for suffix in INDEXES:
        (tmp_path / name(777_777, suffix)).write_bytes(b"orphan")
    open_at(tmp_path, CONFIG)
    assert not [n for n in os.listdir(tmp_path) if n.startswith(name(777_777, ""))]


@pytest.mark.parametrize("is_clean", [True, False])
def test_leftovers_are_removed(tmp_path: Path, is_clean: bool) -> None:
    log = filled(tmp_path)
    records = records_from(log, 0)
    log.close()
    leftovers = [
        name(0, ".log.deleted"),
        name(0, ".index.deleted"),
        name(9, ".snapshot.deleted"),
        name(0, ".log.cleaned"),
        name(0, ".timeindex.cleaned"),
        "leader-epoch-checkpoint.tmp",
    ]
    for leftover in leftovers:
        (tmp_path / leftover).write_bytes(b"left over")
    again = open_at(tmp_path, CONFIG, is_clean=is_clean)
    assert not set(leftovers) & set(os.listdir(tmp_path))
    assert records_from(again, 0) == records


def test_files_that_are_not_a_logs_are_left_alone(tmp_path: Path) -> None:
    filled(tmp_path).close()
    for stranger in ("partition.metadata", "notes.log", "123.log", "README"):
        (tmp_path / stranger).write_bytes(b"mine")
    crashed(tmp_path)
    for stranger in ("partition.metadata", "notes.log", "123.log", "README"):
        assert (tmp_path / stranger).read_bytes() == b"mine"


# ---- what is not read ----


class ReadCounting(Storage):
    """Notes which files are read, and how much of them."""

    def __init__(self) -> None:
        self.bytes_read: dict[str, int] = {}

    def open(self, path: str, *, create: bool = False) -> File:
        storage = self

        class Counted(File):
            def read_at(self, count: int, position: int) -> bytes:
                content = super().read_at(count, position)
                key = os.path.basename(self.path)
                storage.bytes_read[key] = storage.bytes_read.get(key, 0) + len(content)
                return content

        return opened_as(Counted, super().open(path, create=create))


def test_after_a_clean_shutdown_only_the_tail_of_the_last_segment_is_read(tmp_path: Path) -> None:
    log = filled(tmp_path, 60)
    records = records_from(log, 0)
    producers = log.producers.encode()
    log.close()
    hidden = {}
    for segment in log.segments[:-1]:  # what is not there cannot be read, in whatever way
        path = Path(segment.file.path)
        hidden[path] = path.read_bytes()
        path.write_bytes(bytes(len(hidden[path])))
    storage = ReadCounting()
    again = open_at(tmp_path, CONFIG, storage=storage)
    assert set(storage.bytes_read) == {name(log.active.base_offset, ".log")}
    assert sum(storage.bytes_read.values()) <= 61 * 4  # a few headers, from the last index entry on
    assert again.end_offset == log.end_offset
    assert again.producers.encode() == producers
    for path, content in hidden.items():
        path.write_bytes(content)
    assert records_from(again, 0) == records


def test_segments_below_the_recovery_point_are_not_looked_at(tmp_path: Path) -> None:
    log = filled(tmp_path, 60)
    producers = log.producers.encode()
    number = len(log.segments) // 2
    recovery_point = log.segments[number].base_offset + 1
    for segment in log.segments[:number]:
        path = Path(segment.file.path)
        path.write_bytes(bytes(path.stat().st_size))
    again = crashed(tmp_path, recovery_point=recovery_point)
    assert again.end_offset == log.end_offset
    assert again.recovery_point == recovery_point
    assert again.producers.encode() == producers
    assert [s.base_offset for s in again.segments] == [s.base_offset for s in log.segments]


def test_the_segment_that_holds_the_recovery_point_is_looked_at(tmp_path: Path) -> None:
    log = filled(tmp_path)
    segment = log.segments[1]
    content = bytearray(Path(segment.file.path).read_bytes())
    content[-1] ^= 1
    Path(segment.file.path).write_bytes(content)
    last = [batch for _, batch in segment.batches()][-1]
    again = crashed(tmp_path, recovery_point=segment.base_offset)
    assert again.end_offset == last.base_offset


def test_a_recovery_point_beyond_the_end_is_brought_back(tmp_path: Path) -> None:
    log = filled(tmp_path)
    again = crashed(tmp_path, recovery_point=10**6)
    assert again.recovery_point == again.end_offset == log.end_offset


# ---- the start ----


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_that_ends_before_its_noted_start_begins_anew_there(tmp_path: Path, is_clean: bool) -> None:
    log = filled(tmp_path)
    log.close()
    again = open_at(tmp_path, CONFIG, is_clean=is_clean, start_offset=1000, recovery_point=1000)
    assert (again.start_offset, again.end_offset, again.recovery_point) == (1000, 1000, 1000)
    assert [segment.base_offset for segment in again.segments] == [1000]
    assert again.epochs.entries == ()
    assert again.producers.producers == {}
    assert append(again, data_batch(b"a", producer=1, sequence=4)).base_offset == 1000
    again.truncate(1001)
    again.truncate(1000)
    assert again.producers.producers == {}
    again.close()
    assert open_at(tmp_path, CONFIG, start_offset=1000).end_offset == 1000


@pytest.mark.parametrize("is_clean", [True, False])
def test_the_noted_start_is_kept_within_a_segment(tmp_path: Path, is_clean: bool) -> None:
    log = filled(tmp_path)
    log.close()
    again = open_at(tmp_path, CONFIG, is_clean=is_clean, start_offset=5)
    assert again.start_offset == 5
    assert again.high_watermark == 5
    assert [record.offset for record in records_from(again, 5)] == [r.offset for r in records_from(log, 0)][5:]


def test_a_log_starts_with_its_first_segment_if_that_lies_behind_the_noted_start(tmp_path: Path) -> None:
    log = filled(tmp_path)
    log.close()
    base = log.segments[1].base_offset
    for suffix in (".log", *INDEXES):
        (tmp_path / name(0, suffix)).unlink(missing_ok=True)
    again = open_at(tmp_path, CONFIG)
    assert again.start_offset == base
    assert again.epochs.entries[0].start_offset == base


# ---- epochs ----


def test_epochs_follow_a_cut(tmp_path: Path) -> None:
    log = open_at(tmp_path, CONFIG)
    for epoch in range(4):
        append(log, data_batch(b"a"), epoch=epoch)
    path = tmp_path / name(0, ".log")
    os.truncate(path, path.stat().st_size - 1)
    again = crashed(tmp_path)
    assert again.epochs.entries == ((0, 0), (1, 1), (2, 2))


def test_epochs_that_the_file_misses_are_found_in_the_records(tmp_path: Path) -> None:
    log = open_at(tmp_path, CONFIG)
    for n in range(30):
        append(log, data_batch(b"v" * 50), epoch=n // 8)
    entries = log.epochs.entries
    (tmp_path / "leader-epoch-checkpoint").unlink()
    assert crashed(tmp_path).epochs.entries == entries


def test_an_epoch_without_records_is_not_remembered_over_a_restart(tmp_path: Path) -> None:
    log = open_at(tmp_path, CONFIG)
    append(log, data_batch(b"a"), epoch=1)
    log.epochs.assign(2, 1)
    log.epochs.flush()
    assert crashed(tmp_path).epochs.entries == ((1, 0),)


# ---- producers and transactions ----


def test_the_transaction_index_is_made_anew_from_the_log(tmp_path: Path) -> None:
    log = open_at(tmp_path, CONFIG)
    append(log, txn_batch(1, b"a"))
    append(log, txn_batch(2, b"b"))
    append(log, marker_batch(2, is_commit=False))
    log.roll()
    append(log, marker_batch(1, is_commit=False))
    for file in tmp_path.glob("*.txnindex"):
        file.unlink()
    again = crashed(tmp_path)
    assert again.segments[0].txn_index.entries == [AbortedTxn(2, 1, 2, 0)]
    assert again.segments[1].txn_index.entries == [AbortedTxn(1, 0, 3, 4)]


def test_a_corrupt_producer_snapshot_is_replaced_by_what_the_log_says(tmp_path: Path) -> None:
    log = filled(tmp_path)
    producers = log.producers.encode()
    log.close()
    for snapshot in tmp_path.glob("*.snapshot"):
        snapshot.write_bytes(b"\0" * 56)
    again = open_at(tmp_path, CONFIG)
    assert again.producers.encode() == producers
    assert not [s for s in tmp_path.glob("*.snapshot") if s.read_bytes() == b"\0" * 56]


def test_after_a_crash_a_repeated_batch_is_still_a_duplicate(tmp_path: Path) -> None:
    log = open_at(tmp_path, CONFIG)
    for n in range(5):
        append(log, data_batch(b"v", producer=1, sequence=n))
    again = crashed(tmp_path)
    for n in range(5):
        result = append(again, data_batch(b"v", producer=1, sequence=n))
        assert (result.is_duplicate, result.base_offset) == (True, n)


operations = st.lists(
    st.one_of(
        st.tuples(st.just("data"), st.integers(0, 3), st.integers(1, 3)),
        st.tuples(st.just("txn"), st.integers(4, 6), st.integers(1, 3)),
        st.tuples(st.just("end"), st.integers(4, 6), st.integers(0, 1)),
        st.tuples(st.just("bump"), st.integers(0, 6), st.just(0)),
        st.tuples(st.just("roll"), st.just(0), st.just(0)),
        st.tuples(st.just("flush"), st.just(0), st.just(0)),
    ),
    max_size=40,
)


def perform(log: Log, script: list[tuple[str, int, int]]) -> None:
    sequences: dict[int, int] = {}
    epochs: dict[int, int] = {}
    for what, producer, number in script:
        epoch, sequence = epochs.get(producer, 0), sequences.get(producer, 0)
        if what == "data":
            append(log, data_batch(*[b"v"] * number, producer=producer, epoch=epoch, sequence=sequence))
            sequences[producer] = sequence + number
        elif what == "txn":
            append(log, txn_batch(producer, *[b"v"] * number, epoch=epoch, sequence=sequence))
            sequences[producer] = sequence + number
        elif what == "end":
            append(log, marker_batch(producer, is_commit=bool(number), epoch=epoch))
        elif what == "bump":
            epochs[producer], sequences[producer] = epoch + 1, 0
        elif what == "roll":
            log.roll()
        else:
            flush(log)


def aborted_of(log: Log) -> list[AbortedTxn]:
    return [txn for segment in log.segments for txn in segment.txn_index.entries]


@settings(deadline=None, max_examples=150)
@given(operations, st.booleans())
def test_after_a_crash_producers_and_transactions_are_as_before(
    script: list[tuple[str, int, int]], is_clean: bool
) -> None:
    with TemporaryDirectory() as path:
        log = open_at(path, CONFIG)
        perform(log, script)
        before = {p.producer_id: p for p in log.producers.producers.values()}
        aborted = aborted_of(log)
        log.producers.high_watermark_reached(log.end_offset)
        unstable = log.producers.first_unstable_offset
        if is_clean:
            log.close()
        again = open_at(path, CONFIG, is_clean=is_clean, recovery_point=log.recovery_point)
        again.producers.high_watermark_reached(again.end_offset)
        assert again.end_offset == log.end_offset
        assert again.producers.first_unstable_offset == unstable
        assert aborted_of(again) == aborted
        after = again.producers.producers
        assert set(after) == set(before)
        for producer_id, producer in before.items():
            found = after[producer_id]
            # Of what lies before the last snapshot only the last batch is known; that is enough for Kafka, and for us.
            assert found.batches == producer.batches[len(producer.batches) - len(found.batches) :]
            assert bool(found.batches) == bool(producer.batches)
            assert (found.epoch, found.coordinator_epoch, found.txn_first_offset, found.last_timestamp) == (
                producer.epoch,
                producer.coordinator_epoch,
                producer.txn_first_offset,
                producer.last_timestamp,
            )


@settings(deadline=None, max_examples=60)
@given(operations, st.integers(0, 400))
def test_after_any_cut_the_log_is_a_prefix_with_the_state_of_that_prefix(
    script: list[tuple[str, int, int]], lost_bytes: int
) -> None:
    with TemporaryDirectory() as path, TemporaryDirectory() as twin_path:
        log = open_at(path, CONFIG)
        perform(log, script)
        active = Path(log.active.file.path)
        os.truncate(active, max(0, active.stat().st_size - lost_bytes))
        again = open_at(path, CONFIG, is_clean=False)
        kept = again.end_offset
        content = b"".join(Path(segment.file.path).read_bytes() for segment in again.segments)
        whole = b"".join(Path(segment.file.path).read_bytes() for segment in log.segments)
        assert whole.startswith(content)
        twin = open_at(twin_path, CONFIG)
        twin.append_as_follower(content)
        assert twin.end_offset == kept
        assert again.producers.encode() == twin.producers.encode()
        assert aborted_of(again) == aborted_of(twin)
