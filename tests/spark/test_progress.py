"""How a query is doing, in every way it is told."""

from __future__ import annotations

import io
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as f
from rich.console import Console

from penstock.client.errors import ConfigurationError
from penstock.spark import progress, serve_metrics, watch
from tests.support.systems import System


def counting(spark: Any, system: System, topic: str, folder: Path, **options: Any) -> Any:
    """A query with state, that ends when it has read everything."""
    reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", system.bootstrap)
    rows = reader.options(subscribe=topic, startingOffsets="earliest", **options).load()
    writer = rows.groupBy("key").count().writeStream.format("noop").outputMode("update")
    writer = writer.queryName(topic).option("checkpointLocation", str(folder / "checkpoint"))
    return writer.trigger(availableNow=True).start()


def scraped(port: int) -> dict[str, float]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
        lines = response.read().decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line[:1] != "#")}


@pytest.fixture
def filled(create: Callable[..., str], fill: Callable[..., list[int]]) -> str:
    name = create()
    fill(range(99))  # the same for each partition
    return name


def test_progress_says_rates_lag_and_state(spark: Any, system: System, filled: str, tmp_path: Path) -> None:
    query = counting(spark, system, filled, tmp_path, maxOffsetsPerTrigger=60)
    query.awaitTermination()
    last = progress(query)
    assert last is not None
    assert (last.query, last.batch, last.rows, last.lag, last.state_rows) == (filled, 1, 39, 0, 10)
    assert last.processed_rate > 0
    assert last.batch_seconds > 0
    assert last.state_bytes > 0


def test_metrics_are_there_while_a_query_runs(
    spark: Any, system: System, filled: str, fill: Callable[..., list[int]], tmp_path: Path
) -> None:
    label = f'{{query="{filled}"}}'
    with serve_metrics(spark) as metrics:
        reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", system.bootstrap)
        rows = reader.options(subscribe=filled, startingOffsets="earliest").load()
        writer = rows.writeStream.format("noop").queryName(filled)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            deadline = time.monotonic() + 60
            while scraped(metrics.port).get(f"penstock_query_rows_total{label}") != 99:
                assert time.monotonic() < deadline, scraped(metrics.port)
                time.sleep(0.2)
            found = scraped(metrics.port)
            assert found[f"penstock_query_lag_records{label}"] == 0
            assert found[f"penstock_query_batch_seconds{label}"] > 0
            assert found[f"penstock_query_state_rows{label}"] == 0
        finally:
            query.stop()
        while any(label in name for name in scraped(metrics.port)):
            assert time.monotonic() < deadline
            time.sleep(0.2)


def test_watching_shows_queries_until_they_end(spark: Any, system: System, filled: str, tmp_path: Path) -> None:
    screen = io.StringIO()
    query = counting(spark, system, filled, tmp_path)
    watch(query, refresh_seconds=0.1, console=Console(file=screen, width=160, force_terminal=True))
    assert not query.isActive
    assert filled in screen.getvalue()
    assert "state rows" in screen.getvalue()


def test_watching_raises_what_a_query_failed_with(spark: Any, system: System, filled: str, tmp_path: Path) -> None:
    reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", system.bootstrap)
    rows = reader.options(subscribe=filled, startingOffsets="earliest").load()
    broken = rows.select(f.raise_error(f.lit("a bad row")).alias("value"))
    writer = broken.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    with pytest.raises(StreamingQueryException, match="a bad row"):
        watch(writer.trigger(availableNow=True).start(), console=Console(file=io.StringIO()))


def test_watching_nothing_is_a_mistake() -> None:
    with pytest.raises(ConfigurationError, match="which queries"):
        watch()
