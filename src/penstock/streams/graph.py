"""What there is to see of a topology: topics, steps, and what flows between them."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.streams.nodes import Node, Sink, Source, Store
from penstock.streams.pieces import Pieces, cut
from penstock.streams.topology import Topology

TOPIC, INTERNAL, STEP, STORE = "topic", "internal", "step", "store"


@dataclass(frozen=True)
class Vertex:
    """A topic or a step."""

    kind: str
    label: str
    detail: str = ""


@dataclass
class Graph:
    """Edges are pairs of indexes of vertices."""

    vertices: list[Vertex] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)

    def vertex(self, kind: str, label: str, detail: str) -> int:
        """The number of a vertex, which is made if it is not there."""
        for number, one in enumerate(self.vertices):
            if (one.kind, one.label) == (kind, label):
                return number
        self.vertices.append(Vertex(kind, label, detail))
        return len(self.vertices) - 1


def graph_of(topology: Topology) -> Graph:
    """All that leads somewhere."""
    pieces = cut(topology)
    used = {node for piece in pieces.pieces for node in pieces.members(piece)}
    graph = Graph()
    for node in topology.steps:
        if node in used or isinstance(node, Store):
            _add(graph, node, pieces)
    return graph


def _add(graph: Graph, node: Node, pieces: Pieces) -> None:
    (end,) = _vertices(graph, node) if not isinstance(node, Source) else (None,)
    for parent, is_cut in pieces.parents(node):
        starts = [_internal(graph, parent, pieces)] if is_cut else _vertices(graph, parent)
        graph.edges += [(start, end) for start in starts if end is not None]
    if node in pieces.internal:
        graph.edges += [(start, _internal(graph, node, pieces)) for start in _vertices(graph, node)]


def _vertices(graph: Graph, node: Node) -> list[int]:
    """What stands for a step: of sources and sinks, their topics."""
    if isinstance(node, Source):
        detail = (
            f"{'global table' if node.is_global else 'table' if node.is_table else 'stream'}: {node.key}, {node.value}"
        )
        return [graph.vertex(TOPIC, topic, detail) for topic in node.topics]
    if isinstance(node, Sink):
        return [graph.vertex(TOPIC, node.topic, f"{node.key}, {node.value}")]
    is_store = node.has_state or isinstance(node, Store)
    return [graph.vertex(STORE if is_store else STEP, node.name, node.detail)]


def _internal(graph: Graph, node: Node, pieces: Pieces) -> int:
    topic = pieces.internal[node]
    return graph.vertex(INTERNAL, topic.name, f"internal, {topic.cleanup_policy}")
