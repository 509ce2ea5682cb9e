"""Rows into the records of batches: encoded, compressed, and in the order that they have in each partition."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from penstock.spark.task_process import settle
from penstock.wire._arrow import Encoder
from penstock.wire.compression import Codec, compress

BATCH_BYTES = 900_000  # below the default of max.message.bytes, with room for what does not compress
NOW = -1  # in place of a timestamp: that of writing


@dataclass(frozen=True, slots=True)
class Records:
    """The records of one batch, encoded and compressed, and where they go.

    Their timestamps are relative to the first one; they are of the time of writing if that is `NOW`.
    """

    place: int
    count: int
    content: Any
    first_timestamp_ms: int = NOW
    max_timestamp_ms: int = NOW


def encoded(rows: Iterable[pa.RecordBatch], place_count: int, codec: Codec) -> Iterator[Records]:
    """Rows with the columns place, key, value and perhaps headers and timestamp (in ms), as records.

    Those of one place keep their order.
    """
    settle()
    encoder = Encoder(place_count, BATCH_BYTES)

    def taken(place: int) -> Iterator[Records]:
        payload = encoder.take(place)
        if payload is not None:
            times = (payload.first_timestamp, payload.max_timestamp) if has_times else (NOW, NOW)
            content = compress(codec, payload.content) if codec else payload.content
            yield Records(place, payload.count, content, *times)

    has_times = False
    for batch in rows:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        has_times = "timestamp" in columns
        headers = header_parts(columns["headers"]) if "headers" in columns else None
        places = columns["place"]
        row = 0
        while row < batch.num_rows:
            row = encoder.add(columns.get("key"), columns["value"], headers, places, row, columns.get("timestamp"))
            if row < batch.num_rows:
                yield from taken(places[row].as_py())
    for place in range(place_count):
        yield from taken(place)


def header_parts(column: pa.ListArray) -> tuple[Any, ...]:
    """What the encoder needs of a column of headers."""
    validity, ends = column.buffers()[:2]
    items = column.values
    return ends, items.field(0), items.field(1), column.offset, validity
