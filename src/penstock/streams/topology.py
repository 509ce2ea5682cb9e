"""A topology: all steps of an application, frozen. Checked as far as that can be done without Spark."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.streams.nodes import Node, Sink, Source, Store
from penstock.streams.places import TopologyError


@dataclass(frozen=True)
class Topology:
    """What an application does. In `steps` parents come before their children."""

    application: str
    steps: tuple[Node, ...]

    @property
    def sources(self) -> list[Source]:
        return [one for one in self.steps if isinstance(one, Source)]

    @property
    def sinks(self) -> list[Sink]:
        return [one for one in self.steps if isinstance(one, Sink)]

    @property
    def stores(self) -> list[Store]:
        return [one for one in self.steps if isinstance(one, Store)]


def checked(topology: Topology) -> Topology:
    """The same topology, if nothing is wrong with it as a whole."""
    read = {topic: source for source in topology.sources for topic in source.topics}
    written: dict[str, Sink] = {}
    for sink in topology.sinks:
        first = written.setdefault(sink.topic, sink)
        if (first.key, first.value) != (sink.key, sink.value):
            raise TopologyError(
                sink.place,
                f"topic {sink.topic} gets {sink.key} and {sink.value} here but {first.key} and {first.value} at "
                f"{first.place}: use the same serdes",
            )
        if sink.topic in read:
            raise TopologyError(
                sink.place,
                f"topic {sink.topic} is written here and read at {read[sink.topic].place}: that would never end; write "
                "to another topic, or go on with the stream itself",
            )
    return topology
