"""Time as an argument: production code gets the system's clock, tests one that they move by hand."""

from __future__ import annotations

import time
from time import time_ns
from typing import Protocol


class Clock(Protocol):
    """Wall-clock time for what is written down, monotonic time for what is waited for."""

    def time_ms(self) -> int:
        """Milliseconds since the epoch. May jump."""
        ...

    def monotonic(self) -> float:
        """Seconds since some fixed moment. Never goes back."""
        ...


class SystemClock:
    def time_ms(self) -> int:
        return time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, time_ms: int = 1_700_000_000_000) -> None:
        self._time_ms = time_ms
        self._monotonic = 0.0

    def time_ms(self) -> int:
        return self._time_ms

    def monotonic(self) -> float:
        return self._monotonic

    def advance_ms(self, duration_ms: int) -> None:
        self._time_ms += duration_ms
        self._monotonic += duration_ms / 1000
