"""The shape of a topology: what of it an application must keep so as to go on with what it has kept.

It stands beside the checkpoints, as `topology.json`: for each query the step with state, what it computes, the types
that it keeps, the topics that it reads and writes. Queries that are gone are remembered, with what they left behind.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from penstock.client.errors import ConfigurationError
from penstock.streams.nodes import Aggregate, Fold, ForeignKeyJoin, Join, Lookup, Node, Regroup, StreamJoin
from penstock.streams.pieces import Piece, Pieces
from penstock.streams.windows import TimeWindow, Window, text_of

FILE = "topology.json"
_VERSION = 1


@dataclass(frozen=True)
class QueryShape:
    """A query. `state` is what its step with state depends on, by names for people; `sources` are topics by source."""

    step: str
    place: str
    state: dict[str, str]
    sources: list[list[str]]
    outputs: list[str]
    internal: list[str]


@dataclass(frozen=True)
class Shape:
    """An application: its queries by name, those that are gone, and the topics of its stores."""

    application: str
    bootstrap: str
    queries: dict[str, QueryShape]
    gone: dict[str, QueryShape] = field(default_factory=dict)
    stores: dict[str, str] = field(default_factory=dict)


Types = Mapping[str, Mapping[str, str]]


def shape_of(pieces: Pieces, bootstrap: str = "", types: Types | None = None) -> Shape:
    """The shape of a topology. `types` are what steps with state keep, by query, as far as that is known."""
    return Shape(
        pieces.topology.application,
        bootstrap,
        {piece.name: _query(piece, pieces, (types or {}).get(piece.name, {})) for piece in pieces.pieces},
        stores={one.store: pieces.changelog(one) for one in pieces.topology.stores},
    )


def _query(piece: Piece, pieces: Pieces, types: Mapping[str, str]) -> QueryShape:
    sources = [pieces.topics_of(node) for node in piece.inputs]
    if not has_spark_state(piece.stateful):
        sources = [list(dict.fromkeys(topic for topics in sources for topic in topics))]  # which are read as one
    internal = [pieces.internal[node].name for node in piece.outputs if node in pieces.internal]
    named = piece.stateful or piece.outputs[0]
    return QueryShape(
        named.name,
        str(named.place),
        {**_state(piece.stateful), **types} if piece.stateful is not None else {},
        sources,
        [*(node.topic for node in pieces.topology.sinks if node in piece.outputs), *internal],
        internal,
    )


def has_spark_state(stateful: Node | None) -> bool:
    """Whether Spark keeps state for a step. The tables of a lookup are in their topics only."""
    return stateful is not None and not isinstance(stateful, Lookup)


def _state(stateful: Node) -> dict[str, str]:
    """What a step's state depends on, apart from types."""
    if isinstance(stateful, Aggregate):
        computes = "a Python function" if isinstance(stateful.computes, Fold) else str(stateful.computes)
        found = {"kind": "aggregation", "computes": computes}
        return found if stateful.window is None else {**found, **_window(stateful.window)}
    if isinstance(stateful, ForeignKeyJoin):
        return {"kind": f"{stateful.kind} join of tables by a foreign key", "on": repr(stateful.on)}
    if isinstance(stateful, Lookup):
        return {"kind": "lookup"}
    if isinstance(stateful, Regroup):
        return {"kind": "grouping of a table", "key": str(stateful.key)}
    if not isinstance(stateful, Join):
        return {"kind": type(stateful).__name__}
    # Spark keeps of both sides only what the joined value is made of.
    made = {"value": "left and right" if stateful.value is None else str(stateful.value)}
    if isinstance(stateful, StreamJoin):
        return {"kind": f"{stateful.kind} join of streams", "window": str(stateful.window), **made}
    return {"kind": f"{stateful.kind} join of tables", **made}


def _window(window: Window) -> dict[str, str]:
    """A window without its grace, which may change."""
    shape = str(window).split(", grace ", 1)[0]
    if isinstance(window, TimeWindow):
        shape = f"{text_of(window.size_ms)} every {text_of(window.advance_ms)}"
    return {"window": shape, "emit": window.emit}


# ---- on disk ----


def load(folder: Path) -> Shape | None:
    """The shape that was kept in an application's folder; None if there is none."""
    try:
        content = json.loads((folder / FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        raise ConfigurationError(f"{folder / FILE} is damaged: delete it to go on without checking") from None
    if content.pop("version", None) != _VERSION:
        raise ConfigurationError(f"{folder / FILE} is of another version of penstock: go on with that one")
    for name in ("queries", "gone"):
        content[name] = {query: QueryShape(**one) for query, one in content[name].items()}
    return Shape(**content)


def save(shape: Shape, folder: Path) -> None:
    """Keep a shape. Either the old file is there or the new one."""
    folder.mkdir(parents=True, exist_ok=True)
    content: dict[str, Any] = {"version": _VERSION, **asdict(shape)}
    new = folder / f"{FILE}.new"
    new.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    os.replace(new, folder / FILE)
