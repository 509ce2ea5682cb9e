"""Keys and values as Python sees them: bytes of serdes that can be read and written without Spark."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import Any

from penstock.client.errors import ConfigurationError
from penstock.streams.serdes import INT, LONG, TEXT, JsonSerde, Serde, WindowedSerde

_NUMBERS = {INT: ">i", LONG: ">q"}


@dataclass(frozen=True)
class Windowed:
    """The key of a windowed result, with the window's start (and the end, where it is known) in ms."""

    key: Any
    start: int
    end: int | None = None


def to_bytes(serde: Serde, value: Any) -> bytes | None:
    """A Python value as a serde writes it."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(serde, JsonSerde):
        return json.dumps(value).encode()
    if serde in _NUMBERS:
        return struct.pack(_NUMBERS[serde], value)
    if serde == TEXT:
        return str(value).encode()
    raise ConfigurationError(f"{value!r} cannot be written as {serde}: give bytes")


def from_bytes(serde: Serde, content: bytes | None) -> Any:
    """What bytes mean in Python; of a serde that is not known here, the bytes."""
    if content is None:
        return None
    if isinstance(serde, WindowedSerde):
        times = 16 if serde.is_session else 8
        numbers = struct.unpack(f">{times // 8}q", content[-times:])
        return Windowed(
            from_bytes(serde.inner, content[:-times]), numbers[-1], numbers[0] if serde.is_session else None
        )
    if isinstance(serde, JsonSerde):
        return json.loads(content)
    if serde in _NUMBERS:
        return struct.unpack(_NUMBERS[serde], content)[0]
    return content.decode() if serde == TEXT else content
