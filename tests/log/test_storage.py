from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.log.log import Log
from penstock.log.storage import Buffer, File, FileSlice, Storage
from penstock.wire.errors import ApiError, ErrorCode
from tests.log.samples import (
    append,
    config_of,
    data_batch,
    marker_batch,
    open_at,
    opened_as,
    records_from,
    txn_batch,
    values_from,
)

STORAGE = Storage()


# ---- files ----


@settings(deadline=None)
@given(st.binary(min_size=1, max_size=50), st.lists(st.integers(1, 7), min_size=1))
def test_a_write_goes_on_after_the_system_took_only_part_of_it(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, portions: list[int]
) -> None:
    path = tmp_path_factory.mktemp("short") / "f"
    file = STORAGE.open(str(path), create=True)
    real = os.pwrite
    taken: list[int] = []

    def short_pwrite(fd: int, buffer: Buffer, offset: int) -> int:
        taken.append(portions[len(taken) % len(portions)])
        return real(fd, memoryview(buffer)[: taken[-1]], offset)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "pwrite", short_pwrite)
        file.write_at(bytearray(data), 3)
    assert path.read_bytes() == b"\0\0\0" + data


def test_a_read_ends_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    file = STORAGE.open(str(tmp_path / "f"))
    assert file.read_at(4, 3) == b"3456"
    assert file.read_at(100, 8) == b"89"
    assert file.read_at(100, 10) == b""
    assert file.size() == 10


def test_opening_a_missing_file_needs_permission_to_create_it(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        STORAGE.open(str(tmp_path / "f"))
    STORAGE.open(str(tmp_path / "f"), create=True)
    assert (tmp_path / "f").exists()


def test_a_slice_keeps_its_file_open(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    part = FileSlice(STORAGE.open(str(tmp_path / "f")), 2, 5)
    STORAGE.remove(str(tmp_path / "f"))
    assert len(part) == 5
    assert part.read() == b"23456"


def test_a_file_is_closed_with_its_last_reference(tmp_path: Path) -> None:
    file = STORAGE.open(str(tmp_path / "f"), create=True)
    fd = file.fd
    os.fstat(fd)
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


# ---- replacing ----


class FailingStorage(Storage):
    """Raises at the n-th step of a `replace`."""

    def __init__(self, failing_step: int) -> None:
        self.steps_left = failing_step

    def step(self) -> None:
        self.steps_left -= 1
        if self.steps_left < 0:
            raise OSError(errno.EIO, "I/O error")

    def open(self, path: str, *, create: bool = False) -> File:
        self.step()
        storage = self

        class Failing(File):
            def truncate(self, size: int) -> None:
                storage.step()
                super().truncate(size)

            def write_at(self, data: Buffer, position: int) -> None:
                storage.step()
                super().write_at(data, position)

            def sync(self) -> None:
                storage.step()
                super().sync()

        return opened_as(Failing, super().open(path, create=create))

    def rename(self, old: str, new: str) -> None:
        self.step()
        super().rename(old, new)

    def sync_directory(self, path: str) -> None:
        self.step()
        super().sync_directory(path)


def test_replacing_a_file_leaves_the_old_or_the_new_content_wherever_it_fails(tmp_path: Path) -> None:
    path = tmp_path / "f"
    outcomes = []
    for step in range(7):
        path.write_bytes(b"the old content")
        storage = FailingStorage(step)
        try:
            storage.replace(str(path), b"new")
        except OSError:
            outcomes.append(path.read_bytes())
        else:
            assert path.read_bytes() == b"new"
            assert step == 6
    assert outcomes == [b"the old content"] * 5 + [b"new"]


def test_content_is_on_disk_before_it_takes_its_name(tmp_path: Path) -> None:
    order: list[str] = []

    class Watching(Storage):
        def open(self, path: str, *, create: bool = False) -> File:
            class Watched(File):
                def sync(self) -> None:
                    order.append("content synced")

            return opened_as(Watched, super().open(path, create=create))

        def rename(self, old: str, new: str) -> None:
            order.append("renamed")
            super().rename(old, new)

        def sync_directory(self, path: str) -> None:
            assert path == str(tmp_path)
            order.append("folder synced")

    Watching().replace(str(tmp_path / "f"), b"x")
    assert order == ["content synced", "renamed", "folder synced"]


def test_removing_what_is_gone_is_fine(tmp_path: Path) -> None:
    STORAGE.remove(str(tmp_path / "f"))


def test_removing_a_folder_removes_its_files(tmp_path: Path) -> None:
    STORAGE.make_directory(str(tmp_path / "d" / "e"))
    (tmp_path / "d" / "e" / "f").write_bytes(b"x")
    STORAGE.remove_directory(str(tmp_path / "d" / "e"))
    assert list((tmp_path / "d").iterdir()) == []


# ---- logs on a disk that is full or broken ----


class Disk(Storage):
    """A disk on which writing to a file, with a name that ends as given, fails from some moment on."""

    def __init__(self) -> None:
        self.suffix = ""
        self.bytes_left = -1  # of a failing write; -1: all is well
        self.code = errno.ENOSPC
        self.truncate_fails = False

    def fail(self, suffix: str, bytes_left: int = 0, code: int = errno.ENOSPC, truncate_fails: bool = False) -> None:
        self.suffix, self.bytes_left, self.code, self.truncate_fails = suffix, bytes_left, code, truncate_fails

    def open(self, path: str, *, create: bool = False) -> File:
        disk = self

        class OnDisk(File):
            def write_at(self, data: Buffer, position: int) -> None:
                if disk.bytes_left >= 0 and self.path.endswith(disk.suffix):
                    super().write_at(memoryview(data)[: disk.bytes_left], position)
                    raise OSError(disk.code, os.strerror(disk.code))
                super().write_at(data, position)

            def truncate(self, size: int) -> None:
                if disk.truncate_fails and disk.bytes_left >= 0 and self.path.endswith(disk.suffix):
                    raise OSError(disk.code, os.strerror(disk.code))
                super().truncate(size)

        return opened_as(OnDisk, super().open(path, create=create))


def failing_log(path: Path, disk: Disk, failures: list[OSError]) -> Log:
    return open_at(path, config_of(segment_bytes=400), storage=disk, on_failure=failures.append)


@pytest.mark.parametrize("bytes_left", [0, 1, 61, 70])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_an_append_that_fails_leaves_the_file_as_before(tmp_path: Path, bytes_left: int, code: int) -> None:
    disk, failures = Disk(), []  # type: tuple[Disk, list[OSError]]
    log = failing_log(tmp_path, disk, failures)
    append(log, data_batch(b"a", producer=1, sequence=0))
    content = Path(log.active.file.path).read_bytes()
    disk.fail(".log", bytes_left, code)
    with pytest.raises(ApiError) as caught:
        append(log, data_batch(b"b" * 50, producer=1, sequence=1))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert [error.errno for error in failures] == [code]
    assert Path(log.active.file.path).read_bytes() == content
    assert log.end_offset == 1
    assert log.producers.producers[1].last_sequence == 0
    again = open_at(tmp_path, is_clean=False)
    assert values_from(again, 0) == [b"a"]
    assert append(again, data_batch(b"b", producer=1, sequence=1)).base_offset == 1


def test_an_append_that_cannot_even_be_undone_is_cut_off_by_the_next_start(tmp_path: Path) -> None:
    disk, failures = Disk(), []  # type: tuple[Disk, list[OSError]]
    log = failing_log(tmp_path, disk, failures)
    append(log, data_batch(b"a"))
    disk.fail(".log", 70, truncate_fails=True)
    with pytest.raises(ApiError) as caught:
        append(log, data_batch(b"b" * 50))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(failures) == 1
    assert values_from(open_at(tmp_path, is_clean=False), 0) == [b"a"]


def test_a_failed_append_as_follower_is_reported_too(tmp_path: Path) -> None:
    disk, failures = Disk(), []  # type: tuple[Disk, list[OSError]]
    log = failing_log(tmp_path, disk, failures)
    disk.fail(".log", 10)
    with pytest.raises(ApiError) as caught:
        log.append_as_follower(data_batch(b"a", leader_epoch=0))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(failures) == 1
    assert log.end_offset == 0


@pytest.mark.parametrize("suffix", [".snapshot", ".log", "leader-epoch-checkpoint.tmp"])
def test_a_roll_that_fails_loses_nothing_that_was_there(tmp_path: Path, suffix: str) -> None:
    disk, failures = Disk(), []  # type: tuple[Disk, list[OSError]]
    log = failing_log(tmp_path, disk, failures)
    for n in range(3):
        append(log, data_batch(b"%d" % n * 60))
    assert len(log.segments) == 1
    records = records_from(log, 0)
    disk.fail(suffix, 5)
    with pytest.raises(ApiError) as caught:
        append(log, data_batch(b"x" * 200), epoch=1)
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(failures) == 1
    again = open_at(tmp_path, config_of(segment_bytes=400), is_clean=False)
    assert records_from(again, 0) == records
    append(again, data_batch(b"x" * 200), epoch=1)
    assert len(records_from(again, 0)) == 4


def test_a_marker_whose_index_entry_cannot_be_written_is_a_failure_of_the_disk(tmp_path: Path) -> None:
    disk, failures = Disk(), []  # type: tuple[Disk, list[OSError]]
    log = failing_log(tmp_path, disk, failures)
    append(log, txn_batch(1, b"a"))
    disk.fail(".txnindex", 10)
    with pytest.raises(ApiError) as caught:
        append(log, marker_batch(1, is_commit=False))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert len(failures) == 1


def test_every_failing_write_of_a_run_leaves_a_prefix(tmp_path: Path) -> None:
    """The disk fails at the n-th write to the log, after half of its bytes; what was acknowledged before stays."""
    for n in range(8):
        disk, failures = Disk(), []  # type: tuple[Disk, list[OSError]]
        log = failing_log(tmp_path / str(n), disk, failures)
        acknowledged = []
        for number in range(8):
            if number == n:
                disk.fail(".log", 50)
            try:
                append(log, data_batch(b"%d" % number * 60))
            except ApiError:
                break
            acknowledged.append(b"%d" % number * 60)
        assert len(acknowledged) == n
        again = open_at(tmp_path / str(n), config_of(segment_bytes=400), is_clean=False)
        assert values_from(again, 0) == acknowledged
