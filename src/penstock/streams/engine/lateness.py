"""Records that come too late for their windows, beside the results of an aggregation.

Such a row has the record in the column `late`, where results have none. Steps in Python see for themselves what is too
late. Where Spark aggregates, it drops such records before its functions; so all records go along as they came, and
those that Spark did not drop are left out of the micro-batch: `closes` is when their last window is closed.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.streams.engine.records import records
from penstock.streams.windows import SessionWindow, TimeWindow, Window


def late_column(key: Column, value: Column, timestamp: Column, closes: Column | None = None) -> Column:
    """The column `late`."""
    closed = f.lit(None) if closes is None else closes
    return f.struct(
        key.alias("key"), value.alias("value"), timestamp.alias("timestamp"), closed.cast("bigint").alias("closes")
    )


def with_candidates(results: DataFrame, frame: DataFrame, window: Window) -> DataFrame:
    """Results, and beside them all records that they were made of."""
    at = f.unix_millis("timestamp")
    if isinstance(window, TimeWindow):
        closes = at - f.pmod(at, f.lit(window.advance_ms)) + f.lit(window.size_ms)
    else:
        assert isinstance(window, SessionWindow)
        closes = at + f.lit(window.gap_ms)
    late = frame.select(late_column(f.col("key"), f.col("value"), f.col("timestamp"), closes).alias("late"))
    none = {name: f.lit(None).cast(results.schema[name].dataType) for name in results.columns}
    candidates = late.select(*(none[name].alias(name) for name in results.columns), "late")
    return results.withColumn("late", f.lit(None).cast(late.schema["late"].dataType)).union(candidates)


def without_the_others(batch: DataFrame, watermark_ms: int) -> DataFrame:
    """A micro-batch without the records that were not too late. Spark drops what its watermark has passed."""
    return batch.where(f.expr(f"late IS NULL OR late.closes IS NULL OR late.closes <= {watermark_ms}"))


def results_of(batch: DataFrame) -> DataFrame:
    """The rows that are results."""
    return records(batch.where("late IS NULL"))


def late_of(batch: DataFrame) -> DataFrame:
    """The records that came too late."""
    return records(batch.where("late IS NOT NULL").select("late.*"))
