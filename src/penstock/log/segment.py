"""One segment of a log: a file of record batches and the indexes into it."""

from __future__ import annotations

import mmap
import random
from collections.abc import Callable, Iterator
from typing import NamedTuple

from penstock.clock import Clock
from penstock.config.topic import TopicConfig
from penstock.log import names
from penstock.log._tail import UNWRITTEN_BYTES_MAX, Tail
from penstock.log.index_file import RELATIVE_OFFSET_MAX
from penstock.log.offset_index import OffsetIndex
from penstock.log.storage import Buffer, File, FileSlice, Storage
from penstock.log.time_index import TimeIndex
from penstock.log.txn_index import TxnIndex
from penstock.wire import _kernel
from penstock.wire._kernel import HEADER_BYTES, Batch
from penstock.wire.batch import decode_records
from penstock.wire.errors import ApiError, CorruptBatch, ErrorCode
from penstock.wire.record import Record

# How much is read at once while looking for a batch: a little more than the usual distance of index entries.
_SEARCH_WINDOW_BYTES = 8192


class Damage(NamedTuple):
    """A part of a log file that is not what was written: from one good batch to the next, by position and by offset."""

    position: int
    end_position: int
    first_offset: int
    end_offset: int


# A timestamp that has not been looked up yet.
_UNKNOWN = -2


class DamagedBatch(ApiError):
    """A batch that was asked for is known to be damaged."""

    def __init__(self, message: str, damage: Damage) -> None:
        super().__init__(ErrorCode.CORRUPT_MESSAGE, message)
        self.damage = damage


class Segment(Tail):
    """The batches from `base_offset` up to the next segment's base offset.

    Files: `<base offset>.log`, `.index` (offset -> position), `.timeindex` (timestamp -> offset), `.txnindex` (aborted
    transactions, if any). Batches are appended whole, in offset order, and never changed. Index entries are added about
    every `index.interval.bytes`. What may wait is written together with what comes after it, by `write_out`, or when
    somebody wants to have the file.

    Owned by its Log; only `sync_files` may run in another thread.
    """

    def __init__(
        self, storage: Storage, directory: str, base_offset: int, config: TopicConfig, clock: Clock, file: File
    ) -> None:
        self._storage = storage
        self._clock = clock
        self.base_offset = base_offset
        self._file = file
        self._write_at = file.write_at
        self.size = 0  # with `_unwritten`: the end of the segment, as long as it is not in the file
        self.offset_index = OffsetIndex(
            storage,
            names.segment_path(directory, base_offset, names.OFFSET_INDEX),
            base_offset,
            config.segment_index_bytes,
        )
        self.time_index = TimeIndex(
            storage,
            names.segment_path(directory, base_offset, names.TIME_INDEX),
            base_offset,
            config.segment_index_bytes,
        )
        self.txn_index = TxnIndex(storage, names.segment_path(directory, base_offset, names.TXN_INDEX))
        self._index_interval_bytes = config.index_interval_bytes
        self._bytes_since_index = 0
        self._max_timestamp = _UNKNOWN
        self._offset_of_max_timestamp = base_offset
        self._first_timestamp = _UNKNOWN
        self._offset_max = _UNKNOWN  # what the indexes can hold
        self.created_ms = 0
        self.damages: tuple[Damage, ...] = ()  # what a scrub found; never served
        self.limit(config)

    @classmethod
    def create(cls, storage: Storage, directory: str, base_offset: int, config: TopicConfig, clock: Clock) -> Segment:
        """A new, empty segment. Files that stand in its place are leftovers and are emptied."""
        file = storage.open(names.segment_path(directory, base_offset, names.LOG), create=True)
        file.truncate(0)
        if config.preallocate:
            file.truncate(config.segment_bytes)
        segment = cls(storage, directory, base_offset, config, clock, file)
        for index in (segment.offset_index, segment.time_index):
            storage.remove(index.path)
        segment.txn_index.reset()
        segment.created_ms = clock.time_ms()
        segment._max_timestamp = -1
        return segment

    @classmethod
    def open(cls, storage: Storage, directory: str, base_offset: int, config: TopicConfig, clock: Clock) -> Segment:
        """An existing segment. Reads nothing but the size of its file."""
        path = names.segment_path(directory, base_offset, names.LOG)
        segment = cls(storage, directory, base_offset, config, clock, storage.open(path))
        segment.size = segment.file.size()
        segment.created_ms = storage.modified_ms(path)
        return segment

    @property
    def file(self) -> File:
        """The log file, with everything in it."""
        if self._unwritten:
            self.write_out()
        return self._file

    # ---- writing ----

    def append(
        self, data: Buffer, last_offset: int, max_timestamp: int, *, is_forced: bool = False, may_wait: bool = False
    ) -> bool:
        """Add whole batches, unless size, age or what the indexes hold demands a new segment: then False.

        After a failed write the file is as before, or the error is raised again.
        """
        position = self.size
        size = len(data)
        if not is_forced and (
            position + size > self._bytes_max
            or (last_offset > self._offset_max and not self._can_index(last_offset))
            or (max_timestamp > self._timestamp_max and self._is_too_old(max_timestamp))
        ):
            return False
        if may_wait and len(self._unwritten) + size <= UNWRITTEN_BYTES_MAX:
            self._unwritten += data
        else:
            self.write_out()
            self._write(data, position)
        self.size = position + size
        if max_timestamp > self._max_timestamp:
            self._note_timestamp(max_timestamp, last_offset)
        if self._bytes_since_index > self._index_interval_bytes:
            self._add_index_entry(last_offset, position)
        self._bytes_since_index += size
        if position == 0:
            self._first_timestamp = max_timestamp
            self._limit_age()
        return True

    def _write(self, data: Buffer, position: int) -> None:
        try:
            self._write_at(data, position)
        except OSError:
            self._file.truncate(position)
            raise

    def write_out(self) -> None:
        """Write what has waited. If that fails, it waits on."""
        if self._unwritten:
            self._write(self._unwritten, self.size - len(self._unwritten))
            self._unwritten.clear()

    def _note_timestamp(self, timestamp: int, offset: int) -> None:
        if self._max_timestamp == _UNKNOWN:
            self._load_max_timestamp()
        if timestamp > self._max_timestamp:
            self._max_timestamp = timestamp
            self._offset_of_max_timestamp = offset

    def _add_index_entry(self, last_offset: int, position: int) -> None:
        self.offset_index.append(last_offset, position)
        self.time_index.maybe_append(self.max_timestamp, self._offset_of_max_timestamp)
        self._bytes_since_index = 0
        self._offset_max = _UNKNOWN

    def limit(self, config: TopicConfig) -> None:
        """Note when the segment is to end; the random part keeps segments from all ending at once."""
        self._bytes_max = config.segment_bytes
        jitter_ms = min(config.segment_jitter_ms, config.segment_age_max_ms)
        self._age_max_ms = config.segment_age_max_ms - (random.randrange(jitter_ms) if jitter_ms > 0 else 0)
        self._limit_age()

    def _limit_age(self) -> None:
        """Up to which timestamp no batch can make the segment too old; beyond it, `_is_too_old` knows."""
        if self.size and self._first_timestamp >= 0:
            self._timestamp_max = self._first_timestamp + self._age_max_ms
        else:
            self._timestamp_max = _UNKNOWN

    def _is_too_old(self, newest_timestamp: int) -> bool:
        """By its records' timestamps, else by the clock."""
        if self.size == 0:
            return False
        if self.first_timestamp >= 0:
            self._limit_age()
            return newest_timestamp > self._timestamp_max
        return self._clock.time_ms() - self.created_ms > self._age_max_ms

    def _can_index(self, offset: int) -> bool:
        """Whether the indexes can hold one more entry, and the offset is not too far from the base for one."""
        is_full = self.offset_index.is_full or self.time_index.is_full
        self._offset_max = _UNKNOWN if is_full else self.base_offset + RELATIVE_OFFSET_MAX
        return offset <= self._offset_max

    @property
    def first_timestamp(self) -> int:
        """The largest timestamp of the first batch; -1 if there is none."""
        if self._first_timestamp == _UNKNOWN:
            if self.size < HEADER_BYTES:
                return -1
            self._first_timestamp = _kernel.parse_header(self.file.read_at(HEADER_BYTES, 0)).max_timestamp
        return self._first_timestamp

    def become_inactive(self) -> None:
        """Complete the indexes and cut the files to their size: nothing is appended any more."""
        self.time_index.maybe_append(self.max_timestamp, self._offset_of_max_timestamp)
        self.offset_index.trim()
        self.time_index.trim()
        self.file.truncate(self.size)

    def truncate(self, offset: int) -> None:
        """Remove all batches that hold `offset` or higher ones."""
        found = self.locate(offset)
        self.offset_index.truncate(offset)
        self.time_index.truncate(offset)
        self.txn_index.truncate(offset)
        if found is not None:
            self.file.truncate(found[0])
            self.size = found[0]
        self._bytes_since_index = 0
        self._search_max_timestamp()
        if self.size == 0:
            self._first_timestamp = _UNKNOWN
            self._limit_age()

    def sync_files(self, *, with_indexes: bool) -> None:
        """Make durable what is in the files. Safe in another thread: it touches nothing that appends change."""
        self._file.sync()
        if with_indexes:
            self.offset_index.sync()
            self.time_index.sync()
            self.txn_index.sync()

    # ---- reading ----

    def locate(self, offset: int) -> tuple[int, int, int] | None:
        """(position, size, base offset) of the first batch whose last offset is at least `offset`."""
        position = self.offset_index.position_before(offset)
        end = self.size
        while position < self.size:
            if self.damages:
                position, end = self._around_damage(position, offset)
            window = self.file.read_at(min(_SEARCH_WINDOW_BYTES, end - position), position)
            at, size, base_offset = _kernel.seek(window, offset)
            if size:
                return position + at, size, base_offset
            if at == 0:
                raise CorruptBatch(f"{self.file.path} ends within a batch header at {position}")
            position += at
        return None

    def _around_damage(self, position: int, offset: int) -> tuple[int, int]:
        """Where the search for an offset goes on, and where the next damage begins. Raises if it is in a damaged part.

        Whoever asks for an offset just before a damaged batch that compaction left nothing at asks for that batch.
        """
        for damage in self.damages:
            if position < damage.position:
                return position, damage.position
            if position < damage.end_position:
                if offset < damage.end_offset:
                    raise DamagedBatch(
                        f"{self.file.path} is damaged at {damage.position}: offsets {damage.first_offset} to "
                        f"{damage.end_offset - 1} cannot be read",
                        damage,
                    )
                position = damage.end_position
        return position, self.size

    def end_position(self, upper_bound: int) -> int:
        """Where the batches below an offset end."""
        try:
            found = self.locate(upper_bound)
        except DamagedBatch as error:
            return error.damage.position
        return self.size if found is None else found[0]

    def read(self, offset: int, bytes_max: int, end_position: int, *, is_first: bool) -> FileSlice | None:
        """Bytes from the batch that holds `offset` on, up to `end_position`; None if nothing is there.

        `is_first` gives at least one whole batch, however small the limit is: else a reader could never get past it.
        """
        found = self.locate(offset)
        if found is None:
            return None
        position, first_size, _ = found
        if self.damages:
            end_position = min(end_position, self._around_damage(position, offset)[1])
        limit = max(bytes_max, first_size) if is_first else bytes_max
        size = min(limit, end_position - position)
        return FileSlice(self.file, position, max(size, 0))

    def batches(self, position: int = 0) -> Iterator[tuple[int, Batch]]:
        """Positions and headers of all batches from a position on. For rare uses: one read per batch."""
        while position < self.size:
            batch = _kernel.parse_header(self.file.read_at(HEADER_BYTES, position))
            if batch.size < HEADER_BYTES or position + batch.size > self.size:
                raise CorruptBatch(f"{self.file.path} holds a torn batch at {position}")
            yield position, batch
            position += batch.size

    def records_at(self, position: int, size: int) -> list[Record]:
        """The records of one batch."""
        data = self.file.read_at(size, position)
        return decode_records(data, _kernel.verify(data))

    def next_offset(self) -> int:
        """The offset behind the last batch: found from the last index entry on."""
        next_offset = self.base_offset
        for _, batch in self.batches(self.offset_index.position_before(0x7FFFFFFFFFFFFFFF)):
            next_offset = batch.next_offset
        return next_offset

    # ---- timestamps ----

    @property
    def max_timestamp(self) -> int:
        if self._max_timestamp == _UNKNOWN:
            self._load_max_timestamp()
        return self._max_timestamp

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the batch with the largest timestamp."""
        if self._max_timestamp == _UNKNOWN:
            self._load_max_timestamp()
        return self._offset_of_max_timestamp

    def _load_max_timestamp(self) -> None:
        """From the last entry of the time index: a segment that was closed or recovered always has one for it."""
        self._max_timestamp, self._offset_of_max_timestamp = self.time_index.last_entry()

    def _search_max_timestamp(self) -> None:
        """From the last entry of the time index, and the batches behind it."""
        self._load_max_timestamp()
        start = self.offset_index.position_before(self._offset_of_max_timestamp)
        for _, batch in self.batches(start):
            if batch.max_timestamp > self.max_timestamp:
                self._max_timestamp = batch.max_timestamp
                self._offset_of_max_timestamp = batch.last_offset

    def largest_timestamp(self) -> int:
        """The newest timestamp in the segment; if its records have none, when it was last written to."""
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return self._storage.modified_ms(self.file.path)

    def find_timestamp(self, timestamp: int, start_offset: int) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record at or after `start_offset` that is not older."""
        offset = max(self.time_index.offset_before(timestamp), start_offset)
        found = self.locate(offset)
        if found is None:
            return None
        for position, batch in self.batches(found[0]):
            if batch.max_timestamp >= timestamp:
                for record in self.records_at(position, batch.size):
                    if record.timestamp >= timestamp and record.offset >= start_offset:
                        return record.timestamp, record.offset, batch.leader_epoch
        return None

    def find_max_timestamp(self) -> tuple[int, int, int] | None:
        """(timestamp, offset, leader epoch) of the first record with the segment's largest timestamp."""
        found = self.locate(self.offset_of_max_timestamp)
        if found is None:
            return None
        position, size, _ = found
        for record in self.records_at(position, size):
            if record.timestamp == self.max_timestamp:
                header = _kernel.parse_header(self.file.read_at(HEADER_BYTES, position))
                return record.timestamp, record.offset, header.leader_epoch
        return None

    # ---- recovery and removal ----

    def scan(self, visit: Callable[[Batch, Buffer], None]) -> _kernel.SegmentScan:
        """Check all batches. `visit` sees each one that has a producer id or begins a leader epoch, with the bytes
        it lies in."""
        if self.size == 0:
            return _kernel.scan_segment(b"", self.base_offset, self._index_interval_bytes)
        with mmap.mmap(self.file.fd, self.size, prot=mmap.PROT_READ) as content:
            return _kernel.scan_segment(
                content, self.base_offset, self._index_interval_bytes, lambda batch: visit(batch, content)
            )

    def recover(self, visit: Callable[[Batch, Buffer], None]) -> _kernel.SegmentScan:
        """Cut off what is torn or corrupt and rebuild all indexes. Returns what was found."""
        self.txn_index.reset()
        scan = self.scan(visit)
        if scan.valid_bytes < self.size:
            self.file.truncate(scan.valid_bytes)
            self.size = scan.valid_bytes
        self._adopt_indexes(scan)
        return scan

    def rebuild_indexes(self) -> None:
        """Make the offset and time index anew from the log file, which is known to be good."""
        self._adopt_indexes(self.scan(lambda batch, buffer: None))

    def _adopt_indexes(self, scan: _kernel.SegmentScan) -> None:
        self.offset_index.rewrite(scan.offset_index)
        self.time_index.rewrite(scan.time_index)
        self._max_timestamp = scan.max_timestamp
        self._offset_of_max_timestamp = scan.offset_of_max_timestamp
        self.time_index.maybe_append(scan.max_timestamp, scan.offset_of_max_timestamp)
        self.offset_index.trim()
        self.time_index.trim()

    def index_sizes(self) -> tuple[int, int]:
        """The bytes of the offset index and the time index of a closed segment, without opening them."""
        return self._storage.size(self.offset_index.path), self._storage.size(self.time_index.path)

    def paths(self) -> list[str]:
        return [self._file.path, self.offset_index.path, self.time_index.path, self.txn_index.path]

    def mark_deleted(self) -> list[str]:
        """Give all files the name of deleted ones; returns the new names. Open readers are not disturbed."""
        self.close()
        deleted = []
        for path in self.paths():
            if self._storage.exists(path):
                self._storage.rename(path, path + names.DELETED)
                deleted.append(path + names.DELETED)
        return deleted

    def move(self, directory: str) -> None:
        """Follow the files to the folder they were moved to."""
        self._file.path = names.segment_path(directory, self.base_offset, names.LOG)
        self.offset_index.rename(names.segment_path(directory, self.base_offset, names.OFFSET_INDEX))
        self.time_index.rename(names.segment_path(directory, self.base_offset, names.TIME_INDEX))
        self.txn_index.path = names.segment_path(directory, self.base_offset, names.TXN_INDEX)

    def close(self) -> None:
        """Let go of the memory maps. The log file closes with its last reader."""
        self.offset_index.close()
        self.time_index.close()
