"""Tests of streams applications: put records in, let time pass, read what comes out.

The application runs as it does in production, on Spark, with an in-process broker in between: the same queries, the
same sink. `TopologyTestDriver` is the name that Kafka Streams has for it.

    with TopologyTestDriver(app) as driver:
        driver.pipe("orders", "anna", {"amount": 5.0}, timestamp=1000)
        assert driver.read("totals") == [Output("anna", {"total": 5.0}, 1000)]
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from pyspark.sql.streaming.query import StreamingQuery

from penstock.client.admin import Admin
from penstock.client.errors import ConfigurationError, PenstockError
from penstock.client.producer import Producer
from penstock.spark import session
from penstock.spark.options import parse
from penstock.spark.planning import Planner
from penstock.spark.reading import arrow_schema, read_range
from penstock.streams.application import Application
from penstock.streams.engine.running import opened_stores, prepared
from penstock.streams.nodes import Process, Sink, Source, is_keyed
from penstock.streams.pieces import cut
from penstock.streams.processors import WALL_CLOCK
from penstock.streams.stores.follower import Stores
from penstock.streams.stores.store import Store
from penstock.streams.values import Windowed, from_bytes, to_bytes
from penstock.streams.windows import Duration, milliseconds
from penstock.testing.brokers import RunningBroker, broker

__all__ = ["Output", "TopologyTestDriver", "Windowed"]

_SCHEMA = arrow_schema(dict.fromkeys(("key", "value", "offset", "timestamp"), True))
_TIMEOUT_S = 30.0
_SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.pollingDelay": "100ms",  # what has nothing to do must not take the time of what has
}

_QUICK_STATE = {  # small and soon gone as it is; where a step is keyed, Spark wants RocksDB
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
}


@dataclass(frozen=True)
class Output:
    """A record that an application wrote."""

    key: Any
    value: Any
    timestamp: int


class TopologyTestDriver:
    """Runs an application for a test. All topics of the application have one partition.

    The clock on the wall stands at `wall_clock`, in ms, until `advance_wall_clock` moves it.
    """

    def __init__(self, application: Application, *, spark: Any = None, wall_clock: int = 1) -> None:
        self._application = application
        self._topology = application.topology
        self._broker: RunningBroker = broker()
        self._folder = tempfile.TemporaryDirectory(prefix="penstock-", ignore_cleanup_errors=True)
        self._spark = spark
        self._queries: list[StreamingQuery] = []
        self._stores: Stores | None = None
        self._positions: dict[str, int] = {}
        self._has_news = False
        self._wall_clock = wall_clock
        self._clock_topic: str | None = None

    def __enter__(self) -> TopologyTestDriver:
        self._broker.start()
        sources = {topic: source for source in self._topology.sources for topic in source.topics}
        self._sources: dict[str, Source] = sources
        self._sinks: dict[str, Sink] = {sink.topic: sink for sink in self._topology.sinks}
        with Admin(self._broker.bootstrap) as admin:
            if any(isinstance(one, Process) and one.processor.clock == WALL_CLOCK for one in self._topology.steps):
                self._clock_topic = f"{self._topology.application}-wall-clock"
            for topic in {**self._sources, **self._sinks, **({self._clock_topic: None} if self._clock_topic else {})}:
                admin.create_topic(topic, partitions=1, config={"retention.ms": "-1"})
        self._producer = Producer(self._broker.bootstrap)
        if self._clock_topic:
            self._tick()
            self.advance()
        return self

    def __exit__(self, *exc_info: object) -> None:
        for running in self._queries:
            running.stop()
        if self._stores is not None:
            self._stores.close()
        self._producer.close()
        self._broker.stop()
        self._folder.cleanup()

    def pipe(self, topic: str, key: Any, value: Any, timestamp: int, headers: Any = ()) -> None:
        """Put a record into a topic that the application reads. The serdes are those of the application."""
        source = self._sources.get(topic)
        if source is None:
            raise ConfigurationError(f"the application does not read {topic}: it reads {', '.join(self._sources)}")
        if timestamp < 1:
            raise ConfigurationError(f"timestamp is {timestamp}: it must be at least 1 ms, librdkafka takes 0 for now")
        self._producer.send(
            topic, to_bytes(source.value, value), key=to_bytes(source.key, key), timestamp=timestamp, headers=headers
        )
        self._has_news = True

    def advance_wall_clock(self, by: Duration) -> None:
        """Move the clock on the wall, and let the application do what is due by then."""
        if not self._clock_topic:
            raise ConfigurationError("the application does not look at the wall: no processor has clock = WALL_CLOCK")
        if self._has_news:
            self.advance()
        self._wall_clock += milliseconds(by, "by")
        self._tick()
        self.advance()

    def _tick(self) -> None:
        assert self._clock_topic is not None
        self._producer.send(self._clock_topic, b"", timestamp=self._wall_clock)

    def advance(self) -> None:
        """Let the application take in what was piped, to the end."""
        self._producer.flush()
        if self._stores is None:
            settings = replace(self._application.settings, state_dir=self._folder.name)
            spark = self._spark or session("local[2]", log_level="OFF")
            around, queries = prepared(
                self._topology,
                settings,
                self._broker.bootstrap,
                spark=spark,
                spark_settings=_SETTINGS if any(map(is_keyed, self._topology.steps)) else _SETTINGS | _QUICK_STATE,
                clock_topic=self._clock_topic,
            )
            for query in queries:
                self._queries.append(query.start(around))
                self._queries[-1].processAllAvailable()
            self._stores = opened_stores(cut(self._topology), queries, settings, self._broker.bootstrap)
        for running in self._queries:  # in the order in which records go through
            running.processAllAvailable()
        self._has_news = False

    def read(self, topic: str) -> list[Output]:
        """What came out since the last time."""
        sink = self._sinks.get(topic)
        if sink is None:
            raise ConfigurationError(f"the application does not write {topic}: it writes {', '.join(self._sinks)}")
        self._maybe_advance()
        written = [row for row in self._rows(topic) if row["offset"] >= self._positions.get(topic, 0)]
        if written:
            self._positions[topic] = written[-1]["offset"] + 1
        return [
            Output(from_bytes(sink.key, row["key"]), from_bytes(sink.value, row["value"]), _ms(row["timestamp"]))
            for row in written
        ]

    def store(self, name: str) -> Store:
        """A store of the application, with all in it that was piped."""
        self._maybe_advance()
        assert self._stores is not None
        store = self._stores[name]
        with Admin(self._broker.bootstrap) as admin:
            ends = admin.topic_offsets(store.topic, read_committed=True)
        if not self._stores.wait_for({partition: end.offset for partition, end in ends.items()}, _TIMEOUT_S):
            raise PenstockError(f"store {name} does not get to the end of {store.topic}: {store.standing}")
        return store

    def _maybe_advance(self) -> None:
        if self._has_news or self._stores is None:
            self.advance()

    def _rows(self, topic: str) -> list[dict[str, Any]]:
        """All committed records of a topic, read as Spark's tasks read them."""
        options = parse(
            {
                "kafka.bootstrap.servers": self._broker.bootstrap,
                "subscribe": topic,
                "kafka.isolation.level": "read_committed",
            },
            is_streaming=False,
        )
        planner = Planner(options)
        try:
            ranges = planner.all_at_once()
        finally:
            planner.close()
        batches = [batch for wanted in ranges for batch in read_range(options, wanted, _SCHEMA)]
        return [row for batch in batches for row in batch.to_pylist()]

    def table(self, topic: str) -> dict[Any, Any]:
        """The newest value of each key that came out, of all time; without those that were deleted."""
        self._positions.pop(topic, None)
        newest = {one.key: one.value for one in self.read(topic)}
        return {key: value for key, value in newest.items() if value is not None}


def _ms(time: datetime) -> int:
    return round(time.timestamp() * 1000)
