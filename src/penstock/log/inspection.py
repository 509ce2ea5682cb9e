"""Looking at a partition's files without a broker: what is in them, and whether they agree with each other.

Nothing is changed here. Files are read as they are, and a problem is told with its file and position; repairing is
what `recovery` does.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from penstock.log import names
from penstock.log.checkpoints import CorruptCheckpoint, read_lines
from penstock.log.producer_state import CorruptSnapshot, ProducerState
from penstock.log.storage import Storage
from penstock.log.txn_index import TxnIndex
from penstock.wire._kernel import HEADER_BYTES, Batch, parse_header, verify
from penstock.wire.batch import decode_records
from penstock.wire.errors import WireError

Buffer = Any  # anything with the buffer protocol

_OFFSET_ENTRY_BYTES = 8
_TIME_ENTRY_BYTES = 12
_MAGIC = 2


@dataclass(frozen=True)
class Problem:
    """Something that is wrong with a file, at a position in it."""

    path: str
    position: int
    text: str


@dataclass
class SegmentReport:
    """What was found in a segment's log file. `valid_bytes` is where the first problem of the log file is."""

    path: str
    base_offset: int
    size: int
    valid_bytes: int = 0
    batches: int = 0
    records: int = 0
    next_offset: int = 0
    max_timestamp: int = -1


@dataclass
class PartitionReport:
    path: str
    segments: list[SegmentReport] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def lost_bytes(self) -> int:
        """How much of the log a repair would cut off: everything behind the first batch that is not whole."""
        for number, segment in enumerate(self.segments):
            if segment.valid_bytes < segment.size:
                return segment.size - segment.valid_bytes + sum(later.size for later in self.segments[number + 1 :])
        return 0


@contextmanager
def mapped(path: str) -> Iterator[Buffer]:
    """A file's content, without reading it all into memory: segments are large."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            yield b""
            return
        yield mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)  # goes with the last who looks into it


def iterate_batches(content: Buffer, position: int = 0) -> Iterator[tuple[int, Batch]]:
    """Positions and headers of the batches in a log file, checksums verified. Raises WireError where one is bad."""
    while position < len(content):
        if len(content) - position < HEADER_BYTES:
            raise WireError(f"{len(content) - position} bytes are left, which is less than a batch's header")
        batch = parse_header(content, position)
        if batch.size < HEADER_BYTES or batch.magic != _MAGIC:
            raise WireError(f"there is no batch of format {_MAGIC} here (size {batch.size}, format {batch.magic})")
        if batch.size > len(content) - position:
            raise WireError(f"a batch of {batch.size} bytes is cut short: {len(content) - position} bytes are left")
        verify(content, position)
        yield position, batch
        position += batch.size


def offset_entries(content: bytes, base_offset: int) -> list[tuple[int, int]]:
    """(offset, position) of an offset index's entries. The zeros behind them, in one that is in use, are left out."""
    entries = []
    for at in range(0, len(content) - _OFFSET_ENTRY_BYTES + 1, _OFFSET_ENTRY_BYTES):
        relative = int.from_bytes(content[at : at + 4], "big", signed=True)
        position = int.from_bytes(content[at + 4 : at + 8], "big", signed=True)
        if relative == position == 0 and not any(content[at:]):
            break
        entries.append((base_offset + relative, position))
    return entries


def time_entries(content: bytes, base_offset: int) -> list[tuple[int, int]]:
    """(timestamp, offset) of a time index's entries."""
    entries = []
    for at in range(0, len(content) - _TIME_ENTRY_BYTES + 1, _TIME_ENTRY_BYTES):
        timestamp = int.from_bytes(content[at : at + 8], "big", signed=True)
        relative = int.from_bytes(content[at + 8 : at + 12], "big", signed=True)
        if timestamp == relative == 0 and not any(content[at:]):
            break
        entries.append((timestamp, base_offset + relative))
    return entries


def positions_behind(damaged: int, header: bytes, index: bytes) -> Iterator[int]:
    """Where the batch behind a damaged one may begin: by the size in its header if that is right, else by the index."""
    if len(header) >= HEADER_BYTES and (size := parse_header(header).size) >= HEADER_BYTES:
        yield damaged + size
    yield from (position for _, position in offset_entries(index, 0) if position > damaged)


class PartitionCheck:
    """Checks all files of one partition's folder against each other."""

    def __init__(self, storage: Storage, directory: str) -> None:
        self._storage = storage
        self._directory = directory
        self.report = PartitionReport(directory)

    def run(self) -> PartitionReport:
        present = self._storage.names(self._directory)
        bases = sorted(
            offset
            for name in present
            if name.endswith(names.LOG) and (offset := names.offset_in_name(name)) is not None
        )
        for number, base_offset in enumerate(bases):
            batches = self._check_log(base_offset, bases[number + 1] if number + 1 < len(bases) else None)
            is_active = number + 1 == len(bases)
            self._check_offset_index(base_offset, batches, is_active=is_active)
            self._check_time_index(base_offset, batches, is_active=is_active)
            self._check_txn_index(base_offset)
        self._check_rest(present, set(bases))
        return self.report

    def _problem(self, path: str, position: int, text: str) -> None:
        self.report.problems.append(Problem(path, position, text))

    def _check_log(self, base_offset: int, next_base: int | None) -> dict[int, Batch]:
        """The batches by position, as far as they are whole."""
        path = names.segment_path(self._directory, base_offset, names.LOG)
        with mapped(path) as content:
            return self._check_batches(content, SegmentReport(path, base_offset, len(content)), next_base)

    def _check_batches(self, content: Buffer, found: SegmentReport, next_base: int | None) -> dict[int, Batch]:
        self.report.segments.append(found)
        found.next_offset = found.base_offset
        batches: dict[int, Batch] = {}
        position: int | None = 0
        while position is not None:
            damaged = self._check_run(content, position, found, next_base, batches)
            position = None if damaged is None else self._next_good(content, damaged, found.base_offset)
        return batches

    def _check_run(
        self, content: Buffer, end: int, found: SegmentReport, next_base: int | None, batches: dict[int, Batch]
    ) -> int | None:
        """Check batches until one is damaged; returns where that is."""
        is_first_run = found.valid_bytes == end
        try:
            for position, batch in iterate_batches(content, end):
                if batch.base_offset < found.next_offset:
                    raise WireError(f"offset {batch.base_offset} follows {found.next_offset - 1}: it must be higher")
                if next_base is not None and batch.last_offset >= next_base:
                    raise WireError(f"offset {batch.last_offset} belongs into the next segment, which has {next_base}")
                found.records += len(decode_records(content, batch))
                batches[position] = batch
                found.batches += 1
                found.next_offset = batch.next_offset
                found.max_timestamp = max(found.max_timestamp, batch.max_timestamp)
                end = position + batch.size
                if is_first_run:
                    found.valid_bytes = end
        except WireError as error:
            self._problem(found.path, end, str(error))
            return end
        return None

    def _next_good(self, content: Buffer, damaged: int, base_offset: int) -> int | None:
        """Where the next batch behind a damaged one begins; None if none can be found."""
        path = names.segment_path(self._directory, base_offset, names.OFFSET_INDEX)
        index = self._storage.read(path) if self._storage.exists(path) else b""
        for position in positions_behind(damaged, content[damaged : damaged + HEADER_BYTES], index):
            try:
                verify(content, position)
            except WireError:
                continue
            return position
        return None

    def _read_index(self, base_offset: int, suffix: str, entry_bytes: int, *, is_active: bool) -> tuple[str, bytes]:
        """The path and content of an index. The one of the active segment is made when it gets its first entry."""
        path = names.segment_path(self._directory, base_offset, suffix)
        try:
            content = self._storage.read(path)
        except FileNotFoundError:
            if not is_active:
                self._problem(path, 0, "the index is missing")
            return path, b""
        if len(content) % entry_bytes:
            whole = len(content) - len(content) % entry_bytes
            self._problem(path, whole, f"{len(content)} bytes are no whole number of entries of {entry_bytes} bytes")
        return path, content

    def _check_offset_index(self, base_offset: int, batches: dict[int, Batch], *, is_active: bool) -> None:
        path, content = self._read_index(base_offset, names.OFFSET_INDEX, _OFFSET_ENTRY_BYTES, is_active=is_active)
        before = (-1, -1)
        for number, (offset, position) in enumerate(offset_entries(content, base_offset)):
            at = number * _OFFSET_ENTRY_BYTES
            batch = batches.get(position)
            if offset <= before[0] or position <= before[1]:
                self._problem(path, at, f"the entry ({offset}, {position}) does not ascend from {before}")
                return
            if batch is None:
                self._problem(
                    path, at, f"the entry for offset {offset} names position {position}, where no batch begins"
                )
                return
            if offset < batch.base_offset or offset >= self.report.segments[-1].next_offset:
                self._problem(
                    path, at, f"the entry for offset {offset} names a batch that begins at {batch.base_offset}"
                )
                return
            before = (offset, position)

    def _check_time_index(self, base_offset: int, batches: dict[int, Batch], *, is_active: bool) -> None:
        path, content = self._read_index(base_offset, names.TIME_INDEX, _TIME_ENTRY_BYTES, is_active=is_active)
        segment = self.report.segments[-1]
        ordered = list(batches.values())
        before = (-1, base_offset - 1)
        seen = 0
        largest = -1
        entries = time_entries(content, base_offset)
        for number, (timestamp, offset) in enumerate(entries):
            at = number * _TIME_ENTRY_BYTES
            if timestamp <= before[0] or offset < before[1]:
                self._problem(path, at, f"the entry ({timestamp}, {offset}) does not ascend from {before}")
                return
            if not base_offset <= offset < max(segment.next_offset, base_offset + 1):
                self._problem(path, at, f"the entry for time {timestamp} names offset {offset}, which is not here")
                return
            while seen < len(ordered) and ordered[seen].last_offset <= offset:
                largest = max(largest, ordered[seen].max_timestamp)
                seen += 1
            if largest > timestamp:
                self._problem(path, at, f"the entry for offset {offset} says {timestamp}, but {largest} came before")
                return
            before = (timestamp, offset)
        if not is_active and entries and before[0] < segment.max_timestamp and segment.valid_bytes == segment.size:
            self._problem(
                path,
                len(content),
                f"the newest timestamp is {segment.max_timestamp}, but the index ends at {before[0]}",
            )

    def _check_txn_index(self, base_offset: int) -> None:
        path = names.segment_path(self._directory, base_offset, names.TXN_INDEX)
        try:
            _ = TxnIndex(self._storage, path).entries
        except ValueError as error:
            self._problem(path, 0, str(error))

    def _check_rest(self, present: list[str], bases: set[int]) -> None:
        for name in sorted(present):
            path = os.path.join(self._directory, name)
            offset = names.offset_in_name(name)
            if name.endswith((names.OFFSET_INDEX, names.TIME_INDEX, names.TXN_INDEX)) and offset not in bases:
                self._problem(path, 0, "there is no log file for this index")
            elif name.endswith(names.SNAPSHOT) and offset is not None:
                try:
                    ProducerState.decode(self._storage.read(path), offset)
                except CorruptSnapshot as error:
                    self._problem(path, 0, str(error))
            elif name == names.LEADER_EPOCHS:
                try:
                    read_lines(self._storage, path)
                except CorruptCheckpoint as error:
                    self._problem(path, 0, str(error))
