"""A Spark session that runs queries with one of the two connectors, when told to on stdin.

    python bench/spark_worker.py penstock|kafka CORES [JAR,JAR,...]

Each line is {"task": NAME, ...arguments}; each answer is a line of JSON. The queries are the same for both connectors;
only the format differs, and that Penstock's sink for streams writes exactly once, where the other may repeat rows. The
interpreter may be one that has Spark's own connector and no Penstock.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import time
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import window

_AVAILABLE_NOW = {"availableNow": True}
_SETTINGS = {
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


class Worker:
    """A session, and what it can be asked to do."""

    def __init__(self, connector: str, cores: int, jars: str) -> None:
        self._connector = connector
        if connector == "penstock":
            from penstock.spark import session  # the other interpreter does not have it

            self._spark = session(f"local[{cores}]", **{name.replace(".", "_"): v for name, v in _SETTINGS.items()})
        else:
            builder = SparkSession.builder.master(f"local[{cores}]").config(map={**_SETTINGS, "spark.jars": jars})
            self._spark = builder.getOrCreate()
        self._query: Any = None
        self._checkpoint = ""

    # ---- what is read ----

    def batch_read(self, bootstrap: str, topic: str) -> float:
        """All columns of all records, to nowhere."""
        frame = self._spark.read.format(self._connector).options(**_source(bootstrap, topic)).load()
        began = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        return time.perf_counter() - began

    def stream_read(self, bootstrap: str, topic: str) -> float:
        frame = self._stream(bootstrap, topic)
        with tempfile.TemporaryDirectory() as checkpoint:
            began = time.perf_counter()
            writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
            writer.trigger(**_AVAILABLE_NOW).start().awaitTermination()
            return time.perf_counter() - began

    # ---- what is written ----

    def make_rows(self, path: str, count: int, files: int) -> float:
        """Rows as records will be, in files that a stream can read."""
        rows = self._spark.range(count).selectExpr(
            "cast(concat('key-', id % 1000) as binary) as key",
            "cast(rpad(cast(id as string), 92, 'x') as binary) as value",
        )
        rows.repartition(files).write.parquet(path)
        return 0.0

    def write(self, bootstrap: str, topic: str, path: str) -> float:
        """Files into a topic, in four micro-batches."""
        schema = "key binary, value binary"
        frame = self._spark.readStream.schema(schema).option("maxFilesPerTrigger", 2).parquet(path)
        return self._until_done(frame, bootstrap, topic, "append")

    def windowed_count(self, bootstrap: str, topic: str, to: str, batch_records: int) -> float:
        """How many records each key has in each window of ten seconds; a micro-batch tells what it changes."""
        frame = self._stream(bootstrap, topic, maxOffsetsPerTrigger=str(batch_records))
        counts = frame.withWatermark("timestamp", "1 minute").groupBy("key", window("timestamp", "10 seconds")).count()
        return self._until_done(
            counts.selectExpr("key", "to_json(struct(window.start, count)) as value"), bootstrap, to, "update"
        )

    def _until_done(self, frame: DataFrame, bootstrap: str, topic: str, mode: str) -> float:
        began = time.perf_counter()
        self._start(frame, bootstrap, topic, mode, _AVAILABLE_NOW)
        self._query.awaitTermination()
        seconds = time.perf_counter() - began
        shutil.rmtree(self._checkpoint)
        return seconds

    def copy(self, bootstrap: str, topic: str, to: str) -> float:
        """Begin to copy one topic to another, record by record as they come."""
        frame = self._stream(bootstrap, topic, startingOffsets="latest").select("key", "value")
        self._start(frame, bootstrap, to, "append", {"processingTime": "0 seconds"})
        deadline = time.monotonic() + 60
        while not self._query.lastProgress:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the query does not begin: {self._query.status}")
            time.sleep(0.05)
        return 0.0

    def stop_copying(self) -> float:
        self._query.stop()
        shutil.rmtree(self._checkpoint)
        return 0.0

    def _start(self, frame: DataFrame, bootstrap: str, topic: str, mode: str, trigger: dict[str, Any]) -> None:
        self._checkpoint = tempfile.mkdtemp()
        if self._connector == "penstock":
            from penstock.spark import write_stream

            self._query = write_stream(
                frame,
                bootstrap=bootstrap,
                query=f"to-{topic}",
                checkpoint=self._checkpoint,
                topic=topic,
                output_mode=mode,
                trigger=trigger,
                transaction_timeout=600.0,
            )
        else:
            writer = frame.writeStream.format("kafka").option("kafka.bootstrap.servers", bootstrap)
            writer = writer.option("topic", topic).option("checkpointLocation", self._checkpoint).outputMode(mode)
            self._query = writer.trigger(**trigger).start()

    def _stream(self, bootstrap: str, topic: str, **options: str) -> DataFrame:
        given = {**_source(bootstrap, topic), "startingOffsets": "earliest", **options}
        return self._spark.readStream.format(self._connector).options(**given).load()


def _source(bootstrap: str, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}


def main() -> None:
    _, connector, cores, *jars = sys.argv
    worker = Worker(connector, int(cores), "".join(jars))
    print(json.dumps({"ready": True}), flush=True)
    for line in sys.stdin:
        arguments = json.loads(line)
        seconds = getattr(worker, arguments.pop("task"))(**arguments)
        print(json.dumps({"seconds": seconds}), flush=True)


if __name__ == "__main__":
    main()
