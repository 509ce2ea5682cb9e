"""Exactly once into topics: one Kafka transaction per micro-batch.

For each micro-batch the driver begins a transaction (a new epoch: whoever still writes for an earlier attempt is
refused) and looks up which batch was the last to be committed. If it is this one, its rows are there already, and it is
run only for the state that Spark keeps of it. Else tasks write the rows, each those that it has, under the one producer
id and in turns; the driver adds the source's offsets (to the group with the query's name: so its lag shows) and the
batch's number (to a group of its own), and commits. Rows, offsets and number are there together or not at all. If an
executor dies in between, the driver begins the batch anew; if the driver does, Spark runs the batch again from its
checkpoint.

Readers must read with `read_committed`.

At least once is without all that: tasks write what they have at once, and the source's offsets are told afterwards.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark import TaskContext
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import Row

from penstock.client.cluster import Cluster, Refused, Unreachable
from penstock.client.errors import ConfigurationError
from penstock.client.shared_transaction import Committed, SharedTransaction
from penstock.spark.checkpoints import offsets_after, read_text
from penstock.spark.group_offsets import commit_offsets
from penstock.spark.placing import Layout
from penstock.spark.row_limit import SIZES, Measured, RowLimit
from penstock.spark.rows import CODECS, COLUMNS, check_columns
from penstock.spark.sending import Target, WritePlan
from penstock.spark.turns import TaskTurns, TurnAddress, TurnServer
from penstock.spark.writing import layout_of, places_of, write, write_at_least_once
from penstock.wire.errors import ErrorCode

logger = logging.getLogger(__name__)

Around = Callable[[DataFrame, int, Callable[[DataFrame], None]], None]

EXACTLY_ONCE = "exactly-once"
AT_LEAST_ONCE = "at-least-once"

_ATTEMPTS = 4  # at a batch, before the query fails: as many as Spark makes at a task


@dataclass(frozen=True)
class SinkOptions:
    """What `write_stream` was asked for."""

    target: Target
    query: str
    checkpoint: str
    tasks: int | None
    transaction_timeout_ms: int
    port: int


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
    guarantee: str = EXACTLY_ONCE,
    tasks: int | None = None,
    transaction_timeout: float = 60.0,
    timeout: float = 60.0,
    port: int = 0,
    around: Around | None = None,
) -> StreamingQuery:
    """Start a query that writes a streaming DataFrame into topics, exactly once.

    The frame has a column `value` (string or binary) and perhaps `key`, `headers`, `partition`, `timestamp`, and
    `topic` if rows go to several `topics`. `query` names the query for good: it is its transactional id and its
    consumer group, so two runs of one query cannot both write. `output_mode` is Spark's: "update" and "complete" for
    aggregations, where a row replaces what an earlier one of its key said. `trigger` is what `DataStreamWriter.trigger`
    takes, as in {"availableNow": True}. With `guarantee="at-least-once"` there is no transaction: rows can be read as
    soon as they are written, and are written again when Spark repeats a task or a batch. Tasks ask the driver for turns
    at writing, over a port of its own: any that is free, unless `port` says which. `around(frame, batch_id, write)` is
    called with each micro-batch, and calls `write` with the rows it makes of it.
    """
    names = tuple(dict.fromkeys([topic, *topics] if topic else topics))
    if not names:
        raise ConfigurationError("say where to write: topic='...', or topics=[...] and a column topic")
    if compression not in CODECS:
        raise ConfigurationError(f"compression is {compression!r}: use one of {', '.join(CODECS)}")
    if guarantee not in (EXACTLY_ONCE, AT_LEAST_ONCE):
        raise ConfigurationError(f"guarantee is {guarantee!r}: use {EXACTLY_ONCE} or {AT_LEAST_ONCE}")
    if around is None:
        check_columns(frame.schema, needs_topic=topic is None and len(names) > 1)
    default = topic or (names[0] if len(names) == 1 else None)
    target = Target(bootstrap, names, default, CODECS[compression], timeout)
    options = SinkOptions(target, query, checkpoint, tasks, int(transaction_timeout * 1000), port)
    sink = Sink(options) if guarantee == EXACTLY_ONCE else AtLeastOnceSink(options)
    each = sink.write_batch if around is None else _around(around, sink.write_batch)
    writer = frame.writeStream.foreachBatch(each).option("checkpointLocation", checkpoint)
    writer = writer.queryName(query).outputMode(output_mode)
    return writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start()


def _around(around: Around, write: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
    return lambda frame, batch_id: around(frame, batch_id, lambda rows: write(rows, batch_id))


class Sink:
    """What happens with each micro-batch, on the driver."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._batches = f"{options.query}.batches"  # the group that knows the last batch, as an offset
        self._cluster = _cluster(options)
        self._transaction = SharedTransaction(self._cluster, options.query, options.transaction_timeout_ms)
        self._limit = RowLimit()
        self._checkpoint_id = ""

    def write_batch(self, frame: DataFrame, batch_id: int) -> None:
        """Write a micro-batch, unless it is there already. When Spark has failed to, it begins anew."""
        attempts_left = _ATTEMPTS
        while True:
            is_there = self._begin(frame) >= batch_id
            if attempts_left == _ATTEMPTS:
                self._limit.apply(frame)
            else:
                self._limit.lift(frame)
            try:
                if is_there:
                    frame.write.format("noop").mode("overwrite").save()  # for its state
                else:
                    self._write(frame, batch_id)
                return
            except Exception as error:
                attempts_left -= 1
                if _is_overtaken(error):  # perhaps by another driver of this query, which must not be disturbed
                    raise
                if not attempts_left or not isinstance(error, (Py4JJavaError, PySparkException)):
                    self._abort_if_possible()
                    raise
                logger.warning("batch %d of %s begins anew: %s", batch_id, self._options.query, error)

    def _begin(self, frame: DataFrame) -> int:
        """Begin a transaction; returns the last batch that was committed, -1 if there is none."""
        if not self._checkpoint_id:
            self._checkpoint_id = json.loads(read_text(frame, self._options.checkpoint, "metadata"))["id"]
        self._transaction.begin()
        found = max(self._transaction.committed(self._batches).values(), default=Committed(0, ""))
        if found.metadata not in ("", self._checkpoint_id):
            raise ConfigurationError(
                f"query {self._options.query} was written with another checkpoint up to batch {found.offset - 1}: go "
                f"on with that one, give the query a new name, or delete group {self._batches}"
            )
        return found.offset - 1

    def _write(self, frame: DataFrame, batch_id: int) -> None:
        target = self._options.target
        layout = layout_of(self._cluster, target)
        places = places_of(layout)
        self._transaction.add(places)
        identity = self._transaction.identity
        plan = WritePlan(target, places, identity, is_transactional=True)
        self._limit.learn(_run(frame, layout, plan, self._options))
        offsets = offsets_after(frame, self._options.checkpoint, batch_id)
        told = {partition: Committed(offset, f"batch {batch_id}") for partition, offset in offsets.items()}
        self._transaction.add_offsets(self._options.query, told)
        self._transaction.add_offsets(self._batches, {places[0]: Committed(batch_id + 1, self._checkpoint_id)})
        self._transaction.commit()

    def _abort_if_possible(self) -> None:
        """Let readers go on at once. If it does not work, the next `begin` or the transaction's timeout does it."""
        try:
            self._transaction.abort()
        except (Refused, Unreachable):
            return


def _is_overtaken(error: Exception) -> bool:
    """Whether somebody else has begun a transaction of this query, or a broker has ended this one after its timeout.

    What tasks are told comes as text.
    """
    return any(code.name in str(error) for code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH))


class AtLeastOnceSink:
    """What happens with each micro-batch, on the driver, where a repetition may be seen."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._cluster = _cluster(options)
        self._limit = RowLimit()

    def write_batch(self, frame: DataFrame, batch_id: int) -> None:
        """Write a micro-batch, again if Spark says so, and tell the group how far the sources are read."""
        if self._limit.is_known:  # there is no second attempt, with Spark's own limits, at a first guess
            self._limit.apply(frame)
        rows = _spread(frame, self._options.tasks)
        self._limit.learn(rows.mapInArrow(_writing_at_least_once(self._options.target), SIZES).collect())
        commit_offsets(self._cluster, self._options.query, offsets_after(frame, self._options.checkpoint, batch_id))


def _cluster(options: SinkOptions) -> Cluster:
    target = options.target
    return Cluster(target.bootstrap, client_id=f"penstock-sink-{options.query}", timeout_s=target.timeout_s)


def _run(frame: DataFrame, layout: Layout, plan: WritePlan, options: SinkOptions) -> list[Row]:
    """Write the rows in one Spark job: each task those that it has. Returns how much each had."""
    names = [name for name in COLUMNS if name in frame.columns]
    rows = _spread(frame if names == frame.columns else frame.select(*names), options.tasks)
    host, bind_host = _driver_hosts(frame)
    with TurnServer(host, bind_host, options.port, len(plan.places)) as turns:
        return rows.mapInArrow(_writing(layout, plan, turns.address), SIZES).collect()


def _spread(frame: DataFrame, tasks: int | None) -> DataFrame:
    return frame if tasks is None else frame.repartition(tasks)


def _driver_hosts(frame: DataFrame) -> tuple[str, str]:
    """Where executors find this process, and where it listens for them: as it is with Spark's own connections."""
    conf = frame.sparkSession.conf
    host = str(conf.get("spark.driver.host", "127.0.0.1"))
    return host, str(conf.get("spark.driver.bindAddress", host))


def _writing(
    layout: Layout, plan: WritePlan, turns: TurnAddress
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        assert context is not None, "this runs in a task"
        measured = Measured(batches)
        rows = iter(measured)
        first = list(islice(rows, 1))  # as long as a task has seen no row, it may be tried again
        with TaskTurns(turns, context.partitionId()) as mine:
            write(plan, layout, chain(first, rows), mine)
        yield measured.sizes()

    return run


def _writing_at_least_once(target: Target) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        measured = Measured(batches)
        write_at_least_once(target, measured)
        yield measured.sizes()

    return run
