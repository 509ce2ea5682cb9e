"""The pipeline on Spark: the streams application, and a query that lands what it writes in a Parquet table.

The counts go into a topic, the views with their country into a topic and from there into the table: each exactly once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from demo.application import NAME, SEEN, application
from penstock.spark import session
from penstock.streams.engine.running import RunningApplication

GROUP = f"{NAME}-countries"  # of the query that reads page views


class Pipeline:
    """The application's queries, and the one that lands."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self.table = str(folder / "table")
        self._spark = session("local[2]", app="penstock-demo", log_level="OFF", spark_sql_shuffle_partitions=2)
        self._running: RunningApplication | None = None
        self._landing: Any = None

    def start(self) -> None:
        app = application(str(self._folder / "state"))
        self._running = app.run(self._bootstrap, spark=self._spark)
        self._landing = self._landed()

    @property
    def queries(self) -> list[Any]:
        """Spark's queries, in the order in which records go through them."""
        assert self._running is not None
        return [*self._running.queries, self._landing]

    def _landed(self) -> Any:
        """Page views, as the application has committed them, into the table."""
        stream = self._spark.readStream.format("penstock").option("kafka.bootstrap.servers", self._bootstrap)
        views = (
            stream.option("subscribe", SEEN)
            .option("startingOffsets", "earliest")
            .option("kafka.isolation.level", "read_committed")
            .load()
        )
        rows = views.selectExpr(
            "string(key) as user", "from_json(string(value), 'page STRING, country STRING') as view", "timestamp"
        ).selectExpr("user", "view.*", "timestamp")
        writer = rows.writeStream.format("parquet").option("path", self.table).queryName("views-table")
        return writer.option("checkpointLocation", str(self._folder / "rows")).start()

    def check_running(self) -> None:
        """The application looks after its own queries; it ends when one of them cannot be helped."""
        assert self._running is not None
        if self._running.wait(0):
            raise RuntimeError("the application has ended")
        if self._landing.exception() is not None:
            raise RuntimeError(f"the query {self._landing.name} has failed: {self._landing.exception()}")

    def finish(self) -> int:
        """Process what is there, and stop; returns the rows of the table."""
        for query in self.queries:
            query.processAllAvailable()
        assert self._running is not None
        self._running.stop()
        self._landing.stop()
        count: int = self._spark.read.parquet(self.table).count()
        self._spark.stop()
        return count
