"""Which segments have outlived their topic's retention. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.config.topic import TopicConfig


class SegmentAge(NamedTuple):
    """What retention needs to know of a segment. `end_offset` is where the next one begins."""

    end_offset: int
    size: int
    largest_timestamp: int


def deletable_count(
    segments: Sequence[SegmentAge],
    config: TopicConfig,
    *,
    start_offset: int,
    high_watermark: int,
    now_ms: int,
) -> tuple[int, str]:
    """How many of the oldest segments can go, and why. The last segment is the active one.

    A segment goes when it lies wholly before the log's start, when the log is too large without it, or when its newest
    record is too old. Nothing that is not replicated yet goes, and an empty active segment stays.
    """
    excess_bytes = sum(segment.size for segment in segments) - config.retention_bytes
    count = 0
    reason = ""
    for number, segment in enumerate(segments):
        is_active = number == len(segments) - 1
        if segment.end_offset > high_watermark or (is_active and segment.size == 0):
            break
        if not is_active and segment.end_offset <= start_offset:
            reason = reason or f"it lies before the log start offset {start_offset}"
        elif config.is_deleted and config.retention_bytes >= 0 and excess_bytes >= segment.size:
            reason = reason or f"the log is larger than retention.bytes={config.retention_bytes}"
        elif config.is_deleted and 0 <= config.retention_ms < now_ms - segment.largest_timestamp:
            reason = reason or f"its newest record is older than retention.ms={config.retention_ms}"
        else:
            break
        excess_bytes -= segment.size
        count += 1
    return count, reason
