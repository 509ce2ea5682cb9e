"""How keys and values are written as bytes, described without Spark: `engine` makes expressions of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.streams.places import TopologyError, caller


@dataclass(frozen=True)
class Serde:
    """A form of keys or values. Those here are Kafka's own: text is UTF-8, numbers are big-endian."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class JsonSerde(Serde):
    """JSON. The schema is as in "user STRING, age INT"; it is needed for reading."""

    schema: str | None = None
    is_strict: bool = False


@dataclass(frozen=True)
class WindowedSerde(Serde):
    """A key and its window, in the bytes of Kafka's TimeWindowedSerializer or SessionWindowedSerializer."""

    inner: Serde
    is_session: bool = False

    def __str__(self) -> str:
        return f"windowed({self.inner})"


@dataclass(frozen=True)
class CustomSerde(Serde):
    """Any object with `read` and `write`, both from a Spark column to a Spark column."""

    spark_serde: Any = None


BYTES = Serde("bytes")
TEXT = Serde("text")
INT = Serde("int")
LONG = Serde("long")


def json(schema: str | None = None, *, strict: bool = False) -> Serde:
    """JSON with these fields. What does not fit reads as null, or fails if `strict`."""
    return JsonSerde("json", schema, strict)


def windowed(inner: Serde, *, session: bool = False) -> Serde:
    """For keys of windowed results: the key as `inner` writes it, and the window's start (and end of a session)."""
    return WindowedSerde("windowed", inner, session)


def custom(name: str, spark_serde: Any) -> Serde:
    """A serde as in `penstock.spark.serde`, under a name to show."""
    return CustomSerde(name, spark_serde)


def common_key(left: Serde | None, right: Serde | None) -> Serde | None:
    """The serde of the keys of both sides of a join, which must not have different ones."""
    if left != right and None not in (left, right):
        raise TopologyError(caller(), f"keys are {left} on the left and {right} on the right: make them the same first")
    return left or right
