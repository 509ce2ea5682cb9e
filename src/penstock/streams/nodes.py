"""The steps of a topology: frozen, each with its parents, its name, and the line of the program that asked for it.

A node is made from its parents, which must be there before it: so there are no cycles and no unknown parents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock.streams.changes import Change, Fields, Single
from penstock.streams.expressions import Expression
from penstock.streams.places import Place
from penstock.streams.processors import Processor
from penstock.streams.serdes import Serde
from penstock.streams.windows import JoinWindow, Window

INNER = "inner"
LEFT = "left"
OUTER = "outer"


@dataclass(frozen=True, eq=False)
class Node:
    """A step. `has_state` says whether it remembers earlier records."""

    name: str
    parents: tuple[Node, ...]
    place: Place

    has_state: ClassVar[bool] = False

    @property
    def detail(self) -> str:
        """What it does, in a few words."""
        return ""


@dataclass(frozen=True, eq=False)
class Source(Node):
    """Records of topics. `timestamp` is an expression for their event time, if it is not the record's own."""

    topics: tuple[str, ...]
    key: Serde
    value: Serde
    is_table: bool
    timestamp: Expression | None = None
    is_global: bool = False

    @property
    def detail(self) -> str:
        return f"{', '.join(self.topics)} ({self.key}, {self.value})"


@dataclass(frozen=True, eq=False)
class Filter(Node):
    """Keeps records; of a table, what is not kept is deleted."""

    condition: Change
    is_negated: bool
    is_table: bool

    @property
    def detail(self) -> str:
        return f"not ({self.condition})" if self.is_negated else str(self.condition)


@dataclass(frozen=True, eq=False)
class Branch(Node):
    """Keeps records that no earlier branch took. The branch without a condition takes all that are left."""

    condition: Change | None
    earlier: tuple[Change, ...]

    @property
    def detail(self) -> str:
        return str(self.condition) if self.condition is not None else "all others"


@dataclass(frozen=True, eq=False)
class Map(Node):
    """New keys, new values, or both."""

    key: Change | None
    value: Change | None
    is_table: bool = False

    @property
    def detail(self) -> str:
        given = {"key": self.key, "value": self.value}
        return "; ".join(f"{name}: {one}" for name, one in given.items() if one is not None)


@dataclass(frozen=True, eq=False)
class FlatMap(Node):
    """An array, whose elements become records: as values; or, with `with_key`, as structs of key and value."""

    change: Change
    with_key: bool

    @property
    def detail(self) -> str:
        return str(self.change)


@dataclass(frozen=True, eq=False)
class Peek(Node):
    """Shows every record to a function, and passes it on; `is_end` if nothing comes after."""

    action: Callable[[Any, Any], Any]
    is_end: bool


@dataclass(frozen=True, eq=False)
class Merge(Node):
    """The records of several streams."""


@dataclass(frozen=True, eq=False)
class Through(Node):
    """A stream that goes through a topic of its own, with so many partitions."""

    partitions: int | None


@dataclass(frozen=True, eq=False)
class ToTable(Node):
    """A stream seen as changes of a table."""


@dataclass(frozen=True, eq=False)
class ToStream(Node):
    """A table's changes, seen as a stream."""


@dataclass(frozen=True, eq=False)
class Sink(Node):
    """Records into a topic."""

    topic: str
    key: Serde
    value: Serde

    @property
    def detail(self) -> str:
        return f"{self.topic} ({self.key}, {self.value})"


@dataclass(frozen=True, eq=False)
class Store(Node):
    """A table that can be asked for its rows, under a name."""

    store: str

    @property
    def detail(self) -> str:
        return f"queryable as {self.store}"


# ---- what an aggregation computes ----


@dataclass(frozen=True)
class Count:
    """How many records."""

    def __str__(self) -> str:
        return "count"


@dataclass(frozen=True, eq=False)
class Columns:
    """Aggregate functions of Spark: one value, or fields of a struct."""

    value: Fields | Single

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, eq=False)
class Fold:
    """A Python function that takes each record into a result. `initial` makes the first; None: the first value is it.

    There is one adder for each parent: `adder(result, value)`, or `adder(key, result, value)` if it takes three.
    """

    initial: Callable[[], Any] | None
    adders: tuple[Callable[..., Any], ...]
    returns: str | None  # None: as the values are
    merge: Callable[..., Any] | None = None  # two results into one, for sessions; None: as a value is added
    shown: str | None = None
    subtractor: Callable[..., Any] | None = None  # takes a value out again; then values are changes, old and new

    def __str__(self) -> str:
        return self.shown or ("reduce" if self.initial is None else f"fold to {self.returns}")


@dataclass(frozen=True, eq=False)
class Aggregate(Node):
    """One result per key, or per key and window: a table."""

    computes: Count | Columns | Fold
    window: Window | None
    late: bool = False  # whether records that are too late are wanted

    has_state = True

    @property
    def detail(self) -> str:
        return f"{self.computes}; {self.window}" if self.window is not None else str(self.computes)


@dataclass(frozen=True, eq=False)
class Late(Node):
    """The records that came too late for an aggregation, its parent."""


@dataclass(frozen=True, eq=False)
class Process(Node):
    """Records shown to a processor, which remembers something of each key; and what it emits."""

    processor: Processor
    returns: str
    returns_key: str | None  # None: as it was
    keeps_key: bool

    has_state = True

    @property
    def detail(self) -> str:
        return f"{type(self.processor).__name__}, {self.processor.clock}"


@dataclass(frozen=True, eq=False)
class Regroup(Node):
    """A table's rows by another key: what a change takes out of a group and what it puts into one.

    Values have the fields `old` and `new`. If the group stays the same both are there, else there are two records.
    """

    key: Change

    has_state = True

    @property
    def detail(self) -> str:
        return str(self.key)


def is_keyed(node: Node) -> bool:
    """Whether a step's state is Python objects by key."""
    return isinstance(node, (Process, Regroup)) or (isinstance(node, Aggregate) and isinstance(node.computes, Fold))


# ---- joins ----


@dataclass(frozen=True, eq=False)
class Join(Node):
    """Two sides, by key. `value` is made of left and right; None: a struct of both."""

    kind: str
    value: Change | None

    has_state = True

    @property
    def detail(self) -> str:
        return self.kind


@dataclass(frozen=True, eq=False)
class StreamJoin(Join):
    """Two streams: pairs of records with the same key, not too far apart in time."""

    window: JoinWindow

    @property
    def detail(self) -> str:
        return f"{self.kind}, {self.window}"


@dataclass(frozen=True, eq=False)
class Lookup(Join):
    """A join with tables that are kept in no state of Spark's: after a restart they are read from their topics."""

    @property
    def tables(self) -> tuple[Node, ...]:
        """The parents whose rows it keeps."""
        return self.parents[1:]


@dataclass(frozen=True, eq=False)
class StreamTableJoin(Lookup):
    """A stream and a table: each record with what the table says about its key."""


@dataclass(frozen=True, eq=False)
class LookupOn(Lookup):
    """A lookup of the key that an expression gives."""

    on: Expression

    @property
    def detail(self) -> str:
        return f"{self.kind}, on {self.on!r}"


@dataclass(frozen=True, eq=False)
class GlobalJoin(LookupOn):
    """A stream and a global table: each record with what the table says about the key that `on` gives."""


@dataclass(frozen=True, eq=False)
class ForeignKeyJoin(LookupOn):
    """Two tables: a table of the rows on the left, each with the row on the right whose key `on` gives."""

    @property
    def tables(self) -> tuple[Node, ...]:
        return self.parents


@dataclass(frozen=True, eq=False)
class TableJoin(Join):
    """Two tables: a table of what both say about a key."""
