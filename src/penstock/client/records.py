"""What goes through a topic, as the client library shows it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from penstock.client._records import Record
from penstock.client.errors import ConfigurationError

__all__ = ["Delivered", "Headers", "HeadersLike", "Record"]

Headers = tuple[tuple[str, bytes | None], ...]
HeadersLike = Mapping[str, str | bytes | None] | Iterable[tuple[str, str | bytes | None]]


class Delivered(NamedTuple):
    """Where a record came to be. With acks=0 nobody knows the offset: it is None."""

    topic: str
    partition: int
    offset: int | None
    timestamp: int | None


def to_headers(given: HeadersLike | None) -> Headers:
    """Headers as they are sent: text as UTF-8; a name may come several times."""
    if not given:
        return ()
    pairs = given.items() if isinstance(given, Mapping) else given
    return tuple((name, value.encode() if isinstance(value, str) else _checked(name, value)) for name, value in pairs)


def _checked(name: str, value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    raise ConfigurationError(f"header {name!r} is of type {type(value).__name__}: it must be bytes, str or None")
