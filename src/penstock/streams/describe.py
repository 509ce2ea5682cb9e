"""A topology as text, in the manner of Kafka Streams' `Topology.describe`: each query, and the steps in it."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.streams.nodes import Node, Sink, Source
from penstock.streams.pieces import InternalTopic, Piece, Pieces, cut, is_table
from penstock.streams.topology import Topology


def described(topology: Topology) -> str:
    """The topology, query by query."""
    pieces = cut(topology)
    lines = [f"Application {topology.application}"]
    for number, piece in enumerate(pieces.pieces):
        lines += ["", *_of_piece(number, piece, pieces)]
    if topology.stores:
        lines += ["", "Stores", *(f"  {one.store}: {pieces.changelog(one)}" for one in topology.stores)]
    return "\n".join(lines) + "\n"


def _of_piece(number: int, piece: Piece, pieces: Pieces) -> Iterator[str]:
    yield f"Query {number}: {piece.name}"
    members = pieces.members(piece)
    for node in piece.inputs:
        if node not in members:
            topic = pieces.internal[node]
            yield f"  Source: {topic.name} (internal, {topic.cleanup_policy})"
            yield from _arrow("-->", [one.name for one in members if (node, one) in pieces.cuts])
    for node in members:
        yield f"  {_kind(node)}: {node.name}{_detail(node)}"
        written = pieces.internal.get(node) if node in piece.outputs else None
        children = [one.name for one in members if node in one.parents and (node, one) not in pieces.cuts]
        yield from _arrow("-->", [*children, *([written.name] if written else [])])
        yield from _arrow("<--", _before(node, pieces))
        if written:
            yield from _internal_sink(written)


def _before(node: Node, pieces: Pieces) -> list[str]:
    return [pieces.internal[parent].name if is_cut else parent.name for parent, is_cut in pieces.parents(node)]


def _internal_sink(topic: InternalTopic) -> Iterator[str]:
    yield f"  Sink: {topic.name} (internal, {topic.cleanup_policy})"
    yield from _arrow("<--", [topic.after.name])


def _kind(node: Node) -> str:
    if isinstance(node, Source):
        return "Global table" if node.is_global else "Table" if node.is_table else "Source"
    if isinstance(node, Sink):
        return "Sink"
    return "Processor"


def _detail(node: Node) -> str:
    parts = [node.detail] if node.detail else []
    if node.has_state:
        parts.append(f"store: {node.name}")
    elif is_table(node) and not isinstance(node, Source):
        parts.append("table")
    return f" ({'; '.join(parts)})" if parts else ""


def _arrow(arrow: str, names: list[str]) -> Iterator[str]:
    if names:
        yield f"    {arrow} {', '.join(names)}"
