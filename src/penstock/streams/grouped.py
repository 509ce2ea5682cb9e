"""Records put together by key, and perhaps by window: what can be computed of them. Results are tables."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.streams.changes import Function, change, takes
from penstock.streams.expressions import Expression
from penstock.streams.nodes import Aggregate, Columns, Count, Fold, Late, Node, Sink
from penstock.streams.places import TopologyError, caller
from penstock.streams.serdes import LONG, Serde, windowed
from penstock.streams.table import Table
from penstock.streams.windows import UPDATES, SessionWindow, SlidingWindow, Window

if TYPE_CHECKING:
    from penstock.streams.application import Builder


@dataclass(frozen=True, eq=False)
class GroupedStream:
    """Records by key. Those without a key or without a value do not count, as in Kafka Streams.

    Without a window, a result is about all records of a key. `window(tumbling("1 minute"))` makes it one per window,
    with keys that have the fields `key`, `start` and `end`.
    """

    builder: Builder
    node: Node
    key: Serde | None
    value: Serde | None
    in_window: Window | None = None
    late: str | None = None

    def window(self, window: Window, *, late: str | None = None) -> GroupedStream:
        """The same records, by key and window.

        Records that come after all their windows are closed go into the topic `late`, with the key that they are
        grouped by, value and timestamp; without it they are dropped.
        """
        if not isinstance(window, Window):
            raise TopologyError(caller(), f"window got {window!r}: give a window, as in tumbling('1 minute')")
        return replace(self, in_window=window, late=late)

    def count(self, *, step: str | None = None) -> Table:
        """How many records."""
        if _needs_python(self.in_window):
            counting = Fold(int, (_one_more,), "BIGINT", operator.add, "count")
            return self._aggregated("count", counting, LONG, step)
        return self._aggregated("count", Count(), LONG, step)

    def reduce(self, function: Callable[..., Any], *, step: str | None = None) -> Table:
        """One value of many, of the same type: `function(result, value)`. The first value is the first result."""
        _check_function(function, "reduce")
        return self._aggregated("reduce", Fold(None, (function,), None), self.value, step)

    def aggregate(
        self,
        *given: Any,
        returns: str | None = None,
        merge: Callable[..., Any] | None = None,
        step: str | None = None,
        **fields: Any,
    ) -> Table:
        """What Spark's aggregate functions or a Python function make of the records.

        `aggregate(fn.sum(col.amount))` is one value, `aggregate(total=fn.sum(col.amount), n=fn.count("*"))` a struct.
        `aggregate(list, add, returns="ARRAY<INT>")` begins with `list()` and calls `add(result, value)`, or
        `add(key, result, value)`, for each record; in sessions, `merge(result, result)` makes one of two.
        """
        if len(given) == 2 and callable(given[0]):
            return self._folded(given[0], given[1], merge, returns, step)
        if len(given) > 1 or (given and not isinstance(given[0], (str, Expression))):
            raise TopologyError(
                caller(), "aggregate takes one expression, fields by name, or an initial value's function and an adder"
            )
        if _needs_python(self.in_window):
            raise TopologyError(
                caller(),
                "Spark's functions know neither sliding windows nor updates of sessions: use count, reduce, or "
                "aggregate with Python functions",
            )
        computed = change(given[0] if given else None, fields, returns, "aggregate")
        assert not isinstance(computed, Function)
        return self._aggregated("aggregate", Columns(computed), None, step)

    def cogroup(self, adder: Callable[..., Any]) -> CogroupedStream:
        """Begin to fold several grouped streams into one table."""
        _check_function(adder, "cogroup")
        return CogroupedStream(self, ((self.node, adder),))

    def _folded(
        self,
        initial: Callable[[], Any],
        adder: Callable[..., Any],
        merge: Callable[..., Any] | None,
        returns: str | None,
        step: str | None,
    ) -> Table:
        if returns is None:
            raise TopologyError(caller(), "aggregate got Python functions: say what type results have: returns='INT'")
        _check_function(adder, "aggregate")
        if isinstance(self.in_window, SessionWindow) and merge is None:
            raise TopologyError(
                caller(), "aggregate in sessions needs merge=, a function that makes one of two results"
            )
        return self._aggregated("aggregate", Fold(initial, (adder,), returns, merge), None, step)

    def _aggregated(
        self, kind: str, computes: Count | Columns | Fold, value: Serde | None, step: str | None, *others: Node
    ) -> Table:
        fields = {"computes": computes, "window": self.in_window, "late": self.late is not None}
        node = self.builder.add(Aggregate, kind, step, [self.node, *others], **fields)
        if self.late is not None:
            self._write_late(node, self.late)
        key = self.key
        if self.in_window is not None and key is not None:
            key = windowed(key, session=isinstance(self.in_window, SessionWindow))
        return Table(self.builder, node, key, value)

    def _write_late(self, node: Node, topic: str) -> None:
        """What is too late for an aggregation goes into a topic: of one only, so each record is there once."""
        for step in self.builder.steps:
            if isinstance(step, Sink) and step.topic == topic:
                raise TopologyError(caller(), f"topic {topic} is written at {step.place} already: give late= another")
        serdes = {"key": self.key or self.builder.default_key, "value": self.value or self.builder.default_value}
        for what, serde in serdes.items():
            if serde is None:
                raise TopologyError(caller(), f"say how the {what} of late records is written: give group_by {what}=")
        late = self.builder.add(Late, "late", None, [node])
        self.builder.add(Sink, "sink", None, [late], topic=topic, **serdes)


def _check_function(function: Callable[..., Any], what: str) -> None:
    if not callable(function) or not (takes(function, 2) or takes(function, 3)):
        raise TopologyError(caller(), f"{what} needs a function of result and value, or of key, result and value")


def _needs_python(window: Window | None) -> bool:
    """Whether Spark's own aggregations do not know such a window."""
    return isinstance(window, SlidingWindow) or (isinstance(window, SessionWindow) and window.emit == UPDATES)


def _one_more(count: int, _: Any) -> int:
    return count + 1


def _one_less(count: int, _: Any) -> int:
    return count - 1


@dataclass(frozen=True, eq=False)
class CogroupedStream:
    """Several grouped streams that are folded into one table, each with an adder of its own."""

    first: GroupedStream
    parts: tuple[tuple[Node, Callable[..., Any]], ...]

    def cogroup(self, other: GroupedStream, adder: Callable[..., Any]) -> CogroupedStream:
        """Take in one more stream."""
        _check_function(adder, "cogroup")
        return replace(self, parts=(*self.parts, (other.node, adder)))

    def window(self, window: Window) -> CogroupedStream:
        """The same, by key and window."""
        return replace(self, first=self.first.window(window))

    def aggregate(self, initial: Callable[[], Any], *, returns: str, step: str | None = None) -> Table:
        """The results, beginning with `initial()`."""
        adders = tuple(adder for _, adder in self.parts)
        if isinstance(self.first.in_window, SessionWindow):
            raise TopologyError(caller(), "cogroup cannot merge sessions: merge the streams and aggregate them")
        others = [node for node, _ in self.parts[1:]]
        return self.first._aggregated("cogroup", Fold(initial, adders, returns), None, step, *others)


@dataclass(frozen=True, eq=False)
class GroupedTable:
    """The rows of a table by another key. Each row is in one group, or in none if its new key is null.

    A change takes the old value out of the group that it was in, then puts the new one into its own; a deleted row
    is taken out.
    """

    builder: Builder
    node: Node
    key: Serde | None
    value: Serde | None

    def count(self, *, step: str | None = None) -> Table:
        """How many rows. A group that has lost all of them has 0."""
        return self._folded("count", Fold(int, (_one_more,), "BIGINT", None, "count", _one_less), LONG, step)

    def reduce(self, adder: Callable[..., Any], subtractor: Callable[..., Any], *, step: str | None = None) -> Table:
        """One value of many, of the same type: `adder(result, value)` takes one in, `subtractor(result, value)` out.

        The first value of a group is its first result. A result of None deletes the group.
        """
        self._check(adder, subtractor, "reduce")
        return self._folded("reduce", Fold(None, (adder,), None, subtractor=subtractor), self.value, step)

    def aggregate(
        self,
        initial: Callable[[], Any],
        adder: Callable[..., Any],
        subtractor: Callable[..., Any],
        *,
        returns: str,
        step: str | None = None,
    ) -> Table:
        """What functions make of the rows, beginning with `initial()`.

        `adder(result, value)` takes one in and `subtractor(result, value)` out; both may take the key before these.
        """
        if not callable(initial):
            raise TopologyError(caller(), f"aggregate got {initial!r}: give a function that makes the first result")
        self._check(adder, subtractor, "aggregate")
        return self._folded("aggregate", Fold(initial, (adder,), returns, subtractor=subtractor), None, step)

    def _check(self, adder: Callable[..., Any], subtractor: Callable[..., Any], what: str) -> None:
        for name, function in (("adder", adder), ("subtractor", subtractor)):
            _check_function(function, f"{what}: {name}")

    def _folded(self, kind: str, fold: Fold, value: Serde | None, step: str | None) -> Table:
        node = self.builder.add(Aggregate, kind, step, [self.node], computes=fold, window=None)
        return Table(self.builder, node, self.key, value)
