"""Reducing and folding with Python functions, by key and perhaps window.

Keys, values and results go in and out as pickled bytes: so functions see the same Python values here as in every other
step, and Spark need not know what they are. A result of None is none: the row is deleted, and folding begins anew.

A window is kept until it is closed. Spark drops records that are older than the watermark, whichever windows they are
in; so the watermark is a window's size behind what it is elsewhere, and a window is closed when it passes its start.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import Any

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from penstock.streams.changes import takes
from penstock.streams.engine.aggregating import counting, windowed_key, windows
from penstock.streams.engine.records import check_same_types, records
from penstock.streams.nodes import Aggregate, Fold
from penstock.streams.windows import FINAL, TimeWindow

_STATE = "packed_key BINARY, packed BINARY, newest BIGINT"
# The last column is not used: Spark then puts a projection before the functions that unpack, without which it fails
# on the rows that come out of the state (GenericInternalRow cannot be cast to UnsafeRow).
_RESULT = "packed_key BINARY, packed BINARY, newest BIGINT, start BIGINT, end BIGINT, unused BIGINT"
_ROW = ["side", "topic", "partition", "offset", "micros", "packed_key", "packed"]

Folding = Callable[[Any, Iterable[pd.DataFrame], GroupState], Iterator[pd.DataFrame]]


def folded(node: Aggregate, frames: list[DataFrame]) -> DataFrame:
    """The changes of the table that the user's functions make."""
    assert isinstance(node.computes, Fold)
    fold, window = node.computes, node.window
    assert window is None or isinstance(window, TimeWindow)
    check_same_types(node, frames, ("key",))
    pack: Any = f.udf(pickle.dumps, "binary", useArrow=True)
    packed = [
        counting(frame).withColumns(
            {
                "side": f.lit(side),
                "micros": f.unix_micros("timestamp"),
                "packed_key": pack("key"),
                "packed": pack("value"),
            }
        )
        for side, frame in enumerate(frames)
    ]
    every = reduce(DataFrame.union, [one.select("key", "timestamp", *_ROW) for one in packed])
    mode = "append" if window is not None and window.emit == FINAL else "update"
    if window is None:
        grouped, timeout = every.groupBy("key"), GroupStateTimeout.NoTimeout
    else:
        wait_ms = window.size_ms + window.grace_ms
        spread = every.withWatermark("timestamp", f"{wait_ms} milliseconds").withColumn("span", windows(window))
        span = {name: f.unix_millis(f"span.{name}") for name in ("start", "end")}
        spread = spread.withColumns(span).drop("span")  # of which Spark would say that it is an event time too
        grouped, timeout = spread.groupBy("key", "start", "end"), GroupStateTimeout.EventTimeTimeout
    made = grouped.applyInPandasWithState(_folding(fold, window), _RESULT, _STATE, mode, timeout)
    value_kind = fold.returns or frames[0].schema["value"].dataType
    unpack_value: Any = f.udf(_unpacked, value_kind, useArrow=True)
    unpack_key: Any = f.udf(_unpacked, frames[0].schema["key"].dataType, useArrow=True)
    results = made.select(
        unpack_key("packed_key").alias("key"),
        unpack_value("packed").alias("value"),
        f.timestamp_micros("newest").alias("timestamp"),
        f.timestamp_millis("start").alias("start"),
        f.timestamp_millis("end").alias("end"),
    )
    if window is not None:
        results = results.withColumn("key", windowed_key(window, f.col("start"), f.col("end")))
    return records(results)


def _folding(fold: Fold, window: TimeWindow | None) -> Folding:
    """What is done with all new records of a key, or of a key and a window; and when a window is closed."""
    adders = [_with_key(adder) for adder in fold.adders]

    def run(group: Any, frames: Iterable[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
        start, end = (int(one) for one in group[1:]) if window is not None else (None, None)
        if state.hasTimedOut:
            packed_key, packed, newest = state.get
            state.remove()
            if window is not None and window.emit == FINAL and packed is not None:
                yield _result(packed_key, packed, newest, start, end)
            return
        if start is not None and (start < 0 or state.getCurrentWatermarkMs() >= max(start, 1)):
            return  # before 1970, where Kafka Streams has no windows; or closed (the watermark begins with 0)
        packed_key, packed, newest = state.get if state.exists else (None, None, 0)
        result = _unpacked(packed)
        for row in _in_order(pd.concat(frames)):
            packed_key, key, value = row.packed_key, pickle.loads(row.packed_key), pickle.loads(row.packed)
            newest = max(newest, row.micros)
            if result is None:
                if fold.initial is None:
                    result = value
                    continue
                result = fold.initial()
            result = adders[row.side](key, result, value)
        packed = None if result is None else pickle.dumps(result)
        state.update((packed_key, packed, int(newest)))
        if start is not None:
            state.setTimeoutTimestamp(max(start - 1, 1))  # Spark waits until the watermark is behind it
        if window is None or window.emit != FINAL:
            yield _result(packed_key, packed, newest, start, end)

    return run


def _unpacked(packed: bytes | None) -> Any:
    return None if packed is None else pickle.loads(packed)


def _with_key(adder: Callable[..., Any]) -> Callable[[Any, Any, Any], Any]:
    if not takes(adder, 2):
        return adder
    return lambda _, result, value: adder(result, value)


def _in_order(rows: pd.DataFrame) -> Iterator[Any]:
    """Rows as they came: by offset in one partition, else by time."""
    is_one = rows["partition"].nunique() == 1 and rows["topic"].nunique() == 1
    by = ["offset"] if is_one else ["micros", "topic", "partition", "offset"]
    yield from rows.sort_values(by, kind="stable").itertuples(index=False)


def _result(packed_key: bytes, packed: bytes | None, newest: int, start: int | None, end: int | None) -> pd.DataFrame:
    columns = {"packed_key": [packed_key], "packed": [packed], "newest": [newest], "start": [start], "end": [end]}
    frame = pd.DataFrame({**columns, "unused": [0]})
    return frame.astype({"newest": "int64", "start": "Int64", "end": "Int64", "unused": "int64"})
