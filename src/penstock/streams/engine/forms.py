"""Keys and values as bytes: the described serdes as expressions, and the form that internal topics have.

In an internal topic keys and values are JSON of a struct with the one field `v`, so that every type of Spark can go
through; none is none.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql.types import DataType, StructField, StructType

from penstock.client.errors import ConfigurationError
from penstock.spark import serde as spark_serde
from penstock.spark.serde import LONG, Serde
from penstock.streams import serdes
from penstock.streams.serdes import CustomSerde, JsonSerde, WindowedSerde

_OPTIONS = {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "ignoreNullFields": "false"}


def form(described: serdes.Serde) -> Serde:
    """The serde of Spark columns for a described one."""
    match described:
        case CustomSerde():
            custom: Serde = described.spark_serde
            return custom
        case JsonSerde():
            return _Json(spark_serde.json(described.schema, strict=described.is_strict))
        case WindowedSerde():
            return _Windowed(form(described.inner), described.is_session)
        case serdes.BYTES:
            return _Bytes()
        case serdes.TEXT:
            return spark_serde.TEXT
        case serdes.INT:
            return spark_serde.INT
        case serdes.LONG:
            return LONG
    raise ConfigurationError(f"there is no serde {described}: make one with custom(name, serde)")


class _Bytes:
    def read(self, column: Column) -> Column:
        return column

    def write(self, column: Column) -> Column:
        return column.cast("binary")


@dataclass(frozen=True)
class _Json:
    """JSON, in which a record without a value stays one."""

    json: Serde

    def read(self, column: Column) -> Column:
        return self.json.read(column)

    def write(self, column: Column) -> Column:
        return f.when(column.isNotNull(), self.json.write(column))


@dataclass(frozen=True)
class _Windowed:
    """A struct of key, start and end, as Kafka's windowed serializers write it.

    The key's bytes and the start; of sessions, the end in between. A time window's end is not among the bytes.
    """

    inner: Serde
    is_session: bool

    def read(self, column: Column) -> Column:
        raise ConfigurationError("windowed keys can be written, not read: read the key with a serde of your own")

    def write(self, column: Column) -> Column:
        times = ["end", "start"] if self.is_session else ["start"]
        written = [LONG.write(f.unix_millis(column.getField(name))) for name in times]
        return f.concat(self.inner.write(column.getField("key")), *written)


@dataclass(frozen=True)
class Internal:
    """The form in internal topics, of a type that is known."""

    kind: DataType

    def read(self, column: Column) -> Column:
        wrapped = StructType([StructField("v", self.kind)])
        return f.from_json(column.cast("string"), wrapped, {**_OPTIONS, "mode": "FAILFAST"}).getField("v")

    def write(self, column: Column) -> Column:
        return f.when(column.isNotNull(), f.to_json(f.struct(column.alias("v")), _OPTIONS).cast("binary"))
