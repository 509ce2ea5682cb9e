"""What a log is given within one turn of the event loop is written together at its end."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.log.log import Log
from penstock.log.producer_state import Origin
from penstock.log.storage import Buffer, File, Storage
from penstock.log.turn import Turn
from penstock.log.validation import own_batch
from tests.log.samples import T0, append, config_of, data_batch, flush, open_at, opened_as, records_from


class Disk(Storage):
    """Counts the writes to log files; says that it is full when told to."""

    def __init__(self) -> None:
        self.writes: list[int] = []
        self.is_full = False

    def open(self, path: str, *, create: bool = False) -> File:
        disk = self

        class Watched(File):
            def write_at(self, data: Buffer, position: int) -> None:
                if self.path.endswith(".log"):
                    if disk.is_full:
                        super().write_at(memoryview(data)[:1], position)  # a part of it, as a real one does
                        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                    disk.writes.append(len(data))
                super().write_at(data, position)

        return opened_as(Watched, super().open(path, create=create))


class Loop:
    """What the event loop is asked to do soon."""

    def __init__(self) -> None:
        self.calls: list[Callable[[], None]] = []
        self.losses = 0
        self.turn = Turn(self.calls.append, self._lost)

    def _lost(self) -> None:
        self.losses += 1

    def run(self) -> None:
        calls, self.calls[:] = list(self.calls), []
        for call in calls:
            call()


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def failures() -> list[OSError]:
    return []


@pytest.fixture
def log(tmp_path: Path, disk: Disk, failures: list[OSError]) -> Log:
    return open_at(tmp_path / "t-0", storage=disk, on_failure=failures.append)


def give(log: Log, loop: Loop, *values: bytes) -> None:
    for value in values:
        log.append(own_batch(data_batch(value)), 0, Origin.CLIENT, loop.turn)


def in_file(log: Log) -> int:
    return os.path.getsize(os.path.join(log.directory, f"{0:020d}.log"))


def values_of(log: Log) -> list[bytes | None]:
    return [record.value for record in records_from(log, 0)]


def test_the_first_is_written_at_once_and_the_others_together(log: Log, loop: Loop, disk: Disk) -> None:
    give(log, loop, b"a", b"b", b"c", b"d")
    assert len(disk.writes) == 1
    assert (log.end_offset, log.size) == (4, 4 * disk.writes[0]), "they count as appended"
    loop.run()
    assert disk.writes == [disk.writes[0], 3 * disk.writes[0]]
    assert values_of(log) == [b"a", b"b", b"c", b"d"]
    assert loop.losses == 0


def test_one_alone_asks_nothing_of_the_loop(log: Log, loop: Loop) -> None:
    give(log, loop, b"a")
    assert loop.calls == []


def test_the_next_turn_begins_anew(log: Log, loop: Loop, disk: Disk) -> None:
    give(log, loop, b"a", b"b")
    loop.run()
    give(log, loop, b"c")
    assert len(disk.writes) == 3
    assert in_file(log) == log.size


def test_who_reads_finds_everything(log: Log, loop: Loop, disk: Disk) -> None:
    give(log, loop, b"a", b"b", b"c")
    assert values_of(log) == [b"a", b"b", b"c"]
    assert in_file(log) == log.size
    loop.run()
    assert len(disk.writes) == 2, "there was nothing left to write"


def test_who_writes_without_a_turn_comes_behind_what_waits(log: Log, loop: Loop, disk: Disk) -> None:
    give(log, loop, b"a", b"b", b"c")
    append(log, data_batch(b"d"))
    assert len(disk.writes) == 3
    assert in_file(log) == log.size
    assert values_of(log) == [b"a", b"b", b"c", b"d"]


def test_a_flush_covers_what_waits(log: Log, loop: Loop) -> None:
    give(log, loop, b"a", b"b", b"c")
    flush(log)
    assert log.recovery_point == 3
    assert in_file(log) == log.size


def test_a_new_segment_leaves_nothing_behind(tmp_path: Path, loop: Loop, disk: Disk) -> None:
    log = open_at(tmp_path / "t-0", config_of(segment_bytes=200), storage=disk)
    give(log, loop, b"a", b"b", b"c", b"d", b"e")
    assert len(log.segments) > 1
    loop.run()
    assert values_of(log) == [b"a", b"b", b"c", b"d", b"e"]


def test_what_waits_can_be_taken_back(log: Log, loop: Loop) -> None:
    give(log, loop, b"a", b"b", b"c")
    log.truncate(1)
    loop.run()
    assert values_of(log) == [b"a"]
    assert in_file(log) == log.size


def test_only_so_much_may_wait(log: Log, loop: Loop, disk: Disk) -> None:
    give(log, loop, b"a", b"x" * 50_000, b"y" * 50_000, b"z" * 50_000)
    assert len(disk.writes) == 3, "the two that waited, and the one that was too much"
    give(log, loop, bytes(200_000))
    assert in_file(log) == log.size


def test_only_so_many_logs_may_wait(tmp_path: Path, loop: Loop, disk: Disk) -> None:
    logs = [open_at(tmp_path / f"t-{number}", storage=disk) for number in range(70)]
    for log in logs:
        give(log, loop, b"a", b"b")
    assert sum(in_file(log) < log.size for log in logs) == 64
    loop.run()
    assert all(values_of(log) == [b"a", b"b"] for log in logs)


def test_what_cannot_be_written_is_told(log: Log, loop: Loop, disk: Disk, failures: list[OSError]) -> None:
    give(log, loop, b"a", b"b", b"c")
    disk.is_full = True
    loop.run()
    assert loop.losses == 1
    assert [error.errno for error in failures] == [errno.ENOSPC]
    assert in_file(log) == disk.writes[0], "the file ends with the last whole batch"


def test_of_several_logs_those_that_can_are_written(
    tmp_path: Path, log: Log, loop: Loop, disk: Disk, failures: list[OSError]
) -> None:
    other = open_at(tmp_path / "other-0")
    give(log, loop, b"a", b"b")
    give(other, loop, b"c", b"d")
    disk.is_full = True
    loop.run()
    assert (loop.losses, len(failures)) == (1, 1)
    assert values_of(other) == [b"c", b"d"]


def test_what_cannot_be_written_is_not_synced(log: Log, loop: Loop, disk: Disk) -> None:
    give(log, loop, b"a", b"b")
    disk.is_full = True
    job = log.flush_job()
    with pytest.raises(OSError, match="No space"):
        job.run()
    loop.run()
    assert loop.losses == 1


def test_files_are_the_same_as_without_turns(tmp_path: Path, loop: Loop) -> None:
    """Index entries and timestamps too: what is kept for the end of a turn is kept by other code."""
    rng = random.Random(7)
    settings = config_of(segment_bytes=20_000, index_interval_bytes=700)
    kept, plain = (open_at(tmp_path / name / "t-0", settings) for name in ("kept", "plain"))
    for _ in range(400):
        value, timestamp = rng.randbytes(rng.randrange(300)), T0 + rng.randrange(10_000)
        kept.append(own_batch(data_batch(value, timestamp=timestamp)), 0, Origin.CLIENT, loop.turn)
        plain.append(own_batch(data_batch(value, timestamp=timestamp)), 0)
        if rng.randrange(10) == 0:
            loop.run()
    loop.run()
    for log in (kept, plain):
        flush(log)
        log.close()
    names = sorted(path.name for path in Path(plain.directory).iterdir())
    assert len(names) > 12, "there are several segments"
    for name in names:
        assert (Path(kept.directory) / name).read_bytes() == (Path(plain.directory) / name).read_bytes(), name
