"""How a streaming query is doing: as values, as a table in the terminal, and as metrics for Prometheus.

All of it is what Spark says after each batch. `lag` is what had not been read when the last batch was planned; the lag
of this moment is the consumer group's, in any tool that shows groups.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
    StreamingQueryProgress,
)
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.live import Live
from rich.table import Table

from penstock.client.errors import ConfigurationError
from penstock.spark.ranges import backlog, from_text


@dataclass(frozen=True)
class Progress:
    """A query after its last batch."""

    query: str
    batch: int
    rows: int
    input_rate: float  # rows a second that came
    processed_rate: float  # rows a second while the batch ran
    lag: int | None  # records that were there and not read; None if no source is a topic
    batch_seconds: float
    state_rows: int
    state_bytes: int

    @classmethod
    def of(cls, said: StreamingQueryProgress) -> Progress:
        """What matters of what Spark says."""
        operators = said["stateOperators"]
        return cls(
            query=said["name"] or str(said["id"]),
            batch=said["batchId"],
            rows=said["numInputRows"],
            input_rate=said["inputRowsPerSecond"] or 0.0,
            processed_rate=said["processedRowsPerSecond"] or 0.0,
            lag=_lag(said["sources"]),
            batch_seconds=said["batchDuration"] / 1000,
            state_rows=sum(operator["numRowsTotal"] for operator in operators),
            state_bytes=sum(operator["memoryUsedBytes"] for operator in operators),
        )


def progress(query: StreamingQuery) -> Progress | None:
    """How a query is doing; None before its first batch."""
    said = query.lastProgress
    return Progress.of(said) if said is not None else None


def _lag(sources: Iterable[dict[str, Any]]) -> int | None:
    behind: int | None = None
    for source in sources:
        end, latest = from_text(source["endOffset"]), from_text(source["latestOffset"])
        if end is not None and latest is not None:
            behind = (behind or 0) + sum(backlog(end, latest).values())
    return behind


# ---- in the terminal ----


def table(queries: Iterable[StreamingQuery]) -> Table:
    """Queries as a table, for a terminal."""
    shown = Table("query", "batch", "rows", "rows/s in", "rows/s done", "took", "lag", "state rows", "state")
    for column in shown.columns[1:]:
        column.justify = "right"
    for query in queries:
        now = progress(query)
        if now is None:
            shown.add_row(query.name or str(query.id), "starting")
            continue
        shown.add_row(
            now.query,
            f"{now.batch:,}",
            f"{now.rows:,}",
            f"{now.input_rate:,.0f}",
            f"{now.processed_rate:,.0f}",
            f"{now.batch_seconds:.2f} s",
            "" if now.lag is None else f"{now.lag:,}",
            f"{now.state_rows:,}" if now.state_rows else "",
            _size(now.state_bytes) if now.state_bytes else "",
        )
    return shown


def watch(*queries: StreamingQuery, refresh_seconds: float = 0.5, console: Console | None = None) -> None:
    """Show queries in the terminal until all have ended. If one fails, this raises what it failed with."""
    if not queries:
        raise ConfigurationError("say which queries to watch: watch(query, ...)")
    console = console or Console()
    with Live(console=console, auto_refresh=False) as live:
        while True:
            is_active = any(query.isActive for query in queries)
            live.update(table(queries), refresh=True)
            if not is_active:
                break
            time.sleep(refresh_seconds)
    if not console.is_terminal:
        console.line()  # into a file, the table's last line is left open
    for query in queries:
        query.awaitTermination()  # raises if the query failed


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} GiB"


# ---- as metrics ----

_GAUGES = {
    "input_rate": ("penstock_query_input_rows_per_second", "Rows a second that came in."),
    "processed_rate": ("penstock_query_processed_rows_per_second", "Rows a second while the last batch ran."),
    "lag": ("penstock_query_lag_records", "Records that were there and not read when the last batch was planned."),
    "batch_seconds": ("penstock_query_batch_seconds", "How long the last batch took."),
    "state_rows": ("penstock_query_state_rows", "Rows that the query keeps as state."),
    "state_bytes": ("penstock_query_state_bytes", "Memory that the state takes."),
}


class QueryMetrics(StreamingQueryListener, Collector):
    """Listens to all queries of a session and tells Prometheus about those that run."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._last: dict[str, Progress] = {}
        self._rows: dict[str, int] = {}
        self._names: dict[str, str] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Nothing to tell before the first batch."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """A batch is done."""
        now = Progress.of(event.progress)
        with self._lock:
            self._last[now.query] = now
            self._rows[now.query] = self._rows.get(now.query, 0) + now.rows
            self._names[str(event.progress["runId"])] = now.query

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        """Nothing has come for a while: what the last batch said still holds."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """A query that has ended is no longer told of."""
        with self._lock:
            name = self._names.pop(str(event.runId), None)
            if name is not None:
                self._last.pop(name, None)
                self._rows.pop(name, None)

    def collect(self) -> Iterator[Metric]:
        """What Prometheus gets."""
        with self._lock:
            last, rows = dict(self._last), dict(self._rows)
        for field, (name, text) in _GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=["query"])
            for query, now in last.items():
                value = getattr(now, field)
                if value is not None:
                    gauge.add_metric([query], value)
            yield gauge
        counter = CounterMetricFamily("penstock_query_rows", "Rows that were read.", labels=["query"])
        for query, count in rows.items():
            counter.add_metric([query], count)
        yield counter


class MetricsServer:
    """Metrics of a session's queries over HTTP, until it is closed."""

    def __init__(self, spark: SparkSession, host: str, port: int) -> None:
        self._spark = spark
        self._metrics = QueryMetrics()
        registry = CollectorRegistry()
        registry.register(self._metrics)
        self._server, self._thread = start_http_server(port, host, registry)
        self.port: int = self._server.server_port
        spark.streams.addListener(self._metrics)

    def __enter__(self) -> MetricsServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Listen and serve no longer."""
        self._spark.streams.removeListener(self._metrics)
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def serve_metrics(spark: SparkSession, *, host: str = "127.0.0.1", port: int = 0) -> MetricsServer:
    """Serve the metrics of all streaming queries of a session to Prometheus, at /metrics. Port 0 takes a free one."""
    return MetricsServer(spark, host, port)
