"""How many rows Spark gives to a writing task at a time.

Spark limits the bytes of an Arrow batch, for which it computes the batch's size anew before each row: where there are
headers, that takes longer than everything else that it does with the row. So here only rows are counted, as many as
make a batch of a good size with rows like those of the micro-batch before. Whoever fails begins anew with Spark's own
limits.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import LongType, Row, StructField, StructType

SIZES = StructType([StructField("records", LongType()), StructField("bytes", LongType())])

_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
_UNLIMITED = str(2**31 - 1)

_GOOD_SIZE_BYTES = 16 * 1024 * 1024
_UNKNOWN_ROW_BYTES = 16 * 1024  # of the first micro-batch: large, so that few rows come at a time


class RowLimit:
    """The limit for one query, which learns from each of its micro-batches."""

    def __init__(self) -> None:
        self._row_bytes = _UNKNOWN_ROW_BYTES
        self._own: dict[str, str] = {}  # the settings as they were
        self._set: dict[str, str] = {}

    @property
    def is_known(self) -> bool:
        """Whether the size of rows is known from a micro-batch before."""
        return self._row_bytes != _UNKNOWN_ROW_BYTES

    def apply(self, frame: DataFrame) -> None:
        """Set the limit for what is made of a micro-batch. The session is the query's alone."""
        if not self.is_known and "headers" not in frame.columns:
            return  # of flat columns Spark computes the size fast enough for once
        conf = frame.sparkSession.conf
        self._own = self._own or {name: str(conf.get(name)) for name in (_ROWS, _BYTES)}
        rows_max = int(self._own[_ROWS])
        rows = max(_GOOD_SIZE_BYTES // max(self._row_bytes, 1), 1)
        self._change(frame, {_ROWS: str(min(rows, rows_max) if rows_max > 0 else rows), _BYTES: _UNLIMITED})

    def learn(self, sizes: Iterable[Row]) -> None:
        """Take note of what tasks said of the rows they had."""
        found = list(sizes)
        records = sum(one.records for one in found)
        if records:
            self._row_bytes = sum(one.bytes for one in found) // records

    def lift(self, frame: DataFrame) -> None:
        """Go back to Spark's own limits."""
        self._row_bytes = _UNKNOWN_ROW_BYTES
        self._change(frame, self._own)

    def _change(self, frame: DataFrame, wanted: dict[str, str]) -> None:
        for name, value in wanted.items():
            if self._set.get(name) != value:
                frame.sparkSession.conf.set(name, value)
        self._set = wanted


class Measured:
    """The batches that a task is given, and how much they are."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches = batches
        self._records = 0
        self._bytes = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self._records += batch.num_rows
            self._bytes += batch.nbytes
            yield batch

    def sizes(self) -> pa.RecordBatch:
        """What was seen, as `SIZES`."""
        return pa.RecordBatch.from_pydict(
            {"records": pa.array([self._records], pa.int64()), "bytes": pa.array([self._bytes], pa.int64())}
        )
