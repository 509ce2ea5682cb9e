"""Joins of two streams in a window, and of two tables."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.streams.engine.columns import changed
from penstock.streams.engine.records import records
from penstock.streams.nodes import INNER, LEFT, Join, StreamJoin, TableJoin
from penstock.streams.places import TopologyError

_SPARK_KINDS = {"inner": "inner", "left": "left_outer", "outer": "full_outer"}
SIDES = ("left", "right")


def joined_streams(node: StreamJoin, frames: list[DataFrame]) -> DataFrame:
    """Pairs of records. Rows wait for partners as long as records may come that are not too late to be one."""
    check_keys(node, frames)
    window = node.window
    wait_ms = window.before_ms + window.after_ms + window.grace_ms
    sides = [
        frame.select(
            f.col("key").alias(f"{side}_key"), f.col("value").alias(side), f.col("timestamp").alias(f"{side}_time")
        ).withWatermark(f"{side}_time", f"{wait_ms} milliseconds")
        for frame, side in zip(frames, SIDES, strict=True)
    ]
    is_pair = f.expr(
        "left_key = right_key"
        f" AND right_time >= left_time - INTERVAL {window.before_ms} MILLISECONDS"
        f" AND right_time <= left_time + INTERVAL {window.after_ms} MILLISECONDS"
    )
    made = sides[0].join(sides[1], is_pair, _SPARK_KINDS[node.kind])
    keyed = made.withColumns(
        {
            "key": f.coalesce("left_key", "right_key"),
            "timestamp": f.greatest("left_time", "right_time"),  # of the one that is there, if the other is not
        }
    )
    return records(keyed.withColumn("value", joined_value(node)))


def joined_tables(node: TableJoin, frames: list[DataFrame]) -> DataFrame:
    """The changes of the joined table. The state is the newest row of either side, by key.

    All rows of a key are in one partition, so the newest is that with the highest offset.
    """
    check_keys(node, frames)
    kinds = [
        frame.select(f.struct("value", "timestamp", "offset").alias("row")).schema["row"].dataType for frame in frames
    ]
    sides = [
        frame.where(f.col("key").isNotNull()).select(
            "key",
            *(
                (f.struct("value", "timestamp", "offset") if side == own else f.lit(None)).cast(kind).alias(side)
                for side, kind in zip(SIDES, kinds, strict=True)
            ),
        )
        for frame, own in zip(frames, SIDES, strict=True)
    ]
    state = (
        sides[0]
        .union(sides[1])
        .groupBy("key")
        .agg(
            *(f.max_by(side, f"{side}.offset").alias(f"newest_{side}") for side in SIDES),
            *(f.max(f.col(f"{side}.value").isNotNull()).alias(f"had_{side}") for side in SIDES),
        )
    )
    has, had = (_is_there(node.kind, name) for name in ("{} IS NOT NULL", "coalesce(had_{}, false)"))
    newest = {side: f.col(f"newest_{side}.value") for side in SIDES}
    newest["timestamp"] = f.greatest(*(f"newest_{side}.timestamp" for side in SIDES))
    named = state.where(had).withColumns(newest)  # no need to delete what never was
    return records(named.withColumn("value", f.when(has, joined_value(node))))


def _is_there(kind: str, condition: str) -> Column:
    left, right = (condition.format(side) for side in SIDES)
    if kind == INNER:
        return f.expr(f"({left}) AND ({right})")
    return f.expr(left if kind == LEFT else f"({left}) OR ({right})")


def joined_value(node: Join) -> Column:
    """What a join makes of the columns left and right."""
    return f.struct(*SIDES) if node.value is None else changed(node, node.value, SIDES)


def check_on(node: Join, asking: DataFrame, table: DataFrame) -> None:
    """Refuse to look up what cannot be a key of the table. What is looked up is in the column `asked`."""
    asked, key = asking.schema["asked"].dataType.simpleString(), table.schema["key"].dataType.simpleString()
    if asked != key:
        raise TopologyError(node.place, f"{node.name}: on= gives {asked}, and the table's keys are {key}: cast it")


def check_keys(node: Join, frames: list[DataFrame], where: tuple[str, str] = ("on the left", "on the right")) -> None:
    """Refuse to join by keys of different types."""
    left, right = (frame.schema["key"].dataType.simpleString() for frame in frames)
    if left != right:
        raise TopologyError(
            node.place, f"{node.name}: keys are {left} {where[0]} and {right} {where[1]}: make them the same first"
        )
