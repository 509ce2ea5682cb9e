"""Records put together by key, and perhaps by window: what can be computed of them. Results are tables."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.streams.changes import Function, change, takes
from penstock.streams.expressions import Expression
from penstock.streams.nodes import Aggregate, Columns, Count, Fold, Node
from penstock.streams.places import TopologyError, caller
from penstock.streams.serdes import LONG, Serde, windowed
from penstock.streams.table import Table
from penstock.streams.windows import SessionWindow, TimeWindow, Window

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

    def window(self, window: Window) -> GroupedStream:
        """The same records, by key and window."""
        if not isinstance(window, Window):
            raise TopologyError(caller(), f"window got {window!r}: give a window, as in tumbling('1 minute')")
        return replace(self, in_window=window)

    def count(self, *, step: str | None = None) -> Table:
        """How many records."""
        return self._aggregated("count", Count(), LONG, step)

    def reduce(self, function: Callable[..., Any], *, step: str | None = None) -> Table:
        """One value of many, of the same type: `function(result, value)`. The first value is the first result."""
        self._check_function(function, "reduce")
        return self._aggregated("reduce", Fold(None, (function,), None), self.value, step)

    def aggregate(self, *given: Any, returns: str | None = None, step: str | None = None, **fields: Any) -> Table:
        """What Spark's aggregate functions or a Python function make of the records.

        `aggregate(fn.sum(col.amount))` is one value, `aggregate(total=fn.sum(col.amount), n=fn.count("*"))` a struct.
        `aggregate(list, add, returns="ARRAY<INT>")` begins with `list()` and calls `add(result, value)`, or
        `add(key, result, value)`, for each record.
        """
        if len(given) == 2 and callable(given[0]):
            return self._folded(given[0], (given[1],), returns, step)
        if len(given) > 1 or (given and not isinstance(given[0], (str, Expression))):
            raise TopologyError(
                caller(), "aggregate takes one expression, fields by name, or an initial value's function and an adder"
            )
        computed = change(given[0] if given else None, fields, returns, "aggregate")
        assert not isinstance(computed, Function)
        return self._aggregated("aggregate", Columns(computed), None, step)

    def cogroup(self, adder: Callable[..., Any]) -> CogroupedStream:
        """Begin to fold several grouped streams into one table."""
        self._check_function(adder, "cogroup")
        return CogroupedStream(self, ((self.node, adder),))

    def _folded(
        self, initial: Callable[[], Any], adders: tuple[Callable[..., Any], ...], returns: str | None, step: str | None
    ) -> Table:
        if returns is None:
            raise TopologyError(caller(), "aggregate got Python functions: say what type results have: returns='INT'")
        for adder in adders:
            self._check_function(adder, "aggregate")
        return self._aggregated("aggregate", Fold(initial, adders, returns), None, step)

    def _check_function(self, function: Callable[..., Any], what: str) -> None:
        if not callable(function) or not (takes(function, 2) or takes(function, 3)):
            raise TopologyError(caller(), f"{what} needs a function of result and value, or of key, result and value")
        if isinstance(self.in_window, SessionWindow):
            raise TopologyError(
                caller(), f"{what} with a Python function cannot merge sessions: use aggregate with Spark's functions"
            )

    def _aggregated(
        self, kind: str, computes: Count | Columns | Fold, value: Serde | None, step: str | None, *others: Node
    ) -> Table:
        node = self.builder.add(Aggregate, kind, step, [self.node, *others], computes=computes, window=self.in_window)
        key = self.key
        if self.in_window is not None and key is not None:
            key = windowed(key, session=not isinstance(self.in_window, TimeWindow))
        return Table(self.builder, node, key, value)


@dataclass(frozen=True, eq=False)
class CogroupedStream:
    """Several grouped streams that are folded into one table, each with an adder of its own."""

    first: GroupedStream
    parts: tuple[tuple[Node, Callable[..., Any]], ...]

    def cogroup(self, other: GroupedStream, adder: Callable[..., Any]) -> CogroupedStream:
        """Take in one more stream."""
        self.first._check_function(adder, "cogroup")
        return replace(self, parts=(*self.parts, (other.node, adder)))

    def window(self, window: Window) -> CogroupedStream:
        """The same, by key and window."""
        return replace(self, first=self.first.window(window))

    def aggregate(self, initial: Callable[[], Any], *, returns: str, step: str | None = None) -> Table:
        """The results, beginning with `initial()`."""
        adders = tuple(adder for _, adder in self.parts)
        for adder in adders:
            self.first._check_function(adder, "cogroup")
        others = [node for node, _ in self.parts[1:]]
        return self.first._aggregated("cogroup", Fold(initial, adders, returns), None, step, *others)
