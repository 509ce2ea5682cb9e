"""The file system as an argument.

Everything under `log/` reaches the disk through a `Storage`, so a test can put one in its place that forgets unsynced
writes, fails, or is full. Rules that every caller relies on:

- `File.sync` returns only when all bytes written before the call would survive a power cut.
- A file's name survives a power cut only after `sync_directory` of its folder.
- `replace` writes a whole small file so that, whatever happens, either the old or the new content is found.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

Buffer = Any  # anything with the buffer protocol


class File:
    """An open file. The descriptor is closed when the last reference goes: a slice that is still being sent to a
    consumer keeps its file readable, even after retention deleted it."""

    __slots__ = ("fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.fd = fd

    def __del__(self) -> None:
        os.close(self.fd)

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def modified_ms(self) -> int:
        return os.fstat(self.fd).st_mtime_ns // 1_000_000

    def write_at(self, data: Buffer, position: int) -> None:
        """Write all of `data`."""
        written = os.pwrite(self.fd, data, position)
        if written < len(data):
            self._write_rest(memoryview(data), position, written)

    def _write_rest(self, data: memoryview, position: int, written: int) -> None:
        while written < len(data):
            written += os.pwrite(self.fd, data[written:], position + written)

    def read_at(self, count: int, position: int) -> bytes:
        """Up to `count` bytes; fewer only at the end of the file."""
        return os.pread(self.fd, count, position)

    def read_into(self, buffer: memoryview, position: int) -> int:
        """Fill a buffer; returns how many bytes there were."""
        return os.preadv(self.fd, [buffer], position)

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fd, size)

    def sync(self) -> None:
        os.fdatasync(self.fd)


class FileSlice:
    """Bytes of a file, not read yet. Its length is what the protocol announces for it."""

    __slots__ = ("file", "position", "size")

    def __init__(self, file: File, position: int, size: int) -> None:
        self.file = file
        self.position = position
        self.size = size

    def __len__(self) -> int:
        return self.size

    def read(self) -> bytes:
        return self.file.read_at(self.size, self.position)


class Storage:
    """The real file system."""

    def open(self, path: str, *, create: bool = False) -> File:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return File(path, os.open(path, flags, 0o644))

    def read(self, path: str) -> bytes:
        """The whole of a small file. Raises FileNotFoundError."""
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            parts = []
            while part := os.read(fd, 1 << 20):
                parts.append(part)
            return b"".join(parts)
        finally:
            os.close(fd)

    def replace(self, path: str, content: bytes) -> None:
        """Write a whole file, or leave the old one: nothing in between is ever seen."""
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.write_at(content, 0)
        file.sync()
        self.rename(temporary, path)
        self.sync_directory(os.path.dirname(path))

    def names(self, directory: str) -> list[str]:
        return os.listdir(directory)

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, time_ms: int) -> None:
        os.utime(path, ns=(time_ms * 1_000_000, time_ms * 1_000_000))

    def size(self, path: str) -> int:
        """A file's size; 0 if there is none."""
        try:
            return os.stat(path).st_size
        except FileNotFoundError:
            return 0

    def rename(self, old: str, new: str) -> None:
        os.replace(old, new)

    def remove(self, path: str) -> None:
        """Remove a file. One that is gone already is fine."""
        with suppress(FileNotFoundError):
            os.unlink(path)

    def make_directory(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def remove_directory(self, path: str) -> None:
        """Remove a folder and the files in it."""
        for name in self.names(path):
            self.remove(os.path.join(path, name))
        os.rmdir(path)

    def sync_path(self, path: str) -> None:
        """Make a file durable. One that is gone needs nothing: whoever removed it does not want it back."""
        with suppress(FileNotFoundError):
            self.open(path).sync()

    def sync_directory(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
