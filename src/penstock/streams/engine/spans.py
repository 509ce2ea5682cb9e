"""Which windows of a key a record goes into, where Python functions fold: time windows, sliding windows, sessions.

Windows are spans of time in ms, each with its result so far. They are as in Kafka Streams: the end of a time window is
not part of it, that of a sliding window and of a session is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.streams.windows import SessionWindow, SlidingWindow, TimeWindow, Window


class Span(NamedTuple):
    """A window: from when until when."""

    start: int
    end: int


@dataclass
class Slot:
    """The result of a window so far, and the time of its newest record."""

    result: Any = None
    newest: int = -1
    was_emitted: bool = False


Add = Callable[[Any], Any]  # takes the record into a result; None: there is none yet
Merge = Callable[[Any, Any], Any]
Slots = dict[Span, Slot]


class Spans(ABC):
    """One kind of windows. `lasts_ms` is how long after its end a window is still open."""

    lasts_ms: int
    kept_ms: int = 0  # beyond that, because later windows begin with what is in it

    def is_open(self, span: Span, now_ms: int) -> bool:
        return span.end + self.lasts_ms > now_ms

    def closes_ms(self, span: Span) -> int:
        return span.end + self.lasts_ms

    def forgotten_ms(self, span: Span) -> int:
        return self.closes_ms(span) + self.kept_ms

    @abstractmethod
    def take(self, slots: Slots, at: int, now_ms: int, add: Add, merge: Merge) -> list[Span] | None:
        """Take a record into the windows that it belongs to; returns those that changed, None if it is too late."""

    def _put(self, slots: Slots, span: Span, at: int, now_ms: int, add: Add) -> list[Span]:
        """Take a record into one window, if that is open."""
        if not self.is_open(span, now_ms):
            return []
        slot = slots.setdefault(span, Slot())
        slot.result, slot.newest = add(slot.result), max(slot.newest, at)
        return [span]


class TimeSpans(Spans):
    """Windows of one size that begin at every multiple of `advance`."""

    def __init__(self, window: TimeWindow) -> None:
        self._size, self._advance = window.size_ms, window.advance_ms
        self.lasts_ms = window.grace_ms

    def take(self, slots: Slots, at: int, now_ms: int, add: Add, merge: Merge) -> list[Span] | None:
        last = at - at % self._advance
        starts = range(last, max(at - self._size, -1), -self._advance)  # Kafka Streams has none before 1970
        spans = [Span(start, start + self._size) for start in reversed(starts)]
        changed = [one for span in spans for one in self._put(slots, span, at, now_ms, add)]
        return changed or (None if spans else [])


class SessionSpans(Spans):
    """Windows of activity. A record makes one session of all that it is close to."""

    def __init__(self, window: SessionWindow) -> None:
        self._gap = window.gap_ms
        self.lasts_ms = window.gap_ms + window.grace_ms + 1

    def take(self, slots: Slots, at: int, now_ms: int, add: Add, merge: Merge) -> list[Span] | None:
        near = sorted(span for span in slots if span.start <= at + self._gap and span.end >= at - self._gap)
        whole = Span(min([at, *(one.start for one in near)]), max([at, *(one.end for one in near)]))
        if not self.is_open(whole, now_ms):
            return None
        result = None
        for span in near:
            found = slots.pop(span).result
            result = found if result is None else merge(result, found)
        slots[whole] = Slot(result, whole.end)
        return [*near, *self._put(slots, whole, at, now_ms, add)]


class SlidingSpans(Spans):
    """A window for each set of records that are not further apart than `difference`.

    A record ends one window, and begins one just after itself if there are records in that. Each window begins with
    what is in an older one, so windows are kept for a while after they are closed.
    """

    def __init__(self, window: SlidingWindow) -> None:
        self._difference = window.difference_ms
        self.lasts_ms = window.grace_ms + 1
        self.kept_ms = window.difference_ms

    def take(self, slots: Slots, at: int, now_ms: int, add: Add, merge: Merge) -> list[Span] | None:
        if not self.is_open(Span(at, at + self._difference), now_ms):
            return None
        around = sorted(span for span in slots if span.start <= at <= span.end)
        ended = max((span for span in slots if span.end < at), default=None)
        previous = max((slot.newest for slot in slots.values() if slot.newest < at), default=None)
        after = deepcopy(slots[around[-1]]) if around else None
        changed = [one for span in around for one in self._put(slots, span, at, now_ms, add)]
        if previous is not None and previous + 1 + self._difference >= at:
            span = self._from(previous + 1)
            changed += self._put(slots, span, at, now_ms, add) if span not in slots else []
        until = self._from(max(at - self._difference, 0))
        if until not in slots and self.is_open(until, now_ms):
            if ended is not None and previous is not None and previous >= until.start:
                slots[until] = Slot(deepcopy(slots[ended].result))
            changed += self._put(slots, until, at, now_ms, add)
        beyond = self._from(at + 1)
        if after is not None and after.newest > at and beyond not in slots:
            slots[beyond] = Slot(after.result, after.newest)
            changed.append(beyond)
        return changed

    def _from(self, start: int) -> Span:
        return Span(start, start + self._difference)


def spans_of(window: Window) -> Spans:
    """What a window's description means."""
    match window:
        case TimeWindow():
            return TimeSpans(window)
        case SessionWindow():
            return SessionSpans(window)
        case SlidingWindow():
            return SlidingSpans(window)
    raise AssertionError(f"{type(window).__name__} is no window")
