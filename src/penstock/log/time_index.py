"""The sparse map from timestamps to offsets."""

from __future__ import annotations

import struct

from penstock.log.index_file import IndexFile

_ENTRY = struct.Struct(">qi")


class TimeIndex(IndexFile):
    """Entries of 12 bytes: timestamp, offset relative to the segment's base. Timestamps ascend strictly.

    An entry (t, o) says: no record before offset o, or at it, has a timestamp above t.
    """

    entry_bytes = _ENTRY.size

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if its timestamp is above the last one's."""
        if self.entries and timestamp <= self.last_entry()[0]:
            return
        if timestamp < 0 or self.is_full:
            return
        entries = self.map_for_append()
        _ENTRY.pack_into(entries, self._entries * 12, timestamp, offset - self.base_offset)
        self._entries += 1

    def entry(self, number: int) -> tuple[int, int]:
        """(timestamp, offset) of one entry."""
        timestamp, relative = _ENTRY.unpack_from(self.readable_map(), number * 12)
        return timestamp, self.base_offset + relative

    def last_entry(self) -> tuple[int, int]:
        """The last entry, or (-1, base offset)."""
        return self.entry(self.entries - 1) if self.entries else (-1, self.base_offset)

    def offset_before(self, timestamp: int) -> int:
        """An offset at or before the first record with a timestamp of at least `timestamp`."""
        low, high = 0, self.entries
        while low < high:
            middle = (low + high) // 2
            if self.entry(middle)[0] < timestamp:
                low = middle + 1
            else:
                high = middle
        return self.entry(low - 1)[1] if low else self.base_offset

    def truncate(self, offset: int) -> None:
        """Forget all entries at or above `offset`."""
        kept = self.entries
        while kept and self.entry(kept - 1)[1] >= offset:
            kept -= 1
        self.keep(kept)
