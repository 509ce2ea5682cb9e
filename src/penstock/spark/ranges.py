"""Which offsets a batch reads, and how that is shared out among tasks. Pure."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from penstock.client.errors import PenstockError
from penstock.client.partitions import TopicPartition

Offsets = Mapping[TopicPartition, int]
Json = dict[str, dict[str, int]]

# A task reads this many records at most, unless the user says otherwise: enough to be worth a task, few enough that
# all cores get something of a large backlog.
TASK_RECORDS = 1_000_000


class DataLoss(PenstockError):
    """Records that were to be read are not there any more."""


@dataclass(frozen=True)
class OffsetRange:
    """The records of a partition from `start` on, below `end`."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return max(self.end - self.start, 0)

    def __str__(self) -> str:
        return f"{self.partition.topic}-{self.partition.partition} [{self.start}, {self.end})"


def to_json(offsets: Offsets) -> Json:
    """As Spark writes offsets into its checkpoints: by topic, then by partition."""
    found: Json = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def from_json(offsets: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, partitions in offsets.items()
        for partition, offset in partitions.items()
    }


def from_text(text: str) -> dict[TopicPartition, int] | None:
    """Offsets that Spark wrote down as text; None if they are of a source that has other ones."""
    try:
        offsets = json.loads(text)
    except ValueError:
        return None
    return from_json(offsets) if _is_by_partition(offsets) else None


def _is_by_partition(offsets: Any) -> bool:
    return (
        isinstance(offsets, dict)
        and bool(offsets)
        and all(
            isinstance(partitions, dict)
            and all(name.isdigit() and isinstance(offset, int) for name, offset in partitions.items())
            for partitions in offsets.values()
        )
    )


def backlog(start: Offsets, end: Offsets) -> dict[TopicPartition, int]:
    """How much there is to read in each partition that has anything."""
    sizes = {partition: offset - start.get(partition, offset) for partition, offset in end.items()}
    return {partition: size for partition, size in sizes.items() if size > 0}


def limited(start: Offsets, end: Offsets, records_max: int) -> dict[TopicPartition, int]:
    """An earlier end, so that about `records_max` records are read: each partition gives its share, at least one."""
    sizes = backlog(start, end)
    total = sum(sizes.values())
    if total <= records_max:
        return dict(end)
    found = dict(end)
    for partition, size in sizes.items():
        share = records_max * size / total
        found[partition] = min(end[partition], start[partition] + (math.floor(share) if share >= 1 else 1))
    return found


def split(ranges: Iterable[OffsetRange], tasks_min: int | None, task_records_max: int | None) -> list[OffsetRange]:
    """The same ranges in smaller ones: no larger than asked, and, where there is enough to share, at least so many."""
    wanted = [one for one in ranges if one.size > 0]
    largest = task_records_max or TASK_RECORDS
    if tasks_min and wanted:
        total = sum(one.size for one in wanted)
        largest = min(largest, max(total // tasks_min, 1))
    return [part for one in wanted for part in _pieces(one, math.ceil(one.size / largest))]


def _pieces(whole: OffsetRange, count: int) -> Sequence[OffsetRange]:
    bounds = [whole.start + whole.size * number // count for number in range(count + 1)]
    return [OffsetRange(whole.partition, low, high) for low, high in pairwise(bounds)]
