"""Cutting a topology into pieces, each of which one Spark query can run. Pure.

A piece has at most one step with state. Where a step with state follows another, where streams of different pieces are
merged, and where the user asked for it, records go through an internal topic. A table that is stored is in one, too,
unless the topic that it is read from serves as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from penstock.streams.nodes import (
    Aggregate,
    Filter,
    ForeignKeyJoin,
    Map,
    Merge,
    Node,
    Peek,
    Sink,
    Source,
    Store,
    TableJoin,
    Through,
    ToTable,
)
from penstock.streams.serdes import CustomSerde, WindowedSerde
from penstock.streams.topology import Topology


@dataclass(frozen=True)
class InternalTopic:
    """A topic that holds what a step gives, for another piece."""

    name: str
    after: Node
    partitions: int | None = None

    @property
    def cleanup_policy(self) -> str:
        return "compact" if is_table(self.after) else "delete"

    @property
    def is_cleaned(self) -> bool:
        """Whether records are deleted that all have read."""
        return not is_table(self.after)


@dataclass(frozen=True)
class Piece:
    """What one query does: from `inputs`, perhaps by way of a step with state, to `outputs`.

    Inputs are sources, and steps behind which an internal topic is read. Outputs are sinks, steps before which an
    internal topic is written, and steps that end here.
    """

    name: str
    stateful: Node | None
    inputs: tuple[Node, ...]
    outputs: tuple[Node, ...]


@dataclass(frozen=True)
class Pieces:
    """A topology in pieces. A piece comes after those whose topics it reads."""

    topology: Topology
    pieces: tuple[Piece, ...]
    internal: dict[Node, InternalTopic]
    cuts: frozenset[tuple[Node, Node]]  # between a step and its child

    def parents(self, node: Node) -> Iterator[tuple[Node, bool]]:
        """A step's parents, and whether there is a topic in between."""
        for parent in node.parents:
            yield parent, (parent, node) in self.cuts

    def needed_for(self, node: Node) -> set[Node]:
        """A step, and all that it is made of, up to sources and steps behind topics."""
        found = {node}
        for parent, is_cut in self.parents(node):
            found |= {parent} if is_cut else self.needed_for(parent)
        return found

    def topics_of(self, node: Node) -> list[str]:
        """What is read for an input of a piece."""
        return list(node.topics) if isinstance(node, Source) else [self.internal[node].name]

    def changelog(self, store: Store) -> str:
        """The topic that says what is in a store."""
        (table,) = store.parents
        if table in self.internal:
            return self.internal[table].name
        assert isinstance(table, Source)
        return table.topics[0]

    def members(self, piece: Piece) -> list[Node]:
        """The steps of a piece, parents first. A step without state may be in several."""
        found = set(piece.outputs)
        for node in reversed(self.topology.steps):
            if node in found:
                found |= {parent for parent, is_cut in self.parents(node) if not is_cut}
        return [node for node in self.topology.steps if node in found]


def is_table(node: Node) -> bool:
    """Whether a step gives changes of a table."""
    if isinstance(node, (Source, Filter, Map)):
        return node.is_table
    return isinstance(node, (Aggregate, ForeignKeyJoin, TableJoin, ToTable))


def is_end(node: Node) -> bool:
    """Whether nothing can come after a step, which makes it worth running."""
    return isinstance(node, (Sink, Store)) or (isinstance(node, Peek) and node.is_end)


def is_its_topic(table: Node) -> bool:
    """Whether a table is just what its topic says, in bytes that can be read without Spark."""
    return (
        isinstance(table, Source)
        and table.timestamp is None
        and not any(isinstance(serde, (CustomSerde, WindowedSerde)) for serde in (table.key, table.value))
    )


def cut(topology: Topology) -> Pieces:
    """The pieces of a topology. Steps that lead nowhere are left out."""
    used = _leading_somewhere(topology)
    anchors, cuts = _anchors(used)
    written = dict.fromkeys(parent for node in used for parent in node.parents if (parent, node) in cuts)
    internal = {node: _internal(topology.application, node) for node in written}
    outputs = [node for node in used if (is_end(node) and not isinstance(node, Store)) or node in internal]
    groups: list[tuple[Node | None, list[Node], list[Node]]] = []  # step with state, inputs, outputs
    for output in outputs:
        inputs = _inputs(output, cuts)
        group = next((one for one in groups if _belong_together(one, anchors[output], inputs)), None)
        if group is None:
            groups.append((anchors[output], inputs, [output]))
        else:
            group[1].extend(one for one in inputs if one not in group[1])
            group[2].append(output)
    pieces = [
        Piece(f"{topology.application}-{(anchor or outputs[0]).name}", anchor, tuple(inputs), tuple(outputs))
        for anchor, inputs, outputs in groups
    ]
    return Pieces(topology, tuple(_in_order(pieces)), internal, frozenset(cuts))


def _leading_somewhere(topology: Topology) -> list[Node]:
    found: set[Node] = set()
    for node in reversed(topology.steps):
        if is_end(node) or node in found:
            found |= {node, *node.parents}
    return [node for node in topology.steps if node in found]


def _anchors(nodes: list[Node]) -> tuple[dict[Node, Node | None], set[tuple[Node, Node]]]:
    """For each step the step with state before it in its piece, or itself; and where topics come in between."""
    anchors: dict[Node, Node | None] = {}
    cuts: set[tuple[Node, Node]] = set()
    for node in nodes:
        before = {anchors[parent] for parent in node.parents}
        for parent in node.parents:
            must_be_read_anew = node.has_state or (isinstance(node, Merge) and len(before) > 1)
            is_stored = isinstance(node, Store) and not is_its_topic(parent)
            if isinstance(parent, Through) or (must_be_read_anew and anchors[parent] is not None) or is_stored:
                cuts.add((parent, node))
        left = [anchors[parent] for parent in node.parents if (parent, node) not in cuts]
        anchors[node] = node if node.has_state else next(iter(left), None)
    return anchors, cuts


def _internal(application: str, node: Node) -> InternalTopic:
    kind = "changelog" if is_table(node) else "repartition"
    return InternalTopic(f"{application}-{node.name}-{kind}", node, getattr(node, "partitions", None))


def _inputs(output: Node, cuts: set[tuple[Node, Node]]) -> list[Node]:
    """Sources, and steps behind cuts, from which a step gets its records."""
    if not output.parents:
        return [output]
    found: dict[Node, None] = {}
    for parent in output.parents:
        found |= dict.fromkeys([parent] if (parent, output) in cuts else _inputs(parent, cuts))
    return list(found)


def _belong_together(
    group: tuple[Node | None, list[Node], list[Node]], anchor: Node | None, inputs: list[Node]
) -> bool:
    if group[0] is not anchor:
        return False
    return anchor is not None or any(one in group[1] for one in inputs)


def _in_order(pieces: list[Piece]) -> Iterator[Piece]:
    left = list(pieces)
    while left:
        to_come = {output for piece in left for output in piece.outputs}
        ready = next(piece for piece in left if not to_come & set(piece.inputs) - {*piece.outputs})
        left.remove(ready)
        yield ready
