"""A Streams application while it runs: a table that changes, or lines where there is no terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from threading import Event
from typing import TYPE_CHECKING, Any

from penstock.cli.output import Output

if TYPE_CHECKING:
    from penstock.streams.engine.running import RunningApplication

_REFRESH_S = 0.5


def watch(running: RunningApplication, is_enough: Event, out: Output, interval_s: float) -> None:
    """Show how an application is doing until it is enough, or the application has failed."""
    show = _live if sys.stdout.isatty() and not out.as_json else _lines
    show(running, lambda seconds: is_enough.wait(seconds) or running.wait(0), out, interval_s)


def _live(running: RunningApplication, is_over: Callable[[float], bool], out: Output, interval_s: float) -> None:
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    from penstock.spark.query_progress import table

    def picture() -> Group:
        queries = table(running.queries)
        queries.title = f"application {running.name}"
        return Group(queries, Text(_stores(running.status())), Text("Ctrl-C stops it"))

    with Live(console=Console(), auto_refresh=False, transient=True) as live:
        while not is_over(_REFRESH_S):
            live.update(picture(), refresh=True)


def _lines(running: RunningApplication, is_over: Callable[[float], bool], out: Output, interval_s: float) -> None:
    """A line for each query that has done something since the last time."""
    told: dict[str, int] = {}
    while not is_over(interval_s):
        status = running.status()
        if out.as_json:
            out.line(status)
            continue
        for query in status["queries"]:
            if query.get("batch") is not None and told.get(query["query"]) != query["batch"]:
                told[query["query"]] = query["batch"]
                print(line(query), flush=True)


def line(query: Mapping[str, Any]) -> str:
    """How a query is doing, in a line."""
    parts = [
        f"batch {query['batch']:,}",
        f"{query['rows']:,} rows in {query['batch_seconds']:.2f} s",
        f"{query['input_rate']:,.0f} rows/s in",
        f"{query['processed_rate']:,.0f} rows/s done",
    ]
    if query["lag"] is not None:
        parts.append(f"lag {query['lag']:,}")
    if query["state_rows"]:
        parts.append(f"{query['state_rows']:,} state rows")
    return f"{time.strftime('%H:%M:%S')} {query['query']}: {', '.join(parts)}"


def _stores(status: Mapping[str, Any]) -> str:
    texts = [f"{name} ({one['records_behind']:,} behind)" for name, one in status["stores"].items()]
    return f"stores: {', '.join(texts)}" if texts else ""
