"""What the offset index and the time index share: a file of fixed-size entries, mapped into memory."""

from __future__ import annotations

import mmap
import os

from penstock.log.storage import Storage

# Entries hold offsets as their distance from the segment's base offset, in 31 bits.
RELATIVE_OFFSET_MAX = 0x7FFFFFFF


# Disk blocks are reserved in steps of this size, before the map is written to. A write through a map into a hole of the
# file, when the disk is full, would end the process; a reservation that fails is an error like any other.
_RESERVE_BYTES = 16 * 1024


class IndexFile:
    """A sorted file of fixed-size entries.

    While its segment is active the file is extended to its full size and written through a memory map, so an append is
    a few stores and no system call; the part behind the last entry is zeros. When the segment becomes inactive, or the
    log is closed cleanly, the file is trimmed to its entries. After a crash the file is not trusted: recovery rebuilds
    it from the log.

    Nothing is opened before it is needed: a broker may hold thousands of segments whose indexes nobody asks for.
    """

    entry_bytes: int

    def __init__(self, storage: Storage, path: str, base_offset: int, bytes_max: int) -> None:
        self._storage = storage
        self.path = path
        self.base_offset = base_offset
        self._bytes_max = bytes_max - bytes_max % self.entry_bytes
        self._map: mmap.mmap | None = None
        self._is_writable = False
        self._reserved_bytes = 0
        self._entries = -1  # unknown until opened

    @property
    def entries(self) -> int:
        if self._entries < 0:
            self._open()
        return self._entries

    @property
    def is_full(self) -> bool:
        return self.entries >= self._bytes_max // self.entry_bytes

    @property
    def size(self) -> int:
        return self.entries * self.entry_bytes

    def _open(self) -> None:
        """Map what is there, for reading."""
        try:
            fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            self._entries = 0
            return
        try:
            size = os.fstat(fd).st_size
            size -= size % self.entry_bytes
            self._entries = size // self.entry_bytes
            self._map = mmap.mmap(fd, size, prot=mmap.PROT_READ) if size else None
        finally:
            os.close(fd)

    def make_writable(self) -> mmap.mmap:
        """Extend the file to its full size and map it for writing."""
        entries = self.entries
        size = max(self._bytes_max, (entries + 1) * self.entry_bytes)
        self._unmap()
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(fd, entries * self.entry_bytes)  # what may stand behind the last entry must read as zeros
            os.ftruncate(fd, size)
            self._map = mmap.mmap(fd, size)
        finally:
            os.close(fd)
        self._map.madvise(mmap.MADV_RANDOM)  # else the first entry brings as many zeros into memory as disks read ahead
        self._is_writable = True
        return self._map

    def map_for_append(self) -> mmap.mmap:
        """The map, with room on the disk for one more entry."""
        writable = self._map if self._is_writable and self._map is not None else self.make_writable()
        if (self._entries + 1) * self.entry_bytes > self._reserved_bytes:
            self._reserve(len(writable))
        return writable

    def _reserve(self, size_max: int) -> None:
        start = self._entries * self.entry_bytes
        size = min(_RESERVE_BYTES, size_max - start)
        fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.posix_fallocate(fd, start, size)
        finally:
            os.close(fd)
        self._reserved_bytes = start + size

    def readable_map(self) -> mmap.mmap:
        if self._entries < 0:
            self._open()
        assert self._map is not None
        return self._map

    def _unmap(self) -> None:
        if self._map is not None:
            self._map.close()
        self._map = None
        self._is_writable = False
        self._reserved_bytes = 0

    def trim(self) -> None:
        """Cut the file to its entries. It can still be read, and made writable again."""
        if not self._is_writable and self._storage.exists(self.path):
            return
        entries = self.entries
        self._unmap()
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.ftruncate(fd, entries * self.entry_bytes)
        finally:
            os.close(fd)
        self._entries = -1

    def rewrite(self, content: bytes) -> None:
        """Replace all entries with these, as recovery found them."""
        self._unmap()
        file = self._storage.open(self.path, create=True)
        file.truncate(0)
        file.write_at(content, 0)
        self._entries = -1

    def keep(self, entries: int) -> None:
        """Forget all entries behind the first `entries`."""
        if entries < self.entries:
            self._entries = entries
            if self._is_writable or self._map is not None:
                self.make_writable()

    def sync(self) -> None:
        """Make the entries durable. May be called from another thread than the owner's."""
        self._storage.sync_path(self.path)

    def close(self) -> None:
        self._unmap()
        self._entries = -1

    def rename(self, path: str) -> None:
        """Follow the file to its new name; an open map stays valid."""
        self.path = path
