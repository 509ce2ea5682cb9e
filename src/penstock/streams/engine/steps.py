"""What steps without state do to a frame of records, of a stream or of one micro-batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from penstock.streams.changes import Change
from penstock.streams.engine.columns import changed
from penstock.streams.engine.records import check_same_types, records, visible
from penstock.streams.nodes import Branch, Filter, FlatMap, Map, Merge, Node, Peek, ToTable


def applied(node: Node, frames: list[DataFrame]) -> DataFrame:
    """What a step makes of its parents' records. Steps that only say how to see them leave them as they are."""
    match node:
        case Filter(is_table=True):
            kept = f.when(_holds(node, node.condition, node.is_negated), f.col("value"))
            return records(visible(frames[0]).withColumn("value", kept))
        case Filter():
            return records(visible(frames[0]).where(_holds(node, node.condition, node.is_negated)))
        case Branch():
            conditions = [_holds(node, one, is_negated=True) for one in node.earlier]
            if node.condition is not None:
                conditions.append(_holds(node, node.condition, is_negated=False))
            return records(visible(frames[0]).where(reduce(Column.__and__, conditions)))
        case Map():
            return _mapped(node, frames[0])
        case FlatMap():
            return _flat_mapped(node, frames[0])
        case ToTable():
            return frames[0].where(f.col("key").isNotNull())
        case Peek():
            return _peeked(node.action, frames[0])
        case Merge():
            check_same_types(node, frames)
            return reduce(DataFrame.union, frames)
    return frames[0]


def _holds(node: Node, condition: Change, is_negated: bool) -> Column:
    """A condition. What is unknown counts as false."""
    known = f.coalesce(changed(node, condition).cast("boolean"), f.lit(False))
    return ~known if is_negated else known


def _mapped(node: Map, frame: DataFrame) -> DataFrame:
    made = {name: changed(node, one) for name, one in (("key", node.key), ("value", node.value)) if one is not None}
    if node.is_table:
        made["value"] = f.when(f.col("value").isNotNull(), made["value"])
    return records(visible(frame).withColumns(made))


def _flat_mapped(node: FlatMap, frame: DataFrame) -> DataFrame:
    exploded = visible(frame).withColumn("element", f.explode(changed(node, node.change)))
    if not node.with_key:
        return records(exploded.withColumn("value", f.col("element")))
    return records(exploded.withColumns({name: f.col("element").getField(name) for name in ("key", "value")}))


def _peeked(action: Callable[[Any, Any], Any], frame: DataFrame) -> DataFrame:
    def show(key: Any, value: Any) -> bool:
        action(key, value)
        return True

    shown: Any = f.udf(show, "boolean", useArrow=True).asNondeterministic()  # so Spark neither drops nor doubles it
    return frame.where(shown("key", "value"))
