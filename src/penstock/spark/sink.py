"""Exactly once into topics: one Kafka transaction per micro-batch.

For each micro-batch the driver begins a transaction (a new epoch: whoever still writes for an earlier attempt is
refused) and looks up which batch was the last to be committed. If it is this one, it is there already. Else tasks write
the rows, each partition by one task, all under the one producer id; the driver adds the source's offsets (to the group
with the query's name: so its lag shows) and the batch's number (to a group of its own), and commits. Rows, offsets and
number are there together or not at all. If anything dies in between, Spark runs the batch again from its checkpoint,
and it all begins anew.

Readers must read with `read_committed`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import BinaryType, IntegerType, LongType, StructField, StructType

from penstock.client.cluster import Cluster, Refused, Unreachable
from penstock.client.errors import ConfigurationError
from penstock.client.records import TopicPartition
from penstock.client.shared_transaction import Committed, SharedTransaction
from penstock.spark.placing import Layout, placed
from penstock.spark.ranges import from_json, is_by_partition
from penstock.spark.rows import CODECS, COLUMNS, check_columns
from penstock.spark.writing import Records, WritePlan, encoded, layout_of, places_of, write
from penstock.wire.compression import Codec
from penstock.wire.errors import ErrorCode

_ENCODED = StructType(
    [StructField("place", IntegerType()), StructField("count", IntegerType()), StructField("content", BinaryType())]
)
_WRITTEN = StructType([StructField("place", IntegerType()), StructField("records", LongType())])


@dataclass(frozen=True)
class SinkOptions:
    """What `write_stream` was asked for."""

    bootstrap: str
    query: str
    topics: tuple[str, ...]
    codec: Codec
    tasks: int | None
    transaction_timeout_ms: int
    timeout_s: float


def write_stream(
    frame: DataFrame,
    *,
    bootstrap: str,
    query: str,
    checkpoint: str,
    topic: str | None = None,
    topics: Iterable[str] = (),
    output_mode: str = "append",
    compression: str = "none",
    trigger: Mapping[str, Any] | None = None,
    tasks: int | None = None,
    transaction_timeout: float = 60.0,
    timeout: float = 60.0,
) -> StreamingQuery:
    """Start a query that writes a streaming DataFrame into topics, exactly once.

    The frame has a column `value` (string or binary) and perhaps `key`, `headers`, `partition`, and `topic` if rows go
    to several `topics`. `query` names the query for good: it is its transactional id and its consumer group, so two
    runs of one query cannot both write. `output_mode` is Spark's: "update" and "complete" for aggregations, where a row
    replaces what an earlier one of its key said. `trigger` is what `DataStreamWriter.trigger` takes, as in
    {"availableNow": True}.
    """
    names = tuple(dict.fromkeys([topic, *topics] if topic else topics))
    if not names:
        raise ConfigurationError("say where to write: topic='...', or topics=[...] and a column topic")
    if compression not in CODECS:
        raise ConfigurationError(f"compression is {compression!r}: use one of {', '.join(CODECS)}")
    check_columns(frame.schema, needs_topic=topic is None and len(names) > 1)
    options = SinkOptions(bootstrap, query, names, CODECS[compression], tasks, int(transaction_timeout * 1000), timeout)
    sink = Sink(options, topic or (names[0] if len(names) == 1 else None), checkpoint)
    writer = frame.writeStream.foreachBatch(sink.write_batch).option("checkpointLocation", checkpoint)
    writer = writer.queryName(query).outputMode(output_mode)
    return writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start()


class Sink:
    """What happens with each micro-batch, on the driver."""

    def __init__(self, options: SinkOptions, default_topic: str | None, checkpoint: str) -> None:
        self._options = options
        self._default_topic = default_topic
        self._checkpoint = checkpoint
        self._batches = f"{options.query}.batches"  # the group that knows the last batch, as an offset
        self._cluster = Cluster(
            options.bootstrap, client_id=f"penstock-sink-{options.query}", timeout_s=options.timeout_s
        )
        self._transaction = SharedTransaction(self._cluster, options.query, options.transaction_timeout_ms)

    def write_batch(self, frame: DataFrame, batch_id: int) -> None:
        """Write a micro-batch, unless it is there already."""
        identity = self._transaction.begin()
        layout = layout_of(self._cluster, self._options.topics, self._default_topic)
        places = places_of(layout)
        if self._last_batch() >= batch_id:
            return
        try:
            self._transaction.add(places)
            plan = WritePlan(
                self._options.bootstrap, places, identity, True, self._options.codec, self._options.timeout_s
            )
            _run(frame, layout, plan, self._options.tasks)
            self._transaction.add_offsets(self._options.query, self._source_offsets(frame, batch_id))
            self._transaction.add_offsets(self._batches, {places[0]: Committed(batch_id + 1, f"batch {batch_id}")})
            self._transaction.commit()
        except Exception:
            self._abort_if_possible()
            raise

    def _last_batch(self) -> int:
        """The last batch that was committed; -1 if there is none."""
        return max([one.offset - 1 for one in self._transaction.committed(self._batches).values()], default=-1)

    def _source_offsets(self, frame: DataFrame, batch_id: int) -> dict[TopicPartition, Committed]:
        """How far the sources are read with this batch, as far as they are topics."""
        found = source_offsets(_read_text(frame, f"{self._checkpoint}/offsets/{batch_id}"))
        return {partition: Committed(offset, f"batch {batch_id}") for partition, offset in found.items()}

    def _abort_if_possible(self) -> None:
        """Let readers go on at once. If it does not work, the next `begin` or the transaction's timeout does it."""
        try:
            self._transaction.abort()
        except (Refused, Unreachable):
            return


def _run(frame: DataFrame, layout: Layout, plan: WritePlan, tasks: int | None) -> int:
    """Write the rows in one Spark job; returns how many there were.

    The tasks that have the rows encode them. What is brought to the one task that owns a partition are whole batches:
    Spark itself handles no single row.
    """
    columns = [name for name in COLUMNS if name in frame.columns]
    count = max(tasks or min(len(plan.places), frame.sparkSession.sparkContext.defaultParallelism), 1)
    batches = frame.select(*columns).mapInArrow(_encoding(layout, plan), _ENCODED)
    owned = batches.repartitionById(count, batches.place % count)
    written = owned.mapInArrow(_writing(plan), _WRITTEN, barrier=True).collect()
    return sum(row.records for row in written)


def _encoding(layout: Layout, plan: WritePlan) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for one in encoded(placed(layout, batches), len(plan.places), plan.codec):
            yield pa.RecordBatch.from_arrays(
                [
                    pa.array([one.place], pa.int32()),
                    pa.array([one.count], pa.int32()),
                    pa.array([memoryview(one.content)], pa.binary()),
                ],
                names=_ENCODED.names,
            )

    return run


def _writing(plan: WritePlan) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        if context is not None and context.attemptNumber() > 0:
            raise Refused(
                ErrorCode.INVALID_TXN_STATE,
                "write a part of a batch again",
                "an earlier attempt may have written some of it",
            )
        counts = write(plan, _received(batches))
        yield pa.RecordBatch.from_pydict(
            {
                "place": pa.array([place for place, _ in counts], pa.int32()),
                "records": pa.array([count for _, count in counts], pa.int64()),
            }
        )

    return run


def _received(batches: Iterable[pa.RecordBatch]) -> Iterator[Records]:
    for batch in batches:
        for place, count, content in zip(*batch.columns, strict=True):
            yield Records(place.as_py(), count.as_py(), content.as_buffer())


def source_offsets(log: str) -> dict[TopicPartition, int]:
    """The offsets of Kafka sources in an entry of Spark's offset log: a line for each source after two others."""
    found: dict[TopicPartition, int] = {}
    for line in log.splitlines()[2:]:
        try:
            offsets = json.loads(line)
        except ValueError:
            continue
        if is_by_partition(offsets):
            found |= from_json(offsets)
    return found


def _read_text(frame: DataFrame, path: str) -> str:
    """A small file, on any file system that Spark knows."""
    rows = frame.sparkSession.read.text(path).collect()
    return "\n".join(row.value for row in rows)
