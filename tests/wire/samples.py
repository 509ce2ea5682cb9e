"""Messages to test codecs with: random ones and full ones, made from our own field tables."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from penstock.wire import _codec
from penstock.wire.api import APIS
from penstock.wire.schema import FieldSpec, Versions, field_table, message_versions

Overrides = Mapping[str, SearchStrategy[Any]]

# Lengths beyond 126 and 16382 make the length prefix of compact types one byte longer.
_TEXT = st.text(max_size=8) | st.sampled_from(["x" * 126, "x" * 127, "ü" * 100, "水" * 5461])
_BLOB = st.binary(max_size=12) | st.sampled_from([bytes(127), bytes(range(256))])

_PRIMITIVES: dict[int, SearchStrategy[Any]] = {
    _codec.BOOL: st.booleans(),
    _codec.INT8: st.integers(-(2**7), 2**7 - 1),
    _codec.INT16: st.integers(-(2**15), 2**15 - 1),
    _codec.UINT16: st.integers(0, 2**16 - 1),
    _codec.INT32: st.integers(-(2**31), 2**31 - 1),
    _codec.UINT32: st.integers(0, 2**32 - 1),
    _codec.INT64: st.integers(-(2**63), 2**63 - 1),
    _codec.FLOAT64: st.floats(allow_nan=False),
    _codec.UUID: st.binary(min_size=16, max_size=16),
    _codec.STRING: _TEXT,
    _codec.BYTES: _BLOB,
    _codec.RECORDS: _BLOB,
}

# What stands for null in versions of a field that have none.
_EMPTY: dict[int, Any] = {_codec.STRING: "", _codec.BYTES: b"", _codec.RECORDS: b"", _codec.ARRAY: []}

# Values unlike any default.
_FULL: dict[int, Any] = {
    _codec.INT8: 0x12,
    _codec.INT16: 0x1234,
    _codec.UINT16: 0xFEDC,
    _codec.INT32: 0x12345678,
    _codec.UINT32: 0xFEDCBA98,
    _codec.INT64: 0x0001020304050607,
    _codec.FLOAT64: 0.5,
    _codec.UUID: bytes(range(16)),
    _codec.STRING: "penstock-ü",
    _codec.BYTES: b"some bytes",
    _codec.RECORDS: b"some records",
}


def api_messages() -> list[type]:
    return [kind for api in APIS.values() for kind in (api.request_type, api.response_type)]


def versions_of(cls: type) -> range:
    versions = message_versions(cls)
    return range(versions.low, versions.high + 1)


def is_ever(versions: Versions) -> bool:
    return versions.low <= versions.high


def is_tagged_struct(spec: FieldSpec) -> bool:
    """A struct that is None where it is left out, though null itself is not on the wire."""
    return spec.type.kind == _codec.STRUCT and is_ever(spec.tagged)


def messages_of(cls: type, overrides: Overrides | None = None) -> SearchStrategy[Any]:
    """Random messages that have a value in every field, whatever the versions. `for_version` makes one of them fit.

    `overrides` gives strategies by field name, at any depth.
    """
    if overrides:
        return _messages_of(cls, overrides)
    return _any_message_of(cls)


@cache
def _any_message_of(cls: type) -> SearchStrategy[Any]:
    return _messages_of(cls, {})


def _messages_of(cls: type, overrides: Overrides) -> SearchStrategy[Any]:
    fields = {
        spec.name: overrides[spec.name] if spec.name in overrides else _values_of(spec, overrides)
        for spec in field_table(cls)
    }
    return st.builds(cls, **fields)


def _values_of(spec: FieldSpec, overrides: Overrides) -> SearchStrategy[Any]:
    kind = spec.type
    if kind.kind == _codec.ARRAY:
        element = _PRIMITIVES[kind.element] if kind.struct is None else _messages_of(kind.struct, overrides)
        values: SearchStrategy[Any] = st.lists(element, max_size=2)
    elif kind.kind == _codec.STRUCT:
        assert kind.struct is not None
        values = _messages_of(kind.struct, overrides)
    else:
        values = _PRIMITIVES[kind.kind]
    may_be_none = is_ever(spec.nullable) or is_tagged_struct(spec)
    # An explicit default among the values exercises the rule that default tagged fields are left out.
    return st.none() | values if may_be_none else values | st.just(spec.default)


def full_message(cls: type) -> Any:
    """A message in which every field has a value that is not its default, and every array two elements."""

    def value(spec: FieldSpec) -> Any:
        kind = spec.type
        if kind.kind == _codec.ARRAY:
            return [_FULL[kind.element] if kind.struct is None else full_message(kind.struct) for _ in range(2)]
        if kind.kind == _codec.BOOL:
            return not spec.default
        return _FULL[kind.kind] if kind.struct is None else full_message(kind.struct)

    return cls(**{spec.name: value(spec) for spec in field_table(cls)})


def for_version(message: Any, version: int, *, keeps_absent: bool = False) -> Any:
    """The message as this version can say it: what it has no field for is the default, null only where allowed.

    With `keeps_absent`, fields that the version lacks keep their values, as in a message made for any version.
    """

    def value(spec: FieldSpec, given: Any) -> Any:
        if version not in spec.versions:
            return given if keeps_absent else spec.default
        if given is None:
            return None if version in spec.nullable or is_tagged_struct(spec) else _EMPTY[spec.type.kind]
        if spec.type.struct is None:
            return given
        if spec.type.kind == _codec.ARRAY:
            return [for_version(item, version, keeps_absent=keeps_absent) for item in given]
        return for_version(given, version, keeps_absent=keeps_absent)

    return type(message)(**{spec.name: value(spec, getattr(message, spec.name)) for spec in field_table(type(message))})
