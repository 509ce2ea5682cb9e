"""Field tables: one dataclass per message for all its versions, and the codecs made from them.

    @struct
    class PartitionProduceData:
        index: int = field(INT32, default=0)
        records: memoryview | None = field(RECORDS, nullable="0+", default=None)

    @message(versions="3-13", flexible="9+")
    class ProduceRequest:
        transactional_id: str | None = field(STRING, nullable="3+", default=None)
        topic_data: list[TopicProduceData] = field(array(TopicProduceData), factory=list)
        ...

A field says from which version to which it is on the wire ("2+", "0-5", "7"), where null is allowed, and, if it is a
tagged field, its tag. `codec(ProduceRequest, 9)` is the compiled reader and writer of one version, made on first use.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, TypeVar, dataclass_transform

from penstock.wire._codec import Codec, Step
from penstock.wire.types import FieldType

T = TypeVar("T", bound=type)


@dataclasses.dataclass(frozen=True, slots=True)
class Versions:
    """An inclusive range of versions; empty when `low` is above `high`."""

    low: int
    high: int

    OPEN = 32767

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high

    @classmethod
    def parse(cls, text: str | None) -> Versions:
        """Read "3+", "0-5", "7" or None (never)."""
        if text is None:
            return cls(1, 0)
        if text.endswith("+"):
            return cls(int(text[:-1]), cls.OPEN)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))


@dataclasses.dataclass(frozen=True, slots=True)
class FieldSpec:
    """One row of a field table."""

    name: str
    type: FieldType
    versions: Versions
    nullable: Versions
    tagged: Versions
    tag: int
    default: Any
    ignorable: bool


def field(
    type: FieldType,
    versions: str = "0+",
    *,
    default: Any = None,
    factory: Callable[[], Any] | None = None,
    nullable: str | None = None,
    tag: int | None = None,
    tagged: str | None = None,
    ignorable: bool = False,
) -> Any:
    """One field of a message.

    `default` (or what `factory` makes, for arrays and structs) is the field's value in versions that lack it.
    `ignorable` fields are dropped without complaint when such a version is sent. A tagged struct is None where it is
    left out.
    """
    spec = FieldSpec(
        name="",
        type=type,
        versions=Versions.parse(versions),
        nullable=Versions.parse(nullable),
        tagged=Versions.parse(tagged if tagged is not None or tag is None else versions),
        tag=-1 if tag is None else tag,
        default=default if factory is None else factory(),
        ignorable=ignorable,
    )
    metadata = {"penstock": spec}
    if factory is not None:
        return dataclasses.field(default_factory=factory, metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def _equals(self: Any, other: Any) -> Any:
    if type(other) is not type(self):
        return NotImplemented
    return all(getattr(self, spec.name) == getattr(other, spec.name) for spec in self._field_table)


def _shown(self: Any) -> str:
    values = (f"{spec.name}={getattr(self, spec.name)!r}" for spec in self._field_table)
    return f"{type(self).__qualname__}({', '.join(values)})"


@dataclass_transform(field_specifiers=(field,))
def struct(cls: T) -> T:
    """A part of messages: a dataclass whose fields are made with `field`.

    Making dataclasses is a third of what a broker does to load its modules, and most of them are messages. So these
    share what would be compiled for each: how they are compared and shown. And they have a docstring, lest one is made
    of their signature.
    """
    cls.__doc__ = cls.__doc__ or cls.__name__
    made: Any = dataclasses.dataclass(slots=True, eq=False, repr=False)(cls)
    made.__eq__, made.__hash__, made.__repr__ = _equals, None, _shown
    made._field_table = tuple(
        dataclasses.replace(row.metadata["penstock"], name=row.name) for row in dataclasses.fields(made)
    )
    made._codecs = {}
    return made  # type: ignore[no-any-return]


@dataclass_transform(field_specifiers=(field,))
def message(*, versions: str, flexible: str | None = None) -> Any:
    """A whole message: its versions, and from which of them on it has compact encodings and tagged fields."""

    def decorate(cls: T) -> T:
        made: Any = struct(cls)
        made._versions = Versions.parse(versions)
        made._flexible = Versions.parse(flexible)
        return made  # type: ignore[no-any-return]

    return decorate


def field_table(cls: type) -> tuple[FieldSpec, ...]:
    """The rows of a struct's field table, in wire order."""
    table: tuple[FieldSpec, ...] = cls._field_table  # type: ignore[attr-defined]
    return table


def message_versions(cls: type) -> Versions:
    versions: Versions = cls._versions  # type: ignore[attr-defined]
    return versions


def is_flexible(cls: type, version: int) -> bool:
    """Whether this version of the message has compact encodings and tagged fields."""
    return version in cls._flexible  # type: ignore[attr-defined]


def codec(cls: type, version: int) -> Codec:
    """The reader and writer of one version of a message. Compiled once."""
    if version not in message_versions(cls):
        raise ValueError(f"{cls.__name__} has no version {version}")
    return _compile(cls, version, is_flexible(cls, version))


def _compile(cls: type, version: int, flexible: bool) -> Codec:
    codecs: dict[tuple[int, bool], Codec] = cls._codecs  # type: ignore[attr-defined]
    made = codecs.get((version, flexible))
    if made is None:
        made = codecs[version, flexible] = _compile_new(cls, version, flexible)
    return made


def _compile_new(cls: type, version: int, flexible: bool) -> Codec:
    present: list[Step] = []
    absent: list[Step] = []
    tagged: list[tuple[int, Step]] = []
    for spec in field_table(cls):
        step = _step(spec, version, flexible)
        if version not in spec.versions:
            absent.append(step)
        elif version in spec.tagged:
            tagged.append((spec.tag, step))
        else:
            present.append(step)
    return Codec(
        cls,
        flexible=flexible,
        present=tuple(present),
        absent=tuple(absent),
        tagged=tuple(step for _, step in sorted(tagged, key=lambda pair: pair[0])),
    )


def _step(spec: FieldSpec, version: int, flexible: bool) -> Step:
    nested = spec.type.struct
    is_on_wire = version in spec.versions
    return Step(
        kind=spec.type.kind,
        name=spec.name,
        compact=flexible,
        nullable=version in spec.nullable,
        struct=_compile(nested, version, flexible) if nested is not None and is_on_wire else None,
        element=spec.type.element,
        default=spec.default,
        tag=spec.tag,
        ignorable=spec.ignorable,
    )
