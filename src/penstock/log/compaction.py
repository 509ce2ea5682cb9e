"""What of a log is to be compacted, and when. Pure: the decisions of Kafka's LogCleanerManager.

A log has a clean part, up to the offset that the last compaction reached, and a dirty part behind it. Compaction begins
when the dirty part is large enough (min.cleanable.dirty.ratio) or old enough (max.compaction.lag.ms), and ends before
whatever may not be touched yet.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from penstock.config.definition import LONG_MAX
from penstock.config.topic import TopicConfig
from penstock.log.index_file import RELATIVE_OFFSET_MAX


class SegmentFacts(Protocol):
    """What the decisions need to know of a segment."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    @property
    def first_timestamp(self) -> int: ...

    def largest_timestamp(self) -> int: ...

    def index_sizes(self) -> tuple[int, int]: ...


S = TypeVar("S", bound=SegmentFacts)


@dataclass(frozen=True)
class Dirt:
    """The dirty part of a log: from `first_offset` up to `end_offset`, where a segment begins."""

    first_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    is_overdue: bool

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, config: TopicConfig) -> bool:
        return self.ratio > config.min_cleanable_dirty_ratio or (self.is_overdue and self.dirty_bytes > 0)


def first_dirty_offset(cleaned_offset: int | None, start_offset: int, end_offset: int) -> int:
    """Where the dirty part begins. A note that cannot be true (any more) is not believed."""
    if cleaned_offset is None or not start_offset <= cleaned_offset <= end_offset:
        return start_offset
    return cleaned_offset


def dirt_of(
    segments: Sequence[SegmentFacts], config: TopicConfig, *, first_offset: int, stable_offset: int, now_ms: int
) -> Dirt:
    """The dirty part of a log; the last segment is the active one.

    `stable_offset` is the offset up to which all is decided, replicated and durable. Behind it nothing is touched, nor
    taken as a reason to remove what is before it.
    """
    closed = segments[:-1]
    limit = min(stable_offset, segments[-1].base_offset)
    if config.min_compaction_lag_ms > 0:
        newest = now_ms - config.min_compaction_lag_ms
        for segment in overlapping(closed, first_offset, LONG_MAX):
            if segment.largest_timestamp() > newest:
                limit = min(limit, segment.base_offset)
                break
    end_offset = _segment_start(segments, max(first_offset, limit))
    first_offset = min(first_offset, end_offset)
    dirty = overlapping(segments, first_offset, end_offset) if first_offset < end_offset else ()
    clean = overlapping(segments, -1, first_offset)  # as in Kafka, a segment that is partly clean counts on both sides
    return Dirt(
        first_offset,
        end_offset,
        sum(segment.size for segment in clean),
        sum(segment.size for segment in dirty),
        _is_overdue(overlapping(closed, first_offset, LONG_MAX), config, now_ms),
    )


def _segment_start(segments: Sequence[SegmentFacts], offset: int) -> int:
    """The base offset of the segment that holds an offset: compaction deals with whole segments."""
    return overlapping(segments, offset, LONG_MAX)[0].base_offset


def _is_overdue(dirty: Sequence[SegmentFacts], config: TopicConfig, now_ms: int) -> bool:
    if config.max_compaction_lag_ms >= now_ms:
        return False
    oldest = min((stamp for segment in dirty if (stamp := segment.first_timestamp) > 0), default=LONG_MAX)
    return oldest < now_ms - config.max_compaction_lag_ms


def overlapping(segments: Sequence[S], first_offset: int, end_offset: int) -> Sequence[S]:
    """The segments with offsets in [first_offset, end_offset): from the one that holds the first on."""
    first = max(bisect_right(segments, first_offset, key=lambda segment: segment.base_offset) - 1, 0)
    end = bisect_left(segments, end_offset, key=lambda segment: segment.base_offset)
    return segments[first:end]


def grouped(segments: Sequence[S], config: TopicConfig, end_offset: int) -> list[list[S]]:
    """Segments put together that will make one each: as many as fit by size, by their indexes, and by offsets.

    `end_offset` is where the last of them ends.
    """
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    groups: list[list[S]] = []
    sizes = (0, 0, 0)
    limits = (config.segment_bytes, config.segment_index_bytes, config.segment_index_bytes)
    for segment, end in zip(segments, ends, strict=True):
        added = (segment.size, *segment.index_sizes())
        together = tuple(a + b for a, b in zip(sizes, added, strict=True))
        if (
            groups
            and all(size <= limit for size, limit in zip(together, limits, strict=True))
            and (segment.size == 0 or end - 1 - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX)
        ):
            groups[-1].append(segment)
            sizes = together  # type: ignore[assignment]
        else:
            groups.append([segment])
            sizes = added
    return groups
