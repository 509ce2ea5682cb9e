"""Which partition a row goes to: as its columns say, else by its key as the Java client does it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.client.errors import PenstockError
from penstock.wire._arrow import partitions_of


class BadRow(PenstockError):
    """A row that cannot be written as it is."""


@dataclass(frozen=True)
class Layout:
    """The topics that are written, and how many partitions each has. All these partitions are numbered through."""

    topics: Mapping[str, int]
    default: str | None  # for rows that name no topic

    @property
    def firsts(self) -> dict[str, int]:
        """The number of each topic's first partition."""
        firsts, number = {}, 0
        for topic, count in self.topics.items():
            firsts[topic] = number
            number += count
        return firsts


def placed(layout: Layout, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows with a column `place` in front, and without those that said where they go."""
    spread = 0
    for batch in batches:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        places = _places(layout, columns, batch.num_rows, spread)
        spread += batch.num_rows
        kept = {name: columns[name] for name in ("key", "value", "headers", "timestamp") if name in columns}
        yield pa.RecordBatch.from_arrays(
            [pa.array(places, pa.int32()), *(_for_records(name, column) for name, column in kept.items())],
            names=["place", *kept],
        )


def _for_records(name: str, column: pa.Array) -> pa.Array:
    if name == "headers":
        return column
    if name == "timestamp":
        times = column.cast(pa.timestamp("ms", column.type.tz), safe=False).cast(pa.int64())
        return times.fill_null(int(time.time() * 1000)) if times.null_count else times
    return column.cast(pa.binary())


def _places(layout: Layout, columns: Mapping[str, pa.Array], count: int, spread: int) -> Any:
    topics = columns.get("topic")
    if topics is None:
        if layout.default is None:
            raise BadRow("a row names no topic: add a column topic, or give the topic to write to")
        return _within(layout, layout.default, columns, np.arange(count), spread)
    places = np.empty(count, np.int32)
    encoded = topics.dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    names = [*encoded.dictionary.to_pylist(), None]
    for code in np.unique(codes):
        rows = np.flatnonzero(codes == code)
        topic = names[code] if names[code] is not None else layout.default
        if topic is None:
            raise BadRow("a row names no topic: its column topic is null")
        places[rows] = _within(layout, topic, columns, rows, spread)
    return places


def _within(layout: Layout, topic: str, columns: Mapping[str, pa.Array], rows: Any, spread: int) -> Any:
    """The places of some rows, all of one topic."""
    if topic not in layout.topics:
        known = ", ".join(layout.topics)
        raise BadRow(f"a row goes to topic {topic}, which is not among those that are written: {known}")
    partition_count = layout.topics[topic]
    keys = columns.get("key")
    if keys is not None:
        keys = keys.cast(pa.binary())
        keys = keys if len(rows) == len(keys) else keys.take(pa.array(rows))
    block = partitions_of(keys, len(rows), partition_count, spread)
    chosen = np.frombuffer(memoryview(block), np.int32) if len(rows) else np.empty(0, np.int32)
    given = columns.get("partition")
    if given is not None:
        wanted = given.take(pa.array(rows)).fill_null(-1).to_numpy(zero_copy_only=False)
        wrong = wanted[(wanted < -1) | (wanted >= partition_count)]
        if len(wrong):
            raise BadRow(f"a row goes to partition {wrong[0]} of {topic}, which has {partition_count}, counted from 0")
        chosen = np.where(wanted >= 0, wanted, chosen)
    return (chosen + layout.firsts[topic]).astype(np.int32)
