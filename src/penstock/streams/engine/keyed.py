"""Steps in Python that remember something of each key: one object per key, in Spark's state store.

A step is called with all new records of a key, in order, and when the time has come that it asked for. Spark's
transformWithState does it, row by row. Keys and values go in and out as pickled bytes: so functions see the same Python
values here as in every other step, and Spark need not know what they are. No record
is dropped for being late: Spark does not see the column with the times.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import DataType

_MADE = "packed_key BINARY, packed BINARY, micros BIGINT, side INT, start BIGINT, end BIGINT"
_ARRIVED = ("side", "topic", "partition", "offset", "micros", "now", "packed_key", "packed")
TICK = -1  # the side of rows that say only what time it is


class Made(NamedTuple):
    """What a step gives: a record; `side` tells several outputs apart, `start` and `end` are a window's."""

    packed_key: bytes
    packed: bytes | None
    micros: int
    side: int = 0
    start: int | None = None
    end: int | None = None


@dataclass
class Memory:
    """What a step remembers of a key. `content` None: nothing. `wake_ms` is when it wants to be called again."""

    packed_key: bytes
    content: Any = None
    wake_ms: int | None = None


@dataclass(frozen=True)
class Clock:
    """The clock on the wall: rows with a `timestamp` that move it, and what time it is when a record comes, in ms."""

    ticks: DataFrame
    now: Column


Step = Callable[[Memory, list[Any], int], Iterable[Made]]


def keyed(frames: list[DataFrame], step: Step, *, clock: Clock | None = None, timed: bool = False) -> DataFrame:
    """The rows that a step makes of records. Those of several frames have `side` 0, 1 and so on.

    Time is that of the stream if it is `timed`, or that of a clock. A frame may have a `side` already.
    """
    now = (f.lit(None) if clock is None else clock.now).cast("bigint")
    every = reduce(DataFrame.union, [_packed(frame, side, now) for side, frame in enumerate(frames)])
    if clock is not None:
        every = every.union(_ticking(clock.ticks, every))
    elif timed:
        every = every.withWatermark("timestamp", "0 milliseconds")
    rows = every.drop("timestamp")
    mode = "EventTime" if timed or clock is not None else "None"
    return rows.groupBy("key").transformWithState(_Keyed(step), _MADE, "Update", mode)


def unpacked(packed: str | Column, kind: DataType | str) -> Column:
    """A column of pickled bytes, as what it is."""
    unpack: Any = f.udf(unpack_one, kind, useArrow=True)
    made: Column = unpack(packed)
    return made


def unpack_one(packed: bytes | None) -> Any:
    return None if packed is None else pickle.loads(packed)


def _packed(frame: DataFrame, side: int, now: Column) -> DataFrame:
    pack: Any = f.udf(pickle.dumps, "binary", useArrow=True)
    made = {
        "micros": f.unix_micros("timestamp"),
        "now": now,
        "packed_key": pack("key"),
        "packed": pack("value"),
    }
    if "side" not in frame.columns:
        made["side"] = f.lit(side)
    return frame.withColumns(made).select("key", "timestamp", *_ARRIVED)


def _ticking(ticks: DataFrame, like: DataFrame) -> DataFrame:
    """Ticks as rows among others, under no key. They alone move the clock."""
    timed = ticks.select("timestamp").withWatermark("timestamp", "0 milliseconds")
    kinds = {one.name: one.dataType for one in like.schema}
    others = {name: f.lit(TICK if name == "side" else None).cast(kind) for name, kind in kinds.items()}
    others["timestamp"] = f.col("timestamp")
    return timed.select(*(others[name].alias(name) for name in like.columns))


class _Keyed(StatefulProcessor):
    """Calls a step. Of each key there is one value, which says what it remembers and when Spark's timer is set."""

    def __init__(self, step: Step) -> None:
        self._step = step

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._state = handle.getValueState("memory", "packed BINARY")

    def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803 - Spark's
        """Spark has records of a key."""
        arrived = _in_order([row for row in rows if row.side != TICK])
        if arrived:
            yield from self._run(arrived[0].packed_key, arrived, timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:  # noqa: N802, N803
        """The time has come that a key waited for."""
        yield from self._run(None, [], timerValues)

    def _run(self, packed_key: bytes | None, arrived: list[Any], timer_values: Any) -> Iterator[Row]:
        now_ms = max(timer_values.getCurrentWatermarkInMs(), 0)
        stored = self._state.get()
        if stored is None and packed_key is None:
            return  # forgotten meanwhile
        known: Any = pickle.loads(stored[0]) if stored else (packed_key, None, None)
        key, content, timer_ms = known
        memory = Memory(key, content)
        for made in self._step(memory, arrived, now_ms):
            yield Row(**made._asdict())
        if memory.content is None:
            if stored:
                self._state.clear()
            return
        timer_ms = self._set(memory.wake_ms, timer_ms, now_ms)
        packed = pickle.dumps((key, memory.content, timer_ms))
        if stored is None or packed != stored[0]:
            self._state.update((packed,))

    def _set(self, wake_ms: int | None, timer_ms: int | None, now_ms: int) -> int | None:
        """Have Spark call in time. A timer that is too early stays: it costs less to be called in vain."""
        if timer_ms is not None and timer_ms <= now_ms:
            timer_ms = None  # Spark calls for it in this batch, and forgets it
        if wake_ms is None or (timer_ms is not None and timer_ms <= wake_ms):
            return timer_ms
        if timer_ms is not None:
            self._handle.deleteTimer(timer_ms)
        wake_ms = max(wake_ms, now_ms + 1)
        self._handle.registerTimer(wake_ms)
        return wake_ms

    def close(self) -> None:
        """Nothing is open."""


def _in_order(rows: list[Any]) -> list[Any]:
    """Rows as they came: by offset in one partition, else by time."""
    is_one = len({(row.topic, row.partition) for row in rows}) == 1
    if is_one:
        return sorted(rows, key=lambda row: row.offset or 0)
    return sorted(rows, key=lambda row: (row.micros, row.topic or "", row.partition or 0, row.offset or 0))
