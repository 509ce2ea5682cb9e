"""Counts events by minute, user and the segment the user is in: a driver that may be killed at any time.

    python -m tests.chaos.spark_job MASTER BOOTSTRAP CHECKPOINT

It ends when it is killed. What it writes, `counts_of` says too, without Spark.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import window

from penstock.spark import write_stream
from tests.chaos.under_fire import EVENTS, MINUTE_MS, PROFILES, job_session

COUNTS = "counts"
QUERY = "counting"
DELAY_MINUTES = 3  # how long a minute stays open


def counts(spark: SparkSession, bootstrap: str) -> DataFrame:
    """A row for each minute, user and segment, when the minute is over."""
    options = {"kafka.bootstrap.servers": bootstrap, "startingOffsets": "earliest"}
    profiles = spark.read.format("penstock").options(**options, subscribe=PROFILES).load()
    segments = profiles.selectExpr("cast(key as string) as user", "cast(value as string) as segment").cache()
    events = spark.readStream.format("penstock").options(**options, subscribe=EVENTS).load()
    return (
        events.selectExpr("cast(key as string) as user", "bigint(cast(value as string)) as number", "timestamp")
        .withWatermark("timestamp", f"{DELAY_MINUTES} minutes")
        .join(segments, "user")
        .groupBy(window("timestamp", "1 minute").alias("minute"), "user", "segment")
        .agg({"*": "count", "number": "sum"})
        .selectExpr(
            "user as key",
            "concat_ws(' ', unix_millis(minute.start), user, segment, `count(1)`, `sum(number)`) as value",
        )
    )


def run(master: str, bootstrap: str, checkpoint: str) -> None:
    spark = job_session(master, QUERY)
    write_stream(
        counts(spark, bootstrap), bootstrap=bootstrap, query=QUERY, checkpoint=checkpoint, topic=COUNTS
    ).awaitTermination()


def counts_of(events: Iterable[Any], profiles: Iterable[Any], until_ms: int) -> list[str]:
    """The same of all records, as they are in the topics."""
    segments = {record.key: record.value.decode() for record in profiles}
    found: dict[tuple[int, str, str], list[int]] = {}
    for record in events:
        minute_ms = record.timestamp // MINUTE_MS * MINUTE_MS
        if minute_ms < until_ms:
            row = (minute_ms, record.key.decode(), segments[record.key])
            found.setdefault(row, []).append(int(record.value))
    return sorted(" ".join(map(str, (*row, len(numbers), sum(numbers)))) for row, numbers in found.items())


if __name__ == "__main__":
    run(*sys.argv[1:])
