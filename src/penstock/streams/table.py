"""A table: the newest value of each key. What goes through an application are its changes; no value means deleted."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from penstock.streams.changes import change, condition, joined, joined_on
from penstock.streams.nodes import (
    INNER,
    LEFT,
    OUTER,
    Aggregate,
    Filter,
    ForeignKeyJoin,
    Map,
    Node,
    Regroup,
    Store,
    TableJoin,
    ToStream,
)
from penstock.streams.places import TopologyError, caller
from penstock.streams.serdes import Serde, common_key
from penstock.streams.stream import Stream
from penstock.streams.windows import FINAL

if TYPE_CHECKING:
    from penstock.streams.application import Builder
    from penstock.streams.grouped import GroupedTable


@dataclass(frozen=True, eq=False)
class Table:
    """A table of an application."""

    builder: Builder
    node: Node
    key: Serde | None
    value: Serde | None

    def filter(self, given: Any, *, step: str | None = None) -> Table:
        """Only the rows for which a condition holds; a row for which it no longer does is deleted."""
        return self._filter("filter", given, step, is_negated=False)

    def filter_not(self, given: Any, *, step: str | None = None) -> Table:
        """Only the rows for which a condition does not hold."""
        return self._filter("filter-not", given, step, is_negated=True)

    def map_values(
        self, given: Any = None, *, returns: str | None = None, step: str | None = None, **fields: Any
    ) -> Table:
        """New values under the same keys. A deleted row stays deleted."""
        value = change(given, fields, returns, "map_values")
        node = self.builder.add(Map, "map-values", step, [self.node], key=None, value=value, is_table=True)
        return Table(self.builder, node, self.key, None)

    def to_stream(self, *, step: str | None = None) -> Stream:
        """The table's changes, as a stream."""
        return Stream(self.builder, self.builder.add(ToStream, "to-stream", step, [self.node]), self.key, self.value)

    def store(self, name: str) -> Table:
        """Let the table's rows be asked for under a name, while the application runs; returns the table."""
        self.builder.add(Store, "store", f"store-{name}", [self.node], store=name)
        return self

    def suppress(self, *, step: str | None = None) -> Table:
        """Of a windowed result, only what is final: one row per key and window, when the window is closed."""
        if not isinstance(self.node, Aggregate) or self.node.window is None:
            raise TopologyError(
                caller(), f"suppress must follow a windowed aggregation at once, and {self.node.name} is none"
            )
        if self.node.late:
            raise TopologyError(
                caller(), "an aggregation with late= has one form: say emit='final' in its window, not suppress"
            )
        node = self.builder.add(
            Aggregate,
            "suppress",
            step,
            self.node.parents,
            computes=self.node.computes,
            window=replace(self.node.window, emit=FINAL),
        )
        return replace(self, node=node)

    def group_by(
        self, given: Any, *, returns: str | None = None, key: Serde | None = None, step: str | None = None
    ) -> GroupedTable:
        """The table's rows by another key. A row that changes leaves the group it was in.

        `key` says how the new key is written, for whoever writes the results.
        """
        from penstock.streams.grouped import GroupedTable

        group = change(given, {}, returns, "group_by")
        node = self.builder.add(Regroup, "group-by", step, [self.node], key=group)
        return GroupedTable(self.builder, node, key, self.value)

    def join(self, other: Table, value: Any = None, **options: Any) -> Table:
        """What both tables say about a key, for keys that are in both.

        With `on=col.customer`, an expression of this table's rows, each row is joined with the other table's row of
        that key, and keeps its own. Without `value` or fields by name, values have the fields `left` and `right`; else
        these names can be used. A function gets left and right. Other options: `returns`, `step`.
        """
        return self._join(INNER, other, value, **options)

    def left_join(self, other: Table, value: Any = None, **options: Any) -> Table:
        """As `join`, for all keys of this table."""
        return self._join(LEFT, other, value, **options)

    def outer_join(self, other: Table, value: Any = None, **options: Any) -> Table:
        """As `join`, for the keys of either table."""
        return self._join(OUTER, other, value, **options)

    def _join(
        self,
        kind: str,
        other: Table,
        value: Any,
        *,
        returns: str | None = None,
        step: str | None = None,
        on: Any = None,
        **fields: Any,
    ) -> Table:
        if not isinstance(other, Table):
            raise TopologyError(caller(), f"join got {other!r}: give a table; stream.to_table() makes one of a stream")
        made = joined(value, fields, returns)
        if on is not None:
            if kind == OUTER:
                raise TopologyError(caller(), "there is no outer join by a foreign key: use left_join")
            options = {"kind": kind, "value": made, "on": joined_on(on)}
            parents = [self.node, other.node]
            return Table(
                self.builder,
                self.builder.add(ForeignKeyJoin, f"{kind}-foreign-key-join", step, parents, **options),
                self.key,
                None,
            )
        key = common_key(self.key, other.key)
        kind_name = f"{kind}-table-join"
        node = self.builder.add(TableJoin, kind_name, step, [self.node, other.node], kind=kind, value=made)
        return Table(self.builder, node, key, None)

    def _filter(self, kind: str, given: Any, step: str | None, *, is_negated: bool) -> Table:
        node = self.builder.add(
            Filter,
            kind,
            step,
            [self.node],
            condition=condition(given, kind.replace("-", "_")),
            is_negated=is_negated,
            is_table=True,
        )
        return Table(self.builder, node, self.key, self.value)


@dataclass(frozen=True, eq=False)
class GlobalTable:
    """A table in which any stream can look something up, by any expression: `stream.join(table, on=col.customer)`."""

    builder: Builder
    node: Node
    key: Serde | None
    value: Serde | None

    def store(self, name: str) -> GlobalTable:
        """Let the table's rows be asked for under a name, while the application runs; returns the table."""
        self.builder.add(Store, "store", f"store-{name}", [self.node], store=name)
        return self
