"""Stream-table joins: each record of a stream gets what a table says about its key, or about another of its fields.

It is done to micro-batches, with no state of Spark's. Within a batch, a record sees the table's rows that are not
younger than itself, and all rows of earlier batches. Those are kept as a cached frame, the newest row of each key,
which a batch with rows of the table makes anew. Most batches have none: then the records just look into that frame.
After a restart it is read from the table's topics, up to where the last batch ended. In a global table, a record sees
all rows that have come, be they younger or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from penstock.streams.engine.columns import column
from penstock.streams.engine.joining import check_keys, check_on, joined_value
from penstock.streams.engine.records import COLUMNS, records, visible
from penstock.streams.nodes import INNER, GlobalJoin, Lookup, Node, StreamTableJoin

# A table of so many rows is given to all tasks, instead of moving the stream's records to where its rows are.
_ROWS_FOR_ALL = 100_000


@dataclass(frozen=True)
class Tables:
    """The tables of a lookup: their rows before a micro-batch, as `kept` gave them; none before the first."""

    rows: Mapping[Node, DataFrame] = field(default_factory=dict)
    are_quiet: bool = False  # there are no rows of theirs in the micro-batch


def enriched(node: StreamTableJoin, frames: list[DataFrame], tables: Tables) -> DataFrame:
    """A micro-batch of the stream, joined with the table."""
    stream, table = frames
    check_keys(node, frames, ("in the stream", "in the table"))
    earlier = tables.rows.get(node.parents[1])
    before = newest(table.limit(0), None) if earlier is None else earlier
    counts = f.col("value").isNotNull()
    if node.kind == INNER:
        counts &= f.col("key").isNotNull()
    counted = stream.where(counts)
    if tables.are_quiet:
        return _joined(node, counted, "key", before)
    rows = f.struct(*(name for name in COLUMNS if name != "key")).alias("row")
    asking = counted.select("key", "timestamp", f.lit(1).alias("turn"), rows, _nothing(table).alias("said"))
    saying = table.select(
        "key", "timestamp", f.lit(0).alias("turn"), _nothing(stream, rows=True).alias("row"), _said().alias("said")
    )
    order = Window.partitionBy("key").orderBy(
        "timestamp", "turn", f.coalesce(f.col("said.offset"), f.col("row.offset"))
    )
    seen = f.last("said", ignorenulls=True).over(order).alias("said")
    answered = asking.union(saying).select("key", "turn", "row", seen).where("turn = 1")
    known = before.select(f.col("key").alias("known_key"), f.col("said").alias("known"))
    joined = answered.join(known, answered["key"] == known["known_key"], "left")
    made = joined.select(
        "key", "row.*", f.coalesce("said", "known").alias("answer"), f.col("row.value").alias("left")
    ).withColumn("right", f.col("answer.value"))
    found = made.where(f.col("right").isNotNull()) if node.kind == INNER else made
    return records(found.withColumn("value", joined_value(node)))


def looked_up(node: GlobalJoin, frames: list[DataFrame], tables: Tables) -> DataFrame:
    """A micro-batch of the stream, joined with the global table as it is after the batch."""
    stream, table = frames
    counted = visible(stream.where(f.col("value").isNotNull()))
    asking = counted.withColumn("asked", column(node, node.on)).select(*COLUMNS, "asked")
    check_on(node, asking, table)
    earlier = tables.rows.get(node.parents[1])
    seen = earlier if tables.are_quiet and earlier is not None else newest(table, earlier)
    return _joined(node, asking, "asked", seen)


def _joined(node: Lookup, asking: DataFrame, asked: str, table: DataFrame) -> DataFrame:
    """Records with what the newest rows of a table say of what is in the column `asked`."""
    known = table.select(f.col("key").alias("known_key"), f.col("said.value").alias("right"))
    joined = asking.join(known, f.col(asked) == f.col("known_key"), "inner" if node.kind == INNER else "left")
    value = joined_value(node).alias("value")
    return joined.withColumn("left", f.col("value")).select(*(value if name == "value" else name for name in COLUMNS))


def kept(rows: DataFrame) -> DataFrame:
    """The newest rows of a table, computed now, for the batches to come."""
    made = rows.localCheckpoint()
    return f.broadcast(made) if made.count() <= _ROWS_FOR_ALL else made


def newest(table: DataFrame, earlier: DataFrame | None) -> DataFrame:
    """The newest row of each key that was not deleted, by offset: all rows of a key are in one partition."""
    rows = table.select("key", _said().alias("said"))
    every = rows if earlier is None else earlier.union(rows)
    return every.groupBy("key").agg(f.max_by("said", "said.offset").alias("said")).where("said.value IS NOT NULL")


def _said() -> Column:
    return f.struct("value", "offset", "timestamp")


def _nothing(frame: DataFrame, *, rows: bool = False) -> Column:
    """A null of the type that the other side has in its place."""
    made = f.struct(*(name for name in COLUMNS if name != "key")) if rows else _said()
    return f.lit(None).cast(frame.select(made.alias("one")).schema["one"].dataType)
