"""Filters on topic, partition, offset and timestamp, turned into less to fetch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import EqualTo, Filter, GreaterThan, GreaterThanOrEqual, In, LessThan, LessThanOrEqual

from penstock.client.partitions import TopicPartition
from penstock.spark.planning import Planner
from penstock.spark.ranges import OffsetRange

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class Bounds:
    """What all filters together leave. Spark checks the rows again, so a bound may be too wide, never too narrow."""

    topics: set[str] | None = None
    partitions: set[int] | None = None
    offset_min: int | None = None
    offset_max: int | None = None
    time_min_ms: int | None = None

    def narrow(self, condition: Filter) -> None:
        """Take a filter into account, if it is one that helps."""
        name = getattr(condition, "attribute", (None,))[0]
        if name == "topic":
            self.topics = _within(self.topics, _values(condition))
        elif name == "partition":
            self.partitions = _within(self.partitions, _values(condition))
        elif name == "offset":
            self._narrow_offsets(condition)
        elif name == "timestamp" and isinstance(condition, (EqualTo, GreaterThan, GreaterThanOrEqual)):
            moment = _milliseconds(condition.value)
            if moment is not None:
                self.time_min_ms = moment if self.time_min_ms is None else max(self.time_min_ms, moment)

    def _narrow_offsets(self, condition: Filter) -> None:
        if isinstance(condition, (EqualTo, GreaterThan, GreaterThanOrEqual)):
            low = condition.value + isinstance(condition, GreaterThan)
            self.offset_min = low if self.offset_min is None else max(self.offset_min, low)
        if isinstance(condition, (EqualTo, LessThan, LessThanOrEqual)):
            high = condition.value - isinstance(condition, LessThan)
            self.offset_max = high if self.offset_max is None else min(self.offset_max, high)

    def applied(self, planner: Planner, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """The ranges, less what the filters rule out."""
        left = [self._cut(one) for one in ranges if self._has(one.partition)]
        left = [one for one in left if one.size > 0]
        if self.time_min_ms is not None and left:
            firsts = planner.first_not_older(sorted({one.partition for one in left}), self.time_min_ms)
            left = [OffsetRange(one.partition, max(one.start, firsts[one.partition]), one.end) for one in left]
        return [one for one in left if one.size > 0]

    def _has(self, partition: TopicPartition) -> bool:
        return (self.topics is None or partition.topic in self.topics) and (
            self.partitions is None or partition.partition in self.partitions
        )

    def _cut(self, one: OffsetRange) -> OffsetRange:
        start = one.start if self.offset_min is None else max(one.start, self.offset_min)
        end = one.end if self.offset_max is None else min(one.end, self.offset_max + 1)
        return OffsetRange(one.partition, start, end)


def _values(condition: Filter) -> set[Any] | None:
    """What a column may be; None if the filter does not say."""
    if isinstance(condition, EqualTo):
        return {condition.value}
    return set(condition.value) if isinstance(condition, In) else None


def _within(known: set[Any] | None, values: set[Any] | None) -> set[Any] | None:
    if values is None:
        return known
    return values if known is None else known & values


def _milliseconds(moment: Any) -> int | None:
    if not isinstance(moment, datetime):
        return None
    aware = moment if moment.tzinfo else moment.astimezone()
    return (aware - _EPOCH) // timedelta(milliseconds=1)
