"""Processors of the user, run on keyed state."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from penstock.streams.engine.keyed import Clock, Made, Memory, Step, keyed, unpacked
from penstock.streams.engine.records import records
from penstock.streams.nodes import Process
from penstock.streams.processors import Context, Kept, Processor, Record, called


def processed(node: Process, frame: DataFrame, clock: Clock | None) -> DataFrame:
    """What a processor emits. It goes by the time of the stream, unless there is a clock."""
    step = _processing(node.processor, is_wall_clock=clock is not None, may_change_key=not node.keeps_key)
    made = keyed([frame], step, clock=clock, timed=clock is None)
    return records(
        made.select(
            unpacked("packed_key", node.returns_key or frame.schema["key"].dataType).alias("key"),
            unpacked("packed", node.returns).alias("value"),
            f.timestamp_micros("micros").alias("timestamp"),
        )
    )


def _processing(processor: Processor, *, is_wall_clock: bool, may_change_key: bool) -> Step:
    """The step that calls a processor.

    The time of a stream is what its records say: a record brings a key's own time to its timestamp, and timers that are
    due by then are called before it. So it does not matter which records come together in one micro-batch.
    """

    def step(memory: Memory, arrived: list[Any], now_ms: int) -> Iterator[Made]:
        kept = memory.content or Kept()
        context = Context(pickle.loads(memory.packed_key), kept, may_change_key)
        for row in arrived:
            timestamp = row.micros // 1000
            now_ms = max(now_ms, (row.now or 0) if is_wall_clock else timestamp)
            record = Record(context.key, pickle.loads(row.packed), timestamp, row.topic, row.partition, row.offset)
            called(processor, context, record, now_ms)
        called(processor, context, None, now_ms)
        kept.expire(now_ms)
        memory.content, memory.wake_ms = None if kept.is_empty else kept, kept.next_ms()
        for key, value, timestamp in context.emitted:
            packed_key = memory.packed_key if key is context.key else pickle.dumps(key)
            yield Made(packed_key, None if value is None else pickle.dumps(value), timestamp * 1000)

    return step
