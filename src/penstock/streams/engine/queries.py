"""A piece of a topology as a Spark query.

Steps up to and with the one that has state are done to the streams themselves; all that follows is done to each
micro-batch. A piece without state of Spark's reads all its topics as one stream, and does everything to micro-batches.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import DataType, NumericType

from penstock.client.partitions import TopicPartition
from penstock.spark import write_stream
from penstock.spark.checkpoints import offsets_after, offsets_before, watermark_before
from penstock.spark.ranges import to_json
from penstock.spark.serde import Serde
from penstock.streams.engine.aggregating import aggregated
from penstock.streams.engine.columns import column
from penstock.streams.engine.enriching import Tables, enriched, kept, looked_up, newest
from penstock.streams.engine.folding import folded
from penstock.streams.engine.foreign import joined_by_foreign_key
from penstock.streams.engine.forms import Internal, form
from penstock.streams.engine.joining import SIDES, joined_streams, joined_tables
from penstock.streams.engine.keyed import Clock
from penstock.streams.engine.lateness import late_of, results_of, without_the_others
from penstock.streams.engine.processing import processed
from penstock.streams.engine.records import COLUMNS, KEY_VALUE, records, visible
from penstock.streams.engine.regrouping import regrouped
from penstock.streams.engine.steps import applied
from penstock.streams.nodes import (
    Aggregate,
    Fold,
    ForeignKeyJoin,
    GlobalJoin,
    Join,
    Late,
    Lookup,
    Node,
    Peek,
    Process,
    Regroup,
    Sink,
    Source,
    StreamJoin,
    StreamTableJoin,
    TableJoin,
    is_keyed,
)
from penstock.streams.pieces import Piece, Pieces, is_table
from penstock.streams.places import TopologyError
from penstock.streams.processors import WALL_CLOCK
from penstock.streams.windows import FINAL


@dataclass(frozen=True)
class Surroundings:
    """Where queries run: a session, the brokers, a folder for checkpoints, options for reading and for writing.

    `clock_topic` is a topic whose records say what time it is, for tests; without it, the wall says it.
    """

    spark: SparkSession
    bootstrap: str
    checkpoints: str
    reading: Mapping[str, str]
    writing: Mapping[str, Any]
    clock_topic: str | None = None


@dataclass(frozen=True)
class Query:
    """A query that can be started: `head` is its stream, `tail` makes of a micro-batch what is to be written."""

    piece: Piece
    head: DataFrame
    tail: Callable[[DataFrame, Tables], dict[Node, DataFrame]]
    topics: dict[Node, str]
    output_mode: str
    forms: dict[Node, tuple[Serde, Serde]]
    restored: Callable[[Mapping[TopicPartition, int]], Mapping[Node, DataFrame]]
    table_topics: frozenset[str]  # of a lookup: what its tables are read from
    types: Mapping[str, str]  # of what Spark keeps as state

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
                around=_Batches(self, checkpoint).write,
                **around.writing,
            )
        batches = _Batches(self, checkpoint)
        writer = self.head.writeStream.foreachBatch(lambda batch, batch_id: batches.write(batch, batch_id, None))
        writer = writer.queryName(self.piece.name).outputMode(self.output_mode).option("checkpointLocation", checkpoint)
        return writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start()

    def bytes_of(self, node: Node, frame: DataFrame) -> DataFrame:
        """Records as rows that can be written."""
        key, value = self.forms[node]
        where = [f.lit(self.topics[node]).alias("topic")] if len(self.topics) > 1 else []
        return frame.select(
            key.write(f.col("key")).alias("key"),
            value.write(f.col("value")).alias("value"),
            *where,
            "timestamp",
            "headers",
        )


class _Batches:
    """What is done with the micro-batches of a query, from a start on. Owns the tables of a lookup."""

    def __init__(self, query: Query, checkpoint: str) -> None:
        self._query = query
        self._checkpoint = checkpoint
        self._rows: Mapping[Node, DataFrame] | None = None
        self._read: tuple[int, Mapping[TopicPartition, int]] = (-1, {})  # a batch, and how far the sources are with it

    def write(self, batch: DataFrame, batch_id: int, write: Callable[[DataFrame], None] | None) -> None:
        """Do with a micro-batch what the steps say. What several outputs are made of is computed once."""
        query = self._query
        join = query.piece.stateful
        if "late" in batch.columns:
            batch = without_the_others(batch, watermark_before(batch, self._checkpoint, batch_id))
        tables = self._tables(batch, batch_id) if isinstance(join, Lookup) else Tables()
        is_shared = len(query.piece.outputs) > 1 or (isinstance(join, Lookup) and not tables.are_quiet)
        if is_shared:
            batch = batch.persist()
        try:
            frames = query.tail(batch, tables)
            for node in query.piece.outputs:
                if isinstance(node, Peek) and node.is_end:
                    frames[node].write.format("noop").mode("overwrite").save()
            if write is not None:
                write(reduce(DataFrame.union, [query.bytes_of(node, frames[node]) for node in query.topics]))
            if isinstance(join, Lookup) and not tables.are_quiet:
                self._rows = {one: kept(newest(frames[one], tables.rows[one])) for one in join.tables}
        finally:
            if is_shared:
                batch.unpersist()

    def _tables(self, batch: DataFrame, batch_id: int) -> Tables:
        """The tables of a lookup before a batch."""
        last_batch, before = self._read
        if last_batch != batch_id - 1:
            before = offsets_before(batch, self._checkpoint, batch_id)
        after = offsets_after(batch, self._checkpoint, batch_id)
        self._read = (batch_id, after)
        if self._rows is None:
            self._rows = self._query.restored(before)
        moved = {place.topic for place, offset in after.items() if before.get(place) != offset}
        return Tables(self._rows, moved.isdisjoint(self._query.table_topics))


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
        types: Mapping[str, str] = {}
        if stateful is None or isinstance(stateful, Lookup):
            read = [topic for node in piece.inputs for topic in self._topics_of(node)]
            head = self._read(read, self._tables_of(piece))
            after = members
            silence: dict[Node, DataFrame] = {}

            def begin(batch: DataFrame, tables: Tables) -> dict[Node, DataFrame]:
                if isinstance(stateful, Lookup) and tables.are_quiet and not silence:
                    nothing = batch.sparkSession.createDataFrame([], batch.schema)
                    silence.update(self._silent(stateful, members, piece.inputs, nothing))
                made = dict(silence) if tables.are_quiet else {}
                for node in piece.inputs:
                    if node not in made:
                        made[node] = self._decoded(node, batch.where(f.col("topic").isin(*self._topics_of(node))))
                return made
        else:
            position = members.index(stateful)
            leaves = {node: self._decoded(node, self._read(self._topics_of(node))) for node in piece.inputs}
            frames = self._run(members[: position + 1], leaves)
            head, types = frames[stateful], _types(stateful, frames)
            after = members[position + 1 :]

            late = [node for node in after if isinstance(node, Late)]

            def begin(batch: DataFrame, tables: Tables) -> dict[Node, DataFrame]:
                if "late" not in batch.columns:
                    return {stateful: batch}
                return {stateful: results_of(batch), **{node: late_of(batch) for node in late}}

        def tail(batch: DataFrame, tables: Tables) -> dict[Node, DataFrame]:
            return self._run(after, begin(batch, tables), tables)

        def restored(offsets: Mapping[TopicPartition, int]) -> Mapping[Node, DataFrame]:
            assert isinstance(stateful, Lookup)
            return {one: self._restored(one, members, piece.inputs, offsets) for one in stateful.tables}

        made = tail(head, Tables())  # only to know the types
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
        tables = self._tables_of(piece)
        return Query(piece, head, tail, topics, _output_mode(stateful), forms, restored, tables, types)

    def _tables_of(self, piece: Piece) -> frozenset[str]:
        """The topics of the tables that a piece looks into."""
        join = piece.stateful
        return frozenset(self._topics_behind(join.tables, piece.inputs) if isinstance(join, Lookup) else ())

    def _topics_behind(self, nodes: Iterable[Node], inputs: tuple[Node, ...]) -> list[str]:
        """The topics that steps of a piece are made of."""
        needed = {one for node in nodes for one in self._pieces.needed_for(node)}
        return [topic for node in inputs if node in needed for topic in self._topics_of(node)]

    def _topics_of(self, node: Node) -> list[str]:
        """What is read for an input of a piece."""
        return self._pieces.topics_of(node)

    def _read(self, topics: list[str], tables: Iterable[str] = ()) -> DataFrame:
        """A stream of topics. Limits of a batch are not for tables: records must not come before what they say."""
        options = {**self._options(topics), **self._around.reading, "unlimitedTopics": ",".join(tables)}
        return self._around.spark.readStream.format("penstock").options(**options).load()

    def _options(self, topics: list[str]) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": self._around.bootstrap,
            "subscribe": ",".join(dict.fromkeys(topics)),
            "startingOffsets": "earliest",
            "kafka.isolation.level": "read_committed",
            "includeHeaders": "true",
        }

    def _restored(
        self, table: Node, members: list[Node], inputs: tuple[Node, ...], offsets: Mapping[TopicPartition, int]
    ) -> DataFrame:
        """A table as it was when its topics were read up to these offsets."""
        needed = self._pieces.needed_for(table)
        leaves = [node for node in inputs if node in needed]
        topics = self._topics_behind([table], inputs)
        ends = {partition: offset for partition, offset in offsets.items() if partition.topic in topics}
        reader = self._around.spark.read.format("penstock").options(**self._options(topics))
        raw = reader.option("endingOffsets", json.dumps(to_json(ends))).load() if ends else reader.load().limit(0)
        frames = {node: self._decoded(node, raw.where(f.col("topic").isin(*self._topics_of(node)))) for node in leaves}
        made = self._run([node for node in members if node in needed], frames, Tables())
        return kept(newest(made[table], None))

    def _silent(
        self, join: Lookup, members: list[Node], inputs: tuple[Node, ...], nothing: DataFrame
    ) -> dict[Node, DataFrame]:
        """What is done to tables alone, in a batch in which they say nothing: the same for all such batches."""
        others = {one for node in join.parents if node not in join.tables for one in self._pieces.needed_for(node)}
        own = {one for node in join.tables for one in self._pieces.needed_for(node)} - others
        frames = {node: self._decoded(node, nothing) for node in inputs if node in own}
        return self._run([node for node in members if node in own], frames)

    def _decoded(self, node: Node, raw: DataFrame) -> DataFrame:
        """Records as they mean something."""
        if isinstance(node, Source):
            read = {"key": form(node.key), "value": form(node.value)}
        else:
            read = {name: Internal(kind) for name, kind in zip(KEY_VALUE, self._kinds[node], strict=True)}
        frame = raw.select(*(read[name].read(f.col(name)).alias(name) if name in read else name for name in COLUMNS))
        if isinstance(node, Source) and node.timestamp is not None:
            frame = records(_stamped(node, visible(frame)))
        return frame.where(f.col("key").isNotNull()) if is_table(node) else frame

    def _run(
        self, nodes: list[Node], frames: dict[Node, DataFrame], tables: Tables | None = None
    ) -> dict[Node, DataFrame]:
        """Do steps one after the other, beginning with what is there. `tables` are those of a lookup, before."""
        made = dict(frames)
        for node in nodes:
            if node not in made:
                made[node] = self._done(node, [made[parent] for parent in node.parents], tables or Tables())
        return made

    def _done(self, node: Node, frames: list[DataFrame], tables: Tables) -> DataFrame:
        try:
            match node:
                case Aggregate(computes=Fold()):
                    return folded(node, frames)
                case Aggregate():
                    return aggregated(node, frames[0])
                case Regroup():
                    return regrouped(node, frames[0])
                case Process():
                    return processed(node, frames[0], self._clock(node))
                case StreamJoin():
                    return joined_streams(node, frames)
                case StreamTableJoin():
                    return enriched(node, frames, tables)
                case GlobalJoin():
                    return looked_up(node, frames, tables)
                case ForeignKeyJoin():
                    return joined_by_foreign_key(node, frames, tables)
                case TableJoin():
                    return joined_tables(node, frames)
            return applied(node, frames)
        except AnalysisException as error:
            raise TopologyError(node.place, f"{node.name}: {_first_line(error)}") from error

    def _clock(self, node: Process) -> Clock | None:
        """The clock on the wall, for who goes by it. It ticks every second."""
        if node.processor.clock != WALL_CLOCK:
            return None
        if self._around.clock_topic is not None:
            return Clock(self._read([self._around.clock_topic]), f.lit(None))
        ticks = self._around.spark.readStream.format("rate").option("rowsPerSecond", 1).load()
        return Clock(ticks, f.unix_millis(f.current_timestamp()))


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


def _types(stateful: Node, frames: dict[Node, DataFrame]) -> dict[str, str]:
    """The types of what a step keeps, by names for people."""
    kept = {"type of keys": (frames[stateful.parents[0]], "key")}
    if isinstance(stateful, Regroup):
        kept["type of rows"] = (frames[stateful.parents[0]], "value")
    elif isinstance(stateful, Aggregate):
        kept["type of results"] = (frames[stateful], "value")
    elif isinstance(stateful, Join):
        kept |= {
            f"type on the {side}": (frames[one], "value") for side, one in zip(SIDES, stateful.parents, strict=True)
        }
    return {name: frame.schema[column].dataType.simpleString() for name, (frame, column) in kept.items()}


def _output_mode(stateful: Node | None) -> str:
    if isinstance(stateful, TableJoin) or (stateful is not None and is_keyed(stateful)):
        return "update"
    if isinstance(stateful, Aggregate):
        return "append" if stateful.window is not None and stateful.window.emit == FINAL else "update"
    return "append"


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0].split(" SQLSTATE", 1)[0].rstrip(";. ")
