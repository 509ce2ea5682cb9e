"""A limit on the bytes of requests that are being received."""

from __future__ import annotations

from collections import deque
from typing import Protocol


class Reader(Protocol):
    def resume(self) -> None: ...


class RequestMemory:
    """The broker's budget for incoming requests that do not arrive in one piece.

    A connection that wants more than is left waits, in order, with reading paused. A single request always gets its
    turn, even if it is larger than the whole budget.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes  # -1: none
        self.used_bytes = 0
        self._waiting: deque[tuple[Reader, int]] = deque()

    def acquire(self, reader: Reader, size: int) -> bool:
        """Take `size` bytes; if False, the reader must pause until it is resumed, and has them then."""
        has_room = not self._waiting and self.used_bytes + size <= self._limit_bytes  # nobody overtakes
        if self._limit_bytes < 0 or self.used_bytes == 0 or has_room:
            self.used_bytes += size
            return True
        self._waiting.append((reader, size))
        return False

    def release(self, size: int) -> None:
        self.used_bytes -= size
        while self._waiting:
            reader, wanted = self._waiting[0]
            if self.used_bytes and self.used_bytes + wanted > self._limit_bytes:
                return
            self._waiting.popleft()
            self.used_bytes += wanted
            reader.resume()

    def forget(self, reader: Reader) -> bool:
        """The reader is gone; returns whether it was still waiting."""
        before = len(self._waiting)
        self._waiting = deque(entry for entry in self._waiting if entry[0] is not reader)
        return len(self._waiting) < before
