"""One partition's log: an ordered run of segments, of which the last one grows."""

from __future__ import annotations

import logging
import os
from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.clock import Clock
from penstock.config.definition import LONG_MAX
from penstock.config.topic import TopicConfig
from penstock.log import names, swap
from penstock.log._tail import LogEnd
from penstock.log.epochs import LeaderEpochs
from penstock.log.flush_job import FlushJob
from penstock.log.producer_replay import rebuild_producers, remove_snapshots_above, replay
from penstock.log.producer_state import CLIENT, Origin, ProducerState
from penstock.log.retention import SegmentAge, deletable_count
from penstock.log.segment import Segment
from penstock.log.storage import Buffer, FileSlice, Storage
from penstock.log.txn_index import AbortedTxn
from penstock.log.validation import BatchRules
from penstock.wire._kernel import Batch
from penstock.wire.batch import batches_in, decode_records
from penstock.wire.errors import ApiError, CorruptBatch, ErrorCode
from penstock.wire.record import EndTxnMarker, decode_end_txn_marker

if TYPE_CHECKING:
    from penstock.log.cleaning_plan import CleanedSegment
    from penstock.log.turn import Turn

logger = logging.getLogger(__name__)


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


class Log(LogEnd):
    """The log of one partition.

    Invariants: start_offset <= recovery_point <= end_offset, start_offset <= high_watermark <= end_offset; segments lie
    in offset order without overlap; what is below `recovery_point` is durable; records below `high_watermark` never
    change. Offsets may have gaps, left by compaction.

    Owned by one thread, the event loop's; nothing here waits. Slow work is handed out as jobs (`flush_job`,
    `delete_old_segments`) for somebody else to run. An I/O error is reported to `on_failure` and leaves the log
    unusable.
    """

    def __init__(
        self,
        *,
        storage: Storage,
        directory: str,
        config: TopicConfig,
        clock: Clock,
        segments: list[Segment],
        epochs: LeaderEpochs,
        producers: ProducerState,
        start_offset: int,
        end_offset: int,
        recovery_point: int,
        on_failure: Callable[[OSError], None],
        unsynced_files: Sequence[str] = (),
        has_unsynced_names: bool = False,
    ) -> None:
        self._storage = storage
        self.directory = directory
        self._clock = clock
        self._segments = segments
        self._active = segments[-1]
        self.reconfigure(config)
        self._bases = [segment.base_offset for segment in segments]
        self.epochs = epochs
        self.producers = producers
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.recovery_point = recovery_point
        self.high_watermark = start_offset
        self.last_flush_ms = clock.time_ms()
        self._on_failure = on_failure
        self._has_new_names = bool(unsynced_files) or has_unsynced_names
        self._unsynced_files = list(unsynced_files)
        self.turn = -1  # the last one in which it was appended to; `Turn` counts them
        self.is_waiting = False  # for the end of the turn, to be written
        self.truncations = 0  # how often records were taken back
        self.needs_flush = False  # a segment was completed, or flush.messages reached
        self.before_truncation: Callable[[int], None] = lambda offset: None

    @property
    def name(self) -> str:
        return os.path.basename(self.directory)

    @property
    def active(self) -> Segment:
        return self._active

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments)

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def last_stable_offset(self) -> int:
        """All transactions that began before it are decided and replicated."""
        unstable = self.producers.first_unstable_offset
        if unstable is None or unstable >= self.high_watermark:
            return self.high_watermark
        return max(unstable, self.start_offset)  # the transaction's first records may be deleted

    def reconfigure(self, config: TopicConfig) -> None:
        self.config = config
        self.rules = BatchRules.of(config)
        self.flush_messages = config.flush_messages
        self.is_synced_by_count = config.flush_messages != LONG_MAX
        self.is_synced_before_use = config.flush_messages == 1
        self._active.limit(config)

    # ---- appending ----

    # `append` itself, as a leader, is native (`LogEnd`).

    def _check_producer(self, batch: Batch, origin: Origin) -> EndTxnMarker | None:
        """Refuse a batch that its producer may not write, or mark it as a duplicate. Returns its marker, if any."""
        if batch.is_control:
            marker = decode_end_txn_marker(decode_records(batch.data, batch)[0])
            self.producers.check_marker(batch, marker, origin)
            return marker
        duplicate = self.producers.find_duplicate(batch) if origin is CLIENT else None
        if duplicate is not None:
            batch.base_offset = duplicate.first_offset
            batch.log_append_time = duplicate.timestamp
            batch.is_duplicate = True
        else:
            self.producers.check(batch, origin)
        return None

    def _note_producer(self, batch: Batch, marker: EndTxnMarker | None) -> None:
        """Remember what a producer has appended."""
        if marker is not None:
            self._add_aborted(self.producers.marker_appended(batch, marker))
        else:
            self.producers.appended(batch)

    def append_as_follower(self, records: Buffer) -> None:
        """Append whole batches as a leader sent them, with its offsets and epochs; a torn one at the end is ignored."""
        for batch in batches_in(records):
            if batch.base_offset < self.end_offset:
                raise ApiError(
                    ErrorCode.UNKNOWN_SERVER_ERROR,
                    f"{self.name}: batch at offset {batch.base_offset} is below the end offset {self.end_offset}",
                )
            data = memoryview(records)[batch.position : batch.position + batch.size]
            if batch.leader_epoch >= 0:
                self.epochs.assign(batch.leader_epoch, batch.base_offset)
            self._write(data, batch.base_offset, batch.last_offset, batch.max_timestamp)
            self._add_aborted(replay(self.producers, batch, records))

    def _write(
        self, data: Buffer, first_offset: int, last_offset: int, max_timestamp: int, turn: Turn | None = None
    ) -> None:
        may_wait = turn is not None and (self.is_waiting or turn.takes(self))
        try:
            if self.epochs.is_dirty:
                self.epochs.flush()
            if not self._active.append(data, last_offset, max_timestamp, may_wait=may_wait):
                self.roll(first_offset).append(data, last_offset, max_timestamp, is_forced=True)
        except OSError as error:
            raise self._failed(error) from error
        self.end_offset = last_offset + 1

    def write_out(self) -> bool:
        """Write what has waited for the end of the turn. False if that failed, as all writes of this log will."""
        self.is_waiting = False
        try:
            self._active.write_out()
        except OSError as error:
            self._failed(error)
            return False
        return True

    def _add_aborted(self, aborted: AbortedTxn | None) -> None:
        if aborted is not None:
            try:
                self.active.txn_index.append(aborted)
            except OSError as error:
                raise self._failed(error) from error

    def _failed(self, error: OSError) -> ApiError:
        self._on_failure(error)
        return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.name}: {error.strerror or error}")

    def roll(self, base_offset: int | None = None) -> Segment:
        """Begin a new segment at the end of the log."""
        if base_offset is None:
            base_offset = self.end_offset
        if self.active.base_offset == base_offset and self.active.size == 0:
            return self.active
        self.active.become_inactive()
        snapshot = names.segment_path(self.directory, base_offset, names.SNAPSHOT)
        self.producers.end_offset = base_offset
        self._write_snapshot(snapshot)
        segment = Segment.create(self._storage, self.directory, base_offset, self.config, self._clock)
        self._segments.append(segment)
        self._active = segment
        self._bases.append(base_offset)
        self._unsynced_files.append(snapshot)
        self._has_new_names = True
        self.needs_flush = True
        return segment

    def _write_snapshot(self, path: str) -> None:
        file = self._storage.open(path, create=True)
        file.truncate(0)
        file.write_at(self.producers.encode(), 0)

    # ---- reading ----

    def read(self, offset: int, bytes_max: int, upper_bound: int, *, is_first: bool = True) -> FileSlice | None:
        """Bytes of whole and torn batches from `offset` on, of batches below `upper_bound`; None if there are none.

        The slice begins with the batch that holds `offset`. `is_first` gives that batch whole even if it is larger than
        `bytes_max`.
        """
        if offset < self.start_offset or offset > self.end_offset:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name}: offset {offset} is not within [{self.start_offset}, {self.end_offset}]",
            )
        if offset >= upper_bound:
            return None
        number = self._segment_number(offset)
        while number < len(self._segments):
            segment = self._segments[number]
            if segment.base_offset >= upper_bound:
                return None
            try:
                end_position = self._end_position(number, upper_bound)
                found = segment.read(offset, bytes_max, end_position, is_first=is_first)
            except CorruptBatch as error:
                raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{self.name}: {error}") from error
            if found is not None:
                return found if found.size else None
            number += 1  # compaction left nothing at or above the offset in this segment
        return None

    def _end_position(self, number: int, upper_bound: int) -> int:
        """Where in a segment the batches below `upper_bound` end."""
        segment = self._segments[number]
        if upper_bound >= self.end_offset:
            return segment.size
        if number + 1 < len(self._segments) and self._bases[number + 1] <= upper_bound:
            return segment.size
        return segment.end_position(upper_bound)

    def _segment_number(self, offset: int) -> int:
        if offset >= self._bases[-1]:
            return len(self._bases) - 1
        return max(bisect_right(self._bases, offset) - 1, 0)

    def aborted_transactions(self, offset: int, data: FileSlice, upper_bound: int) -> list[AbortedTxn]:
        """The aborted transactions with records in a slice that `read` gave for `offset`."""
        number = self._segment_number(offset)
        end = self._slice_end_offset(number, data, upper_bound)
        aborted: list[AbortedTxn] = []
        for segment in self._segments[number:]:
            found, is_complete = segment.txn_index.collect(offset, end)
            aborted += found
            if is_complete:
                break
        return aborted

    def _slice_end_offset(self, number: int, data: FileSlice, upper_bound: int) -> int:
        while self._segments[number].file is not data.file:
            number += 1
        beyond = self._segments[number].offset_index.offset_after(data.position + data.size)
        if beyond is None:
            beyond = self._bases[number + 1] if number + 1 < len(self._bases) else self.end_offset
        return min(beyond, upper_bound)

    # ---- offsets by time ----

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record that is not older than `timestamp`."""
        for segment in self._segments:
            if segment.largest_timestamp() >= timestamp:
                try:
                    found = segment.find_timestamp(timestamp, self.start_offset)
                except CorruptBatch as error:
                    raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{self.name}: {error}") from error
                if found is not None:
                    return TimestampOffset(*found)
        return None

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record with the largest timestamp of the log."""
        newest = max(self._segments, key=lambda segment: segment.max_timestamp)
        try:
            found = newest.find_max_timestamp()
        except CorruptBatch as error:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{self.name}: {error}") from error
        return TimestampOffset(*found) if found is not None else None

    # ---- the start ----

    def advance_start(self, offset: int) -> bool:
        """Drop all records below `offset`; their segments go with the next retention check."""
        if offset > self.high_watermark:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.name}: cannot delete up to offset {offset}, beyond the high watermark {self.high_watermark}",
            )
        if offset <= self.start_offset:
            return False
        self.start_offset = offset
        self.recovery_point = max(self.recovery_point, offset)
        self.epochs.truncate_from_start(offset)
        logger.info("%s: the log starts at offset %d now", self.name, offset)
        return True

    def truncate(self, offset: int) -> None:
        """Remove all records at or above `offset`: they were not replicated by the leader that counts."""
        if offset >= self.end_offset:
            return
        logger.info("%s: truncating from offset %d to %d", self.name, self.end_offset, offset)
        self.before_truncation(offset)
        if offset <= self._bases[0]:
            self.truncate_fully(offset)
            return
        while self._bases[-1] >= offset:
            self._remove_now(self._segments.pop())
            self._bases.pop()
        self._active = self._segments[-1]
        self._active.truncate(offset)
        self._has_new_names = True
        self._reset_end(offset)

    def truncate_fully(self, offset: int) -> None:
        """Remove everything; the next record will have `offset`."""
        self.before_truncation(0)
        for segment in self._segments:
            self._remove_now(segment)
        self._active = Segment.create(self._storage, self.directory, offset, self.config, self._clock)
        self._segments = [self._active]
        self._bases = [offset]
        self.start_offset = offset
        self.high_watermark = offset
        self._has_new_names = True
        remove_snapshots_above(self._storage, self.directory, -1)
        self.epochs.clear()
        self._reset_end(offset)
        self.recovery_point = offset

    def _reset_end(self, offset: int) -> None:
        self.end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)
        self.high_watermark = min(self.high_watermark, offset)
        self.start_offset = min(self.start_offset, offset)
        self.truncations += 1
        self.epochs.truncate_from_end(offset)
        remove_snapshots_above(self._storage, self.directory, offset)
        self.producers = rebuild_producers(self._storage, self.directory, self._segments, offset)
        self.producers.high_watermark_reached(self.high_watermark)

    def _remove_now(self, segment: Segment) -> None:
        segment.close()
        for path in [*segment.paths(), names.segment_path(self.directory, segment.base_offset, names.SNAPSHOT)]:
            self._storage.remove(path)

    # ---- durability ----

    @property
    def unflushed_records(self) -> int:
        return self.end_offset - self.recovery_point

    @property
    def is_flush_due(self) -> bool:
        """Whether flush.messages asks for a flush."""
        return self.end_offset - self.recovery_point >= self.flush_messages

    def flush_job(self) -> FlushJob:
        """What to sync for everything appended so far to be durable. Report back with `flushed`."""
        failure = None
        try:
            self._active.write_out()
        except OSError as error:
            failure = error
        # A segment that ends just at the recovery point may have been completed after its last sync: then its indexes
        # are not durable yet.
        number = self._segment_number(self.recovery_point - 1)
        job = FlushJob(
            self.end_offset,
            self._storage,
            self.directory,
            tuple(self._segments[number:-1]),
            self.active,
            tuple(self._unsynced_files),
            self._has_new_names,
            self.truncations,
            failure,
        )
        self._unsynced_files = []
        self._has_new_names = False
        self.needs_flush = False
        return job

    def flushed(self, job: FlushJob) -> None:
        """A flush job is done: everything it covered is durable."""
        if job.truncations == self.truncations:
            self.recovery_point = max(self.recovery_point, min(job.end_offset, self.end_offset))
        self.last_flush_ms = self._clock.time_ms()

    def failed(self, error: OSError) -> None:
        """A job for this log could not be done: its directory cannot be trusted any more."""
        self._on_failure(error)

    # ---- removal of old data ----

    def delete_old_segments(self, now_ms: int | None = None) -> list[str]:
        """Take segments out of the log that retention allows to go; returns the files to remove after a delay.

        `now_ms` is a time that is to be trusted more than the clock.
        """
        ages = [
            SegmentAge(end, segment.size, segment.largest_timestamp())
            for segment, end in zip(self._segments, [*self._bases[1:], self.end_offset], strict=True)
        ]
        count, reason = deletable_count(
            ages,
            self.config,
            start_offset=self.start_offset,
            high_watermark=self.high_watermark,
            now_ms=self._clock.time_ms() if now_ms is None else now_ms,
        )
        if count == 0:
            return []
        if count == len(self._segments):
            self.roll()
        doomed = self._segments[:count]
        del self._segments[:count]
        del self._bases[:count]
        self.advance_start(self._bases[0])
        logger.info("%s: deleting %d segments up to offset %d: %s", self.name, count, self._bases[0], reason)
        deleted = []
        for segment in doomed:
            deleted += segment.mark_deleted()
            snapshot = names.segment_path(self.directory, segment.base_offset, names.SNAPSHOT)
            if self._storage.exists(snapshot):
                deleted.append(snapshot)
        return deleted

    def replace_segments(self, cleaned: CleanedSegment) -> list[str] | None:
        """Put the result of a compaction in the place of the segments it was made of.

        Returns the files to remove after a delay; None if the log has changed so that there is no such place any more.
        The new names are durable only after a sync of the folder.
        """
        first = bisect_right(self._bases, cleaned.base_offset) - 1
        end = first + len(cleaned.replaced)
        is_as_it_was = tuple(self._segments[first:end]) == cleaned.replaced and cleaned.truncations == self.truncations
        if first < 0 or not is_as_it_was or end >= len(self._segments):
            return None
        deleted = []
        try:
            swap.announce(self._storage, cleaned.paths)
            for segment in cleaned.replaced:
                deleted += segment.mark_deleted()
            swap.put_in_place(self._storage, cleaned.paths)
            segment = Segment.open(self._storage, self.directory, cleaned.base_offset, self.config, self._clock)
        except OSError as error:
            raise self._failed(error) from error
        self._segments[first:end] = [segment]
        self._bases[first:end] = [cleaned.base_offset]
        merged = [segment.base_offset for segment in cleaned.replaced[1:]]
        snapshots = (names.segment_path(self.directory, base, names.SNAPSHOT) for base in merged)
        return deleted + [path for path in snapshots if self._storage.exists(path)]

    # ---- the end ----

    def move(self, directory: str) -> None:
        """Follow the log's folder to its new name."""
        self.directory = directory
        self.epochs.path = os.path.join(directory, names.LEADER_EPOCHS)
        for segment in self._segments:
            segment.move(directory)

    def close(self) -> None:
        """Bring everything to disk, so that the next start finds a clean log."""
        if self.epochs.is_dirty:
            self.epochs.flush()
        self.producers.end_offset = self.end_offset
        self._write_snapshot(names.segment_path(self.directory, self.end_offset, names.SNAPSHOT))
        self.active.become_inactive()
        job = self.flush_job()
        job.run()
        self.active.sync_files(with_indexes=True)
        self.flushed(job)
        self.close_files()

    def close_files(self) -> None:
        """Let go of the files without writing anything: the directory has failed."""
        for segment in self._segments:
            segment.close()
