"""How many rows a writing task is given at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, Row

from penstock.spark.row_limit import Measured, RowLimit

ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
BYTES = "spark.sql.execution.arrow.maxBytesPerBatch"
MIB = 1024 * 1024


@pytest.fixture
def frame(spark: Any) -> DataFrame:
    """Of a session of its own, as that of a streaming query is."""
    own: DataFrame = spark.newSession().range(1000).selectExpr("id", "null as headers")
    return own


def rows_at_a_time(frame: DataFrame) -> int:
    return max(one.rows for one in frame.mapInArrow(_lengths, "rows bigint").collect())


def _lengths(batches: Any) -> Any:
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"rows": pa.array([batch.num_rows], pa.int64())})


@pytest.fixture
def limit_after(frame: DataFrame) -> Callable[..., tuple[int, int]]:
    """The settings for rows and bytes, after micro-batches with so many records and bytes."""

    def run(*batches: tuple[int, int]) -> tuple[int, int]:
        limit = RowLimit()
        limit.apply(frame)
        for records, size in batches:
            limit.learn([Row(records=records, bytes=size), Row(records=0, bytes=0)])
            limit.apply(frame)
        conf = frame.sparkSession.conf
        return int(str(conf.get(ROWS))), int(str(conf.get(BYTES)))

    return run


def test_spark_does_not_look_at_bytes(limit_after: Callable[..., tuple[int, int]]) -> None:
    assert limit_after()[1] == 2**31 - 1


def test_few_rows_come_as_long_as_their_size_is_unknown(limit_after: Callable[..., tuple[int, int]]) -> None:
    assert limit_after()[0] == 1024


def test_without_headers_spark_has_its_own_limits_at_first(frame: DataFrame) -> None:
    conf, flat, limit = frame.sparkSession.conf, frame.select("id"), RowLimit()
    before = conf.get(ROWS), conf.get(BYTES)
    limit.apply(flat)
    limit.lift(flat)
    assert (conf.get(ROWS), conf.get(BYTES)) == before
    limit.learn([Row(records=1, bytes=MIB)])
    limit.apply(flat)
    assert (conf.get(ROWS), conf.get(BYTES)) == ("16", str(2**31 - 1))


@pytest.mark.parametrize(
    ("row_bytes", "rows"), [(100, 10_000), (0, 10_000), (4096, 4096), (MIB, 16), (100 * MIB, 1)], ids=str
)
def test_a_batch_gets_as_many_rows_as_fit_well(
    row_bytes: int, rows: int, limit_after: Callable[..., tuple[int, int]]
) -> None:
    assert limit_after((1000, 1000 * row_bytes))[0] == rows


def test_a_micro_batch_without_rows_changes_nothing(limit_after: Callable[..., tuple[int, int]]) -> None:
    assert limit_after((10, 10 * MIB), (0, 0))[0] == 16


def test_tasks_get_no_more_rows_than_the_limit_says(frame: DataFrame) -> None:
    limit = RowLimit()
    limit.learn([Row(records=1, bytes=MIB)])
    limit.apply(frame)
    assert rows_at_a_time(frame) == 16


def test_lifted_the_settings_are_the_users_again(frame: DataFrame) -> None:
    frame.sparkSession.conf.set(ROWS, "70")
    frame.sparkSession.conf.set(BYTES, "5000000")
    limit = RowLimit()
    limit.apply(frame)
    assert rows_at_a_time(frame) == 70
    limit.lift(frame)
    assert (frame.sparkSession.conf.get(ROWS), frame.sparkSession.conf.get(BYTES)) == ("70", "5000000")


def test_the_size_of_rows_is_known_after_the_first_micro_batch() -> None:
    limit = RowLimit()
    assert not limit.is_known
    limit.learn([Row(records=2, bytes=200)])
    assert limit.is_known


def test_measured_batches_say_how_much_they_were() -> None:
    batch = pa.RecordBatch.from_pydict({"value": pa.array([1, 2, 3], pa.int64())})
    measured = Measured([batch, batch])
    assert list(measured) == [batch, batch]
    assert measured.sizes().to_pylist() == [{"records": 6, "bytes": 2 * batch.nbytes}]
