"""A stream: records that stand for themselves, one after the other.

Every method gives a new stream (or table) and leaves this one as it was. Expressions are `col.amount > 10`, SQL text
such as "amount > 10", or Python functions of a value, or of a key and a value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from penstock.streams.changes import Change, change, condition, joined, joined_on
from penstock.streams.nodes import (
    INNER,
    LEFT,
    OUTER,
    Branch,
    Filter,
    FlatMap,
    GlobalJoin,
    Map,
    Merge,
    Node,
    Peek,
    Process,
    Sink,
    StreamJoin,
    StreamTableJoin,
    Through,
    ToTable,
)
from penstock.streams.places import TopologyError, caller
from penstock.streams.processors import CLOCKS, Processor
from penstock.streams.serdes import Serde, common_key
from penstock.streams.windows import JoinWindow

if TYPE_CHECKING:
    from penstock.streams.application import Builder
    from penstock.streams.grouped import GroupedStream
    from penstock.streams.table import GlobalTable, Table


@dataclass(frozen=True, eq=False)
class Stream:
    """A stream of an application. `key` and `value` are the serdes it came with, as far as they still fit."""

    builder: Builder
    node: Node
    key: Serde | None
    value: Serde | None
    has_new_key: bool = False

    # ---- record by record ----

    def filter(self, given: Any, *, step: str | None = None) -> Stream:
        """Only the records for which a condition holds."""
        return self._same(self._filter("filter", given, step, is_negated=False))

    def filter_not(self, given: Any, *, step: str | None = None) -> Stream:
        """Only the records for which a condition does not hold."""
        return self._same(self._filter("filter-not", given, step, is_negated=True))

    def select_key(self, given: Any, *, returns: str | None = None, step: str | None = None) -> Stream:
        """The same values under new keys."""
        key = change(given, {}, returns, "select_key")
        node = self.builder.add(Map, "select-key", step, [self.node], key=key, value=None)
        return Stream(self.builder, node, None, self.value, has_new_key=True)

    def map_values(
        self, given: Any = None, *, returns: str | None = None, step: str | None = None, **fields: Any
    ) -> Stream:
        """New values under the same keys: one expression, or fields of a struct by their names."""
        value = change(given, fields, returns, "map_values")
        node = self.builder.add(Map, "map-values", step, [self.node], key=None, value=value)
        return Stream(self.builder, node, self.key, None, self.has_new_key)

    def map(self, *, key: Any, value: Any, step: str | None = None) -> Stream:
        """New keys and new values. For functions use `select_key` and `map_values`, which declare their types."""
        changes = {"key": change(key, {}, None, "map"), "value": change(value, {}, None, "map")}
        node = self.builder.add(Map, "map", step, [self.node], **changes)
        return Stream(self.builder, node, None, None, has_new_key=True)

    def flat_map_values(self, given: Any, *, returns: str | None = None, step: str | None = None) -> Stream:
        """A record for each element of an array, under the same key. `returns` is the type of an element."""
        node = self._flat_map("flat-map-values", given, returns, step, with_key=False)
        return Stream(self.builder, node, self.key, None, self.has_new_key)

    def flat_map(self, given: Any, *, returns: str | None = None, step: str | None = None) -> Stream:
        """A record for each element of an array of structs with key and value. `returns` is the type of an element."""
        node = self._flat_map("flat-map", given, returns, step, with_key=True)
        return Stream(self.builder, node, None, None, has_new_key=True)

    def peek(self, action: Callable[[Any, Any], Any], *, step: str | None = None) -> Stream:
        """Call a function with every key and value, in the process that has them; at least once for each."""
        return self._same(self.builder.add(Peek, "peek", step, [self.node], action=action, is_end=False))

    def for_each(self, action: Callable[[Any, Any], Any], *, step: str | None = None) -> None:
        """Call a function with every key and value, and end here; at least once for each."""
        self.builder.add(Peek, "for-each", step, [self.node], action=action, is_end=True)

    def branch(self, *conditions: Any, default: bool = False) -> tuple[Stream, ...]:
        """A stream for each condition. A record goes to the first that holds; others to a last one, if `default`."""
        if not conditions:
            raise TopologyError(caller(), "branch needs at least one condition")
        taken: tuple[Change, ...] = ()
        branches = []
        for given in conditions:
            one = condition(given, "branch")
            branches.append(self.builder.add(Branch, "branch", None, [self.node], condition=one, earlier=taken))
            taken = (*taken, one)
        if default:
            branches.append(self.builder.add(Branch, "branch", None, [self.node], condition=None, earlier=taken))
        return tuple(self._same(one) for one in branches)

    def merge(self, *others: Stream, step: str | None = None) -> Stream:
        """The records of this stream and others. Their keys and values must have the same types."""
        every = [self, *others]
        node = self.builder.add(Merge, "merge", step, [one.node for one in every])
        key = self.key if all(one.key == self.key for one in every) else None
        value = self.value if all(one.value == self.value for one in every) else None
        return Stream(self.builder, node, key, value, any(one.has_new_key for one in every))

    # ---- with a processor ----

    def process(
        self,
        processor: Processor | type[Processor],
        *,
        returns: str,
        returns_key: str | None = None,
        key: Serde | None = None,
        step: str | None = None,
    ) -> Stream:
        """What a processor emits, which remembers something of each key and sets timers (`processors.py`).

        `returns` and `returns_key` are the Spark types of values and, if they are new, of keys; `key` says how keys
        are written.
        """
        node = self._process("process", processor, returns, returns_key, step, keeps_key=False)
        return Stream(self.builder, node, key or (None if returns_key else self.key), None, has_new_key=True)

    def process_values(
        self, processor: Processor | type[Processor], *, returns: str, step: str | None = None
    ) -> Stream:
        """What a processor emits, under the same keys."""
        node = self._process("process-values", processor, returns, None, step, keeps_key=True)
        return Stream(self.builder, node, self.key, None, self.has_new_key)

    # ---- through and into topics ----

    def repartition(self, partitions: int | None = None, *, step: str | None = None) -> Stream:
        """The same records by way of a topic of the application's own, with so many partitions."""
        node = self.builder.add(Through, "repartition", step, [self.node], partitions=partitions)
        return Stream(self.builder, node, self.key, self.value)

    def to(self, topic: str, *, key: Serde | None = None, value: Serde | None = None, step: str | None = None) -> None:
        """Write the records into a topic."""
        given = {
            "key": key or self.key or self.builder.default_key,
            "value": value or self.value or self.builder.default_value,
        }
        for what, serde in given.items():
            if serde is None:
                raise TopologyError(caller(), f"say how the {what} is written, as in to({topic!r}, {what}=TEXT)")
        self.builder.add(Sink, "sink", step, [self.node], topic=topic, **given)

    def to_table(self, *, step: str | None = None) -> Table:
        """The newest value of each key, as a table.

        If the key was changed, records first go through a topic that brings those of one key into one order.
        """
        from penstock.streams.table import Table

        ordered = self.repartition() if self.has_new_key else self
        return Table(self.builder, self.builder.add(ToTable, "to-table", step, [ordered.node]), self.key, self.value)

    # ---- together by key ----

    def group_by(
        self, given: Any, *, returns: str | None = None, key: Serde | None = None, step: str | None = None
    ) -> GroupedStream:
        """Records by a new key. `key` says how it is written, for whoever writes the results."""
        from penstock.streams.grouped import GroupedStream

        new = self.select_key(given, returns=returns, step=step)
        return GroupedStream(self.builder, new.node, key, self.value)

    def group_by_key(self, *, repartition: bool = True) -> GroupedStream:
        """Records by their key. With `repartition=False`, refuse keys for which Spark would have to move records."""
        from penstock.streams.grouped import GroupedStream

        self._check_key(repartition, "group_by_key")
        return GroupedStream(self.builder, self.node, self.key, self.value)

    # ---- joins ----

    def join(
        self, other: Stream | Table | GlobalTable, window: JoinWindow | None = None, value: Any = None, **options: Any
    ) -> Stream:
        """Pairs of records with the same key: of two streams, not too far apart in time; or with a table's row.

        `window` is `within("10 seconds")`; for a table there is none. For a global table, `on=col.customer` says
        what to look up in it. Without `value` or fields by name, values have
        the fields `left` and `right`; else these names can be used: `total=col.left.amount + col.right.amount`. A
        function gets left and right. Other options: `returns`, `step`, `repartition=False`.
        """
        return self._join(INNER, other, window, value, **options)

    def left_join(
        self, other: Stream | Table | GlobalTable, window: JoinWindow | None = None, value: Any = None, **options: Any
    ) -> Stream:
        """As `join`; and records of this stream that found no partner: with a stream, when their window is closed."""
        return self._join(LEFT, other, window, value, **options)

    def outer_join(self, other: Stream, window: JoinWindow | None = None, value: Any = None, **options: Any) -> Stream:
        """As `join`; and records of either stream that found no partner, when their window is closed."""
        return self._join(OUTER, other, window, value, **options)

    def _join(
        self,
        kind: str,
        other: Stream | Table | GlobalTable,
        window: JoinWindow | None,
        value: Any,
        *,
        returns: str | None = None,
        step: str | None = None,
        repartition: bool = True,
        on: Any = None,
        **fields: Any,
    ) -> Stream:
        from penstock.streams.table import GlobalTable

        is_global = isinstance(other, GlobalTable)
        if is_global != (on is not None):
            raise TopologyError(
                caller(),
                "a join with a global table needs on=, an expression for what to look up, as in on=col.customer"
                if is_global
                else "on= is for global tables: make one with app.global_table, or join by key",
            )
        if not is_global:
            self._check_key(repartition, "join")
        if isinstance(other, Stream):
            other._check_key(repartition, "join")
            if not isinstance(window, JoinWindow):
                raise TopologyError(caller(), f"join needs a window, as in within('10 seconds'), and got {window!r}")
        elif kind == OUTER:
            raise TopologyError(caller(), "there is no outer join of a stream and a table: use left_join")
        elif window is not None:
            raise TopologyError(
                caller(), "a join with a table has no window: leave it out, and give value= by its name"
            )
        key = self.key if is_global else common_key(self.key, other.key)
        made = joined(value, fields, returns)
        parents = [self.node, other.node]
        node: Node
        if is_global:
            options = {"kind": kind, "value": made, "on": joined_on(on)}
            node = self.builder.add(GlobalJoin, f"{kind}-global-lookup", step, parents, **options)
        elif isinstance(other, Stream):
            name = f"{kind}-join"
            node = self.builder.add(StreamJoin, name, step, parents, kind=kind, window=window, value=made)
        else:
            node = self.builder.add(StreamTableJoin, f"{kind}-lookup", step, parents, kind=kind, value=made)
        return Stream(self.builder, node, key, None, self.has_new_key)

    # ---- how ----

    def _same(self, node: Node) -> Stream:
        return Stream(self.builder, node, self.key, self.value, self.has_new_key)

    def _filter(self, kind: str, given: Any, step: str | None, *, is_negated: bool) -> Node:
        return self.builder.add(
            Filter,
            kind,
            step,
            [self.node],
            condition=condition(given, kind.replace("-", "_")),
            is_negated=is_negated,
            is_table=False,
        )

    def _flat_map(self, kind: str, given: Any, returns: str | None, step: str | None, *, with_key: bool) -> Node:
        array = None if returns is None else f"ARRAY<{returns}>"
        changed = change(given, {}, array, kind.replace("-", "_"))
        return self.builder.add(FlatMap, kind, step, [self.node], change=changed, with_key=with_key)

    def _process(
        self,
        kind: str,
        processor: Processor | type[Processor],
        returns: str,
        returns_key: str | None,
        step: str | None,
        *,
        keeps_key: bool,
    ) -> Node:
        made = processor() if isinstance(processor, type) else processor
        if not isinstance(made, Processor):
            raise TopologyError(caller(), f"{kind.replace('-', '_')} got {processor!r}: give a subclass of Processor")
        if made.clock not in CLOCKS:
            raise TopologyError(
                caller(), f"{type(made).__name__}.clock is {made.clock!r}: use {' or '.join(map(repr, CLOCKS))}"
            )
        fields = {"processor": made, "returns": returns, "returns_key": returns_key, "keeps_key": keeps_key}
        return self.builder.add(Process, kind, step, [self.node], **fields)

    def _check_key(self, repartition: bool, what: str) -> None:
        if self.has_new_key and not repartition:
            raise TopologyError(
                caller(),
                f"{what}: the key was changed before {self.node.name}, so records must be moved to where their key "
                "belongs: allow it with repartition=True, or do not change the key",
            )
