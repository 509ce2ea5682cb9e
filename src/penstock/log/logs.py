"""All logs of a broker, over all its data directories."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from operator import attrgetter

from penstock.clock import Clock
from penstock.config.topic import TopicConfig
from penstock.log import names
from penstock.log.checkpoints import TopicPartition
from penstock.log.directory import (
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    START_OFFSETS,
    DirectoryError,
    LogDirectory,
    MetaProperties,
)
from penstock.log.log import Log
from penstock.log.recovery import open_log
from penstock.log.storage import Storage
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.types import random_uuid, uuid_from_text, uuid_text

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PendingDeletion:
    """Files that are out of use and can be removed after a delay. `run` may be called in a thread."""

    delay_ms: int
    paths: tuple[str, ...]
    _storage: Storage

    def run(self) -> None:
        for path in self.paths:
            if os.path.isdir(path):
                self._storage.remove_directory(path)
            else:
                self._storage.remove(path)


@dataclass(frozen=True)
class PendingCheckpoint:
    """Offsets to note down in a directory. `run` may be called in a thread."""

    directory: LogDirectory
    name: str
    offsets: dict[TopicPartition, int]

    def run(self) -> None:
        self.directory.write_checkpoint(self.name, self.offsets)


class Logs:
    """The logs of this broker by topic and partition.

    Owned by the event loop's thread. Slow work is handed out as objects with a `run` method.
    """

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        paths: Iterable[str],
        on_directory_failure: Callable[[LogDirectory], None],
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._on_directory_failure = on_directory_failure
        self.directories = [LogDirectory(storage, path, self._directory_failed) for path in paths]
        self._logs: dict[TopicPartition, Log] = {}
        self._directory_of: dict[TopicPartition, LogDirectory] = {}

    def __iter__(self) -> Iterator[tuple[TopicPartition, Log]]:
        return iter(list(self._logs.items()))

    def __len__(self) -> int:
        return len(self._logs)

    def get(self, partition: TopicPartition) -> Log | None:
        return self._logs.get(partition)

    def directory_of(self, partition: TopicPartition) -> LogDirectory | None:
        return self._directory_of.get(partition)

    @property
    def online_directories(self) -> list[LogDirectory]:
        return [directory for directory in self.directories if not directory.is_offline]

    # ---- starting ----

    def open_directories(self) -> MetaProperties | None:
        """Lock all directories; returns whose data they hold, None if they are all new.

        A directory that cannot be read starts offline. Raises DirectoryError if none is left, or if they disagree.
        """
        for directory in self.directories:
            try:
                directory.open()
            except OSError as error:
                directory.fail(error)
        if not self.online_directories:
            failures = "; ".join(directory.failure for directory in self.directories)
            raise DirectoryError(f"no data directory can be used: {failures}")
        metas = {directory.path: directory.meta for directory in self.online_directories if directory.meta is not None}
        if len({(meta.cluster_id, meta.broker_id) for meta in metas.values()}) > 1:
            owners = ", ".join(f"{path}: broker {meta.broker_id} of {meta.cluster_id}" for path, meta in metas.items())
            raise DirectoryError(f"the data directories belong to different brokers ({owners})")
        return next(iter(metas.values()), None)

    def write_identity(self, cluster_id: str, broker_id: int) -> None:
        """Mark directories that are new as this broker's."""
        for directory in self.online_directories:
            if directory.meta is None:
                directory.write_meta(MetaProperties(cluster_id, broker_id, random_uuid()))

    @property
    def was_clean(self) -> bool:
        """Whether the last run ended in good order in all directories."""
        return all(directory.was_clean for directory in self.online_directories)

    def load(
        self,
        config_of: Callable[[str], TopicConfig],
        is_expected: Callable[[TopicPartition, bytes | None], bool],
        threads_per_directory: int,
        except_for: frozenset[str] = frozenset(),
    ) -> None:
        """Open all logs. A folder whose topic does not exist (any more) is set aside, not deleted.

        `is_expected` is asked with the topic id in the folder, None if it has none.
        """
        for directory in self.online_directories:
            jobs = []
            for partition, path in directory.partition_directories().items():
                if partition[0] in except_for:
                    continue
                if not is_expected(partition, self.read_topic_id(path)):
                    self._set_aside(path)
                    continue
                jobs.append((partition, path, config_of(partition[0])))
            self._load_directory(directory, jobs, threads_per_directory)

    def _load_directory(
        self, directory: LogDirectory, jobs: list[tuple[TopicPartition, str, TopicConfig]], threads: int
    ) -> None:
        def load_one(job: tuple[TopicPartition, str, TopicConfig]) -> tuple[TopicPartition, Log]:
            partition, path, config = job
            return partition, self._open_log(directory, partition, path, config, is_clean=directory.was_clean)

        try:
            if directory.was_clean or threads == 1 or len(jobs) < 2:
                loaded = [load_one(job) for job in jobs]
            else:  # recovery waits for the disk; opening clean logs does not
                with ThreadPoolExecutor(threads) as pool:
                    loaded = list(pool.map(load_one, jobs))
        except OSError as error:
            directory.fail(error)
            return
        for partition, log in loaded:
            self._add(partition, log, directory)

    def _open_log(
        self,
        directory: LogDirectory,
        partition: TopicPartition,
        path: str,
        config: TopicConfig,
        *,
        is_clean: bool,
        unsynced_files: Sequence[str] = (),
    ) -> Log:
        log = open_log(
            storage=self._storage,
            directory=path,
            config=config,
            clock=self._clock,
            is_clean=is_clean,
            start_offset=directory.start_offsets.get(partition, 0),
            recovery_point=directory.recovery_points.get(partition, 0),
            on_failure=directory.fail,
            unsynced_files=unsynced_files,
        )
        high_watermark = directory.high_watermarks.get(partition, log.start_offset)
        log.high_watermark = max(log.start_offset, min(high_watermark, log.end_offset))
        log.producers.high_watermark_reached(log.high_watermark)
        return log

    def read_topic_id(self, path: str) -> bytes | None:
        """The id of the topic that a partition's folder belongs to; None if it does not say (any more)."""
        marker = os.path.join(path, names.PARTITION_METADATA)
        try:
            text = self._storage.read(marker).decode(errors="replace")
        except FileNotFoundError:
            return None
        for line in text.splitlines():
            key, _, value = line.partition(":")
            if key == "topic_id":
                try:
                    return uuid_from_text(value.strip())
                except ValueError as error:
                    logger.warning("%s is damaged: %s", marker, error)
        return None

    def _set_aside(self, path: str) -> None:
        new_path = _doomed_name(path, names.STRAY_DIRECTORY)
        logger.warning("no topic is known for %s; setting it aside as %s", path, os.path.basename(new_path))
        self._storage.rename(path, new_path)

    # ---- creating and deleting ----

    def create(self, partition: TopicPartition, topic_id: bytes, config: TopicConfig) -> Log:
        """The log of a partition; a new one in the directory with the fewest logs if there is none yet.

        Nothing is synced here: the metadata log knows the topic, so an empty folder that a power cut takes away is made
        anew. The first flush of the log makes the folder durable with the data.
        """
        log = self._logs.get(partition)
        if log is not None:
            return log
        candidates = self.online_directories
        if not candidates:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "no data directory is online")
        directory = min(candidates, key=lambda candidate: candidate.log_count)
        path = directory.path_of(f"{partition[0]}-{partition[1]}")
        try:
            self._storage.make_directory(path)
            marker = os.path.join(path, names.PARTITION_METADATA)
            file = self._storage.open(marker, create=True)
            file.truncate(0)
            file.write_at(f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode(), 0)
            log = self._open_log(directory, partition, path, config, is_clean=True, unsynced_files=(marker,))
        except OSError as error:
            directory.fail(error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self._add(partition, log, directory)
        return log

    def _add(self, partition: TopicPartition, log: Log, directory: LogDirectory) -> None:
        self._logs[partition] = log
        self._directory_of[partition] = directory
        directory.log_count += 1
        log.before_truncation = lambda offset: self._before_truncation(partition, offset)

    def _before_truncation(self, partition: TopicPartition, offset: int) -> None:
        """What will be written behind `offset` is not compacted. Noted first: a crash must not leave it unnoticed."""
        directory = self._directory_of[partition]
        if directory.cleaner_offsets.get(partition, 0) > offset:
            directory.cleaner_offsets[partition] = offset
            directory.write_cleaner_offsets()

    def delete(self, partitions: Iterable[TopicPartition]) -> list[PendingDeletion]:
        """Take logs out of use; their folders are renamed now and removed later.

        What is noted down of them is forgotten at once: it must not be taken for that of a later topic of that name.
        """
        pending = [deletion for partition in partitions if (deletion := self._delete_one(partition)) is not None]
        if pending:
            self._write_checkpoints()
        return pending

    def _delete_one(self, partition: TopicPartition) -> PendingDeletion | None:
        log = self._logs.pop(partition, None)
        directory = self._directory_of.pop(partition, None)
        if log is None or directory is None:
            return None
        directory.log_count -= 1
        for offsets in (
            directory.recovery_points,
            directory.start_offsets,
            directory.high_watermarks,
            directory.cleaner_offsets,
        ):
            offsets.pop(partition, None)
        log.close_files()
        if directory.is_offline:
            return None
        doomed = _doomed_name(log.directory, names.DELETE_DIRECTORY)
        try:
            self._storage.rename(log.directory, doomed)
        except OSError as error:
            directory.fail(error)
            return None
        log.move(doomed)
        return PendingDeletion(log.config.file_delete_delay_ms, (doomed,), self._storage)

    def _directory_failed(self, directory: LogDirectory) -> None:
        for partition in [key for key, owner in self._directory_of.items() if owner is directory]:
            self._logs.pop(partition).close_files()
        self._on_directory_failure(directory)

    # ---- housekeeping ----

    def delete_old_segments(self, now_ms: int) -> list[PendingDeletion]:
        """Apply retention to all logs."""
        pending = []
        for partition, log in self:
            try:
                paths = log.delete_old_segments(now_ms)
            except OSError as error:
                self._directory_of[partition].fail(error)
                continue
            if paths:
                pending.append(PendingDeletion(log.config.file_delete_delay_ms, tuple(paths), self._storage))
        return pending

    def due_for_flush(self) -> list[Log]:
        """Logs with unsynced records that are older than flush.ms."""
        now_ms = self._clock.time_ms()
        return [log for _, log in self if log.unflushed_records and now_ms - log.last_flush_ms >= log.config.flush_ms]

    def remove_expired_producers(self, expiration_ms: int) -> None:
        now_ms = self._clock.time_ms()
        for _, log in self:
            log.producers.remove_expired(now_ms, expiration_ms)

    def checkpoints(self, name: str) -> list[PendingCheckpoint]:
        """What to note down now, for each directory."""
        offset_of = {
            RECOVERY_POINTS: attrgetter("recovery_point"),
            START_OFFSETS: attrgetter("start_offset"),
            HIGH_WATERMARKS: attrgetter("high_watermark"),
        }[name]
        by_directory: dict[LogDirectory, dict[TopicPartition, int]] = {d: {} for d in self.online_directories}
        for partition, log in self:
            directory = self._directory_of[partition]
            if directory in by_directory and (name != START_OFFSETS or log.start_offset > log.segments[0].base_offset):
                by_directory[directory][partition] = offset_of(log)
        return [PendingCheckpoint(directory, name, offsets) for directory, offsets in by_directory.items()]

    def _write_checkpoints(self) -> None:
        for name in (RECOVERY_POINTS, START_OFFSETS, HIGH_WATERMARKS):
            for checkpoint in self.checkpoints(name):
                try:
                    checkpoint.run()
                except OSError as error:
                    checkpoint.directory.fail(error)
        for directory in self.online_directories:
            try:
                directory.write_cleaner_offsets()
            except OSError as error:
                directory.fail(error)

    # ---- the end ----

    def close(self, broker_epoch: int) -> None:
        """Bring all logs to disk and mark the directories as cleanly shut down."""
        for partition, log in self:
            directory = self._directory_of[partition]
            if directory.is_offline:
                continue
            try:
                log.close()
            except OSError as error:
                directory.fail(error)
        self._write_checkpoints()
        for directory in self.directories:
            try:
                if not directory.is_offline:
                    directory.mark_clean(broker_epoch)
            except OSError as error:
                directory.fail(error)
            directory.release()


def _doomed_name(path: str, suffix: str) -> str:
    """A partition folder's name with a mark, cut so that it stays a valid file name."""
    parent, name = os.path.split(path)
    mark = f".{uuid.uuid4().hex}{suffix}"
    topic, dash, number = name.rpartition("-")
    room = 255 - len(mark) - len(dash) - len(number)
    return os.path.join(parent, f"{topic[:room]}{dash}{number}{mark}")
