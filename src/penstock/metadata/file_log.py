"""The metadata log of a single broker: a local log, in the folder and format of Kafka's own."""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Sequence
from typing import Any

from penstock.background import Background
from penstock.clock import Clock
from penstock.config.topic import TopicConfig
from penstock.log.group_commit import GroupCommit
from penstock.log.log import Log
from penstock.log.producer_state import Origin
from penstock.log.recovery import open_log
from penstock.log.storage import Storage
from penstock.log.validation import own_batch
from penstock.metadata import kraft
from penstock.metadata.image import Image, snapshot_records
from penstock.metadata.log import Listener, NotController
from penstock.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    decode_record,
)
from penstock.wire._kernel import parse_header
from penstock.wire.batch import decode_records
from penstock.wire.errors import WireError

logger = logging.getLogger(__name__)

_LOG_CONFIG = TopicConfig(retention_ms=-1, retention_bytes=-1, max_message_bytes=2**31 - 1)


class FileMetadataLog:
    """Metadata records in `__cluster_metadata-0`, next to the partitions.

    One process owns the folder (the data directory is locked), so its start begins a new controller epoch and nobody
    can contest it. An append is acknowledged after it is synced; appends that wait together share a sync. From time to
    time the image is written as a snapshot, and the log before it is dropped.
    """

    def __init__(
        self,
        *,
        storage: Storage,
        directory: str,
        node_id: int,
        clock: Clock,
        background: Background,
        bytes_between_snapshots: int,
    ) -> None:
        self._storage = storage
        self._directory = os.path.join(directory, kraft.DIRECTORY)
        self._node_id = node_id
        self._clock = clock
        self._background = background
        self._bytes_between_snapshots = bytes_between_snapshots
        self._bytes_since_snapshot = 0
        self._is_snapshotting = False
        self._listener: Listener | None = None
        self._pending: deque[tuple[int, Sequence[Any]]] = deque()  # (end offset, records) that wait for their sync
        self._failure: OSError | None = None
        self.epoch = -1
        self.image = Image()
        self._log = self._open()
        self._commits = GroupCommit(self._log, background, self._apply_synced)

    # ---- opening ----

    def _open(self) -> Log:
        self._storage.make_directory(self._directory)
        start_offset = self._load_snapshot()
        log = open_log(
            storage=self._storage,
            directory=self._directory,
            config=_LOG_CONFIG,
            clock=self._clock,
            is_clean=False,
            start_offset=0,
            recovery_point=0,
            on_failure=self._failed,
        )
        if log.end_offset < start_offset:
            log.truncate_fully(start_offset)
        if log.start_offset > start_offset:
            raise WireError(f"{self._directory}: records from {start_offset} to {log.start_offset} are missing")
        self._replay(log)
        return log

    def _load_snapshot(self) -> int:
        """Begin with the newest snapshot that can be read; returns the offset at which the log continues."""
        found = filter(None, map(kraft.parse_snapshot_name, self._storage.names(self._directory)))
        for end_offset, epoch in sorted(found, reverse=True):
            path = os.path.join(self._directory, kraft.snapshot_name(end_offset, epoch))
            try:
                records = kraft.decode_snapshot(self._storage.read(path))
            except WireError as error:
                logger.warning("ignoring the damaged snapshot %s: %s", path, error)
                continue
            self.image, _ = Image().apply(records, end_offset - 1, epoch)
            self.epoch = epoch
            return end_offset
        return 0

    def _replay(self, log: Log) -> None:
        records: list[Any] = []
        transaction_start: int | None = None
        for segment in log.segments:
            for position, batch in segment.batches():
                self.epoch = max(self.epoch, batch.leader_epoch)
                if batch.is_control or batch.last_offset <= self.image.offset:
                    continue
                data = segment.file.read_at(batch.size, position)
                for entry in decode_records(data, parse_header(data)):
                    record = decode_record(entry.value)
                    if isinstance(record, BeginTransactionRecord):
                        transaction_start = len(records)
                    elif isinstance(record, EndTransactionRecord):
                        transaction_start = None
                    elif isinstance(record, AbortTransactionRecord):
                        del records[transaction_start:]
                        transaction_start = None
                    else:
                        records.append(record)
        self._has_open_transaction = transaction_start is not None
        if transaction_start is not None:
            del records[transaction_start:]
        self.image, _ = self.image.apply(records, log.end_offset - 1, self.epoch)

    def begin_term(self) -> int:
        """Become the controller: begin a new epoch. Returns it."""
        self.epoch += 1
        self._storage.replace(
            os.path.join(self._directory, kraft.QUORUM_STATE), kraft.quorum_state(self._node_id, self.epoch)
        )
        self._write(kraft.leader_change_batch(self._node_id, self._clock.time_ms()))
        if self._has_open_transaction:  # else what follows would be taken for part of it
            self._write(kraft.records_batch([AbortTransactionRecord(reason="never ended")], self._clock.time_ms()))
            self._has_open_transaction = False
        return self.epoch

    # ---- appending ----

    @property
    def next_offset(self) -> int:
        """The offset that the next record will have."""
        return self._log.end_offset

    def listen(self, listener: Listener) -> None:
        self._listener = listener

    async def append(self, records: Sequence[Any], epoch: int) -> None:
        if epoch != self.epoch:
            raise NotController(f"epoch {epoch} is not the current one, {self.epoch}")
        if self._failure is not None:
            raise self._failure
        self._write(kraft.records_batch(records, self._clock.time_ms()))
        self._pending.append((self._log.end_offset, records))
        await self._commits.wait(self._log.end_offset)

    def _write(self, data: bytearray) -> None:
        self._log.append(own_batch(data), self.epoch, Origin.COORDINATOR)
        self._bytes_since_snapshot += len(data)

    def _apply_synced(self) -> None:
        synced = self._log.recovery_point
        self._log.advance_high_watermark(synced)
        while self._pending and self._pending[0][0] <= synced:
            end_offset, records = self._pending.popleft()
            self.image, delta = self.image.apply(records, end_offset - 1, self.epoch)
            if self._listener is not None:
                self._listener(self.image, delta)
        if self._bytes_since_snapshot >= self._bytes_between_snapshots and not self._is_snapshotting:
            self._begin_snapshot()

    def _failed(self, error: OSError) -> None:
        self._failure = error
        logger.critical("the metadata log in %s failed: %s", self._directory, error)

    @property
    def failure(self) -> OSError | None:
        """Why no metadata can be written any more; None while all is well."""
        return self._failure

    # ---- snapshots ----

    def _begin_snapshot(self) -> None:
        self._is_snapshotting = True
        self._bytes_since_snapshot = 0
        image = self.image
        now_ms = self._clock.time_ms()
        name = kraft.snapshot_name(image.offset + 1, image.epoch)

        def write() -> None:
            content = b"".join(kraft.encode_snapshot(snapshot_records(image), image.epoch, now_ms))
            self._storage.replace(os.path.join(self._directory, name), content)

        self._background.run(write).add_done_callback(lambda done: self._snapshot_done(done.exception(), image, name))

    def _snapshot_done(self, error: BaseException | None, image: Image, name: str) -> None:
        self._is_snapshotting = False
        if error is not None:
            logger.error("cannot write the metadata snapshot %s: %s", name, error)
            return
        logger.info("wrote the metadata snapshot %s", name)
        self._log.roll()
        self._log.advance_start(image.offset + 1)
        doomed = self._log.delete_old_segments()
        doomed += [
            os.path.join(self._directory, other)
            for other in self._storage.names(self._directory)
            if kraft.parse_snapshot_name(other) and other < name
        ]
        for path in doomed:
            self._storage.remove(path)

    def close(self) -> None:
        if self._failure is None:
            self._log.close()
