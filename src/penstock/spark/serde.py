"""What keys and values mean: expressions that turn bytes into columns and columns into bytes.

A serde is any object with `read` and `write`, both from a column to a column, so they become part of Spark's plan and
nothing runs in Python. Those here follow Kafka's own serializers: text is UTF-8, integers are big-endian. Bytes that do
not fit (four for an `INT`, JSON for `json`) read as null, as is Spark's way; `json(..., strict=True)` fails instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from penstock.client.errors import ConfigurationError


class Serde(Protocol):
    """How a key or a value is written as bytes."""

    def read(self, column: Column) -> Column:
        """What the bytes in a column mean."""
        ...

    def write(self, column: Column) -> Column:
        """A column's values as bytes."""
        ...


class _Text:
    def read(self, column: Column) -> Column:
        return column.cast("string")

    def write(self, column: Column) -> Column:
        return column.cast("string").cast("binary")


@dataclass(frozen=True)
class _Integer:
    """A signed integer of a fixed size, as Kafka's IntegerSerializer and LongSerializer write it."""

    size: int
    type: str

    def read(self, column: Column) -> Column:
        number = f.conv(f.hex(column), 16, -10).cast("bigint")  # of eight bytes: conv knows the sign
        if self.size < 8:
            sign = 1 << (self.size * 8 - 1)
            number = number.bitwiseXOR(f.lit(sign)) - f.lit(sign)
        return f.when(f.octet_length(column) == self.size, number.cast(self.type))

    def write(self, column: Column) -> Column:
        digits = f.lpad(f.hex(column.cast(self.type).cast("bigint")), 16, "0")
        return f.unhex(f.substring(digits, 17 - self.size * 2, self.size * 2))


@dataclass(frozen=True)
class _Json:
    schema: StructType | str | None
    is_strict: bool

    def read(self, column: Column) -> Column:
        if self.schema is None:
            raise ConfigurationError("reading JSON needs a schema: json('user STRING, age INT')")
        mode = "FAILFAST" if self.is_strict else "PERMISSIVE"
        return f.from_json(column.cast("string"), self.schema, {"mode": mode})

    def write(self, column: Column) -> Column:
        return f.to_json(column).cast("binary")


TEXT: Serde = _Text()
INT: Serde = _Integer(4, "int")
LONG: Serde = _Integer(8, "bigint")


def json(schema: StructType | str | None = None, *, strict: bool = False) -> Serde:
    """JSON with these fields. A schema is needed for reading only."""
    return _Json(schema, strict)


def decode(frame: DataFrame, *, key: Serde | None = None, value: Serde | None = None) -> DataFrame:
    """A frame that was read from topics, with what its keys and values mean in place of their bytes."""
    given = {"key": key, "value": value}
    return frame.withColumns({name: serde.read(frame[name]) for name, serde in given.items() if serde is not None})


def encode(frame: DataFrame, *, key: Serde | None = None, value: Serde | None = None) -> DataFrame:
    """The other way: a frame that is ready to be written to topics."""
    given = {"key": key, "value": value}
    return frame.withColumns({name: serde.write(frame[name]) for name, serde in given.items() if serde is not None})
