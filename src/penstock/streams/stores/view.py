"""A table on disk, as its changelog says: an SQLite file that can always be made anew.

`rows` has a row for each key, or key and window; a key is kept both in an order that SQLite knows and as its bytes.
`positions` says up to where each partition of the changelog was taken in, in the same transaction. `about` says what
the file is for: if that does not fit, or the file was left alone for so long that the topic may have forgotten what
was deleted meanwhile, it is made anew. One thread writes; any thread may ask.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterable, Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from penstock.client.records import Record
from penstock.streams.stores.answers import Row
from penstock.streams.stores.forms import Form
from penstock.streams.values import Windowed

_FORMAT = 1
_FORGOTTEN_MS = 12 * 3_600_000  # half of delete.retention.ms, as Kafka has it if nobody says otherwise
_NO_WINDOW = 0
_TABLES = """
    CREATE TABLE IF NOT EXISTS rows (
        sorted, start INTEGER, end INTEGER, key BLOB NOT NULL, value BLOB NOT NULL, timestamp INTEGER,
        PRIMARY KEY (sorted, start, end)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS positions (partition INTEGER PRIMARY KEY, position INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS about (name TEXT PRIMARY KEY, value);
"""
_UPSERT = "INSERT OR REPLACE INTO rows (sorted, start, end, key, value, timestamp) VALUES (?, ?, ?, ?, ?, ?)"
_DELETE = "DELETE FROM rows WHERE sorted = ? AND start = ? AND end = ?"
_EVENT_TIME = (
    "INSERT INTO about VALUES ('event_time', ?) ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)"
)

Place = tuple[Any, int, int]


class View:
    """The rows of one store."""

    def __init__(self, path: Path, form: Form, topic_id: str) -> None:
        self.form = form
        self._path = path
        self._asking = threading.Lock()
        try:
            self._writer = self._open(topic_id)
        except sqlite3.DatabaseError:
            self._writer = self._open(topic_id, is_new=True)
        self._reader = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self.positions: dict[int, int] = dict(self._writer.execute("SELECT partition, position FROM positions"))

    def close(self) -> None:
        with self._asking:
            self._reader.close()
        self._writer.close()

    def _open(self, topic_id: str, *, is_new: bool = False) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if is_new:
            for suffix in ("", "-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        opened = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
        opened.execute("PRAGMA journal_mode = WAL")
        opened.execute("PRAGMA synchronous = NORMAL")
        opened.executescript(_TABLES)
        known = dict(opened.execute("SELECT name, value FROM about"))
        about = {"format": _FORMAT, "topic": topic_id}
        is_usable = all(known.get(name) == value for name, value in about.items())
        if known and not (is_usable and _now_ms() - known.get("followed_at", 0) < _FORGOTTEN_MS):
            opened.close()
            return self._open(topic_id, is_new=True)
        opened.executemany("INSERT OR REPLACE INTO about VALUES (?, ?)", [*about.items(), ("followed_at", _now_ms())])
        return opened

    # ---- following ----

    def take_in(self, records: Iterable[Record[Any, Any]], positions: Mapping[int, int]) -> None:
        """Take in records of the changelog, in their order, and remember up to where that was."""
        newest: int | None = None
        changed: dict[Place, tuple[Any, ...] | None] = {}
        for record in records:
            place = self._place(record.key)
            if place is None:
                continue
            newest = max(newest or 0, record.timestamp or 0)
            is_row = record.value is not None
            changed[place] = (*place, record.key, record.value, record.timestamp) if is_row else None
        moved = {partition: one for partition, one in positions.items() if self.positions.get(partition) != one}
        if not changed and not moved:
            return
        write = self._writer
        write.execute("BEGIN")
        with write:  # commits, or takes it back
            write.executemany(_DELETE, (place for place, row in changed.items() if row is None))
            write.executemany(_UPSERT, (row for row in changed.values() if row is not None))
            write.executemany("INSERT OR REPLACE INTO positions VALUES (?, ?)", moved.items())
            write.execute("INSERT OR REPLACE INTO about VALUES ('followed_at', ?)", (_now_ms(),))
            if newest is not None:
                write.execute(_EVENT_TIME, (newest,))
        self.positions.update(moved)

    def _place(self, content: bytes | None) -> Place | None:
        """Where the row of a key stands; None if it is no key."""
        key = None if content is None else self.form.key(content)
        if isinstance(key, Windowed):
            return None if key.key is None else (ordered(key.key), key.start, key.end or _NO_WINDOW)
        return None if key is None else (ordered(key), _NO_WINDOW, _NO_WINDOW)

    # ---- asking ----

    def ask(self, where: str, values: tuple[Any, ...], limit: int) -> tuple[list[Row], int | None]:
        """Rows for which a condition holds, in order, and the newest event time of all."""
        asked = f"SELECT key, value, timestamp FROM rows WHERE {where} ORDER BY sorted, start, end LIMIT ?"
        with self._asking:
            self._reader.execute("BEGIN")  # so both are of the same moment
            try:
                found = self._reader.execute(asked, (*values, limit)).fetchall()
                time_row = self._reader.execute("SELECT value FROM about WHERE name = 'event_time'").fetchone()
            finally:
                self._reader.execute("COMMIT")
        rows = [Row(self.form.key(key), self.form.value(value), timestamp) for key, value, timestamp in found]
        return rows, time_row[0] if time_row else None

    def count(self) -> int:
        with self._asking:
            (count,) = self._reader.execute("SELECT count(*) FROM rows").fetchone()
        return int(count)


def ordered(key: Any) -> Any:
    """A key as SQLite can keep it in order: numbers, text and bytes as they are, all else as text."""
    match key:
        case bool():
            return int(key)
        case int() if -(1 << 63) <= key < 1 << 63:
            return key
        case float() | str() | bytes():
            return key
        case datetime() | date():
            return key.isoformat()
        case Decimal():
            return str(key)
    return json.dumps(key, sort_keys=True, default=str)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
