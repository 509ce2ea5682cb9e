"""What Spark calls: `spark.read`, `spark.readStream` and `df.write` with `format("penstock")`.

Spark makes these objects on the driver, in a Python process of its own, and sends them to its tasks. So they hold the
options and nothing else that lasts; the planner is made where it is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceWriter,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.client.errors import ConfigurationError
from penstock.spark.options import SourceOptions, parse
from penstock.spark.plain_errors import plainly
from penstock.spark.planning import Planner
from penstock.spark.pruning import Bounds
from penstock.spark.ranges import Json, OffsetRange, from_json, to_json
from penstock.spark.reading import arrow_schema, read_range
from penstock.spark.rows import HEADERS

# What a record always has is declared so: Spark then need not look for nulls in every row.
_COLUMNS = [
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType(), nullable=False),
    StructField("partition", IntegerType(), nullable=False),
    StructField("offset", LongType(), nullable=False),
    StructField("timestamp", TimestampType(), nullable=False),
    StructField("timestampType", IntegerType(), nullable=False),
]


class PenstockSource(DataSource):
    """Topics of any Kafka, with the columns and the options of Spark's own Kafka source."""

    @classmethod
    def name(cls) -> str:
        return "penstock"

    def schema(self) -> StructType:
        with_headers = str(self.options.get("includeHeaders", "false")).strip().lower() == "true"
        return StructType([*_COLUMNS, StructField("headers", HEADERS)] if with_headers else _COLUMNS)

    @plainly
    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchReader(parse(self.options, is_streaming=False), self._chosen(schema))

    @plainly
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        return StreamReader(parse(self.options, is_streaming=True), self._chosen(schema))

    @plainly
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise ConfigurationError("a topic cannot be overwritten: use mode('append')")
        from penstock.spark.batch_sink import BatchWriter  # who only reads need not wait for it

        return BatchWriter(self.options, schema)

    def _chosen(self, schema: StructType) -> pa.Schema:
        """The columns that `.schema(...)` asks for: Spark itself does not tell a source which ones a query needs."""
        known = {field.name: field for field in self.schema().fields}
        for field in schema.fields:
            own = known.get(field.name)
            if own is None or own.dataType != field.dataType:
                raise ConfigurationError(
                    f".schema(...) says {field.name} {field.dataType.simpleString()}, but it can only leave out some "
                    f"of {', '.join(f'{one.name} {one.dataType.simpleString()}' for one in known.values())}"
                )
            if own.nullable and not field.nullable:
                raise ConfigurationError(
                    f".schema(...) says that {field.name} is never null, but a record may have none"
                )
        return arrow_schema({field.name: field.nullable for field in schema.fields})


@dataclass
class Task(InputPartition):
    """What one task reads."""

    wanted: OffsetRange

    def __init__(self, wanted: OffsetRange) -> None:
        super().__init__(wanted)
        self.wanted = wanted


class BatchReader(DataSourceReader):
    """One read of what is there."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._bounds = Bounds()
        self.pushFilters = _Pushdown(self._bounds)  # type: ignore[method-assign]

    @plainly
    def partitions(self) -> Sequence[InputPartition]:
        planner = Planner(self._options)
        try:
            wanted = self._bounds.applied(planner, planner.all_at_once())
            return [Task(one) for one in wanted] or [InputPartition(None)]
        finally:
            planner.close()

    @plainly
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, Task):
            yield from read_range(self._options, partition.wanted, self._schema)


class _Pushdown:
    """`pushFilters` for whoever has filter pushdown switched on.

    Spark refuses a source that overrides the method while pushdown is off, which it is by default. So it is not
    overridden: this stands in its place and says that it is the original.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)  # the function itself, not bound to this

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        for one in filters:
            self._bounds.narrow(one)
        return filters  # all are checked again by Spark: what is fetched is whole batches


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming query's source. Offsets are in the form that Spark's own Kafka source has in its checkpoints."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._planner: Planner | None = None
        self._target: Json | None = None
        self._committed: dict[str, Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner": None}  # connections stay on the driver

    @property
    def planner(self) -> Planner:
        if self._planner is None:
            self._planner = Planner(self._options)
        return self._planner

    @plainly
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return dict(to_json(self.planner.starting()))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadMaxRows(self._options.offsets_max) if self._options.offsets_max else ReadAllAvailable()

    @plainly
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        latest = from_json(self._target) if self._target is not None else self._newest()
        records_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        begin = from_json(start)
        # Spark asks for the next batch when the one before is done, and calls `commit` only when there is a next one.
        # The group is told now, so that its lag goes to zero while nothing new comes.
        self.commit(start)
        return dict(to_json(self.planner.next_end(begin, latest, records_max)))

    @plainly
    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        return dict(to_json(self._newest()))

    @plainly
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = to_json(self._newest())

    def _newest(self) -> dict[Any, int]:
        return self.planner.latest(self.planner.partitions())

    @plainly
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        begin, until = from_json(start), from_json(end)
        self.planner.check_nothing_is_lost(begin, until)
        return [Task(one) for one in self.planner.tasks(begin, until)]

    @plainly
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Task)
        yield from read_range(self._options, partition.wanted, self._schema)

    @plainly
    def commit(self, end: dict[str, Any]) -> None:
        if end != self._committed:
            self.planner.commit(from_json(end))
            self._committed = end

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()
