"""A crash at any step of a compaction leaves a log that has everything it must have, and nothing that it must not."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.log.inspection import PartitionCheck
from penstock.log.log import Log
from penstock.log.storage import Buffer, File, Storage
from tests.log.cleaning import clean
from tests.log.forgetful import ForgetfulStorage
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
)

CONFIG = config_of(segment_bytes=400, index_interval_bytes=100, cleanup_policy=("compact",), delete_retention_ms=1000)
KEYS = [b"k%d" % number for number in range(6)]
END_OFFSET = 30  # of a filled log


class Crash(BaseException):
    """The process ended here."""


class QuickStorage(Storage):
    """Syncs nothing: a process that ends takes nothing with it that it wrote."""

    def open(self, path: str, *, create: bool = False) -> File:
        return opened_as(_Unsynced, super().open(path, create=create))

    def sync_directory(self, path: str) -> None:
        pass


class _Unsynced(File):
    def sync(self) -> None:
        pass


class DyingStorage(QuickStorage):
    """Counts what changes the disk, and dies before one of these steps."""

    def __init__(self, steps_left: int) -> None:
        self.steps_left = steps_left

    def _step(self) -> None:
        if self.steps_left == 0:
            raise Crash
        self.steps_left -= 1

    def open(self, path: str, *, create: bool = False) -> File:
        storage = self

        class Dying(_Unsynced):
            def write_at(self, data: Buffer, position: int) -> None:
                storage._step()
                super().write_at(data, position)

        if create:
            self._step()
        return opened_as(Dying, super().open(path, create=create))

    def rename(self, old: str, new: str) -> None:
        self._step()
        super().rename(old, new)

    def remove(self, path: str) -> None:
        self._step()
        super().remove(path)


def _use(log: Log, storage: Storage) -> None:
    """From now on, a log is on another disk."""
    log._storage = storage
    for segment in log.segments:
        segment._storage = storage


def _fill(log: Log) -> None:
    """Old and new values, deletions, and an aborted transaction, over several segments."""
    rng = random.Random(3)
    for number in range(24):
        key = rng.choice(KEYS)
        value = None if number % 7 == 6 else b"value %d" % number
        append(log, data_batch(value, key=key, timestamp=T0 + number))
        if number % 10 == 3:
            append(log, txn_batch(100, b"never", sequence=number // 10))
            append(log, marker_batch(100, is_commit=False))
    log.roll()
    log.advance_high_watermark(log.end_offset)


def _last_values(log: Log) -> dict[bytes | None, bytes | None]:
    """What a reader of the whole log ends up with: deleted keys and keys that were never there are the same."""
    aborted = {txn.first_offset for segment in log.segments for txn in segment.txn_index.entries}
    state: dict[bytes | None, bytes | None] = {}
    for record in records_from(log, 0):
        if record.offset not in aborted:
            state[record.key] = record.value
    return {key: value for key, value in state.items() if value is not None}


def _check(log: Log, expected: dict[bytes | None, bytes | None], end_offset: int) -> None:
    assert _last_values(log) == expected
    assert log.end_offset == end_offset
    assert b"never" not in expected.values()
    assert PartitionCheck(Storage(), log.directory).run().problems == []
    leftovers = [name for name in files_in(log.directory) if name.endswith((".cleaned", ".swap", ".deleted"))]
    assert leftovers == []


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    log = open_at(tmp_path / "filled", CONFIG)
    _fill(log)
    log.close()
    assert log.end_offset == END_OFFSET
    return tmp_path / "filled"


def _opened(path: Path, storage: Storage | None = None, **options: Any) -> Log:
    log = open_at(path, CONFIG, storage=storage or QuickStorage(), **options)
    log.advance_high_watermark(log.end_offset)
    return log


def _compact(path: Path, storage: Storage, now_ms: int) -> None:
    log = _opened(path)
    _use(log, storage)
    clean(log, now_ms=now_ms, storage=storage, is_flushed=False)


def _crash_at_each_step(
    source: Path, to: Path, expected: dict[bytes | None, bytes | None], act: Callable[[Path, DyingStorage], None]
) -> int:
    """Do something on a copy of a log again and again, and die one step later each time; returns how many steps it has.

    After each death the log is opened, compared, compacted for good and compared again.
    """
    step = 0
    while True:
        path = to / f"step-{step}"
        shutil.copytree(source, path)
        try:
            act(path, DyingStorage(step))
        except Crash:
            pass
        else:
            return step
        log = _opened(path, is_clean=False)
        end_offset = log.end_offset
        _check(log, expected, end_offset)
        clean(log, now_ms=T0 + 5000, storage=QuickStorage())
        clean(log, now_ms=T0 + 10_000, storage=QuickStorage())
        _check(log, expected, end_offset)
        log.close_files()
        shutil.rmtree(path)
        step += 1


def _content(path: Path) -> dict[bytes | None, bytes | None]:
    log = _opened(path)
    assert log.end_offset == END_OFFSET
    return _last_values(log)


def test_a_crash_at_any_step_of_a_compaction_loses_nothing_and_brings_nothing_back(
    filled: Path, tmp_path: Path
) -> None:
    steps = _crash_at_each_step(filled, tmp_path, _content(filled), lambda copy, dying: _compact(copy, dying, T0))
    assert steps > 40


def test_a_crash_at_any_step_of_a_later_compaction_brings_no_deleted_key_back(filled: Path, tmp_path: Path) -> None:
    """The second one removes deletions: what they deleted must be gone for good by then."""
    expected = _content(filled)
    _compact(filled, QuickStorage(), T0)
    steps = _crash_at_each_step(filled, tmp_path, expected, lambda copy, dying: _compact(copy, dying, T0 + 5000))
    assert steps > 10


def test_a_crash_at_any_step_of_the_recovery_is_recovered_from(filled: Path, tmp_path: Path) -> None:
    """Whatever a first crash left: here, each step of a swap."""
    expected = _content(filled)
    recovered_steps = 0
    for first in range(4, 30):
        path = tmp_path / "crashed"
        shutil.copytree(filled, path)
        with pytest.raises(Crash):
            _compact(path, DyingStorage(first), T0)
        recovered_steps += _crash_at_each_step(
            path,
            tmp_path,
            expected,
            lambda copy, dying: _opened(copy, dying, recovery_point=END_OFFSET).close_files(),
        )
        shutil.rmtree(path)
        for leftover in tmp_path.glob("step-*"):
            shutil.rmtree(leftover)
    assert recovered_steps > 50


@pytest.mark.parametrize("seed", range(20))
def test_a_power_cut_during_a_compaction_loses_nothing_that_was_synced(tmp_path: Path, seed: int) -> None:
    """Some of what was not synced may survive, some not."""
    rng = random.Random(seed)
    storage = ForgetfulStorage(tmp_path / "disk")
    log = open_at(tmp_path / "disk" / "t-0", CONFIG, storage=storage)
    _fill(log)
    flush(log)
    expected, end_offset = _last_values(log), log.end_offset
    steps = rng.randrange(60)
    for now_ms in (T0, T0 + 5000, T0 + 10_000):
        cut = _Counting(storage, steps)
        _use(log, cut)
        try:
            clean(log, now_ms=now_ms, storage=cut, is_flushed=False)
        except Crash:
            break
        steps = cut.steps_left
    storage.crash_to(tmp_path / "after", rng)
    found = open_at(
        tmp_path / "after" / "t-0", CONFIG, is_clean=False, recovery_point=end_offset if rng.random() < 0.5 else 0
    )
    assert _last_values(found) == expected
    assert found.end_offset == end_offset


class _Counting(DyingStorage):
    """Dies after some steps on another disk, one that forgets what was not synced."""

    def __init__(self, storage: Storage, steps_left: int) -> None:
        super().__init__(steps_left)
        self._inner = storage

    def open(self, path: str, *, create: bool = False) -> File:
        self._step()
        return self._inner.open(path, create=create)

    def rename(self, old: str, new: str) -> None:
        self._step()
        self._inner.rename(old, new)

    def remove(self, path: str) -> None:
        self._step()
        self._inner.remove(path)

    def sync_directory(self, path: str) -> None:
        self._step()
        self._inner.sync_directory(path)
