"""Reducing and folding with Python functions, by key and perhaps window.

A result of None is none: the row is deleted, and folding begins anew. All open windows of a key are one object in
Spark's state. A window is forgotten when it is closed.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from penstock.streams.changes import takes
from penstock.streams.engine.aggregating import counting
from penstock.streams.engine.keyed import Made, Memory, Step, keyed, unpacked
from penstock.streams.engine.lateness import late_column
from penstock.streams.engine.records import check_same_types, records
from penstock.streams.engine.spans import Slot, Slots, Span, spans_of
from penstock.streams.nodes import Aggregate, Fold
from penstock.streams.windows import FINAL, Window

_RESULT, _LATE = 0, 1  # sides of what comes out

Folding = Callable[[Any, Any, Any], Any]


def folded(node: Aggregate, frames: list[DataFrame]) -> DataFrame:
    """The changes of the table that the user's functions make; beside them, if wanted, records that are too late."""
    assert isinstance(node.computes, Fold)
    fold, window = node.computes, node.window
    check_same_types(node, frames, ("key",))
    counted = [counting(frame) for frame in frames]
    step = _step(fold, window, with_late=node.late)
    made = keyed(counted, step, timed=window is not None)
    key_kind, value_kind = (frames[0].schema[name].dataType for name in ("key", "value"))
    if fold.subtractor is not None:
        assert isinstance(value_kind, StructType)
        value_kind = value_kind["new"].dataType
    key = unpacked("packed_key", key_kind)
    if window is not None:
        times = (f.timestamp_millis(name).alias(name) for name in ("start", "end"))
        key = f.struct(key.alias("key"), *times)
    results = made.withColumns(
        {
            "key": key,
            "value": unpacked(_of(_RESULT), fold.returns or value_kind),
            "timestamp": f.timestamp_micros("micros"),
        }
    )
    if not node.late:
        return records(results)
    late_key = unpacked("packed_key", key_kind)
    late = late_column(late_key, unpacked(_of(_LATE), value_kind), f.timestamp_micros("micros"))
    return records(results.withColumn("late", f.when(f.col("side") == _LATE, late)), "late")


def _of(side: int) -> Column:
    return f.when(f.col("side") == side, f.col("packed"))


def _step(fold: Fold, window: Window | None, *, with_late: bool) -> Step:
    if fold.subtractor is not None:
        return _folding_changes(fold, fold.subtractor)
    return _folding(fold) if window is None else _folding_windows(fold, window, with_late=with_late)


def _folding_changes(fold: Fold, subtractor: Callable[..., Any]) -> Step:
    """All rows of a group: what was is taken out before what is comes in. Without a result there is no group."""
    add, subtract = _with_key(fold.adders[0]), _with_key(subtractor)

    def step(memory: Memory, arrived: list[Any], now_ms: int) -> Iterator[Made]:
        slot: Slot = memory.content or Slot()
        key = pickle.loads(memory.packed_key)
        for row in arrived:
            change = pickle.loads(row.packed)
            slot.newest = max(slot.newest if slot.result is not None else -1, row.micros // 1000)
            if change.old is not None and slot.result is not None:
                slot.result = subtract(key, slot.result, change.old)
            if change.new is not None:
                slot.result = _added(fold, add, key, change.new, slot.result)
        memory.content = None if slot.result is None else slot
        yield Made(memory.packed_key, _packed(slot.result), slot.newest * 1000)

    return step


def _folding(fold: Fold) -> Step:
    """All records of a key, without windows."""
    adders = [_with_key(adder) for adder in fold.adders]

    def step(memory: Memory, arrived: list[Any], now_ms: int) -> Iterator[Made]:
        slot: Slot = memory.content or Slot()
        key = pickle.loads(memory.packed_key)
        for row in arrived:
            slot.result = _added(fold, adders[row.side], key, pickle.loads(row.packed), slot.result)
            slot.newest = max(slot.newest, row.micros // 1000)
        memory.content = slot
        yield Made(memory.packed_key, _packed(slot.result), slot.newest * 1000)

    return step


def _folding_windows(fold: Fold, window: Window, *, with_late: bool) -> Step:
    """The records of a key, window by window."""
    adders = [_with_key(adder) for adder in fold.adders]
    merging = _with_key(fold.merge or fold.adders[0])
    spans = spans_of(window)

    def step(memory: Memory, arrived: list[Any], now_ms: int) -> Iterator[Made]:
        slots: Slots = memory.content or {}
        before = set(slots)
        key = pickle.loads(memory.packed_key)
        changed: dict[Span, int] = {}  # with the time of what is no longer there
        for row in arrived:
            add = partial(_added, fold, adders[row.side], key, pickle.loads(row.packed))
            touched = spans.take(slots, row.micros // 1000, now_ms, add, partial(merging, key))
            if touched is not None:
                changed |= {span: span.end for span in touched}
            elif with_late:
                yield Made(row.packed_key, row.packed, row.micros, _LATE)
        if window.emit == FINAL:
            ended = sorted(one for one in slots if not slots[one].was_emitted and not spans.is_open(one, now_ms))
            for span in ended:
                slots[span].was_emitted = True
                if slots[span].result is not None:
                    yield _result(memory.packed_key, span, slots[span].result, slots[span].newest)
        else:
            for span, end in changed.items():
                if span in slots:
                    yield _result(memory.packed_key, span, slots[span].result, slots[span].newest)
                elif span in before:  # part of another session now
                    yield _result(memory.packed_key, span, None, end)
        left = {span: slot for span, slot in slots.items() if spans.forgotten_ms(span) > now_ms}
        waits = [
            spans.closes_ms(span) if window.emit == FINAL and not slot.was_emitted else spans.forgotten_ms(span)
            for span, slot in left.items()
        ]
        memory.content, memory.wake_ms = left or None, min(waits, default=None)

    return step


def _added(fold: Fold, adder: Folding, key: Any, value: Any, result: Any) -> Any:
    """A value taken into a result, or into the first one."""
    if result is None:
        if fold.initial is None:
            return value
        result = fold.initial()
    return adder(key, result, value)


def _with_key(adder: Callable[..., Any]) -> Folding:
    if not takes(adder, 2):
        return adder
    return lambda _, result, value: adder(result, value)


def _packed(result: Any) -> bytes | None:
    return None if result is None else pickle.dumps(result)


def _result(packed_key: bytes, span: Span, result: Any, newest: int) -> Made:
    return Made(packed_key, _packed(result), newest * 1000, _RESULT, *span)
