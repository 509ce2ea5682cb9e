"""Power cuts: what was synced is there, what was not may be gone, and nothing else is ever found."""

from __future__ import annotations

import os
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.clock import ManualClock
from penstock.log.directory import HIGH_WATERMARKS, RECOVERY_POINTS, START_OFFSETS, LogDirectory
from penstock.log.log import Log
from penstock.log.logs import Logs
from penstock.log.txn_index import AbortedTxn
from tests.log.forgetful import ForgetfulStorage
from tests.log.samples import (
    T0,
    append,
    batches_from,
    config_of,
    data_batch,
    files_in,
    flush,
    marker_batch,
    records_from,
    txn_batch,
    values_from,
)

CONFIG = config_of(segment_bytes=600, index_interval_bytes=100)
ID = bytes(range(16))


# ---- the forgetful disk itself ----


def content(path: Path) -> dict[str, bytes]:
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def crashed_content(storage: ForgetfulStorage, to: Path) -> dict[str, bytes]:
    storage.crash_to(to)
    return content(to)


def test_content_survives_from_its_last_sync(tmp_path: Path) -> None:
    storage = ForgetfulStorage(tmp_path / "data")
    file = storage.open(str(tmp_path / "data" / "f"), create=True)
    storage.sync_directory(str(tmp_path / "data"))
    assert crashed_content(storage, tmp_path / "0") == {"f": b""}
    file.write_at(b"abc", 0)
    file.sync()
    file.write_at(b"def", 3)
    file.write_at(b"X", 0)
    assert crashed_content(storage, tmp_path / "1") == {"f": b"abc"}
    file.sync()
    file.truncate(2)
    assert crashed_content(storage, tmp_path / "2") == {"f": b"Xbcdef"}
    file.sync()
    assert crashed_content(storage, tmp_path / "3") == {"f": b"Xb"}
    assert (tmp_path / "data" / "f").read_bytes() == b"Xb"


def test_names_survive_from_the_last_sync_of_their_folder(tmp_path: Path) -> None:
    data = tmp_path / "data"
    storage = ForgetfulStorage(data)
    file = storage.open(str(data / "f"), create=True)
    file.write_at(b"abc", 0)
    file.sync()
    assert crashed_content(storage, tmp_path / "0") == {}
    storage.sync_directory(str(data))
    storage.rename(str(data / "f"), str(data / "g"))
    assert crashed_content(storage, tmp_path / "1") == {"f": b"abc"}
    storage.sync_directory(str(data))
    assert crashed_content(storage, tmp_path / "2") == {"g": b"abc"}
    storage.remove(str(data / "g"))
    assert crashed_content(storage, tmp_path / "3") == {"g": b"abc"}
    storage.open(str(data / "g"), create=True).sync()  # another file of the same name
    assert crashed_content(storage, tmp_path / "4") == {"g": b"abc"}
    storage.sync_directory(str(data))
    assert crashed_content(storage, tmp_path / "5") == {"g": b""}


def test_folders_survive_with_their_durable_names(tmp_path: Path) -> None:
    data = tmp_path / "data"
    storage = ForgetfulStorage(data)
    storage.make_directory(str(data / "d"))
    file = storage.open(str(data / "d" / "f"), create=True)
    file.write_at(b"abc", 0)
    file.sync()
    storage.sync_directory(str(data / "d"))
    assert crashed_content(storage, tmp_path / "0") == {}
    storage.sync_directory(str(data))
    assert crashed_content(storage, tmp_path / "1") == {"d/f": b"abc"}
    storage.rename(str(data / "d"), str(data / "e"))
    file.write_at(b"d", 3)
    file.sync()
    assert crashed_content(storage, tmp_path / "2") == {"d/f": b"abcd"}
    storage.sync_directory(str(data))
    assert crashed_content(storage, tmp_path / "3") == {"e/f": b"abcd"}
    storage.remove_directory(str(data / "e"))
    storage.sync_directory(str(data))
    assert crashed_content(storage, tmp_path / "4") == {}


def test_a_replaced_file_survives_at_once(tmp_path: Path) -> None:
    storage = ForgetfulStorage(tmp_path / "data")
    storage.replace(str(tmp_path / "data" / "f"), b"one")
    assert crashed_content(storage, tmp_path / "0") == {"f": b"one"}
    storage.replace(str(tmp_path / "data" / "f"), b"two")
    assert crashed_content(storage, tmp_path / "1") == {"f": b"two"}


def test_what_was_there_before_is_durable(tmp_path: Path) -> None:
    (tmp_path / "data" / "d").mkdir(parents=True)
    (tmp_path / "data" / "d" / "f").write_bytes(b"abc")
    assert crashed_content(ForgetfulStorage(tmp_path / "data"), tmp_path / "0") == {"d/f": b"abc"}


def test_survivors_never_take_back_what_was_synced(tmp_path: Path) -> None:
    data = tmp_path / "data"
    storage = ForgetfulStorage(data)
    file = storage.open(str(data / "f"), create=True)
    file.write_at(b"a" * 100, 0)
    file.sync()
    storage.sync_directory(str(data))
    file.write_at(b"b" * 300, 100)
    found = set()
    for seed in range(40):
        storage.crash_to(tmp_path / str(seed), random.Random(seed))
        survived = (tmp_path / str(seed) / "f").read_bytes()
        assert survived[:100] == b"a" * 100
        assert set(survived[100:]) <= {0, ord("b")}
        found.add(len(survived))
    assert {100, 400} < found


# ---- single logs ----


operations = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 4)),
        st.tuples(st.just("append"), st.integers(1, 4)),
        st.tuples(st.just("txn"), st.integers(1, 3)),
        st.tuples(st.just("end"), st.integers(0, 1)),
        st.tuples(st.just("roll"), st.just(0)),
        st.tuples(st.just("flush"), st.just(0)),
        st.tuples(st.just("epoch"), st.just(0)),
    ),
    max_size=40,
)


class Run:
    """A log on a forgetful disk, and a list of what was written to it."""

    def __init__(self, path: Path) -> None:
        self.storage = ForgetfulStorage(path)
        self.logs = Logs(self.storage, ManualClock(T0), [str(path)], _unexpected)
        self.logs.open_directories()
        self.logs.write_identity("cluster", 1)
        self.log = self.logs.create(("t", 0), ID, CONFIG)
        self.values: dict[int, bytes] = {}
        self.aborted: list[AbortedTxn] = []
        self.epoch = 0
        self.sequence = 0
        self.txn_start: int | None = None

    def perform(self, script: list[tuple[str, int]]) -> None:
        for what, number in script:
            values = [b"%d.%d" % (self.log.end_offset, n) + b"v" * 30 for n in range(number)]
            if what == "append":
                self._note(append(self.log, data_batch(*values), self.epoch).base_offset, values)
            elif what == "txn":
                data = txn_batch(7, *values, sequence=self.sequence)
                base = append(self.log, data, self.epoch).base_offset
                self._note(base, values)
                self.sequence += number
                self.txn_start = base if self.txn_start is None else self.txn_start
            elif what == "end":
                base = append(self.log, marker_batch(7, is_commit=bool(number)), self.epoch).base_offset
                if self.txn_start is not None and not number:
                    self.aborted.append(AbortedTxn(7, self.txn_start, base, base + 1))
                self.txn_start = None
            elif what == "roll":
                self.log.roll()
            elif what == "flush":
                flush(self.log)
                for checkpoint in self.logs.checkpoints(RECOVERY_POINTS):
                    checkpoint.run()
            else:
                self.epoch += 1

    def _note(self, base: int, values: list[bytes]) -> None:
        self.values |= {base + n: value for n, value in enumerate(values)}


def _unexpected(directory: LogDirectory) -> None:
    raise AssertionError(directory.failure)


def loaded(path: Path) -> tuple[Logs, Log | None]:
    logs = Logs(ForgetfulStorage(path), ManualClock(T0), [str(path)], _unexpected)
    logs.open_directories()
    logs.load(lambda topic: CONFIG, lambda partition, topic_id: True, 1)
    return logs, logs.get(("t", 0))


def check_against(run: Run, log: Log | None) -> None:
    """At least what was below the recovery point is there, and nothing that was never written."""
    if log is None:
        assert run.log.recovery_point == 0
        return
    durable = run.log.recovery_point
    assert log.end_offset >= durable
    for record in records_from(log, 0):
        assert record.value == run.values[record.offset]
    found = {record.offset for _, records in batches_from(log, 0) for record in records}
    lost = set(range(log.end_offset)) - found
    assert not [offset for offset in lost if offset < durable]
    aborted = [txn for segment in log.segments for txn in segment.txn_index.entries]
    if lost:  # a file of which nothing was synced may be gone while a later one is there
        assert [txn for txn in run.aborted if txn.last_offset < durable and txn not in aborted] == []
    else:
        assert aborted == [txn for txn in run.aborted if txn.last_offset < log.end_offset]
    epochs = {batch.leader_epoch for segment in log.segments for _, batch in segment.batches()}
    known = {entry.epoch for entry in log.epochs.entries}
    assert epochs <= known
    assert lost or epochs == known
    for segment in log.segments:
        newest = max((batch.max_timestamp for _, batch in segment.batches()), default=-1)
        assert segment.max_timestamp == newest


@pytest.mark.parametrize("seed", [None, 1, 2, 3, 4])
def test_what_was_flushed_survives_a_power_cut(tmp_path: Path, seed: int | None) -> None:
    run = Run(tmp_path / "data")
    run.perform([("append", 1)] * 15 + [("epoch", 0)] + [("append", 1)] * 15 + [("flush", 0)] + [("append", 1)] * 10)
    run.storage.crash_to(tmp_path / "after", None if seed is None else random.Random(seed))
    _, log = loaded(tmp_path / "after")
    check_against(run, log)
    assert log is not None
    assert 30 <= log.end_offset <= 40
    if seed is None:
        assert log.end_offset == 30


@settings(deadline=None, max_examples=250)
@given(operations, st.one_of(st.none(), st.integers(0, 10**6)))
def test_a_power_cut_takes_nothing_below_the_recovery_point_and_invents_nothing(
    script: list[tuple[str, int]], seed: int | None
) -> None:
    with TemporaryDirectory() as folder:
        run = Run(Path(folder) / "data")
        run.perform(script)
        run.storage.crash_to(Path(folder) / "after", None if seed is None else random.Random(seed))
        _, log = loaded(Path(folder) / "after")
        check_against(run, log)


def test_aborted_transactions_of_a_segment_that_was_flushed_before_it_was_complete_survive(tmp_path: Path) -> None:
    run = Run(tmp_path / "data")
    run.perform([("append", 1), ("txn", 1), ("end", 0), ("flush", 0), ("roll", 0), ("append", 1), ("flush", 0)])
    run.storage.crash_to(tmp_path / "after")
    _, log = loaded(tmp_path / "after")
    assert log is not None
    assert log.segments[0].txn_index.entries == run.aborted == [AbortedTxn(7, 1, 2, 3)]


@pytest.mark.parametrize("seed", [None, *range(6)])
def test_the_age_of_a_segment_that_was_flushed_before_it_was_complete_survives(
    tmp_path: Path, seed: int | None
) -> None:
    """Else retention would take it for one from 1970, or for a new one."""
    run = Run(tmp_path / "data")
    run.perform([("append", 4), ("append", 1), ("flush", 0), ("roll", 0), ("append", 1), ("flush", 0)])
    run.storage.crash_to(tmp_path / "after", None if seed is None else random.Random(seed))
    _, log = loaded(tmp_path / "after")
    assert log is not None
    assert [segment.max_timestamp for segment in log.segments] == [T0, T0]


def test_a_log_that_was_truncated_and_flushed_does_not_grow_old_records_again(tmp_path: Path) -> None:
    run = Run(tmp_path / "data")
    run.perform([("append", 2), ("roll", 0), ("append", 2), ("roll", 0), ("append", 2), ("flush", 0)])
    log = run.log
    log.truncate(1)
    run.values.clear()
    run.perform([("append", 1)] * 4 + [("flush", 0)])
    run.storage.crash_to(tmp_path / "after")
    _, again = loaded(tmp_path / "after")
    assert again is not None
    assert again.end_offset == log.end_offset
    assert {record.offset: record.value for record in records_from(again, 0)} == {
        record.offset: record.value for record in records_from(log, 0)
    }


def test_segments_that_recovery_removed_do_not_come_back(tmp_path: Path) -> None:
    run = Run(tmp_path / "data")
    run.perform([("append", 2), ("append", 2), ("roll", 0), ("append", 2), ("roll", 0), ("append", 2), ("flush", 0)])
    run.storage.crash_to(tmp_path / "first")
    folder = tmp_path / "first" / "t-0"
    damaged = bytearray((folder / f"{0:020d}.log").read_bytes())
    damaged[-1] ^= 1
    (folder / f"{0:020d}.log").write_bytes(damaged)
    os.unlink(tmp_path / "first" / RECOVERY_POINTS)
    logs, log = loaded(tmp_path / "first")
    assert log is not None
    assert log.end_offset == 2
    append(log, data_batch(b"new0", b"new1", b"new2"))
    assert len(log.segments) == 1
    flush(log)
    for checkpoint in logs.checkpoints(RECOVERY_POINTS):
        checkpoint.run()
    storage = log._storage
    assert isinstance(storage, ForgetfulStorage)
    storage.crash_to(tmp_path / "second")
    _, again = loaded(tmp_path / "second")
    assert again is not None
    assert values_from(again, 2) == [b"new0", b"new1", b"new2"]


# ---- whole directories ----


def test_a_clean_shutdown_survives_a_power_cut_right_after_it(tmp_path: Path) -> None:
    run = Run(tmp_path / "data")
    run.perform([("append", 3), ("txn", 2), ("end", 0), ("txn", 1), ("roll", 0), ("append", 2), ("epoch", 0)] * 3)
    producers = run.log.producers.encode()
    run.logs.close(5)
    run.storage.crash_to(tmp_path / "after")
    logs, log = loaded(tmp_path / "after")
    assert logs.was_clean
    check_against(run, log)
    assert log is not None
    assert log.end_offset == run.log.end_offset
    assert log.producers.encode() == producers


def test_a_new_log_is_durable_with_its_folder_after_its_first_flush(tmp_path: Path) -> None:
    run = Run(tmp_path / "data")
    run.storage.crash_to(tmp_path / "before")
    assert not (tmp_path / "before" / "t-0").exists()
    run.perform([("append", 1), ("flush", 0)])
    run.storage.crash_to(tmp_path / "after")
    assert files_in(tmp_path / "after" / "t-0")["partition.metadata"].startswith(b"version: 0\ntopic_id: ")
    _, log = loaded(tmp_path / "after")
    check_against(run, log)


def test_checkpoints_survive_whole(tmp_path: Path) -> None:
    run = Run(tmp_path / "data")
    run.perform([("append", 3), ("flush", 0), ("append", 1)])
    run.log.advance_high_watermark(3)
    run.log.advance_start(2)
    for name in (RECOVERY_POINTS, START_OFFSETS, HIGH_WATERMARKS):
        for checkpoint in run.logs.checkpoints(name):
            checkpoint.run()
    run.storage.crash_to(tmp_path / "after")
    _, log = loaded(tmp_path / "after")
    assert log is not None
    assert (log.start_offset, log.recovery_point, log.high_watermark) == (2, 3, 3)


def test_an_epoch_survives_with_its_first_record(tmp_path: Path) -> None:
    run = Run(tmp_path / "data")
    run.perform([("append", 1), ("epoch", 0), ("append", 1), ("flush", 0), ("epoch", 0), ("append", 1)])
    run.storage.crash_to(tmp_path / "after")
    _, log = loaded(tmp_path / "after")
    assert log is not None
    assert log.epochs.entries == ((0, 0), (1, 1))
