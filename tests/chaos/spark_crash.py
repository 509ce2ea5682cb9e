"""Copies a topic in small exactly-once batches, with state, and dies as of kill -9 at one point of its second batch.

    python -m tests.chaos.spark_crash BOOTSTRAP CHECKPOINT POINT

A point is "before STEP" or "after STEP", with a step of `STEPS`; "never" lets it copy all there is, and end.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from penstock.client.shared_transaction import SharedTransaction
from penstock.spark import session, sink, write_stream
from penstock.spark.sending import Writer

SOURCE, TARGET, QUERY = "in", "out", "crashing"
BATCH_RECORDS = 40

# What a batch does, in order: on the driver, in the tasks that write, and within Spark when the sink has returned.
ON_DRIVER = {"InitProducerId": "begin", "TxnOffsetCommit": "add_offsets", "EndTxn": "commit"}
IN_TASKS = ("first write", "last write")
STEPS = ["InitProducerId", *IN_TASKS, "TxnOffsetCommit", "EndTxn", "checkpoint"]


def run(bootstrap: str, checkpoint: str, point: str) -> None:
    spark = session("local[2]", app=QUERY, log_level="OFF", spark_sql_shuffle_partitions=2)
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": SOURCE, "startingOffsets": "earliest"}
    reader = spark.readStream.format("penstock").options(**options, maxOffsetsPerTrigger=BATCH_RECORDS)
    when, _, step = point.partition(" ")
    if step:
        _arm(spark, when, step, Path(checkpoint))
    frame = reader.load().select("key", "value").dropDuplicates(["value"])  # of which there are none
    settings: dict[str, Any] = {"topic": TARGET, "trigger": {"availableNow": True}}
    write_stream(frame, bootstrap=bootstrap, query=QUERY, checkpoint=checkpoint, **settings).awaitTermination()


def _arm(spark: SparkSession, when: str, step: str, checkpoint: Path) -> None:
    """Have this process die at a point of the second batch."""
    gateway: Any = spark.sparkContext._gateway
    die = _death(os.getpid(), gateway.proc.pid)
    batches: list[int] = []
    real_batch = sink.Sink.write_batch

    def write_batch(one: sink.Sink, frame: Any, batch_id: int) -> None:
        batches.append(batch_id)
        if len(batches) == 2 and step in IN_TASKS:
            sink._writing = _dying(sink._writing, when, step, die)  # type: ignore[assignment]
        if len(batches) == 2 and step == "checkpoint" and when == "after":
            threading.Thread(target=_die_with, args=(checkpoint / "commits" / str(batch_id), die)).start()
        real_batch(one, frame, batch_id)
        if len(batches) == 2 and step == "checkpoint" and when == "before":
            die()

    sink.Sink.write_batch = write_batch  # type: ignore[method-assign]
    if step in ON_DRIVER:
        name = ON_DRIVER[step]
        real = getattr(SharedTransaction, name)

        def dying(*arguments: Any) -> Any:
            if len(batches) == 2 and when == "before":
                die()
            result = real(*arguments)
            if len(batches) == 2 and when == "after":
                die()
            return result

        setattr(SharedTransaction, name, dying)


def _death(*pids: int) -> Callable[[], None]:
    """Kills the driver's Python and its JVM, from whichever process it is called in."""

    def die() -> None:
        for pid in reversed(pids):
            os.kill(pid, signal.SIGKILL)
        time.sleep(60)  # a task ends when it finds that it is alone

    return die


def _dying(real: Callable[..., Any], when: str, step: str, die: Callable[[], None]) -> Callable[..., Any]:
    """Tasks that die before or after the first or the last batch of records that one of them sends."""

    def make(*arguments: Any) -> Any:
        write = real(*arguments)

        def run(batches: Iterable[Any]) -> Any:
            if step == "first write":
                _replace(Writer, "send", when, die)
            else:
                _replace(Writer, "finish", when, die)
            return write(batches)

        return run

    return make


def _replace(owner: type, name: str, when: str, die: Callable[[], None]) -> None:
    real = getattr(owner, name)

    def dying(writer: Any, *arguments: Any) -> None:
        if when == "before":
            die()
        real(writer, *arguments)
        while any(writer._under_way.values()):
            writer._wait()  # it is there, not only on its way
        die()

    setattr(owner, name, dying)


def _die_with(file: Path, die: Callable[[], None]) -> None:
    while not file.exists():
        time.sleep(0.001)
    die()


if __name__ == "__main__":
    run(*sys.argv[1:])
