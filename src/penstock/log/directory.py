"""One data directory: who it belongs to, and what the last run noted down about the logs in it.

Files: `meta.properties` (cluster, broker and directory id), `.lock`, `.kafka_cleanshutdown` (the last run ended in good
order), `recovery-point-offset-checkpoint`, `log-start-offset-checkpoint`, `replication-offset-checkpoint` (high
watermarks), `cleaner-offset-checkpoint` (how far logs are compacted), and one folder per partition. All of them as
Kafka has them, so a directory can move between the two.
"""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.config.properties import parse_properties
from penstock.log import names
from penstock.log.checkpoints import CorruptCheckpoint, TopicPartition, read_offsets, write_offsets
from penstock.log.storage import Storage
from penstock.wire.types import random_uuid, uuid_from_text, uuid_text

logger = logging.getLogger(__name__)

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
START_OFFSETS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
META_PROPERTIES = "meta.properties"
LOCK = ".lock"

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


class DirectoryError(Exception):
    """A data directory that cannot be used. The message is for the user."""


@dataclass(frozen=True)
class MetaProperties:
    """Whose data this is."""

    cluster_id: str
    broker_id: int
    directory_id: bytes


class LogDirectory:
    """A data directory, locked for this process. It fails as a whole: after one I/O error nothing in it is trusted."""

    def __init__(self, storage: Storage, path: str, on_failure: Callable[[LogDirectory], None]) -> None:
        self._storage = storage
        self.path = os.path.abspath(path)
        self._on_failure = on_failure
        self.log_count = 0
        self.is_offline = False
        self.failure = ""
        self._lock_fd = -1
        self.meta: MetaProperties | None = None
        self.was_clean = False
        self.broker_epoch = -1  # noted by the last clean shutdown
        self.recovery_points: dict[TopicPartition, int] = {}
        self.start_offsets: dict[TopicPartition, int] = {}
        self.high_watermarks: dict[TopicPartition, int] = {}
        self.cleaner_offsets: dict[TopicPartition, int] = {}  # up to where logs are compacted; kept up to date
        self._cleaner_offsets_lock = threading.Lock()

    def path_of(self, name: str) -> str:
        return os.path.join(self.path, name)

    # ---- opening ----

    def open(self) -> None:
        """Lock the directory and read what the last run left. Raises DirectoryError or OSError."""
        self._storage.make_directory(self.path)
        self._lock()
        self.meta = self._read_meta()
        self.was_clean = self._take_clean_shutdown_marker()
        self.recovery_points = self._read_checkpoint(RECOVERY_POINTS)
        self.start_offsets = self._read_checkpoint(START_OFFSETS)
        self.high_watermarks = self._read_checkpoint(HIGH_WATERMARKS)
        self.cleaner_offsets = self._read_checkpoint(CLEANER_OFFSETS)

    def _lock(self) -> None:
        fd = os.open(self.path_of(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise DirectoryError(
                f"{self.path} is in use by another broker; stop it or choose another directory"
            ) from None
        self._lock_fd = fd

    def _read_meta(self) -> MetaProperties | None:
        path = self.path_of(META_PROPERTIES)
        try:
            text = self._storage.read(path).decode()
        except FileNotFoundError:
            return None
        values = parse_properties(text)
        try:
            directory_id = values.get("directory.id")
            return MetaProperties(
                values["cluster.id"],
                int(values["node.id"] if "node.id" in values else values["broker.id"]),
                uuid_from_text(directory_id) if directory_id else random_uuid(),
            )
        except (KeyError, ValueError) as error:
            raise DirectoryError(f"{path} is damaged: {error}") from error

    def write_meta(self, meta: MetaProperties) -> None:
        lines = [
            "#",
            f"cluster.id={meta.cluster_id}",
            f"directory.id={uuid_text(meta.directory_id)}",
            f"node.id={meta.broker_id}",
            "version=1",
            "",
        ]
        self._storage.replace(self.path_of(META_PROPERTIES), "\n".join(lines).encode())
        self.meta = meta

    def _take_clean_shutdown_marker(self) -> bool:
        """Read and remove the marker: if this run crashes, the next one must not find it."""
        path = self.path_of(CLEAN_SHUTDOWN)
        try:
            content = self._storage.read(path)
        except FileNotFoundError:
            return False
        try:
            self.broker_epoch = int(json.loads(content)["brokerEpoch"])
        except (ValueError, KeyError, TypeError):
            self.broker_epoch = -1  # an older Kafka's marker is empty
        self._storage.remove(path)
        self._storage.sync_directory(self.path)
        return True

    def _read_checkpoint(self, name: str) -> dict[TopicPartition, int]:
        try:
            return read_offsets(self._storage, self.path_of(name))
        except CorruptCheckpoint as error:
            logger.warning("ignoring a damaged checkpoint: %s", error)
            return {}

    def partition_directories(self) -> dict[TopicPartition, str]:
        """The folders of partitions. Folders that wait for their removal are removed now."""
        found: dict[TopicPartition, str] = {}
        for name in self._storage.names(self.path):
            path = self.path_of(name)
            if not os.path.isdir(path):
                continue
            if name.endswith(names.DELETE_DIRECTORY):
                self._storage.remove_directory(path)
                continue
            partition = names.parse_partition_directory(name)
            if partition is not None and not name.endswith(names.STRAY_DIRECTORY):
                found[partition] = path
        return found

    # ---- running ----

    def fail(self, error: OSError) -> None:
        """Take the directory offline. Called from the event loop's thread only."""
        if self.is_offline:
            return
        self.is_offline = True
        self.failure = str(error)
        advice = " Make room on the disk, then restart the broker." if error.errno in _NO_ROOM else ""
        logger.error(
            "data directory %s failed and is offline until the broker is restarted: %s.%s", self.path, error, advice
        )
        self._on_failure(self)

    def write_checkpoint(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        write_offsets(self._storage, self.path_of(name), offsets)

    def write_cleaner_offsets(self) -> None:
        """Note down how far logs are compacted. May be called in threads: whoever is last writes what is true then."""
        with self._cleaner_offsets_lock:
            offsets = dict(self.cleaner_offsets)
            if offsets or self._storage.exists(self.path_of(CLEANER_OFFSETS)):
                self.write_checkpoint(CLEANER_OFFSETS, offsets)

    # ---- closing ----

    def mark_clean(self, broker_epoch: int) -> None:
        """Note that all logs were closed in good order. The last thing a broker does here."""
        content = json.dumps({"version": 0, "brokerEpoch": broker_epoch})
        self._storage.replace(self.path_of(CLEAN_SHUTDOWN), content.encode())

    def release(self) -> None:
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
            self._lock_fd = -1
