"""Windows: which stretches of event time are put together. Descriptions only.

A window begins with its start and ends before its end. `grace` is how long after its end late records still count; when
it has passed, the window is closed. `emit="updates"` gives a result whenever it changes, `emit="final"` one per window,
when it is closed.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta

from penstock.streams.places import TopologyError, caller

Duration = str | timedelta

UPDATES = "updates"
FINAL = "final"

_UNITS_MS = {"ms": 1, "millisecond": 1, "second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_PART = re.compile(r"(\d+)\s*(ms|millisecond|second|minute|hour|day)s?")


def milliseconds(given: Duration, what: str) -> int:
    """A length of time, in ms: "90 seconds", "1 hour 30 minutes", or a timedelta."""
    if isinstance(given, timedelta):
        return round(given.total_seconds() * 1000)
    if not isinstance(given, str) or _PART.sub("", given).strip() or not given.strip():
        raise TopologyError(
            caller(), f"{what} is {given!r}: give a timedelta, or text such as '90 seconds' or '1 hour'"
        )
    return sum(int(count) * _UNITS_MS[unit] for count, unit in _PART.findall(given))


@dataclass(frozen=True)
class Window(ABC):
    """What all windows have."""

    grace_ms: int
    emit: str

    def __str__(self) -> str:
        return f"{self._shape()}, grace {text_of(self.grace_ms)}, emit {self.emit}"

    @abstractmethod
    def _shape(self) -> str: ...


@dataclass(frozen=True)
class TimeWindow(Window):
    """Windows of one size that begin at every multiple of `advance`: tumbling if that is the size, else hopping."""

    size_ms: int
    advance_ms: int

    def _shape(self) -> str:
        if self.size_ms == self.advance_ms:
            return f"tumbling {text_of(self.size_ms)}"
        return f"hopping {text_of(self.size_ms)} by {text_of(self.advance_ms)}"


@dataclass(frozen=True)
class SessionWindow(Window):
    """Windows of activity: they end when nothing has come for `gap`."""

    gap_ms: int

    def _shape(self) -> str:
        return f"session with gap {text_of(self.gap_ms)}"


@dataclass(frozen=True)
class SlidingWindow(Window):
    """Windows that end with a record, or begin just after one, and hold records no further apart than `difference`."""

    difference_ms: int

    def _shape(self) -> str:
        return f"sliding {text_of(self.difference_ms)}"


@dataclass(frozen=True)
class JoinWindow:
    """How far apart in time the records of two streams may be: the right one from `before` until `after` the left."""

    before_ms: int
    after_ms: int
    grace_ms: int

    def __str__(self) -> str:
        return f"within {text_of(self.before_ms)} before and {text_of(self.after_ms)} after"


def tumbling(size: Duration, *, grace: Duration = "0 ms", emit: str = UPDATES) -> TimeWindow:
    """Windows side by side: every record is in exactly one."""
    size_ms = _positive(size, "size")
    return TimeWindow(milliseconds(grace, "grace"), _emit(emit), size_ms, size_ms)


def hopping(size: Duration, advance: Duration, *, grace: Duration = "0 ms", emit: str = UPDATES) -> TimeWindow:
    """Windows that overlap: one begins every `advance`."""
    size_ms, advance_ms = _positive(size, "size"), _positive(advance, "advance")
    if advance_ms > size_ms:
        raise TopologyError(
            caller(), f"windows of {size} that begin every {advance} leave gaps: advance must not be longer than size"
        )
    return TimeWindow(milliseconds(grace, "grace"), _emit(emit), size_ms, advance_ms)


def session(gap: Duration, *, grace: Duration = "0 ms", emit: str = FINAL) -> SessionWindow:
    """Windows of activity, by key: a record belongs to the session that was active less than `gap` before or after.

    With `emit="updates"`, a session that becomes part of another is deleted.
    """
    return SessionWindow(milliseconds(grace, "grace"), _emit(emit), _positive(gap, "gap"))


def sliding(difference: Duration, *, grace: Duration = "0 ms", emit: str = UPDATES) -> SlidingWindow:
    """A window for each set of records that are no further apart than `difference`. Both ends are part of it."""
    return SlidingWindow(milliseconds(grace, "grace"), _emit(emit), _positive(difference, "difference"))


def within(
    difference: Duration | None = None,
    *,
    before: Duration = "0 ms",
    after: Duration = "0 ms",
    grace: Duration = "0 ms",
) -> JoinWindow:
    """For joins of streams: how far apart in time two records may be, to either side or `before` and `after`."""
    if difference is not None:
        before = after = difference
    return JoinWindow(milliseconds(before, "before"), milliseconds(after, "after"), milliseconds(grace, "grace"))


def text_of(length_ms: int) -> str:
    """A length of time, in the largest unit that fits."""
    for unit in ("day", "hour", "minute", "second"):
        count, rest = divmod(length_ms, _UNITS_MS[unit])
        if count and not rest:
            return f"{count} {unit}{'s' if count > 1 else ''}"
    return f"{length_ms} ms"


def _positive(given: Duration, what: str) -> int:
    length_ms = milliseconds(given, what)
    if length_ms <= 0:
        raise TopologyError(caller(), f"{what} is {given!r}: it must be longer than nothing")
    return length_ms


def _emit(emit: str) -> str:
    if emit not in (UPDATES, FINAL):
        raise TopologyError(caller(), f"emit is {emit!r}: use '{UPDATES}' or '{FINAL}'")
    return emit
