"""Topics that Spark reads and writes, on the two systems."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Admin, Consumer, Producer
from tests.support.systems import System

OUT_PARTITIONS = 3


@pytest.fixture
def create(system: System, topic: str) -> Callable[..., str]:
    """Create the test's topic."""

    def make(partitions: int = 3, name: str = topic, **config: str) -> str:
        with Admin(system.bootstrap) as admin:
            settings = {"retention.ms": "-1"} | {key.replace("_", "."): value for key, value in config.items()}
            admin.create_topic(name, partitions=partitions, config=settings)
        return name

    return make


@pytest.fixture
def fill(system: System, topic: str) -> Callable[..., list[int]]:
    """Produce numbers as values, partition by partition in turn; returns them."""

    def produce(numbers: range, partitions: int = 3, name: str = topic, **settings: Any) -> list[int]:
        with Producer(system.bootstrap, linger_ms=5, **settings) as producer:
            for number in numbers:
                producer.send(name, str(number), key=f"k{number % 10}", partition=number % partitions)
        return list(numbers)

    return produce


@pytest.fixture
def read(spark: Any, system: System, topic: str) -> Callable[..., Any]:
    """A batch read of the test's topic."""

    def load(**options: Any) -> Any:
        named = {"subscribe": topic} if not {"subscribePattern", "assign"} & options.keys() else {}
        reader = spark.read.format("penstock").option("kafka.bootstrap.servers", system.bootstrap)
        return reader.options(**named, **options).load()

    return load


@pytest.fixture
def stream(spark: Any, system: System, topic: str, tmp_path: Any) -> Callable[..., list[list[int]]]:
    """Run a streaming query over all that is there; returns the numbers of each batch. It goes on where it ended."""

    def run(**options: Any) -> list[list[int]]:
        given = {"subscribe": topic, "startingOffsets": "earliest", **options}
        if "subscribePattern" in options:
            del given["subscribe"]
        reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", system.bootstrap)
        batches: list[list[int]] = []
        query = (
            reader.options(**given)
            .load()
            .selectExpr("cast(cast(value as string) as int) as number")
            .writeStream.foreachBatch(lambda batch, _: batches.append(sorted(row.number for row in batch.collect())))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [batch for batch in batches if batch]

    return run


@pytest.fixture
def out(create: Any, unique: Any) -> str:
    made: str = create(OUT_PARTITIONS, unique("out"))
    return made


@pytest.fixture
def written(system: System, out: str) -> Callable[[], list[Any]]:
    """What a reader of committed records finds."""

    def read(name: str = out) -> list[Any]:
        with Consumer(system.bootstrap, auto_offset_reset="earliest", stop_at_end=True) as consumer:
            consumer.assign([(name, index) for index in range(OUT_PARTITIONS)])
            return list(consumer)

    return read


def numbers(records: list[Any]) -> list[int]:
    return sorted(int(record.value) for record in records)
