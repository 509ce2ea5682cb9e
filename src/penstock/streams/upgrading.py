"""Going on with a changed program: what may change, and what does not fit what was kept. Pure.

Steps without state may change as they like, queries and outputs may come and go, and a query may read more topics. What
a step with state has kept fits only the same computation, over the same types, windows and sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from penstock.streams.pieces import Piece, Pieces
from penstock.streams.places import TopologyError
from penstock.streams.shape import QueryShape, Shape


def upgraded(old: Shape, new: Shape, pieces: Pieces, has_begun: Callable[[str], bool]) -> Shape:
    """The shape to keep from now on. `has_begun` says whether there is anything to go on with for a query.

    Refuses, with the line of the program, what cannot go on.
    """
    known = {**old.gone, **old.queries}
    for piece in pieces.pieces:
        if piece.name in known and has_begun(piece.name):
            is_cleaned = any(node in pieces.internal and pieces.internal[node].is_cleaned for node in piece.inputs)
            _check(piece, known[piece.name], new.queries[piece.name], new.application, is_cleaned)
    return replace(new, gone={name: one for name, one in known.items() if name not in new.queries})


def told(name: str, gone: QueryShape, application: str) -> str:
    """What is to be said of a step that is gone."""
    left = ", ".join([f"the checkpoint {name}", *(f"topic {topic}" for topic in gone.internal)])
    return (
        f"step {gone.step}, formerly at {gone.place}, is gone: what it left is not used any more ({left}); "
        f"'penstock stream reset {application} --gone' deletes it"
    )


def _check(piece: Piece, old: QueryShape, new: QueryShape, application: str, is_cleaned: bool) -> None:
    reason = next(_differences(old, new), None)
    if reason is None:
        return
    node = piece.stateful or piece.outputs[0]
    # Behind a repartition topic, a step of another name would only find what was not deleted there.
    rename = "" if is_cleaned else "give the step another name with step=..., which begins anew, or "
    raise TopologyError(
        node.place,
        f"{node.name}: {reason}, so it cannot go on from where it was (at {old.place}, then): {rename}begin anew with "
        f"all, by 'penstock stream reset {application}'",
    )


def _differences(old: QueryShape, new: QueryShape) -> Iterator[str]:
    for what in dict.fromkeys([*old.state, *new.state]):
        was, now = (one.state.get(what, "none") for one in (old, new))
        if was != now:
            yield f"its {what} was {was} and is now {now}"
    if len(old.sources) != len(new.sources):
        yield f"it read {_read(old)} and reads {_read(new)} now"
    for before, after in zip(old.sources, new.sources, strict=False):
        missing = [topic for topic in before if topic not in after]
        if missing:
            yield f"it no longer reads {', '.join(missing)}"


def _read(query: QueryShape) -> str:
    return ", ".join(topic for topics in query.sources for topic in topics)
