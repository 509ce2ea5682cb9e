"""What rows must look like to become records. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.client.errors import ConfigurationError
from penstock.wire.compression import Codec

CODECS = {"none": Codec.NONE, "gzip": Codec.GZIP, "snappy": Codec.SNAPPY, "lz4": Codec.LZ4, "zstd": Codec.ZSTD}
HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
COLUMNS: Mapping[str, tuple[DataType, ...]] = {
    "key": (BinaryType(), StringType()),
    "value": (BinaryType(), StringType()),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "headers": (HEADERS,),
    "timestamp": (TimestampType(),),
}


def check_columns(schema: StructType, *, needs_topic: bool) -> None:
    """Refuse columns that cannot be written, and say how to make them fit."""
    found = {field.name: field.dataType for field in schema.fields}
    if "value" not in found:
        raise ConfigurationError("there is no column value: select what to write as value, as in to_json(struct(*))")
    if needs_topic and "topic" not in found:
        raise ConfigurationError("there are several topics, so a column topic must say where each row goes")
    for name, kind in found.items():
        if name not in COLUMNS:
            raise ConfigurationError(f"there is no place for column {name}: records have {', '.join(COLUMNS)}")
        if _nullable(kind) not in COLUMNS[name]:
            wanted = " or ".join(one.simpleString() for one in COLUMNS[name])
            raise ConfigurationError(f"column {name} is {kind.simpleString()}: make it {wanted}, for example with cast")


def _nullable(kind: DataType) -> DataType:
    """The same type, with everything in it nullable: whether something may be null makes no difference here."""
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType))
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, _nullable(field.dataType)) for field in kind.fields])
    return kind
