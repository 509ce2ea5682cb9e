"""Scrubbing: reading what nobody reads, to find out in time that a disk forgets. Runs in a thread.

Only closed segments: nothing in them changes any more.
"""

from __future__ import annotations

import threading
from contextlib import suppress

from penstock.log._cleaner import first_damaged
from penstock.log.inspection import positions_behind
from penstock.log.pace import Pace
from penstock.log.segment import Damage, Segment
from penstock.log.storage import Storage
from penstock.wire._kernel import HEADER_BYTES, Batch, parse_header, verify
from penstock.wire.errors import CorruptBatch

_READ_BYTES = 256 * 1024


class ScrubStopped(Exception):
    """The scrub was told to stop."""


class Scrub:
    """Checks every batch of one segment against its checksum."""

    def __init__(self, storage: Storage, segment: Segment, end_offset: int, pace: Pace, stop: threading.Event) -> None:
        """`end_offset` is where the next segment begins."""
        self._storage = storage
        self._segment = segment
        self._end_offset = end_offset
        self._pace = pace
        self._stop = stop

    def run(self) -> tuple[Damage, ...]:
        """All damaged parts. What lies between them was read and is good."""
        found = []
        position = 0
        while (damaged := self._next_damaged(position)) is not None:
            end = self._next_good(damaged)
            damage = Damage(damaged, end, self._offset_before(position, damaged), self._offset_at(end))
            found.append(damage)
            position = end
        return tuple(found)

    def _next_damaged(self, position: int) -> int | None:
        """Where the first damaged batch from a position on begins."""
        size = self._segment.size
        room = _READ_BYTES
        while position < size:
            content = self._read(position, min(room, size - position))
            at, is_damaged = first_damaged(content, 0, len(content))
            if is_damaged:
                return position + at
            if at == 0:
                batch = parse_header(content) if len(content) >= HEADER_BYTES else None
                if batch is None or batch.size > size - position:
                    return position  # it would end behind the file
                room = batch.size
            else:
                room = _READ_BYTES
            position += at
        return None

    def _read(self, position: int, count: int) -> bytes:
        if self._stop.is_set() or self._stop.wait(self._pace.delay_s(count)):
            raise ScrubStopped
        content = self._segment.file.read_at(count, position)
        if len(content) < count:
            raise CorruptBatch(f"{self._segment.file.path} is shorter than it was")
        return content

    def _next_good(self, damaged: int) -> int:
        """Where the next good batch begins."""
        header = self._segment.file.read_at(HEADER_BYTES, damaged)
        index = b""
        with suppress(FileNotFoundError):  # the segment was deleted meanwhile, or its index with it
            index = self._storage.read(self._segment.offset_index.path)
        for position in positions_behind(damaged, header, index):
            if self._batch_at(position) is not None:
                return position
        return self._segment.size

    def _batch_at(self, position: int) -> Batch | None:
        """The batch at a position, if there is a good one."""
        size = self._segment.size
        if position + HEADER_BYTES > size:
            return None
        batch = parse_header(self._segment.file.read_at(HEADER_BYTES, position))
        if not HEADER_BYTES <= batch.size <= size - position:
            return None
        try:
            return verify(self._segment.file.read_at(batch.size, position))
        except CorruptBatch:
            return None

    def _offset_before(self, position: int, damaged: int) -> int:
        """The offset behind the last good batch before the damage."""
        offset = self._segment.base_offset
        while position < damaged:
            batch = parse_header(self._segment.file.read_at(HEADER_BYTES, position))
            offset = batch.next_offset
            position += batch.size
        return offset

    def _offset_at(self, position: int) -> int:
        batch = self._batch_at(position)
        return self._end_offset if batch is None else batch.base_offset
