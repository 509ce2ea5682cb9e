"""From Python values to the bytes of a record, and back.

A serializer is any callable from a value to bytes, a deserializer the reverse; the common ones have names:

    bytes   as they are
    str     UTF-8
    int     8 bytes, big-endian, signed, as Java's LongSerializer
    float   8 bytes, as Java's DoubleSerializer
    json    JSON in UTF-8, without spaces

None stays None both ways: a null key, or a null value, which deletes a key from a compacted topic.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import Any

from penstock.client.errors import ConfigurationError, SerializationError

Serializer = Callable[[Any], bytes]
Deserializer = Callable[[bytes], Any]

_LONG = struct.Struct(">q")
_DOUBLE = struct.Struct(">d")


def _to_bytes(value: Any) -> bytes:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise TypeError(f"it is {_kind(value)}, not bytes")


def _to_utf8(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    raise TypeError(f"it is {_kind(value)}, not str")


def _bytes_or_str(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise TypeError(f"it is {_kind(value)}, not bytes or str; name a serializer for it, such as 'json'")


def _to_json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _kind(value: Any) -> str:
    name = type(value).__name__
    return f"an {name}" if name[0] in "aeiou" else f"a {name}"


_SERIALIZERS: dict[str, Serializer] = {
    "bytes": _to_bytes,
    "str": _to_utf8,
    "int": _LONG.pack,
    "float": _DOUBLE.pack,
    "json": _to_json,
}
_DESERIALIZERS: dict[str, Deserializer | None] = {
    "bytes": None,
    "str": bytes.decode,
    "int": lambda data: _LONG.unpack(data)[0],
    "float": lambda data: _DOUBLE.unpack(data)[0],
    "json": json.loads,
}


def serializer(given: str | Serializer | None) -> Serializer:
    """The serializer of that name, or the callable itself. None takes bytes and str."""
    if given is None:
        return _bytes_or_str
    return _named(given, _SERIALIZERS, "serializer")  # type: ignore[no-any-return]


def deserializer(given: str | Deserializer | None) -> Deserializer | None:
    """The deserializer of that name, or the callable itself. None leaves bytes as they are."""
    if given is None:
        return None
    return _named(given, _DESERIALIZERS, "deserializer")  # type: ignore[no-any-return]


def _named(given: Any, known: dict[str, Any], what: str) -> Any:
    if callable(given):
        return given
    if given not in known:
        raise ConfigurationError(f"there is no {what} {given!r}: use a callable or one of {', '.join(known)}")
    return known[given]


def serialize(value: Any, function: Serializer, what: str, topic: str) -> bytes | None:
    """The bytes of a key or value; `what` says which of them it is."""
    if value is None:
        return None
    try:
        return function(value)
    except Exception as error:
        raise SerializationError(f"cannot serialize the {what} of a record for {topic!r}: {error}") from error


def deserialize(data: bytes | None, function: Deserializer | None, what: str, place: str) -> Any:
    """The value of a key's or value's bytes; `place` says where the record is."""
    if data is None or function is None:
        return data
    try:
        return function(data)
    except Exception as error:
        raise SerializationError(f"cannot deserialize the {what} of {place}: {error}") from error
