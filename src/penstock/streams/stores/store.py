"""A store: what is asked for the rows of a table."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from penstock.client.errors import ConfigurationError
from penstock.client.times import to_timestamp_ms
from penstock.streams.stores.answers import Answer, Standing
from penstock.streams.stores.view import View, ordered
from penstock.streams.values import Windowed

LIMIT = 1000
LIMIT_MAX = 100_000
_LAST_MS = (1 << 63) - 1


class Store:
    """A table that can be asked. Every answer says how far behind it may be; all are of committed rows only."""

    def __init__(self, name: str, topic: str, view: View, standing: Callable[[], Standing]) -> None:
        self.name = name
        self.topic = topic
        self.is_windowed = view.form.is_windowed
        self._view = view
        self._standing = standing

    @property
    def standing(self) -> Standing:
        """How far behind the store is at this moment."""
        return self._answer("0", (), 1).standing

    def get(self, key: Any) -> Answer:
        """The row of a key; of a windowed table, of a key and window: `get(Windowed("anna", start))`."""
        if isinstance(key, Windowed):
            self._check_windowed(True, "get of a key with a window")
            end = "" if key.end is None else f" AND end = {int(key.end)}"
            return self._answer(f"sorted = ? AND start = ?{end}", (ordered(key.key), key.start), 1)
        self._check_windowed(False, "get of a key alone")
        return self._answer("sorted = ?", (ordered(key),), 1)

    def range(self, first: Any = None, last: Any = None, *, limit: int = LIMIT) -> Answer:
        """The rows of keys from `first` to `last`, both included; without one of them, from or to the end."""
        asked = [(f"sorted {sign} ?", key) for sign, key in ((">=", first), ("<=", last)) if key is not None]
        return self._answer(
            " AND ".join(text for text, _ in asked) or "1", tuple(ordered(key) for _, key in asked), limit
        )

    def all(self, *, limit: int = LIMIT) -> Answer:
        """All rows."""
        return self.range(limit=limit)

    def windows(
        self,
        key: Any = None,
        start: int | datetime | None = None,
        end: int | datetime | None = None,
        *,
        limit: int = LIMIT,
    ) -> Answer:
        """The windows of a key, or of all, that begin from `start` to `end`, both included: times in ms."""
        self._check_windowed(True, "windows")
        times = (0 if start is None else to_timestamp_ms(start), _LAST_MS if end is None else to_timestamp_ms(end))
        if key is None:
            return self._answer("start BETWEEN ? AND ?", times, limit)
        return self._answer("sorted = ? AND start BETWEEN ? AND ?", (ordered(key), *times), limit)

    def count(self) -> int:
        """How many rows there are."""
        return self._view.count()

    def typed_key(self, text: str) -> Any:
        """A key as people type it."""
        return self._view.form.typed_key(text)

    def _answer(self, where: str, values: tuple[Any, ...], limit: int) -> Answer:
        if not 0 < limit <= LIMIT_MAX:
            raise ConfigurationError(f"limit is {limit}: use 1 to {LIMIT_MAX:,}")
        standing = self._standing()  # before the rows: they may be newer than it says, not older
        rows, event_time = self._view.ask(where, values, limit + 1)
        standing = Standing(standing.records_behind, event_time, standing.as_of)
        return Answer(tuple(rows[:limit]), len(rows) <= limit, standing)

    def _check_windowed(self, wanted: bool, what: str) -> None:
        if self.is_windowed != wanted:
            raise ConfigurationError(
                f"{what}: store {self.name} is by key and window: ask with windows(key, start, end)"
                if self.is_windowed
                else f"{what}: store {self.name} has no windows: ask with get(key) or range(first, last)"
            )
