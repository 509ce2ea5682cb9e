"""A topology as a picture: Mermaid text, or SVG with a small layered layout of our own."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from penstock.client.errors import ConfigurationError
from penstock.streams.graph import INTERNAL, STEP, STORE, TOPIC, Graph, Vertex, graph_of
from penstock.streams.topology import Topology

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 200, 52, 60, 24, 20
_LETTERS, _LETTERS_SMALL = 27, 34  # that fit in a box
_STYLE = """
  .topic { fill: #dbeafe; stroke: #1d4ed8 } .internal { fill: #f1f5f9; stroke: #64748b; stroke-dasharray: 4 3 }
  .step { fill: #ffffff; stroke: #334155 } .store { fill: #dcfce7; stroke: #15803d }
  text { font: 13px sans-serif; fill: #0f172a; text-anchor: middle } .small { font-size: 10.5px; fill: #475569 }
  .edge { fill: none; stroke: #475569; stroke-width: 1.3 }
"""
_MERMAID_BOXES = {TOPIC: ("[/", "/]"), INTERNAL: ("[/", "/]"), STEP: ("[", "]"), STORE: ("[(", ")]")}


def drawn(topology: Topology, form: str) -> str:
    """The picture, as "svg" or "mermaid"."""
    if form not in ("svg", "mermaid"):
        raise ConfigurationError(f"a topology cannot be drawn as {form!r}: use 'svg' or 'mermaid'")
    graph = graph_of(topology)
    return "\n".join(_svg(graph) if form == "svg" else _mermaid(graph)) + "\n"


def _mermaid(graph: Graph) -> Iterator[str]:
    yield "flowchart LR"
    for number, vertex in enumerate(graph.vertices):
        opening, closing = _MERMAID_BOXES[vertex.kind]
        text = vertex.label if not vertex.detail else f"{vertex.label}<br/><small>{_plain(vertex.detail)}</small>"
        yield f'    n{number}{opening}"{text}"{closing}:::{vertex.kind}'
    for start, end in graph.edges:
        yield f"    n{start} --> n{end}"
    yield "    classDef topic fill:#dbeafe,stroke:#1d4ed8"
    yield "    classDef internal fill:#f1f5f9,stroke:#64748b,stroke-dasharray:4 3"
    yield "    classDef step fill:#ffffff,stroke:#334155"
    yield "    classDef store fill:#dcfce7,stroke:#15803d"


def _plain(text: str) -> str:
    return escape(text, quote=False).replace('"', "#quot;")


# ---- SVG ----


def layers(graph: Graph) -> list[list[int]]:
    """Which boxes stand in which column, from top to bottom.

    A box is one column behind the last box that leads to it; in its column it stands about as high as those do.
    """
    before: dict[int, list[int]] = {number: [] for number in range(len(graph.vertices))}
    for start, end in graph.edges:
        before[end].append(start)
    column: dict[int, int] = {}

    def place(number: int) -> int:
        if number not in column:
            column[number] = 1 + max((place(one) for one in before[number]), default=-1)
        return column[number]

    found: list[list[int]] = [[] for _ in range(1 + max(map(place, before), default=-1))]
    height: dict[int, float] = {}
    for number in sorted(before, key=place):
        found[column[number]].append(number)
    for boxes in found:
        boxes.sort(key=lambda one: sum(height[start] for start in before[one]) / max(len(before[one]), 1))
        height |= {number: (row + 0.5) / len(boxes) for row, number in enumerate(boxes)}
    return found


def _svg(graph: Graph) -> Iterator[str]:
    columns = layers(graph)
    rows = max(map(len, columns), default=0)
    width = 2 * _MARGIN + len(columns) * (_WIDTH + _GAP_X) - _GAP_X
    height = 2 * _MARGIN + rows * (_HEIGHT + _GAP_Y) - _GAP_Y
    corner: dict[int, tuple[float, float]] = {}
    for x, boxes in enumerate(columns):
        top = (height - len(boxes) * (_HEIGHT + _GAP_Y) + _GAP_Y) / 2
        corner |= {
            number: (_MARGIN + x * (_WIDTH + _GAP_X), top + y * (_HEIGHT + _GAP_Y)) for y, number in enumerate(boxes)
        }
    yield f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">'
    yield f"<style>{_STYLE}</style>"
    yield (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0,0 L8,4 L0,8 z" fill="#475569"/></marker></defs>'
    )
    for start, end in graph.edges:
        yield _edge(corner[start], corner[end])
    for number, vertex in enumerate(graph.vertices):
        yield from _box(vertex, *corner[number])
    yield "</svg>"


def _edge(start: tuple[float, float], end: tuple[float, float]) -> str:
    x, y = start[0] + _WIDTH, start[1] + _HEIGHT / 2
    to_x, to_y = end[0], end[1] + _HEIGHT / 2
    bend = (to_x - x) / 2
    curve = f"M{x:g},{y:g} C{x + bend:g},{y:g} {to_x - bend:g},{to_y:g} {to_x:g},{to_y:g}"
    return f'<path class="edge" marker-end="url(#tip)" d="{curve}"/>'


def _box(vertex: Vertex, x: float, y: float) -> Iterator[str]:
    radius = _HEIGHT / 2 if vertex.kind in (TOPIC, INTERNAL) else 5
    yield f"<g><title>{escape(vertex.label)}: {escape(vertex.detail)}</title>"
    yield f'<rect class="{vertex.kind}" x="{x:g}" y="{y:g}" width="{_WIDTH}" height="{_HEIGHT}" rx="{radius:g}"/>'
    middle = x + _WIDTH / 2
    line = y + (24 if vertex.detail else 31)
    yield f'<text x="{middle:g}" y="{line:g}">{escape(_short(vertex.label, _LETTERS))}</text>'
    if vertex.detail:
        detail = escape(_short(vertex.detail, _LETTERS_SMALL))
        yield f'<text class="small" x="{middle:g}" y="{y + 40:g}">{detail}</text>'
    yield "</g>"


def _short(text: str, letters: int) -> str:
    return text if len(text) <= letters else f"{text[: letters - 1]}…"
