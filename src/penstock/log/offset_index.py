"""The sparse map from offsets to positions in a segment's log file."""

from __future__ import annotations

import struct

from penstock.log.index_file import IndexFile

_ENTRY = struct.Struct(">ii")


class OffsetIndex(IndexFile):
    """Entries of 8 bytes: offset relative to the segment's base, position in the log file. Both ascend.

    An entry names the last offset of a batch and the position where that batch starts.
    """

    entry_bytes = _ENTRY.size

    def append(self, offset: int, position: int) -> None:
        entries = self.map_for_append()
        _ENTRY.pack_into(entries, self._entries * 8, offset - self.base_offset, position)
        self._entries += 1

    def entry(self, number: int) -> tuple[int, int]:
        """(offset, position) of one entry."""
        relative, position = _ENTRY.unpack_from(self.readable_map(), number * 8)
        return self.base_offset + relative, position

    def last_offset(self) -> int:
        """The last indexed offset, or the base offset."""
        return self.entry(self.entries - 1)[0] if self.entries else self.base_offset

    def position_before(self, offset: int) -> int:
        """A position at or before the batch that holds `offset`: where a search in the log file starts."""
        number = self._floor(offset)
        return self.entry(number)[1] if number >= 0 else 0

    def offset_after(self, position: int) -> int | None:
        """The offset of the first entry at or behind a position; None if there is none."""
        low, high = 0, self.entries
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[1] < position:
                low = middle + 1
            else:
                high = middle
        return self.entry(low)[0] if low < self.entries else None

    def truncate(self, offset: int) -> None:
        """Forget all entries at or above `offset`."""
        self.keep(self._floor(offset - 1) + 1)

    def _floor(self, offset: int) -> int:
        """The number of the last entry whose offset is not above `offset`; -1 if there is none."""
        low, high = 0, self.entries
        relative = offset - self.base_offset
        if high == 0:
            return -1
        entries = self.readable_map()
        while low < high:
            middle = (low + high) // 2
            if _ENTRY.unpack_from(entries, middle * 8)[0] <= relative:
                low = middle + 1
            else:
                high = middle
        return low - 1
