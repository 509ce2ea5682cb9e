"""The changelogs of stores: topics, and what their bytes mean in Python.

In internal topics keys and values are JSON of Spark's types, which are known when queries are made.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from penstock.client.errors import ConfigurationError
from penstock.streams.engine.forms import Internal
from penstock.streams.engine.queries import Query
from penstock.streams.nodes import Source, Store
from penstock.streams.pieces import Pieces
from penstock.streams.stores.follower import Changelog
from penstock.streams.stores.forms import Form, SerdeForm
from penstock.streams.values import Windowed

_WINDOWED = ["key", "start", "end"]


def changelogs(pieces: Pieces, queries: list[Query]) -> list[Changelog]:
    """What the stores of an application follow."""
    return [Changelog(one.store, pieces.changelog(one), _form(one, queries)) for one in pieces.topology.stores]


def _form(store: Store, queries: list[Query]) -> Form:
    (table,) = store.parents
    for query in queries:
        if table in query.topics:
            key, value = query.forms[table]
            assert isinstance(key, Internal)
            assert isinstance(value, Internal)
            return InternalForm(key.kind, value.kind)
    assert isinstance(table, Source)
    return SerdeForm(table.key, table.value)


@dataclass(frozen=True)
class InternalForm:
    """Bytes of an internal topic."""

    key_kind: DataType
    value_kind: DataType

    @property
    def is_windowed(self) -> bool:
        kind = self.key_kind
        return (
            isinstance(kind, StructType)
            and kind.names == _WINDOWED
            and isinstance(kind["start"].dataType, TimestampType)
        )

    def key(self, content: bytes) -> Any:
        key = _loaded(self.key_kind, content)
        return Windowed(key["key"], _ms(key["start"]), _ms(key["end"])) if self.is_windowed else key

    def value(self, content: bytes) -> Any:
        return _loaded(self.value_kind, content)

    def typed_key(self, text: str) -> Any:
        kind = (
            self.key_kind["key"].dataType
            if isinstance(self.key_kind, StructType) and self.is_windowed
            else self.key_kind
        )
        if isinstance(kind, StringType):
            return text
        try:
            return python_value(kind, json.loads(text, parse_float=Decimal))
        except (ValueError, TypeError, AttributeError):
            raise ConfigurationError(f"key {text!r} cannot be: keys of this store are {kind.simpleString()}") from None


def _loaded(kind: DataType, content: bytes) -> Any:
    return python_value(kind, json.loads(content, parse_float=Decimal).get("v"))


def _ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)


def python_value(kind: DataType, said: Any) -> Any:
    """What JSON that Spark wrote means in Python; structs are dicts."""
    if said is None:
        return None
    match kind:
        case StructType():
            return {field.name: python_value(field.dataType, said.get(field.name)) for field in kind.fields}
        case ArrayType():
            return [python_value(kind.elementType, one) for one in said]
        case MapType():
            return {python_value(kind.keyType, key): python_value(kind.valueType, one) for key, one in said.items()}
        case TimestampType() | TimestampNTZType():
            return datetime.fromisoformat(said)
        case DateType():
            return date.fromisoformat(said)
        case BinaryType():
            return base64.b64decode(said)
        case DecimalType():
            return Decimal(said)
        case FractionalType():
            return float(said)
        case BooleanType():
            return said in (True, "true")
        case IntegralType():
            return int(said)
    return said
