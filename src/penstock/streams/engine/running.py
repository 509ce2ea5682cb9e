"""Running an application: its internal topics, its queries, and what looks after them.

Queries of an application live and die together. One that fails is started again, after a while that grows with each
failure; when it has failed too often in a row, all are stopped and the error is told.
"""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.client.admin import Admin
from penstock.client.errors import ConfigurationError, PenstockError
from penstock.spark import session
from penstock.spark.query_progress import progress
from penstock.streams.application import Settings
from penstock.streams.engine.cleaning import INTERVAL_S, Cleaner
from penstock.streams.engine.queries import Compiler, Query, Surroundings
from penstock.streams.engine.storing import changelogs
from penstock.streams.pieces import Pieces, cut
from penstock.streams.places import TopologyError
from penstock.streams.presence import Presence
from penstock.streams.shape import Shape, load, save, shape_of
from penstock.streams.stores.follower import Stores
from penstock.streams.stores.http import HOST, StoreServer
from penstock.streams.stores.store import Store
from penstock.streams.topology import Topology
from penstock.streams.upgrading import told, upgraded

logger = logging.getLogger(__name__)

_POLL_S = 0.2
_FAILURES_MAX = 5  # in a row
_BACKOFF_S, _BACKOFF_S_MAX = 1.0, 30.0
_HEALTHY_S = 60.0  # who has run for so long has not failed in a row

_SPARK_SETTINGS = {
    # The time of a join is that of the stream which is further, as in Kafka Streams.
    "spark.sql.streaming.multipleWatermarkPolicy": "max",
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


class ApplicationFailed(PenstockError):
    """A query of an application failed, again and again."""


def run(topology: Topology, settings: Settings, bootstrap: str, **options: Any) -> RunningApplication:
    """Start an application. It runs until it is stopped.

    Options: `spark`, the session to use; `trigger`, what Spark's `trigger` takes, as in {"processingTime": "1 second"};
    `reading`, options of the source for all queries; `writing`, arguments of `write_stream`, as in
    {"compression": "zstd"}; `http`, where stores answer, as in "127.0.0.1:8080" (None: nowhere, else any free port);
    `cleaning_interval`, seconds after which records of repartition topics that were read are deleted again.
    """
    trigger, http = options.pop("trigger", None), options.pop("http", f"{HOST}:0")
    interval_s = options.pop("cleaning_interval", INTERVAL_S)
    with ExitStack() as parts:
        presence = parts.enter_context(Presence.claim(settings.folder, settings.application_id, bootstrap))
        around, queries = prepared(topology, settings, bootstrap, **options)
        stores = parts.enter_context(opened_stores(cut(topology), queries, settings, bootstrap))
        running = RunningApplication(settings.application_id, queries, around, trigger, stores)
        parts.enter_context(cleaner(topology, settings, bootstrap, interval_s))
        parts.callback(running.stop_queries)
        if http is not None:
            presence.tell_http(running.serve(http, parts))
        running.look_after(parts.pop_all())
    return running


def catch_up(topology: Topology, settings: Settings, bootstrap: str, **options: Any) -> None:
    """Run an application over all that is there, and return when it is done. Options are as in `run`."""
    with Presence.claim(settings.folder, settings.application_id, bootstrap):
        around, queries = prepared(topology, settings, bootstrap, **options)
        for query in queries:  # one after the other: each reads what those before it have written
            query.start(around, {"availableNow": True}).awaitTermination()
        cleaner(topology, settings, bootstrap).clean()


def cleaner(topology: Topology, settings: Settings, bootstrap: str, interval_s: float = INTERVAL_S) -> Cleaner:
    """What deletes the records that all queries of an application have done with."""
    client_id = f"{settings.client_id or settings.application_id}-cleaner"
    return Cleaner(cut(topology), settings.folder, bootstrap, client_id, interval_s)


def prepared(
    topology: Topology,
    settings: Settings,
    bootstrap: str,
    *,
    spark: SparkSession | None = None,
    spark_settings: Mapping[str, str] | None = None,
    reading: Mapping[str, str] | None = None,
    writing: Mapping[str, Any] | None = None,
    clock_topic: str | None = None,
) -> tuple[Surroundings, list[Query]]:
    """The queries of an application, in an order in which they can be started."""
    pieces = cut(topology)
    if not pieces.pieces and not topology.stores:
        raise ConfigurationError(
            f"application {topology.application} does nothing: end a stream with to() or for_each()"
        )
    check_topics(topology, settings, bootstrap)
    spark = (spark or session(app=settings.application_id)).newSession()  # with settings of its own
    for name, value in (_SPARK_SETTINGS | dict(spark_settings or {})).items():
        spark.conf.set(name, value)
    around = Surroundings(spark, bootstrap, str(settings.folder), reading or {}, writing or {}, clock_topic)
    queries = Compiler(pieces, around).queries()
    shape = fitting_shape(pieces, queries, settings, bootstrap)
    create_internal_topics(pieces, settings, bootstrap)
    save(shape, settings.folder)
    return around, queries


def fitting_shape(pieces: Pieces, queries: list[Query], settings: Settings, bootstrap: str) -> Shape:
    """The shape of an application that goes on with what it has kept. Refused if that does not fit."""
    new = shape_of(pieces, bootstrap, {query.piece.name: query.types for query in queries})
    old = load(settings.folder)
    if old is None:
        return new
    folder = settings.folder
    shape = upgraded(old, new, pieces, lambda query: any((folder / query / "offsets").glob("[0-9]*")))
    for name, one in shape.gone.items():
        logger.warning("%s", told(name, one, settings.application_id))
    return shape


def check_topics(topology: Topology, settings: Settings, bootstrap: str) -> None:
    """Refuse to run without a topic that is to be read or written."""
    with Admin(bootstrap, client_id=settings.client_id or f"{settings.application_id}-admin") as admin:
        known = set(admin.list_topics(internal=True))
    for node, topics in [
        *((one, one.topics) for one in topology.sources),
        *((one, (one.topic,)) for one in topology.sinks),
    ]:
        for topic in topics:
            if topic not in known:
                raise TopologyError(
                    node.place, f"there is no topic {topic}: make it first, as in 'penstock topic create {topic}'"
                )


def create_internal_topics(pieces: Pieces, settings: Settings, bootstrap: str) -> None:
    """Create the topics between queries that are not there, each with as many partitions as what flows into it."""
    with Admin(bootstrap, client_id=settings.client_id or f"{settings.application_id}-admin") as admin:
        counts = {topic.name: len(topic.partitions) for topic in admin.describe_topics()}
        for piece in pieces.pieces:
            widest = max(counts.get(name, 1) for node in piece.inputs for name in pieces.topics_of(node))
            for node in piece.outputs:
                topic = pieces.internal.get(node)
                if topic is None or topic.name in counts:
                    continue
                counts[topic.name] = topic.partitions or widest
                admin.create_topic(
                    topic.name,
                    partitions=counts[topic.name],
                    replication_factor=settings.replication_factor,
                    config={"cleanup.policy": topic.cleanup_policy, "retention.ms": "-1"},
                )


def opened_stores(pieces: Pieces, queries: list[Query], settings: Settings, bootstrap: str) -> Stores:
    """The stores of an application, which follow their topics from now on."""
    client_id = f"{settings.client_id or settings.application_id}-stores"
    return Stores(changelogs(pieces, queries), bootstrap, settings.folder / "stores", client_id)


@dataclass
class _Supervised:
    """A query and how it is doing."""

    query: Query
    running: StreamingQuery
    started_at: float
    failures: int = 0
    start_again_at: float | None = None


class RunningApplication:
    """An application that runs. Use it as a context manager, or call `stop`."""

    def __init__(
        self, name: str, queries: list[Query], around: Surroundings, trigger: Mapping[str, Any] | None, stores: Stores
    ) -> None:
        self.name = name
        self._around = around
        self._trigger = trigger
        self._stores = stores
        self._parts = ExitStack()
        self.http: str | None = None  # where stores answer, as host:port
        self._failure: Exception | None = None
        self._is_stopping = threading.Event()
        self._has_ended = threading.Event()
        self._supervised = [_Supervised(one, _begun(one, around, trigger), time.monotonic()) for one in queries]
        self._thread = threading.Thread(target=self._supervise, name=f"supervise-{name}", daemon=True)

    def serve(self, address: str, parts: ExitStack) -> str:
        """Let stores be asked over HTTP; returns where."""
        server = StoreServer(self._stores, self.status, address)
        parts.callback(server.close)
        self.http = server.address
        return server.address

    def look_after(self, parts: ExitStack) -> None:
        """Begin to look after the queries, and in the end after all parts of the application."""
        self._parts = parts
        self._thread.start()

    def __enter__(self) -> RunningApplication:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def queries(self) -> list[StreamingQuery]:
        """Spark's queries, as for `penstock.spark.watch`."""
        return [one.running for one in self._supervised]

    def store(self, name: str) -> Store:
        """A table that was given a name with `table.store(name)`, to be asked for its rows."""
        return self._stores[name]

    def status(self) -> dict[str, Any]:
        """How the application is doing: its queries after their last batches, and its stores."""
        return {
            "application": self.name,
            "queries": [_doing(one) for one in self._supervised],
            "stores": {name: asdict(self._stores[name].standing) for name in self._stores.names},
        }

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended; returns whether it has. Raises what it failed with."""
        has_ended = self._has_ended.wait(timeout)
        if self._failure is not None:
            raise self._failure
        return has_ended

    def stop(self) -> None:
        """Stop all queries. They go on where they ended when the application is run again."""
        self._is_stopping.set()
        self._thread.join()

    def stop_queries(self) -> None:
        """Stop what Spark does."""
        for one in self._supervised:
            one.running.stop()

    def _supervise(self) -> None:
        try:
            while not self._is_stopping.wait(_POLL_S):
                for one in self._supervised:
                    self._look_after(one)
        except Exception as failure:  # for who waits
            self._failure = failure
        finally:
            try:
                self._parts.close()
            finally:
                self._has_ended.set()

    def _look_after(self, one: _Supervised) -> None:
        """Start a query again that has failed, but not at once."""
        if one.start_again_at is None:
            if not one.running.isActive:
                self._failed(one, one.running.exception())
        elif time.monotonic() >= one.start_again_at:
            one.start_again_at, one.started_at = None, time.monotonic()
            try:
                one.running = one.query.start(self._around, self._trigger)
            except Exception as error:  # as when the broker is away: no better and no worse than failing later
                self._failed(one, error)

    def _failed(self, one: _Supervised, error: Exception | None) -> None:
        """Let a query rest for a while, longer each time. When it has failed too often in a row, all is over."""
        now = time.monotonic()
        one.failures = 1 if now - one.started_at > _HEALTHY_S else one.failures + 1
        if one.failures >= _FAILURES_MAX:
            raise ApplicationFailed(
                f"query {one.query.piece.name} failed {one.failures} times in a row: {_reason(error)}"
            ) from error
        pause = min(_BACKOFF_S * 2 ** (one.failures - 1), _BACKOFF_S_MAX)
        one.start_again_at = now + pause
        logger.warning("query %s failed and starts again in %.0f s: %s", one.query.piece.name, pause, _reason(error))


def _begun(query: Query, around: Surroundings, trigger: Mapping[str, Any] | None) -> StreamingQuery:
    """Start a query and wait until it works. Many that begin at once get in each other's way."""
    running = query.start(around, trigger)
    while running.isActive and running.status["message"].startswith("Initializing"):
        time.sleep(_POLL_S / 4)
    return running


def _reason(error: Exception | None) -> str:
    """What matters of what Spark says: its first line, or the last of a Python traceback."""
    lines = [line for line in str(error).split("=== Streaming Query ===", 1)[0].splitlines() if line.strip()]
    if any("Traceback (most recent" in line for line in lines):
        raised = [line for line in lines[1:] if re.match(r"[A-Za-z_][\w.]*: ", line)]
        lines = raised[-1:] or lines
    return lines[0].split(" SQLSTATE", 1)[0].strip() if lines else "it ended"


def _doing(one: _Supervised) -> dict[str, Any]:
    """What there is to say about a query."""
    name, now = one.query.piece.name, progress(one.running)
    known = asdict(now) if now is not None else {"query": name}
    return {**known, "is_running": one.running.isActive, "failures": one.failures}
