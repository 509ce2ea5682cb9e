"""Aggregations with Spark's own functions, by key and perhaps window."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.streams.engine.columns import changed
from penstock.streams.engine.lateness import with_candidates
from penstock.streams.engine.records import records, visible
from penstock.streams.nodes import Aggregate, Columns
from penstock.streams.windows import SessionWindow, TimeWindow, Window


def aggregated(node: Aggregate, frame: DataFrame) -> DataFrame:
    """The changes of the table: a row for each key, or key and window, that changed."""
    counted = visible(counting(frame))
    value = changed(node, node.computes.value) if isinstance(node.computes, Columns) else f.count(f.lit(1))
    results = (value.alias("result"), f.max("timestamp").alias("newest"))
    if node.window is None:
        made = counted.groupBy("key").agg(*results)
        return records(made.select("key", f.col("result").alias("value"), f.col("newest").alias("timestamp")))
    # A session still takes in what comes just at the end of its gap and grace, a window does not.
    grace_ms = node.window.grace_ms + (1 if isinstance(node.window, SessionWindow) else 0)
    late = counted.withWatermark("timestamp", f"{grace_ms} milliseconds")
    made = late.groupBy("key", windows(node.window).alias("span")).agg(*results)
    made = made.where(f.unix_millis("span.start") >= 0)  # Kafka Streams has no windows before 1970
    key = windowed_key(node.window, f.col("span.start"), f.col("span.end"))
    changes = records(made.select(key, f.col("result").alias("value"), f.col("newest").alias("timestamp")))
    return with_candidates(changes, counting(frame), node.window) if node.late else changes


def counting(frame: DataFrame) -> DataFrame:
    """The records that count in an aggregation: those with a key and a value."""
    return frame.where(f.col("key").isNotNull() & f.col("value").isNotNull())


def windows(window: Window) -> Column:
    """The windows that a record is in."""
    if isinstance(window, TimeWindow):
        return f.window("timestamp", f"{window.size_ms} milliseconds", f"{window.advance_ms} milliseconds")
    assert isinstance(window, SessionWindow)
    return f.session_window("timestamp", f"{window.gap_ms} milliseconds")


def windowed_key(window: Window, start: Column, end: Column) -> Column:
    """The key of a windowed result. A session ends with its last record, as in Kafka Streams."""
    if isinstance(window, SessionWindow):
        end = f.timestamp_millis(f.unix_millis(end) - f.lit(window.gap_ms))
    return f.struct(f.col("key"), start.alias("start"), end.alias("end")).alias("key")
