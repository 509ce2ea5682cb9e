"""The rows of a table by another key: each change is what leaves a group and what comes into one.

Of each row it is remembered in which group it was and with which value, so that just that can be taken out again. A
change within a group is one record with both, else there are two, the old one first.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructField, StructType

from penstock.streams.engine.columns import changed
from penstock.streams.engine.keyed import Made, Memory, keyed, unpacked
from penstock.streams.engine.records import records, visible
from penstock.streams.nodes import Regroup


def regrouped(node: Regroup, frame: DataFrame) -> DataFrame:
    """Records under the groups' keys, with the fields old and new."""
    seen = visible(frame.where(f.col("key").isNotNull())).withColumn("group", changed(node, node.key))
    row = f.when(f.col("value").isNotNull() & f.col("group").isNotNull(), f.struct("group", "value"))
    rows = records(seen.withColumn("value", row))
    group, value = (seen.schema[name].dataType for name in ("group", "value"))
    kind = StructType([StructField("group", group), StructField("old", value), StructField("new", value)])
    made = keyed([rows], _regrouping).withColumn("change", unpacked("packed", kind))
    return records(
        made.select(
            f.col("change.group").alias("key"),
            f.struct("change.old", "change.new").alias("value"),
            f.timestamp_micros("micros").alias("timestamp"),
        )
    )


def _regrouping(memory: Memory, arrived: list[Any], now_ms: int) -> Iterator[Made]:
    """Changes of one row. What is remembered is its group and value."""
    old = memory.content
    for arrival in arrived:
        row = pickle.loads(arrival.packed)
        new = None if row is None else (row.group, row.value)
        if old is not None and new is not None and old[0] == new[0]:
            changes = [(new[0], old[1], new[1])]
        else:
            out = [] if old is None else [(old[0], old[1], None)]
            changes = out + ([] if new is None else [(new[0], None, new[1])])
        for change in changes:
            yield Made(memory.packed_key, pickle.dumps(change), arrival.micros)
        old = new
    memory.content = old
