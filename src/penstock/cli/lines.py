"""Records as lines of text: plain ones, and JSON objects that keep everything.

A JSON object has `key`, `value`, `headers` (pairs, or an object) and `timestamp`, besides where the record was read:
`topic`, `partition`, `offset`. Bytes that are no text are in `key_base64` and `value_base64` instead.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import Any

from penstock.cli.mistakes import Mistake
from penstock.client.records import Headers, Record

AnyRecord = Record[Any, Any]


@dataclass(frozen=True)
class NewRecord:
    """A record to send."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None
    timestamp: int | None = None


def from_line(
    line: bytes, number: int, key: str | None, key_separator: str | None, *, is_empty_null: bool
) -> NewRecord:
    """The record that a line stands for."""
    made_key = None if key is None else key.encode()
    value = line
    if key_separator is not None:
        separator = key_separator.encode()
        found, middle, rest = line.partition(separator)
        if not middle:
            raise Mistake(f"line {number} has no {key_separator!r} between key and value")
        made_key, value = found, rest
    if is_empty_null:
        return NewRecord(made_key or None, value or None)
    return NewRecord(made_key, value)


def from_json(line: bytes, number: int) -> NewRecord:
    """The record that a JSON object describes."""
    try:
        given = json.loads(line)
    except ValueError as error:
        raise Mistake(f"line {number} is no JSON: {error}") from None
    if not isinstance(given, dict):
        raise Mistake(f'line {number} is no JSON object; one looks like {{"key": "k", "value": "v"}}')
    try:
        headers = given.get("headers") or []
        pairs = headers.items() if isinstance(headers, dict) else headers
        return NewRecord(
            _bytes(given, "key"),
            _bytes(given, "value"),
            tuple((str(name), None if value is None else _encoded(value)) for name, value in pairs),
            given.get("partition"),
            given.get("timestamp"),
        )
    except (ValueError, TypeError) as error:
        raise Mistake(f"line {number} is no record: {error}") from None


def _bytes(given: dict[str, Any], name: str) -> bytes | None:
    if given.get(f"{name}_base64") is not None:
        return base64.b64decode(given[f"{name}_base64"], validate=True)
    value = given.get(name)
    return None if value is None else _encoded(value)


def _encoded(value: Any) -> bytes:
    """Text as it is; anything else as JSON."""
    return (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)).encode()


def to_json(record: AnyRecord) -> str:
    """A record as one line of JSON."""
    shown: dict[str, Any] = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": None,
        "value": None,
        "headers": [
            [name, None if value is None else value.decode(errors="replace")] for name, value in record.headers
        ],
    }
    for name, content in (("key", record.key), ("value", record.value)):
        if content is not None:
            try:
                shown[name] = content.decode()
            except UnicodeDecodeError:
                shown[f"{name}_base64"] = base64.b64encode(content).decode()
    return json.dumps(shown, ensure_ascii=False)
