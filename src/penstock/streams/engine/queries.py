"""A piece of a topology as a Spark query.

Steps up to and with the one that has state are done to the streams themselves; all that follows is done to each
micro-batch. A piece without state reads all its topics as one stream, and does everything to micro-batches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import DataType, NumericType

from penstock.spark import write_stream
from penstock.spark.serde import Serde
from penstock.streams.engine.aggregating import aggregated
from penstock.streams.engine.columns import column
from penstock.streams.engine.folding import folded
from penstock.streams.engine.forms import Internal, form
from penstock.streams.engine.joining import joined_streams, joined_tables
from penstock.streams.engine.records import KEY_VALUE, records, visible
from penstock.streams.engine.steps import applied
from penstock.streams.nodes import Aggregate, Fold, Node, Peek, Sink, Source, StreamJoin, TableJoin
from penstock.streams.pieces import Piece, Pieces, is_table
from penstock.streams.places import TopologyError
from penstock.streams.windows import FINAL


@dataclass(frozen=True)
class Surroundings:
    """Where queries run: a session, the brokers, a folder for checkpoints, options for reading and for writing."""

    spark: SparkSession
    bootstrap: str
    checkpoints: str
    reading: Mapping[str, str]
    writing: Mapping[str, Any]


@dataclass(frozen=True)
class Query:
    """A query that can be started: `head` is its stream, `tail` makes of a micro-batch what is to be written."""

    piece: Piece
    head: DataFrame
    tail: Callable[[DataFrame], dict[Node, DataFrame]]
    topics: dict[Node, str]
    output_mode: str
    forms: dict[Node, tuple[Serde, Serde]]

    def start(self, around: Surroundings, trigger: Mapping[str, Any] | None = None) -> StreamingQuery:
        """Run it, exactly once if it writes into topics."""
        checkpoint = f"{around.checkpoints}/{self.piece.name}"
        if self.topics:
            return write_stream(
                self.head,
                bootstrap=around.bootstrap,
                query=self.piece.name,
                checkpoint=checkpoint,
                topics=self.topics.values(),
                output_mode=self.output_mode,
                trigger=trigger,
                around=self._write,
                **around.writing,
            )
        writer = self.head.writeStream.foreachBatch(lambda batch, _: self._write(batch, None)).queryName(
            self.piece.name
        )
        writer = writer.outputMode(self.output_mode).option("checkpointLocation", checkpoint)
        return writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start()

    def _write(self, batch: DataFrame, write: Callable[[DataFrame], None] | None) -> None:
        """Do with a micro-batch what the steps say. What several outputs are made of is computed once."""
        is_shared = len(self.piece.outputs) > 1
        if is_shared:
            batch = batch.persist()
        try:
            frames = self.tail(batch)
            for node in self.piece.outputs:
                if isinstance(node, Peek) and node.is_end:
                    frames[node].write.format("noop").mode("overwrite").save()
            rows = [self._bytes(node, frames[node]) for node in self.topics]
            if write is not None:
                write(reduce(DataFrame.union, rows))
        finally:
            if is_shared:
                batch.unpersist()

    def _bytes(self, node: Node, frame: DataFrame) -> DataFrame:
        """Records as rows that can be written."""
        key, value = self.forms[node]
        return frame.select(
            key.write(f.col("key")).alias("key"),
            value.write(f.col("value")).alias("value"),
            f.lit(self.topics[node]).alias("topic"),
            "timestamp",
            "headers",
        )


class Compiler:
    """Makes queries of pieces, in their order: what one writes into an internal topic says what the next one reads."""

    def __init__(self, pieces: Pieces, around: Surroundings) -> None:
        self._pieces = pieces
        self._around = around
        self._kinds: dict[Node, tuple[DataType, DataType]] = {}  # of keys and values in internal topics

    def queries(self) -> list[Query]:
        return [self.query(piece) for piece in self._pieces.pieces]

    def query(self, piece: Piece) -> Query:
        """The query for a piece."""
        members = self._pieces.members(piece)
        stateful = piece.stateful
        if stateful is None:
            head = self._read([topic for node in piece.inputs for topic in self._topics_of(node)])
            after = members

            def begin(batch: DataFrame) -> dict[Node, DataFrame]:
                return {
                    node: self._decoded(node, batch.where(f.col("topic").isin(*self._topics_of(node))))
                    for node in piece.inputs
                }
        else:
            position = members.index(stateful)
            leaves = {node: self._decoded(node, self._read(self._topics_of(node))) for node in piece.inputs}
            head = self._run(members[: position + 1], leaves)[stateful]
            after = members[position + 1 :]

            def begin(batch: DataFrame) -> dict[Node, DataFrame]:
                return {stateful: batch}

        def tail(batch: DataFrame) -> dict[Node, DataFrame]:
            return self._run(after, begin(batch))

        made = tail(head)  # only to know the types
        topics: dict[Node, str] = {}
        forms: dict[Node, tuple[Serde, Serde]] = {}
        for node in piece.outputs:
            if isinstance(node, Sink):
                topics[node] = node.topic
                forms[node] = (form(node.key), form(node.value))
                _check_written(node, made[node], forms[node])
            elif node in self._pieces.internal:
                topics[node] = self._pieces.internal[node].name
                self._kinds[node] = (made[node].schema["key"].dataType, made[node].schema["value"].dataType)
                forms[node] = (Internal(self._kinds[node][0]), Internal(self._kinds[node][1]))
        return Query(piece, head, tail, topics, _output_mode(stateful), forms)

    def _topics_of(self, node: Node) -> list[str]:
        """What is read for an input of a piece."""
        return list(node.topics) if isinstance(node, Source) else [self._pieces.internal[node].name]

    def _read(self, topics: list[str]) -> DataFrame:
        options = {
            "kafka.bootstrap.servers": self._around.bootstrap,
            "subscribe": ",".join(dict.fromkeys(topics)),
            "startingOffsets": "earliest",
            "kafka.isolation.level": "read_committed",
            "includeHeaders": "true",
            **self._around.reading,
        }
        return self._around.spark.readStream.format("penstock").options(**options).load()

    def _decoded(self, node: Node, raw: DataFrame) -> DataFrame:
        """Records as they mean something."""
        if isinstance(node, Source):
            read = {"key": form(node.key), "value": form(node.value)}
        else:
            read = {name: Internal(kind) for name, kind in zip(KEY_VALUE, self._kinds[node], strict=True)}
        frame = raw.withColumns({name: one.read(f.col(name)) for name, one in read.items()})
        if isinstance(node, Source) and node.timestamp is not None:
            frame = _stamped(node, visible(frame))
        return records(frame.where(f.col("key").isNotNull()) if is_table(node) else frame)

    def _run(self, nodes: list[Node], frames: dict[Node, DataFrame]) -> dict[Node, DataFrame]:
        """Do steps one after the other, beginning with what is there."""
        made = dict(frames)
        for node in nodes:
            if node not in made:
                made[node] = _done(node, [made[parent] for parent in node.parents])
        return made


def _done(node: Node, frames: list[DataFrame]) -> DataFrame:
    try:
        match node:
            case Aggregate(computes=Fold()):
                return folded(node, frames)
            case Aggregate():
                return aggregated(node, frames[0])
            case StreamJoin():
                return joined_streams(node, frames)
            case TableJoin():
                return joined_tables(node, frames)
        return applied(node, frames)
    except AnalysisException as error:
        raise TopologyError(node.place, f"{node.name}: {_first_line(error)}") from error


def _stamped(node: Source, frame: DataFrame) -> DataFrame:
    """Records with the event time that the user's expression gives: a timestamp, or milliseconds."""
    assert node.timestamp is not None
    try:
        timed = frame.withColumn("timestamp", column(node, node.timestamp))
    except AnalysisException as error:
        raise TopologyError(node.place, f"{node.name}: {_first_line(error)}") from error
    if isinstance(timed.schema["timestamp"].dataType, NumericType):
        timed = timed.withColumn("timestamp", f.timestamp_millis(f.col("timestamp").cast("bigint")))
    return timed.withColumn("timestamp", f.col("timestamp").cast("timestamp"))


def _check_written(node: Sink, frame: DataFrame, forms: tuple[Serde, Serde]) -> None:
    try:
        frame.select(forms[0].write(f.col("key")), forms[1].write(f.col("value"))).schema  # noqa: B018 - Spark checks
    except AnalysisException as error:
        raise TopologyError(node.place, f"{node.name}: {_first_line(error)}") from error


def _output_mode(stateful: Node | None) -> str:
    if isinstance(stateful, TableJoin):
        return "update"
    if isinstance(stateful, Aggregate):
        return "append" if stateful.window is not None and stateful.window.emit == FINAL else "update"
    return "append"


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0].split(" SQLSTATE", 1)[0].rstrip(";. ")
