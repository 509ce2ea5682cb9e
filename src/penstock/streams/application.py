"""An application: where streams and tables begin, and what its topology is run with."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from penstock.streams.describe import described
from penstock.streams.draw import drawn
from penstock.streams.expressions import expression
from penstock.streams.nodes import Node, Source
from penstock.streams.places import Place, TopologyError, caller
from penstock.streams.serdes import Serde
from penstock.streams.stream import Stream
from penstock.streams.table import GlobalTable, Table
from penstock.streams.topology import Topology, checked

if TYPE_CHECKING:
    from penstock.streams.engine.running import RunningApplication

N = TypeVar("N", bound=Node)

_ID = re.compile(r"[A-Za-z0-9._-]{1,100}")


@dataclass(frozen=True)
class Settings:
    """How an application is run, under the names that Kafka Streams has for it."""

    application_id: str
    replication_factor: int = 1
    state_dir: str = "penstock-streams"
    client_id: str | None = None

    @property
    def folder(self) -> Path:
        """Where all that the application keeps is: checkpoints, by the names of queries, and stores."""
        return Path(self.state_dir).absolute() / self.application_id


class Builder:
    """Collects steps. Every stream and table of an application knows it."""

    def __init__(self, application: str, key: Serde | None, value: Serde | None) -> None:
        self.application = application
        self.default_key = key
        self.default_value = value
        self.steps: list[Node] = []
        self._counts: dict[str, int] = {}

    def add(self, node_type: type[N], kind: str, name: str | None, parents: Iterable[Node], /, **fields: Any) -> N:
        """Make a step. Without a name it gets one: what it is, and a number."""
        place = caller()
        node = node_type(self._named(kind, name, place), tuple(parents), place, **fields)
        foreign = [parent for parent in node.parents if parent not in self.steps]
        if foreign:
            raise TopologyError(
                place,
                f"{foreign[0].name}, made at {foreign[0].place}, is of another application than {self.application}: "
                "make all streams and tables that meet with one Application",
            )
        self.steps.append(node)
        return node

    def _named(self, kind: str, name: str | None, place: Place) -> str:
        if name is None:
            number = self._counts[kind] = self._counts.get(kind, 0) + 1
            name = f"{kind}-{number}"
        elif not _ID.fullmatch(name):
            raise TopologyError(place, f"name {name!r} cannot be: use letters, digits, dot, dash and underscore")
        for step in self.steps:
            if step.name == name:
                raise TopologyError(
                    place, f"there is a step {name} at {step.place} already: give this one another name"
                )
        return name


class Application:
    """A program on streams. Build it with `stream` and `table`, look at it with `describe` and `draw`, then `run` it.

    `id` names it for good: its consumer groups, transactional ids and internal topics begin with it. `key` and `value`
    are the serdes to use where none is given and none follows from the source.
    """

    def __init__(
        self,
        id: str,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        replication_factor: int = 1,
        state_dir: str = "penstock-streams",
        client_id: str | None = None,
    ) -> None:
        if not _ID.fullmatch(id):
            raise TopologyError(
                caller(), f"application id {id!r} cannot be: use letters, digits, dot, dash, underscore"
            )
        self.settings = Settings(id, replication_factor, state_dir, client_id)
        self._builder = Builder(id, key, value)

    def stream(
        self,
        *topics: str,
        key: Serde | None = None,
        value: Serde | None = None,
        timestamp: Any = None,
        step: str | None = None,
    ) -> Stream:
        """The records of topics, as a stream. `timestamp` is an expression for their event time, if not their own.

        `step` names this step; without it, as everywhere, it gets a name by its kind and a number.
        """
        if not topics:
            raise TopologyError(caller(), "stream needs at least one topic")
        source = self._source(topics, key, value, timestamp, step, is_table=False)
        return Stream(self._builder, source, source.key, source.value)

    def table(
        self,
        topic: str,
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        timestamp: Any = None,
        step: str | None = None,
    ) -> Table:
        """The newest record of each key of a topic, as a table; a record without a value deletes its key."""
        source = self._source((topic,), key, value, timestamp, step, is_table=True)
        return Table(self._builder, source, source.key, source.value)

    def global_table(
        self, topic: str, *, key: Serde | None = None, value: Serde | None = None, step: str | None = None
    ) -> GlobalTable:
        """A table in which streams look something up by an expression, whatever their keys are.

        Its time is not that of the streams: a record sees what the table says when it is read.
        """
        source = self._source((topic,), key, value, None, step, is_table=True, is_global=True)
        return GlobalTable(self._builder, source, source.key, source.value)

    def _source(
        self,
        topics: tuple[str, ...],
        key: Serde | None,
        value: Serde | None,
        timestamp: Any,
        step: str | None,
        *,
        is_table: bool,
        is_global: bool = False,
    ) -> Source:
        given = {"key": key or self._builder.default_key, "value": value or self._builder.default_value}
        for what, serde in given.items():
            if serde is None:
                raise TopologyError(caller(), f"say how the {what} of {', '.join(topics)} is read, as in {what}=TEXT")
        for other in self._builder.steps:
            for topic in topics:
                if isinstance(other, Source) and topic in other.topics and (is_table or other.is_table):
                    raise TopologyError(
                        caller(), f"topic {topic} is read at {other.place} already: use that stream or table again"
                    )
        return self._builder.add(
            Source,
            "global-table" if is_global else "table" if is_table else "stream",
            step,
            (),
            topics=topics,
            is_table=is_table,
            is_global=is_global,
            timestamp=None if timestamp is None else expression(timestamp),
            **given,
        )

    @property
    def topology(self) -> Topology:
        """What was built so far, frozen and checked."""
        return checked(Topology(self.settings.application_id, tuple(self._builder.steps)))

    def describe(self) -> str:
        """The topology as text: queries, and the sources, steps, stores and sinks in each."""
        return described(self.topology)

    def draw(self, form: str = "svg") -> str:
        """The topology as a picture: "svg", or "mermaid" for Markdown."""
        return drawn(self.topology, form)

    def run(self, bootstrap: str, **options: Any) -> RunningApplication:
        """Run the application on Spark until it is stopped. `engine.running.run` says what options there are."""
        engine = import_module("penstock.streams.engine.running")
        running: RunningApplication = engine.run(self.topology, self.settings, bootstrap, **options)
        return running

    def catch_up(self, bootstrap: str, **options: Any) -> None:
        """Run the application over all that is there, and return when it is done."""
        engine = import_module("penstock.streams.engine.running")
        engine.catch_up(self.topology, self.settings, bootstrap, **options)
