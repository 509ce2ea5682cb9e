"""What a store answers: rows, and how far behind they may be."""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from penstock.streams.values import Windowed


@dataclass(frozen=True)
class Row:
    """A row of a table. `timestamp` is its event time, in ms."""

    key: Any
    value: Any
    timestamp: int | None


@dataclass(frozen=True)
class Standing:
    """Where a store stands: how many records of the changelog are not in it, and the newest event time that is.

    `as_of` is when that was last looked at. Times are in ms; None: never, or nothing is there.
    """

    records_behind: int
    event_time: int | None
    as_of: int | None


@dataclass(frozen=True)
class Answer:
    """Rows in the order of their keys. `is_complete` says that there are no more than these."""

    rows: tuple[Row, ...]
    is_complete: bool
    standing: Standing

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def value(self) -> Any:
        """The value of the first row; None if there is none."""
        return self.rows[0].value if self.rows else None

    def to_json(self) -> dict[str, Any]:
        """The same, of what JSON can say."""
        rows = [{"key": plain(one.key), "value": plain(one.value), "timestamp": one.timestamp} for one in self.rows]
        return {"rows": rows, "is_complete": self.is_complete, "standing": asdict(self.standing)}


def plain(value: Any) -> Any:
    """A value as JSON can say it: times as text in ISO 8601, bytes in Base64, numbers that it lacks as text."""
    match value:
        case Windowed():
            return {"key": plain(value.key), "start": value.start, "end": value.end}
        case dict():
            return {str(key): plain(one) for key, one in value.items()}
        case list() | tuple():
            return [plain(one) for one in value]
        case bytes():
            return base64.b64encode(value).decode()
        case datetime() | date():
            return value.isoformat()
        case Decimal():
            return str(value)
        case float() if not math.isfinite(value):
            return str(value)
    return value
