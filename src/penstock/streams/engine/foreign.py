"""Joins of two tables by a foreign key: each row on the left with the row on the right that it names.

It is done to micro-batches, with no state of Spark's, as stream-table joins are: of both tables the newest row of each
key is kept, and read from their topics after a restart. A batch gives anew each result of which a side has changed, as
both tables are after it. So no answer for a key that a row had before can come after that for its new one.
"""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from penstock.streams.engine.columns import column
from penstock.streams.engine.enriching import Tables, newest
from penstock.streams.engine.joining import check_on, joined_value
from penstock.streams.engine.records import records, visible
from penstock.streams.nodes import INNER, ForeignKeyJoin


def joined_by_foreign_key(node: ForeignKeyJoin, frames: list[DataFrame], tables: Tables) -> DataFrame:
    """The changes of the joined table that a micro-batch makes."""
    left, right = (newest(frame, tables.rows.get(one)) for frame, one in zip(frames, node.parents, strict=True))
    rows = visible(left.select("key", "said.value", "said.timestamp", "said.offset"))
    asking = rows.withColumn("asked", column(node, node.on)).select(
        "key", f.col("value").alias("left"), f.col("timestamp").alias("left_time"), "asked"
    )
    check_on(node, asking, frames[1])
    known = right.select(
        f.col("key").alias("known_key"), f.col("said.value").alias("right"), f.col("said.timestamp").alias("right_time")
    )
    news = [
        frame.groupBy(f.col("key").alias(f"{side}_key")).agg(f.max_by("timestamp", "offset").alias(f"{side}_news"))
        for frame, side in zip(frames, ("left", "right"), strict=True)
    ]
    made = (
        asking.join(news[0], f.col("key") == f.col("left_key"), "full_outer")  # rows that are deleted are only in news
        .join(known, f.col("asked") == f.col("known_key"), "left")
        .join(news[1], f.col("asked") == f.col("right_key"), "left")
        .where("left_news IS NOT NULL OR right_news IS NOT NULL")
    )
    is_there = f.col("left_time").isNotNull()
    if node.kind == INNER:
        is_there &= f.col("right_time").isNotNull()
    timed = made.withColumns(
        {
            "key": f.coalesce("key", "left_key"),
            "timestamp": f.greatest(f.coalesce("left_time", "left_news"), f.coalesce("right_time", "right_news")),
        }
    )
    return records(timed.withColumn("value", f.when(is_there, joined_value(node))))
