"""What all frames between steps look like: a row is a record."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from penstock.streams.nodes import Node
from penstock.streams.places import TopologyError

KEY_VALUE = ("key", "value")
ORIGINS = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "headers": "array<struct<key: string, value: binary>>",
}
COLUMNS = (*KEY_VALUE, "timestamp", *ORIGINS)


def records(frame: DataFrame, *others: str) -> DataFrame:
    """A frame as a stream's: with the columns of records and no others but these. Those it does not have are null."""
    missing = {name: f.lit(None).cast(kind) for name, kind in ORIGINS.items() if name not in frame.columns}
    return (frame.withColumns(missing) if missing else frame).select(*COLUMNS, *others)


def visible(frame: DataFrame) -> DataFrame:
    """The same rows, with the fields of a value that is a struct as columns beside it. A record's own names win."""
    value = frame.schema["value"].dataType
    if not isinstance(value, StructType):
        return frame
    taken = {name.lower() for name in frame.columns}
    fields = {name: f.col("value").getField(name) for name in value.names if name.lower() not in taken}
    return frame.withColumns(fields) if fields else frame


def named(name: str) -> Column:
    """A column by exactly this name, whatever is in it."""
    return f.col(f"`{name.replace('`', '``')}`")


def check_same_types(node: Node, frames: list[DataFrame], names: tuple[str, ...] = KEY_VALUE) -> None:
    """Refuse to put frames together whose keys or values differ."""
    for name in names:
        kinds = [frame.schema[name].dataType.simpleString() for frame in frames]
        if len(set(kinds)) > 1:
            raise TopologyError(
                node.place,
                f"{node.name}: {name}s are {' and '.join(dict.fromkeys(kinds))}: make them the same type first",
            )
