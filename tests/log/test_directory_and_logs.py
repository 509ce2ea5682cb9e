from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.config.topic import TopicConfig
from penstock.log.checkpoints import TopicPartition, read_offsets
from penstock.log.directory import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    START_OFFSETS,
    DirectoryError,
    LogDirectory,
    MetaProperties,
)
from penstock.log.logs import Logs
from penstock.log.storage import Storage
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.types import uuid_text
from tests.log.samples import (
    T0,
    append,
    config_of,
    data_batch,
    files_in,
    flush,
    marker_batch,
    records_from,
    txn_batch,
    values_from,
)

ID, OTHER_ID = bytes(range(16)), bytes(range(1, 17))
CLICKS, VIEWS = ("clicks", 0), ("views", 3)


def unexpected(directory: LogDirectory) -> None:
    raise AssertionError(f"{directory.path} failed: {directory.failure}")


def directory_at(path: Path, storage: Storage | None = None) -> LogDirectory:
    directory = LogDirectory(storage or Storage(), str(path), unexpected)
    directory.open()
    return directory


def logs_at(
    *paths: Path,
    storage: Storage | None = None,
    clock: ManualClock | None = None,
    on_failure: Callable[[LogDirectory], None] = unexpected,
) -> Logs:
    """The logs in these directories, with all that was there loaded."""
    logs = Logs(storage or Storage(), clock or ManualClock(T0), [str(path) for path in paths], on_failure)
    logs.open_directories()
    logs.write_identity("cluster", 1)
    logs.load(lambda topic: config_of(), lambda partition, topic_id: True, 2)
    return logs


def write_checkpoints(logs: Logs) -> None:
    for name in (RECOVERY_POINTS, START_OFFSETS, HIGH_WATERMARKS):
        for checkpoint in logs.checkpoints(name):
            checkpoint.run()


# ---- one directory ----


def test_what_is_noted_of_a_deleted_logs_compaction_is_not_taken_for_a_new_ones(tmp_path: Path) -> None:
    logs = logs_at(tmp_path)
    (directory,) = logs.directories
    logs.create(CLICKS, ID, config_of())
    directory.cleaner_offsets[CLICKS] = 7
    directory.write_cleaner_offsets()
    logs.delete([CLICKS])
    assert read_offsets(Storage(), str(tmp_path / CLEANER_OFFSETS)) == {}


def test_a_truncated_log_is_noted_as_clean_only_up_to_the_cut(tmp_path: Path) -> None:
    logs = logs_at(tmp_path)
    (directory,) = logs.directories
    log = logs.create(CLICKS, ID, config_of())
    for _ in range(10):
        append(log, data_batch())
    directory.cleaner_offsets[CLICKS] = 7
    directory.write_cleaner_offsets()
    log.truncate(8)
    assert read_offsets(Storage(), str(tmp_path / CLEANER_OFFSETS)) == {CLICKS: 7}
    log.truncate(5)
    assert read_offsets(Storage(), str(tmp_path / CLEANER_OFFSETS)) == {CLICKS: 5}


def test_a_directory_is_made_if_it_is_not_there(tmp_path: Path) -> None:
    directory = directory_at(tmp_path / "a" / "b")
    assert (tmp_path / "a" / "b").is_dir()
    assert directory.meta is None
    assert directory.was_clean is False


OPEN_IN_ANOTHER_PROCESS = """
import sys
from penstock.log.directory import DirectoryError, LogDirectory
from penstock.log.storage import Storage
try:
    LogDirectory(Storage(), sys.argv[1], print).open()
except DirectoryError as error:
    print(error)
else:
    print("opened")
"""


def open_in_another_process(path: Path) -> str:
    command = [sys.executable, "-c", OPEN_IN_ANOTHER_PROCESS, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout.strip()


def test_a_directory_belongs_to_one_process_at_a_time(tmp_path: Path) -> None:
    directory = directory_at(tmp_path)
    answer = open_in_another_process(tmp_path)
    assert answer == f"{tmp_path} is in use by another broker; stop it or choose another directory"
    directory.release()
    assert open_in_another_process(tmp_path) == "opened"


def test_a_directory_remembers_whose_it_is(tmp_path: Path) -> None:
    meta = MetaProperties("some-cluster", 7, ID)
    directory_at(tmp_path).write_meta(meta)
    assert directory_at(tmp_path).meta == meta
    lines = (tmp_path / "meta.properties").read_text().splitlines()
    assert sorted(line for line in lines if not line.startswith("#")) == [
        "cluster.id=some-cluster",
        f"directory.id={uuid_text(ID)}",
        "node.id=7",
        "version=1",
    ]


@pytest.mark.parametrize(
    "text",
    [
        f"#\n#Tue Jan 02 03:04:05 UTC 2024\nnode.id=7\nversion=1\ndirectory.id={uuid_text(ID)}\n"
        "cluster.id=some-cluster\n",
        f"cluster.id = some-cluster\r\n  node.id : 7\r\ndirectory.id {uuid_text(ID)}\r\n",
    ],
)
def test_kafkas_own_meta_properties_are_read(tmp_path: Path, text: str) -> None:
    (tmp_path / "meta.properties").write_bytes(text.encode())
    assert directory_at(tmp_path).meta == MetaProperties("some-cluster", 7, ID)


def test_the_meta_properties_of_an_old_broker_are_read(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=3\ncluster.id=old\n")
    meta = directory_at(tmp_path).meta
    assert meta is not None
    assert (meta.cluster_id, meta.broker_id, len(meta.directory_id)) == ("old", 3, 16)


@pytest.mark.parametrize(
    "text",
    ["", "version=1\n", "cluster.id=a\n", "cluster.id=a\nnode.id=x\n", "cluster.id=a\nnode.id=1\ndirectory.id=?\n"],
)
def test_damaged_meta_properties_are_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(DirectoryError, match=r"meta\.properties is damaged"):
        directory_at(tmp_path)


def test_the_mark_of_a_clean_shutdown_counts_once(tmp_path: Path) -> None:
    directory_at(tmp_path).mark_clean(42)
    assert json.loads((tmp_path / ".kafka_cleanshutdown").read_text()) == {"version": 0, "brokerEpoch": 42}
    first = directory_at(tmp_path)
    assert (first.was_clean, first.broker_epoch) == (True, 42)
    second = directory_at(tmp_path)
    assert (second.was_clean, second.broker_epoch) == (False, -1)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"null", b'{"brokerEpoch": null}', b"\xff"])
def test_a_clean_shutdown_of_another_version_is_a_clean_shutdown_too(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".kafka_cleanshutdown").write_bytes(content)
    directory = directory_at(tmp_path)
    assert (directory.was_clean, directory.broker_epoch) == (True, -1)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_what_the_last_run_noted_down_is_read(tmp_path: Path) -> None:
    (tmp_path / RECOVERY_POINTS).write_text("0\n1\nclicks 0 17\n")
    (tmp_path / START_OFFSETS).write_text("0\n1\nclicks 0 4\n")
    (tmp_path / HIGH_WATERMARKS).write_text("0\n1\nclicks 0 16\n")
    directory = directory_at(tmp_path)
    assert directory.recovery_points == {CLICKS: 17}
    assert directory.start_offsets == {CLICKS: 4}
    assert directory.high_watermarks == {CLICKS: 16}


@pytest.mark.parametrize("content", [b"", b"garbage", b"0\n5\nclicks 0 1\n", b"\xff\xfe\x80"])
@pytest.mark.parametrize("name", [RECOVERY_POINTS, START_OFFSETS, HIGH_WATERMARKS])
def test_a_damaged_checkpoint_does_not_keep_the_broker_from_starting(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    directory = directory_at(tmp_path)
    assert (directory.recovery_points, directory.start_offsets, directory.high_watermarks) == ({}, {}, {})


def test_partitions_are_found_by_their_folders(tmp_path: Path) -> None:
    for name in ("clicks-0", "a.b-c_d-12", "clicks-0x", "nothing", "-3", "x-", f"old-1.{'0' * 32}-stray"):
        (tmp_path / name).mkdir()
    (tmp_path / "file-7").write_bytes(b"")
    found = directory_at(tmp_path).partition_directories()
    assert found == {CLICKS: str(tmp_path / "clicks-0"), ("a.b-c_d", 12): str(tmp_path / "a.b-c_d-12")}


def test_folders_that_wait_for_their_removal_are_removed(tmp_path: Path) -> None:
    doomed = tmp_path / f"clicks-0.{'ab' * 16}-delete"
    doomed.mkdir()
    (doomed / "00000000000000000000.log").write_bytes(b"x")
    assert directory_at(tmp_path).partition_directories() == {}
    assert not doomed.exists()


def test_a_directory_fails_once(tmp_path: Path) -> None:
    failed: list[LogDirectory] = []
    directory = LogDirectory(Storage(), str(tmp_path), failed.append)
    directory.open()
    directory.fail(OSError(errno.EIO, "first"))
    directory.fail(OSError(errno.EIO, "second"))
    assert failed == [directory]
    assert directory.is_offline
    assert "first" in directory.failure


# ---- several directories ----


def test_new_directories_get_an_identity_of_their_own(tmp_path: Path) -> None:
    logs = Logs(Storage(), ManualClock(), [str(tmp_path / "a"), str(tmp_path / "b")], unexpected)
    assert logs.open_directories() is None
    logs.write_identity("cluster", 5)
    metas = [directory.meta for directory in logs.directories]
    assert [(meta.cluster_id, meta.broker_id) for meta in metas if meta] == [("cluster", 5)] * 2
    assert len({meta.directory_id for meta in metas if meta}) == 2
    again = Logs(Storage(), ManualClock(), [str(tmp_path / "a"), str(tmp_path / "b")], unexpected)
    assert again.open_directories() in metas


def test_a_directory_that_is_added_joins_the_others(tmp_path: Path) -> None:
    logs_at(tmp_path / "a")
    logs = logs_at(tmp_path / "a", tmp_path / "b")
    assert [d.meta and d.meta.broker_id for d in logs.directories] == [1, 1]


@pytest.mark.parametrize("other", [MetaProperties("cluster", 2, ID), MetaProperties("elsewhere", 1, ID)])
def test_directories_of_different_brokers_are_refused(tmp_path: Path, other: MetaProperties) -> None:
    directory_at(tmp_path / "a").write_meta(MetaProperties("cluster", 1, OTHER_ID))
    directory_at(tmp_path / "b").write_meta(other)
    logs = Logs(Storage(), ManualClock(), [str(tmp_path / "a"), str(tmp_path / "b")], unexpected)
    with pytest.raises(DirectoryError) as caught:
        logs.open_directories()
    assert str(tmp_path / "a") in str(caught.value)
    assert f"broker {other.broker_id} of {other.cluster_id}" in str(caught.value)


def test_a_directory_that_cannot_be_used_starts_offline(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    failed: list[LogDirectory] = []
    logs = logs_at(tmp_path / "file" / "a", tmp_path / "b", on_failure=failed.append)
    assert failed == [logs.directories[0]]
    assert logs.online_directories == [logs.directories[1]]
    logs.create(CLICKS, ID, config_of())
    assert logs.directory_of(CLICKS) is logs.directories[1]


def test_without_any_usable_directory_there_is_no_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    logs = Logs(Storage(), ManualClock(), [str(tmp_path / "file" / "a")], lambda directory: None)
    with pytest.raises(DirectoryError, match="no data directory can be used"):
        logs.open_directories()


def test_the_last_run_was_clean_only_if_it_was_in_all_directories(tmp_path: Path) -> None:
    logs_at(tmp_path / "a", tmp_path / "b").close(1)
    assert logs_at(tmp_path / "a", tmp_path / "b").was_clean
    logs_at(tmp_path / "a", tmp_path / "b").close(1)
    (tmp_path / "b" / ".kafka_cleanshutdown").unlink()
    assert not logs_at(tmp_path / "a", tmp_path / "b").was_clean


# ---- creating, loading, deleting ----


def test_a_new_log_has_a_folder_with_its_topics_id(tmp_path: Path) -> None:
    logs = logs_at(tmp_path)
    log = logs.create(CLICKS, ID, config_of())
    assert logs.create(CLICKS, ID, config_of()) is log
    assert logs.get(CLICKS) is log
    assert log.directory == str(tmp_path / "clicks-0")
    assert (tmp_path / "clicks-0" / "partition.metadata").read_text() == f"version: 0\ntopic_id: {uuid_text(ID)}"
    assert logs.read_topic_id(log.directory) == ID
    assert len(logs) == 1


def test_new_logs_go_where_there_are_fewest(tmp_path: Path) -> None:
    logs = logs_at(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    for n in range(7):
        logs.create(("t", n), ID, config_of())
    assert sorted(directory.log_count for directory in logs.directories) == [2, 2, 3]
    logs = logs_at(tmp_path / "a", tmp_path / "b", tmp_path / "c")
    assert sorted(directory.log_count for directory in logs.directories) == [2, 2, 3]


@pytest.mark.parametrize("is_clean", [True, False])
def test_logs_are_loaded_as_they_were(tmp_path: Path, is_clean: bool) -> None:
    logs = logs_at(tmp_path / "a", tmp_path / "b")
    for n, partition in enumerate([CLICKS, VIEWS, ("other", 1)]):
        log = logs.create(partition, ID, config_of())
        for value in range(n + 2):
            append(log, data_batch(b"%d" % value))
        log.advance_high_watermark(n + 1)
    write_checkpoints(logs)
    if is_clean:
        logs.close(1)
    again = logs_at(tmp_path / "a", tmp_path / "b")
    assert sorted(partition for partition, _ in again) == sorted([CLICKS, VIEWS, ("other", 1)])
    for n, partition in enumerate([CLICKS, VIEWS, ("other", 1)]):
        log = again.get(partition)
        assert log is not None
        assert values_from(log, 0) == [b"%d" % value for value in range(n + 2)]
        assert log.high_watermark == n + 1
        before, after = logs.directory_of(partition), again.directory_of(partition)
        assert before is not None
        assert after is not None
        assert before.path == after.path


def test_a_high_watermark_beyond_the_end_is_brought_back(tmp_path: Path) -> None:
    logs = logs_at(tmp_path)
    append(logs.create(CLICKS, ID, config_of()), data_batch(b"a"))
    (tmp_path / HIGH_WATERMARKS).write_text("0\n1\nclicks 0 100\n")
    log = logs_at(tmp_path).get(CLICKS)
    assert log is not None
    assert log.high_watermark == 1


def test_after_a_crash_decided_transactions_below_the_high_watermark_are_readable(tmp_path: Path) -> None:
    logs = logs_at(tmp_path)
    log = logs.create(CLICKS, ID, config_of())
    append(log, txn_batch(1, b"a"))
    append(log, marker_batch(1, is_commit=True))
    log.advance_high_watermark(2)
    assert log.last_stable_offset == 2
    write_checkpoints(logs)
    again = logs_at(tmp_path).get(CLICKS)
    assert again is not None
    assert again.high_watermark == 2
    assert again.last_stable_offset == 2


def test_a_folder_whose_topic_nobody_knows_is_set_aside(tmp_path: Path) -> None:
    logs = logs_at(tmp_path)
    append(logs.create(CLICKS, ID, config_of()), data_batch(b"a"))
    logs.create(VIEWS, OTHER_ID, config_of())
    asked: list[tuple[TopicPartition, bytes | None]] = []

    def is_expected(partition: TopicPartition, topic_id: bytes | None) -> bool:
        asked.append((partition, topic_id))
        return topic_id == OTHER_ID

    again = Logs(Storage(), ManualClock(), [str(tmp_path)], unexpected)
    again.open_directories()
    again.load(lambda topic: config_of(), is_expected, 1)
    assert sorted(asked) == [(CLICKS, ID), (VIEWS, OTHER_ID)]
    assert [partition for partition, _ in again] == [VIEWS]
    [stray] = [entry for entry in tmp_path.iterdir() if entry.name.endswith("-stray")]
    assert stray.name.startswith("clicks-0.")
    assert "00000000000000000000.log" in files_in(stray)
    third = logs_at(tmp_path)
    assert [partition for partition, _ in third] == [VIEWS]
    assert stray.exists()


def test_topics_that_others_look_after_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "__cluster_metadata-0").mkdir()
    logs = Logs(Storage(), ManualClock(), [str(tmp_path)], unexpected)
    logs.open_directories()
    logs.load(
        lambda topic: config_of(), lambda partition, topic_id: False, 1, except_for=frozenset({"__cluster_metadata"})
    )
    assert (tmp_path / "__cluster_metadata-0").is_dir()
    assert len(logs) == 0


def test_deleting_renames_the_folder_now_and_removes_it_later(tmp_path: Path) -> None:
    logs = logs_at(tmp_path)
    log = logs.create(CLICKS, ID, config_of(file_delete_delay_ms=1234))
    append(log, data_batch(b"a"))
    part = log.read(0, 1000, 1)
    (pending,) = logs.delete([CLICKS])
    assert pending is not None
    assert pending.delay_ms == 1234
    assert logs.get(CLICKS) is None
    assert logs.directories[0].log_count == 0
    [doomed] = [entry for entry in tmp_path.iterdir() if entry.is_dir()]
    prefix, _, suffix = doomed.name.partition(".")
    assert prefix == "clicks-0"
    assert suffix.endswith("-delete")
    assert len(bytes.fromhex(suffix.removesuffix("-delete"))) == 16
    assert part is not None
    assert len(part.read()) == len(part)  # whoever reads it still can
    pending.run()
    assert not doomed.exists()
    assert logs.delete([CLICKS]) == []


def test_a_deleted_topics_name_can_be_used_again_at_once(tmp_path: Path) -> None:
    logs = logs_at(tmp_path)
    append(logs.create(CLICKS, ID, config_of()), data_batch(b"old"))
    (pending,) = logs.delete([CLICKS])
    log = logs.create(CLICKS, OTHER_ID, config_of())
    append(log, data_batch(b"new"))
    assert pending is not None
    pending.run()
    assert values_from(log, 0) == [b"new"]
    assert logs.read_topic_id(log.directory) == OTHER_ID


def test_what_was_noted_down_of_a_deleted_topic_does_not_harm_one_of_the_same_name(tmp_path: Path) -> None:
    logs = logs_at(tmp_path)
    log = logs.create(CLICKS, ID, config_of())
    for _ in range(10):
        append(log, data_batch(b"old"))
    log.advance_high_watermark(10)
    log.advance_start(8)
    flush(log)
    write_checkpoints(logs)
    logs.delete([CLICKS])
    log = logs.create(CLICKS, OTHER_ID, config_of())
    append(log, data_batch(b"new"))
    flush(log)
    again = logs_at(tmp_path).get(CLICKS)  # after a crash: no new checkpoint was written
    assert again is not None
    assert values_from(again, 0) == [b"new"]
    assert again.start_offset == 0


@pytest.mark.parametrize("number", [0, 999_999_999])
def test_the_longest_topic_names_can_be_deleted(tmp_path: Path, number: int) -> None:
    logs = logs_at(tmp_path)
    partition = ("x" * (249 if number == 0 else 245), number)
    logs.create(partition, ID, config_of())
    (pending,) = logs.delete([partition])
    assert pending is not None
    [path] = pending.paths
    assert len(os.path.basename(path)) <= 255
    assert os.path.basename(path).endswith("-delete")
    assert os.path.isdir(path)


def test_a_flush_that_meets_a_deletion_is_no_disk_failure(tmp_path: Path) -> None:
    logs = logs_at(tmp_path)
    log = logs.create(CLICKS, ID, config_of())
    append(log, txn_batch(1, b"a"))
    append(log, marker_batch(1, is_commit=False))
    log.roll()
    append(log, data_batch(b"b"))
    job = log.flush_job()
    (pending,) = logs.delete([CLICKS])
    job.run()
    assert pending is not None
    pending.run()
    job.run()


def test_a_flush_that_meets_retention_leaves_no_files_behind(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    logs = logs_at(tmp_path, clock=clock)
    log = logs.create(CLICKS, ID, config_of(retention_ms=1000))
    append(log, data_batch(b"a"))
    log.roll()
    append(log, data_batch(b"b", timestamp=T0 + 10**6))
    log.advance_high_watermark(2)
    job = log.flush_job()
    clock.advance_ms(10**6)
    for pending in logs.delete_old_segments(clock.time_ms()):
        pending.run()
    job.run()
    assert [name for name in files_in(tmp_path / "clicks-0") if name.startswith("0" * 20)] == []


# ---- failures ----


def test_a_failing_directory_takes_only_its_own_logs_with_it(tmp_path: Path) -> None:
    failed: list[LogDirectory] = []
    logs = logs_at(tmp_path / "a", tmp_path / "b", on_failure=failed.append)
    for n in range(4):
        append(logs.create(("t", n), ID, config_of()), data_batch(b"a"))
    broken = logs.directories[0]
    lost = [partition for partition, _ in logs if logs.directory_of(partition) is broken]
    assert len(lost) == 2
    broken.fail(OSError(errno.EIO, "gone"))
    assert failed == [broken]
    assert [partition for partition, _ in logs if partition in lost] == []
    assert len(logs) == 2
    for _, log in logs:
        append(log, data_batch(b"b"))
    logs.create(("t", 9), ID, config_of())
    assert logs.directory_of(("t", 9)) is logs.directories[1]
    assert [checkpoint.directory for checkpoint in logs.checkpoints(RECOVERY_POINTS)] == [logs.directories[1]]
    assert logs.delete([lost[0]]) == []
    logs.close(1)
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()


def test_without_an_online_directory_nothing_can_be_created(tmp_path: Path) -> None:
    logs = logs_at(tmp_path, on_failure=lambda directory: None)
    logs.directories[0].fail(OSError(errno.EIO, "gone"))
    with pytest.raises(ApiError) as caught:
        logs.create(CLICKS, ID, config_of())
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


class BrokenAt(Storage):
    """Refuses all changes below a path, from the moment it is set."""

    broken = ""

    def _check(self, path: str) -> None:
        if self.broken and path.startswith(self.broken):
            raise OSError(errno.EROFS, "read-only file system")

    def open(self, path: str, *, create: bool = False):  # type: ignore[no-untyped-def]
        self._check(path)
        return super().open(path, create=create)

    def make_directory(self, path: str) -> None:
        self._check(path)
        super().make_directory(path)

    def rename(self, old: str, new: str) -> None:
        self._check(old)
        super().rename(old, new)


def test_a_folder_that_cannot_be_made_takes_its_directory_offline(tmp_path: Path) -> None:
    failed: list[LogDirectory] = []
    storage = BrokenAt()
    logs = logs_at(tmp_path / "a", tmp_path / "b", storage=storage, on_failure=failed.append)
    storage.broken = str(tmp_path / "a")
    with pytest.raises(ApiError) as caught:
        logs.create(CLICKS, ID, config_of())
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert failed == [logs.directories[0]]
    logs.create(CLICKS, ID, config_of())
    assert logs.directory_of(CLICKS) is logs.directories[1]


def test_a_log_that_cannot_be_opened_takes_its_directory_offline(tmp_path: Path) -> None:
    logs = logs_at(tmp_path / "a", tmp_path / "b")
    for n in range(4):
        append(logs.create(("t", n), ID, config_of()), data_batch(b"a"))
    failed: list[LogDirectory] = []
    storage = BrokenAt()
    again = Logs(storage, ManualClock(), [str(tmp_path / "a"), str(tmp_path / "b")], failed.append)
    again.open_directories()
    storage.broken = str(tmp_path / "a" / "t")
    again.load(lambda topic: config_of(), lambda partition, topic_id: True, 2)
    assert failed == [again.directories[0]]
    assert len(again) == 2


def test_a_deletion_that_fails_takes_the_directory_offline(tmp_path: Path) -> None:
    failed: list[LogDirectory] = []
    storage = BrokenAt()
    logs = logs_at(tmp_path, storage=storage, on_failure=failed.append)
    logs.create(CLICKS, ID, config_of())
    storage.broken = str(tmp_path)
    assert logs.delete([CLICKS]) == []
    assert failed == logs.directories


def test_retention_that_fails_in_one_directory_goes_on_in_the_others(tmp_path: Path) -> None:
    failed: list[LogDirectory] = []
    storage, clock = BrokenAt(), ManualClock(T0)
    logs = logs_at(tmp_path / "a", tmp_path / "b", storage=storage, clock=clock, on_failure=failed.append)
    for n in range(2):
        log = logs.create(("t", n), ID, config_of(retention_ms=1000, file_delete_delay_ms=77))
        append(log, data_batch(b"a"))
        log.advance_high_watermark(1)
    clock.advance_ms(10**6)
    storage.broken = str(tmp_path / "a")
    [pending] = logs.delete_old_segments(clock.time_ms())
    assert failed == [logs.directories[0]]
    assert pending.delay_ms == 77
    assert all(path.startswith(str(tmp_path / "b")) for path in pending.paths)
    pending.run()
    assert not any(os.path.exists(path) for path in pending.paths)


def test_a_directory_that_fails_at_the_end_does_not_keep_the_others_from_closing(tmp_path: Path) -> None:
    failed: list[LogDirectory] = []
    storage = BrokenAt()
    logs = logs_at(tmp_path / "a", tmp_path / "b", storage=storage, on_failure=failed.append)
    storage.broken = str(tmp_path / "a")
    logs.close(1)
    assert not (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert (tmp_path / "b" / ".kafka_cleanshutdown").exists()
    assert open_in_another_process(tmp_path / "b") == "opened"


# ---- housekeeping ----


def test_checkpoints_hold_one_offset_per_log_and_directory(tmp_path: Path) -> None:
    logs = logs_at(tmp_path / "a", tmp_path / "b")
    for n in range(2):
        log = logs.create(("t", n), ID, config_of())
        for _ in range(4 + n):
            append(log, data_batch(b"a"))
        log.advance_high_watermark(3 + n)
        if n == 0:
            flush(log)
            log.advance_start(2)
    write_checkpoints(logs)
    of = {("t", n): logs.directory_of(("t", n)) for n in range(2)}
    first, second = (Path(directory.path) for directory in of.values() if directory is not None)
    assert (first / RECOVERY_POINTS).read_text() == "0\n1\nt 0 4\n"
    assert (first / HIGH_WATERMARKS).read_text() == "0\n1\nt 0 3\n"
    assert (first / START_OFFSETS).read_text() == "0\n1\nt 0 2\n"
    assert (second / RECOVERY_POINTS).read_text() == "0\n1\nt 1 0\n"
    assert (second / HIGH_WATERMARKS).read_text() == "0\n1\nt 1 4\n"
    assert (second / START_OFFSETS).read_text() == "0\n0\n"  # it starts with its first segment


def test_logs_are_due_for_a_flush_after_their_time(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    logs = logs_at(tmp_path, clock=clock)
    slow = logs.create(("slow", 0), ID, config_of(flush_ms=1000))
    fast = logs.create(("fast", 0), OTHER_ID, config_of(flush_ms=10))
    clock.advance_ms(5000)
    assert logs.due_for_flush() == []  # nothing was written
    append(slow, data_batch())
    append(fast, data_batch())
    assert logs.due_for_flush() == [slow, fast]
    flush(slow)
    flush(fast)
    for log in (slow, fast):
        append(log, data_batch())
    clock.advance_ms(10)
    assert logs.due_for_flush() == [fast]


def test_silent_producers_are_forgotten_in_all_logs(tmp_path: Path) -> None:
    clock = ManualClock(T0)
    logs = logs_at(tmp_path, clock=clock)
    for n in range(2):
        append(logs.create(("t", n), ID, config_of()), data_batch(producer=1, sequence=0))
    clock.advance_ms(1000)
    logs.remove_expired_producers(1001)
    assert [len(log.producers.producers) for _, log in logs] == [1, 1]
    logs.remove_expired_producers(1000)
    assert [len(log.producers.producers) for _, log in logs] == [0, 0]


def test_closing_makes_everything_durable_and_marks_it(tmp_path: Path) -> None:
    logs = logs_at(tmp_path)
    log = logs.create(CLICKS, ID, config_of())
    for n in range(5):
        append(log, data_batch(b"%d" % n))
    log.advance_high_watermark(4)
    records = records_from(log, 0)
    logs.close(17)
    assert (tmp_path / RECOVERY_POINTS).read_text() == "0\n1\nclicks 0 5\n"
    assert (tmp_path / HIGH_WATERMARKS).read_text() == "0\n1\nclicks 0 4\n"
    assert open_in_another_process(tmp_path) == "opened"
    (tmp_path / ".kafka_cleanshutdown").write_text(json.dumps({"version": 0, "brokerEpoch": 17}))
    again = logs_at(tmp_path)
    assert again.was_clean
    assert again.directories[0].broker_epoch == 17
    loaded = again.get(CLICKS)
    assert loaded is not None
    assert records_from(loaded, 0) == records
    assert loaded.recovery_point == 5


def test_each_topic_is_opened_with_its_own_settings(tmp_path: Path) -> None:
    logs = logs_at(tmp_path)
    logs.create(CLICKS, ID, config_of())
    again = Logs(Storage(), ManualClock(), [str(tmp_path)], unexpected)
    again.open_directories()
    asked: list[str] = []

    def config(topic: str) -> TopicConfig:
        asked.append(topic)
        return config_of(segment_bytes=12345)

    again.load(config, lambda partition, topic_id: True, 1)
    log = again.get(CLICKS)
    assert log is not None
    assert log.config.segment_bytes == 12345
    assert asked == ["clicks"]
