"""The pipeline on Spark: page views meet their users' profiles, and are counted per minute and country.

The counts go into a topic, exactly once; the views with their country into a Parquet table.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql.functions import expr

from demo.activity import PROFILES, VIEWS
from penstock.spark import session, write_stream

COUNTS = "views-per-minute"


class Pipeline:
    """Two streaming queries over the same topics."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._folder = folder
        self.table = str(folder / "table")
        self._spark = session("local[2]", app="penstock-demo", log_level="OFF", spark_sql_shuffle_partitions=2)
        self.queries: list[Any] = []

    def start(self) -> None:
        views = self._views()
        rows = views.writeStream.format("parquet").option("path", self.table)
        self.queries = [
            write_stream(
                self._counts(views),
                bootstrap=self._bootstrap,
                query=COUNTS,
                checkpoint=str(self._folder / "counts"),
                topic=COUNTS,
                output_mode="update",
            ),
            rows.option("checkpointLocation", str(self._folder / "rows")).queryName("views-table").start(),
        ]

    def _views(self) -> Any:
        """Page views with the country of their user."""
        stream = self._spark.readStream.format("penstock").option("kafka.bootstrap.servers", self._bootstrap)
        views = stream.option("subscribe", VIEWS).option("startingOffsets", "earliest").load()
        table = self._spark.read.format("penstock").option("kafka.bootstrap.servers", self._bootstrap)
        profiles = table.option("subscribe", PROFILES).load()
        countries = profiles.groupBy("key").agg(expr("max_by(value, offset)")).toDF("user", "profile")
        return (
            views.selectExpr("key as user", "get_json_object(string(value), '$.page') as page", "timestamp")
            .join(countries, "user")
            .selectExpr(
                "string(user) as user", "page", "timestamp", "get_json_object(string(profile), '$.country') country"
            )
        )

    def _counts(self, views: Any) -> Any:
        """Rows that say how many views a country had in a minute, so far."""
        windows = views.withWatermark("timestamp", "5 minutes").selectExpr(
            "window(timestamp, '1 minute') window", "country"
        )
        counted = windows.groupBy("window", "country").count()
        return counted.selectExpr(
            "concat(date_format(window.start, 'HH:mm'), ' ', country) as key",
            "to_json(struct(unix_millis(window.start) as minute, country, count)) as value",
        )

    def check_running(self) -> None:
        for query in self.queries:
            if query.exception() is not None:
                raise RuntimeError(f"the query {query.name} has failed: {query.exception()}")

    def finish(self) -> int:
        """Process what is there, and stop; returns the rows of the table."""
        for query in self.queries:
            query.processAllAvailable()
            query.stop()
        count: int = self._spark.read.parquet(self.table).count()
        self._spark.stop()
        return count
