"""What a configuration key is, and how text becomes a typed value.

    @settings
    class TopicConfig:
        retention_ms: int = setting("retention.ms", LONG, default=604800000, check=at_least(-1), doc="How long ...")

The class is a frozen dataclass. `keys(TopicConfig)` lists its keys; `parse(key, text)` turns text into a value or
raises InvalidConfig with a message like Kafka's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeVar, dataclass_transform

T = TypeVar("T", bound=type)


class InvalidConfig(ValueError):
    """A setting that does not exist, or a value that it cannot have. The message is for the user."""


class KeyType(IntEnum):
    """The type of a key's value, with the code DescribeConfigs uses for it."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


BOOLEAN, STRING, INT, SHORT, LONG = KeyType.BOOLEAN, KeyType.STRING, KeyType.INT, KeyType.SHORT, KeyType.LONG
DOUBLE, LIST, PASSWORD = KeyType.DOUBLE, KeyType.LIST, KeyType.PASSWORD

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1

_INTEGER_LIMITS = {INT: INT_MAX, SHORT: 2**15 - 1, LONG: LONG_MAX}

Check = Callable[[Any], str | None]  # says what is wrong with a value; None if nothing is


@dataclass(frozen=True, slots=True)
class Key:
    """One configuration key. `attribute` is the name of the typed value that it becomes."""

    attribute: str
    name: str
    type: KeyType
    default: Any
    check: Check | None
    doc: str
    synonyms: tuple[str, ...]  # topic keys: the broker keys that give the default, the strongest first
    is_dynamic: bool  # broker keys: whether it can be changed while the broker runs
    is_read_only: bool

    @property
    def is_sensitive(self) -> bool:
        return self.type is KeyType.PASSWORD


def setting(
    name: str,
    type: KeyType,
    *,
    default: Any,
    check: Check | None = None,
    doc: str,
    synonyms: tuple[str, ...] = (),
    is_dynamic: bool = False,
    is_read_only: bool = False,
) -> Any:
    """A field of a settings class."""
    key = Key("", name, type, default, check, doc, synonyms, is_dynamic, is_read_only)
    return dataclasses.field(default=default, metadata={"key": key})


@dataclass_transform(frozen_default=True, field_specifiers=(setting,))
def settings(cls: T) -> T:
    """A frozen class of typed values, whose fields are made with `setting`."""
    made: Any = dataclass(frozen=True, slots=True)(cls)
    made.keys_by_name = {
        field.metadata["key"].name: dataclasses.replace(field.metadata["key"], attribute=field.name)
        for field in dataclasses.fields(made)
    }
    return made  # type: ignore[no-any-return]


def keys(cls: type) -> dict[str, Key]:
    """The keys of a settings class by their names."""
    by_name: dict[str, Key] = cls.keys_by_name  # type: ignore[attr-defined]
    return by_name


def parse(key: Key, text: str | None) -> Any:
    """The typed value that a text stands for."""
    if text is None:
        if key.default is None:
            return None
        raise InvalidConfig(f"Invalid value null for configuration {key.name}: a value is required")
    try:
        value = _PARSERS[key.type](text.strip())
    except ValueError as error:
        raise InvalidConfig(f"Invalid value {text} for configuration {key.name}: {error}") from None
    problem = key.check(value) if key.check is not None else None
    if problem is not None:
        raise InvalidConfig(f"Invalid value {text} for configuration {key.name}: {problem}")
    return value


def to_text(value: Any) -> str | None:
    """A typed value as Kafka prints it."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return repr(value).upper().replace("E+", "E")
    return str(value)


def _parse_boolean(text: str) -> bool:
    lowered = text.lower()
    if lowered not in ("true", "false"):
        raise ValueError("Expected value to be either true or false")
    return lowered == "true"


def _integer_parser(type: KeyType) -> Callable[[str], int]:
    limit = _INTEGER_LIMITS[type]

    def parse_integer(text: str) -> int:
        try:
            value = int(text) if not any(character in text for character in "_ ") else None
        except ValueError:
            value = None
        if value is None or not -limit - 1 <= value <= limit:
            raise ValueError(f"Not a number of type {type.name}")
        return value

    return parse_integer


def _parse_double(text: str) -> float:
    try:
        if "_" in text:
            raise ValueError
        return float(text)
    except ValueError:
        raise ValueError("Not a number of type DOUBLE") from None


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",")) if text else ()


_PARSERS: dict[KeyType, Callable[[str], Any]] = {
    KeyType.BOOLEAN: _parse_boolean,
    KeyType.STRING: str,
    KeyType.INT: _integer_parser(KeyType.INT),
    KeyType.SHORT: _integer_parser(KeyType.SHORT),
    KeyType.LONG: _integer_parser(KeyType.LONG),
    KeyType.DOUBLE: _parse_double,
    KeyType.LIST: _parse_list,
    KeyType.CLASS: str,
    KeyType.PASSWORD: str,
}


# ---- checks ----


def at_least(low: float) -> Check:
    return lambda value: None if value is None or value >= low else f"Value must be at least {low}"


def between(low: float, high: float) -> Check:
    def check(value: Any) -> str | None:
        if value < low:
            return f"Value must be at least {low}"
        return f"Value must be no more than {high}" if value > high else None

    return check


def one_of(*allowed: str) -> Check:
    listed = ", ".join(allowed)
    return lambda value: None if value in allowed else f"String must be one of: {listed}"


def each_one_of(*allowed: str) -> Check:
    listed = ", ".join(allowed)

    def check(values: Any) -> str | None:
        return None if all(value in allowed for value in values) else f"String must be one of: {listed}"

    return check
