"""One compaction of one log: reads closed segments, writes new ones. Runs in a thread.

Nothing that is read here changes, and nothing that is written here is used before the log takes it over
(`Log.replace_segments`). So the thread and the event loop share nothing but files.
"""

from __future__ import annotations

import array
import threading
from collections.abc import Callable, Sequence

from penstock.log import names
from penstock.log._cleaner import FULL, SPECIAL, OffsetMap, Sieve
from penstock.log.cleaned_transactions import CleanedTransactions
from penstock.log.cleaning_plan import CleanedSegment, CleaningPlan
from penstock.log.pace import Pace
from penstock.log.segment import Segment
from penstock.log.storage import File, Storage
from penstock.log.txn_index import encode_aborted
from penstock.wire._kernel import HEADER_BYTES, Batch, build_batch, parse_header
from penstock.wire.batch import DELETE_HORIZON, decode_records
from penstock.wire.compression import compress, decompress
from penstock.wire.errors import CorruptBatch
from penstock.wire.record import control_type

# What a position in an index can hold, and Kafka's files are limited to.
_SEGMENT_BYTES_MAX = 0x7FFFFFFF


class CleaningAborted(Exception):
    """The compaction was told to stop. What it wrote is gone; the log is as it was."""


class CleaningFailed(Exception):
    """The log cannot be compacted. The message says why."""


class Cleaner:
    """Compacts one log: first `build_map`, then `clean` for each group of segments, in order."""

    def __init__(
        self,
        storage: Storage,
        plan: CleaningPlan,
        *,
        map_bytes: int,
        load_factor: float,
        buffer_bytes: int,
        pace: Pace,
        stop: threading.Event,
    ) -> None:
        self._storage = storage
        self._plan = plan
        self._map_bytes = map_bytes
        self._load_factor = load_factor
        self._buffer = bytearray(max(buffer_bytes, HEADER_BYTES))
        self._pace = pace
        self._stop = stop
        self._map: OffsetMap | None = None
        self._transactions = CleanedTransactions(())

    # ---- which record is the last of its key ----

    def build_map(self) -> int:
        """Find the last offset of every key of the dirty part; returns the offset up to which the map covers it.

        That is the end of the dirty part, or less if there are more keys than the map has room for.
        """
        plan = self._plan
        offset_map = OffsetMap(self._map_bytes, self._load_factor)
        aborted = plan.aborted_transactions()
        transactions = CleanedTransactions(txn for txn in aborted if txn.last_offset >= plan.first_offset)
        dirty = [s for s, end in self._with_ends() if end > plan.first_offset]
        offset_map.latest_offset = plan.first_offset - 1
        position = plan.first_position
        for segment in dirty:
            if not self._add_to_map(offset_map, transactions, segment, position):
                break
            position = 0
        else:
            offset_map.latest_offset = plan.end_offset - 1
        if offset_map.latest_offset < plan.first_offset:
            raise CleaningFailed(
                f"the keys of the batch at offset {plan.first_offset} do not fit into "
                f"log.cleaner.dedupe.buffer.size ({self._map_bytes} bytes per thread); make it larger"
            )
        self._map = offset_map
        self._transactions = CleanedTransactions(aborted)
        return offset_map.latest_offset + 1

    def _with_ends(self) -> list[tuple[Segment, int]]:
        """The segments, each with the offset where the next one begins."""
        segments = self._plan.segments
        ends = [segment.base_offset for segment in segments[1:]] + [self._plan.end_offset]
        return list(zip(segments, ends, strict=True))

    def _add_to_map(
        self, offset_map: OffsetMap, transactions: CleanedTransactions, segment: Segment, position: int
    ) -> bool:
        first_offset = self._plan.first_offset

        def add_plain(at: int, end: int) -> tuple[int, int]:
            return offset_map.add_batches(self._buffer, at, end, first_offset)

        def add_special(batch: Batch) -> bool:
            if batch.is_control:
                transactions.is_marker_obsolete(batch.producer_id, batch.last_offset, self._control_type(batch))
            elif not (batch.is_transactional and transactions.is_aborted(batch.producer_id, batch.last_offset)):
                payload = decompress(batch.codec, self._bytes_of(batch)[HEADER_BYTES:])
                if not offset_map.add_records(payload, batch.count, batch.base_offset, first_offset):
                    return False
            if batch.last_offset >= first_offset:
                offset_map.latest_offset = batch.last_offset
            return True

        return self._walk(segment, position, add_plain, add_special, lambda: None)

    # ---- what stays ----

    def clean(self, group: Sequence[Segment]) -> CleanedSegment:
        """Write what stays of some segments, which follow each other, into one new segment."""
        assert self._map is not None, "the map comes first"
        plan = self._plan
        base_offset = group[0].base_offset
        paths = tuple(names.segment_path(plan.directory, base_offset, suffix) for suffix in names.SEGMENT_SUFFIXES)
        sieve = Sieve(
            self._map,
            base_offset=base_offset,
            now_ms=plan.now_ms,
            delete_retention_ms=plan.config.delete_retention_ms,
            empty_kept=self._empty_kept(),
            index_interval_bytes=plan.config.index_interval_bytes,
            index_bytes_max=plan.config.segment_index_bytes,
        )
        try:
            self._fill(sieve, group, paths)
            self._storage.sync_directory(plan.directory)
        except BaseException:
            for path in paths:
                self._storage.remove(path + names.CLEANED)
            raise
        return CleanedSegment(
            base_offset, tuple(group), paths, sieve.size, sieve.records_read, sieve.records_kept, plan.truncations
        )

    def discard(self, cleaned: CleanedSegment) -> None:
        """Remove new files that did not find their place."""
        for path in cleaned.paths:
            self._storage.remove(path + names.CLEANED)

    def _empty_kept(self) -> bytes:
        """The last offsets of batches that stay even without records.

        The last batch of each producer: it holds the sequence number that the next one must follow. And the last batch
        before the end: else nobody could tell how far the log went.
        """
        offsets = {last.last_offset for last in self._plan.producers.values() if last.last_offset is not None}
        return array.array("q", sorted({*offsets, self._plan.end_offset - 1})).tobytes()

    def _fill(self, sieve: Sieve, group: Sequence[Segment], paths: Sequence[str]) -> None:
        """Write and sync the new files. They are as old as the last of those they replace."""
        log_path, offset_index_path, time_index_path, txn_index_path = (path + names.CLEANED for path in paths)
        log_file = self._new_file(log_path)
        written = 0

        def write() -> None:
            nonlocal written
            content = sieve.take()
            log_file.write_at(content, written)
            written += len(content)
            if written > _SEGMENT_BYTES_MAX:
                raise CleaningFailed(f"segment {group[0].base_offset} would grow beyond {_SEGMENT_BYTES_MAX} bytes")
            self._wait(len(content))

        for segment in group:
            self._walk(
                segment,
                0,
                lambda at, end: sieve.sift(self._buffer, at, end),
                lambda batch: self._sift_special(sieve, batch),
                write,
            )
        log_file.sync()
        offset_index, time_index = sieve.finish()
        self._write_whole(offset_index_path, offset_index)
        self._write_whole(time_index_path, time_index)
        retained = self._transactions.take_retained()
        if retained:
            self._write_whole(txn_index_path, b"".join(encode_aborted(txn) for txn in retained))
        # By the open file: retention may have given it another name meanwhile.
        self._storage.set_modified_ms(log_path, group[-1].file.modified_ms())

    def _new_file(self, path: str) -> File:
        file = self._storage.open(path, create=True)
        file.truncate(0)
        return file

    def _write_whole(self, path: str, content: bytes) -> None:
        file = self._new_file(path)
        file.write_at(content, 0)
        file.sync()

    def _sift_special(self, sieve: Sieve, batch: Batch) -> bool:
        """Let pass what stays of a batch that is compressed, or part of a transaction, or the end of one."""
        content = self._bytes_of(batch)
        is_obsolete = self._is_obsolete(batch)
        are_records_kept = not is_obsolete
        if batch.is_control:  # readers may still need it to know how its transaction ended: it goes as deletions do
            has_expired = batch.attributes & DELETE_HORIZON and batch.base_timestamp <= self._plan.now_ms
            are_records_kept = not (is_obsolete and has_expired)
        is_kept_empty = sieve.is_kept_empty(batch.last_offset) or self._is_last_marker(batch)
        if not are_records_kept:
            sieve.count_dropped(batch.count)
            if is_kept_empty:
                sieve.pass_empty(content)
            return True
        payload = decompress(batch.codec, content[HEADER_BYTES:])
        kept = sieve.sift_records(content, payload, sets_horizon=is_obsolete, keeps_all=batch.is_control)
        if kept is None:
            sieve.pass_batch(content)
        elif kept[0] > 0:
            sieve.pass_batch(_rebuilt(batch, *kept))
        elif is_kept_empty:
            sieve.pass_empty(content)
        return True

    def _is_obsolete(self, batch: Batch) -> bool:
        if batch.is_control:
            kind = self._control_type(batch)
            return self._transactions.is_marker_obsolete(batch.producer_id, batch.last_offset, kind)
        return batch.is_transactional and self._transactions.is_aborted(batch.producer_id, batch.last_offset)

    def _is_last_marker(self, batch: Batch) -> bool:
        """Whether a marker is all that tells the epoch of its producer: it keeps older ones out."""
        last = self._plan.producers.get(batch.producer_id)
        return batch.is_control and last is not None and last.last_offset is None and last.epoch == batch.producer_epoch

    # ---- reading ----

    def _walk(
        self,
        segment: Segment,
        position: int,
        handle_plain: Callable[[int, int], tuple[int, int]],
        handle_special: Callable[[Batch], bool],
        after_buffer: Callable[[], None],
    ) -> bool:
        """Go through the batches of a segment from a position on; False if a handler had no room for more."""
        while position < segment.size:
            end = self._read(segment, position)
            at = 0
            while True:
                try:
                    at, reason = handle_plain(at, end)
                except CorruptBatch as error:
                    raise CorruptBatch(f"{segment.file.path}, read from {position} on: {error}") from error
                if reason == FULL:
                    return False
                if reason != SPECIAL:
                    break
                batch = parse_header(self._buffer, at)
                if not handle_special(batch):
                    return False
                at += batch.size
            after_buffer()
            if at == 0:
                self._make_room(segment, position, end)
            position += at
        return True

    def _read(self, segment: Segment, position: int) -> int:
        if self._stop.is_set():
            raise CleaningAborted
        with memoryview(self._buffer) as buffer:
            count = segment.file.read_into(buffer[: segment.size - position], position)
        if count == 0:
            raise CorruptBatch(f"{segment.file.path} is shorter than it was")
        self._wait(count)
        return count

    def _make_room(self, segment: Segment, position: int, end: int) -> None:
        """No whole batch was read: read the next one into a larger buffer, or find that it is torn."""
        size = parse_header(self._buffer, 0).size if end >= HEADER_BYTES else HEADER_BYTES
        if size > segment.size - position or size <= end:
            raise CorruptBatch(f"{segment.file.path} holds a torn batch at {position}")
        self._buffer = bytearray(size)

    def _wait(self, count: int) -> None:
        """Keep to log.cleaner.io.max.bytes.per.second."""
        delay_s = self._pace.delay_s(count)
        if delay_s > 0 and self._stop.wait(delay_s):
            raise CleaningAborted

    def _bytes_of(self, batch: Batch) -> memoryview:
        return memoryview(self._buffer)[batch.position : batch.position + batch.size]

    def _control_type(self, batch: Batch) -> int | None:
        records = decode_records(self._buffer, batch)
        return control_type(records[0].key) if records else None


def _rebuilt(
    batch: Batch, count: int, base_timestamp: int, max_timestamp: int, has_new_horizon: bool, payload: bytes
) -> bytearray:
    """A batch with some of its records; everything else is as it was."""
    is_dated_by_records = not (batch.is_log_append_time or batch.is_control)
    return build_batch(
        compress(batch.codec, payload),
        base_offset=batch.base_offset,
        last_offset_delta=batch.last_offset_delta,
        count=count,
        attributes=batch.attributes | (DELETE_HORIZON if has_new_horizon else 0),
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp if is_dated_by_records else batch.max_timestamp,
        leader_epoch=batch.leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )
