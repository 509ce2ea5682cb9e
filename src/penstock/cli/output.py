"""How commands print: tables for people, JSON for programs. Data goes to stdout, remarks to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]

_WIDE = 10_000  # into a pipe or a file, lines are as long as they are


class Output:
    """What a command says. With `as_json`, data is printed as one JSON value and nothing else is."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json

    def rows(self, rows: Sequence[Row], *, columns: Sequence[str], empty: str = "Nothing found.") -> None:
        """A list of things: a table with these columns, or an array of objects with everything."""
        if self.as_json:
            self.json(rows)
        elif rows:
            self._table(rows, columns)
        else:
            self.remark(empty)

    def facts(self, facts: Row) -> None:
        """Facts about one thing: a line each, or an object."""
        if self.as_json:
            self.json(facts)
            return
        width = max(map(len, facts), default=0)
        for name, value in facts.items():
            print(f"{_title(name):<{width}}  {_text(value)}".rstrip())

    def done(self, message: str, facts: Row) -> None:
        """Something was done: a line that says so, or an object."""
        if self.as_json:
            self.json(facts)
        else:
            print(message)

    def json(self, value: Any) -> None:
        print(json.dumps(value, indent=2, ensure_ascii=False, default=str))

    def line(self, value: Any) -> None:
        """A JSON value in a line of its own, at once."""
        print(json.dumps(value, ensure_ascii=False, default=str), flush=True)

    def heading(self, text: str) -> None:
        if not self.as_json:
            print(text)

    def remark(self, text: str) -> None:
        """Something to know that is no data."""
        if not self.as_json:
            print(text, file=sys.stderr)

    def _table(self, rows: Iterable[Row], columns: Sequence[str]) -> None:
        from rich.box import SIMPLE_HEAD
        from rich.console import Console
        from rich.table import Table

        table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
        rows = list(rows)
        for name in columns:
            values = [row.get(name) for row in rows if row.get(name) is not None]
            is_number = bool(values) and all(type(value) in (int, float) for value in values)
            table.add_column(_title(name), justify="right" if is_number else "left", overflow="fold")
        for row in rows:
            table.add_row(*(_escaped(_text(row.get(name))) for name in columns))
        Console(file=sys.stdout, width=None if sys.stdout.isatty() else _WIDE, highlight=False).print(table)


def progress(description: str, total: int | None) -> Any:
    """A progress bar on stderr, as a context manager: call `advance(count)` on what it gives."""
    return _Progress(description, total)


class _Progress:
    def __init__(self, description: str, total: int | None) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        console = Console(file=sys.stderr)
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._progress = Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty())
        self._task = self._progress.add_task(description, total=total)

    def __enter__(self) -> _Progress:
        self._progress.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._progress.stop()

    def advance(self, count: int = 1) -> None:
        self._progress.update(self._task, advance=count)


def _title(name: str) -> str:
    return name.replace("_", " ").upper()


def _text(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.2f}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_text, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_text(one)}" for key, one in value.items())
    return str(value)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
