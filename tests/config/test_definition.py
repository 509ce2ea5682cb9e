from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from penstock.config.definition import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    PASSWORD,
    SHORT,
    STRING,
    InvalidConfig,
    Key,
    KeyType,
    at_least,
    between,
    each_one_of,
    keys,
    one_of,
    parse,
    setting,
    settings,
    to_text,
)


@settings
class Sample:
    flag: bool = setting("a.flag", BOOLEAN, default=False, doc="A flag.")
    number: int = setting("a.number", INT, default=5, check=at_least(0), doc="A number.")
    short: int = setting("a.short", SHORT, default=1, doc="A short.")
    long: int = setting("a.long", LONG, default=LONG_MAX, doc="A long.")
    ratio: float = setting("a.ratio", DOUBLE, default=0.5, check=between(0, 1), doc="A ratio.")
    word: str = setting("a.word", STRING, default="x", check=one_of("x", "y"), doc="A word.")
    words: tuple[str, ...] = setting("a.list", LIST, default=(), check=each_one_of("a", "b"), doc="Words.")
    any_words: tuple[str, ...] = setting("a.free.list", LIST, default=(), doc="Any words.")
    optional: str | None = setting("an.optional", STRING, default=None, doc="May be missing.")
    secret: str = setting("a.secret", PASSWORD, default="", doc="Never shown.")


def key(name: str) -> Key:
    return keys(Sample)[name]


def problem(name: str, text: str | None) -> str:
    with pytest.raises(InvalidConfig) as caught:
        parse(key(name), text)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("a.flag", "true", True),
        ("a.flag", "FALSE", False),
        ("a.flag", " True ", True),
        ("a.number", "0", 0),
        ("a.number", "2147483647", 2147483647),
        ("a.number", " 17\t", 17),
        ("a.number", "+17", 17),
        ("a.number", "007", 7),
        ("a.short", "-32768", -32768),
        ("a.short", "32767", 32767),
        ("a.long", "9223372036854775807", 9223372036854775807),
        ("a.long", "-9223372036854775808", -9223372036854775808),
        ("a.ratio", "0.25", 0.25),
        ("a.ratio", "1", 1.0),
        ("a.ratio", "1e-2", 0.01),
        ("a.ratio", " .5 ", 0.5),
        ("a.word", "y", "y"),
        ("a.word", " y ", "y"),
        ("a.list", "", ()),
        ("a.list", "a", ("a",)),
        ("a.list", "a,b,a", ("a", "b", "a")),
        ("a.list", " a , b ", ("a", "b")),
        ("a.free.list", "x:1,,y", ("x:1", "", "y")),
        ("an.optional", "", ""),
        ("an.optional", None, None),
        ("a.secret", "p w", "p w"),
    ],
)
def test_a_text_becomes_a_typed_value(name: str, text: str | None, value: Any) -> None:
    parsed = parse(key(name), text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.flag", "yes", "Invalid value yes for configuration a.flag: Expected value to be either true or false"),
        ("a.flag", "", "Invalid value  for configuration a.flag: Expected value to be either true or false"),
        ("a.flag", "1", "Invalid value 1 for configuration a.flag: Expected value to be either true or false"),
        ("a.number", "x", "Invalid value x for configuration a.number: Not a number of type INT"),
        ("a.number", "", "Invalid value  for configuration a.number: Not a number of type INT"),
        ("a.number", "1.0", "Invalid value 1.0 for configuration a.number: Not a number of type INT"),
        ("a.number", "1_000", "Invalid value 1_000 for configuration a.number: Not a number of type INT"),
        ("a.number", "1 000", "Invalid value 1 000 for configuration a.number: Not a number of type INT"),
        ("a.number", "0x10", "Invalid value 0x10 for configuration a.number: Not a number of type INT"),
        ("a.number", "2147483648", "Invalid value 2147483648 for configuration a.number: Not a number of type INT"),
        ("a.number", "-1", "Invalid value -1 for configuration a.number: Value must be at least 0"),
        ("a.short", "32768", "Invalid value 32768 for configuration a.short: Not a number of type SHORT"),
        ("a.short", "-32769", "Invalid value -32769 for configuration a.short: Not a number of type SHORT"),
        (
            "a.long",
            "9223372036854775808",
            "Invalid value 9223372036854775808 for configuration a.long: Not a number of type LONG",
        ),
        ("a.ratio", "half", "Invalid value half for configuration a.ratio: Not a number of type DOUBLE"),
        ("a.ratio", "0_0", "Invalid value 0_0 for configuration a.ratio: Not a number of type DOUBLE"),
        ("a.ratio", "-0.1", "Invalid value -0.1 for configuration a.ratio: Value must be at least 0"),
        ("a.ratio", "1.1", "Invalid value 1.1 for configuration a.ratio: Value must be no more than 1"),
        ("a.word", "z", "Invalid value z for configuration a.word: String must be one of: x, y"),
        ("a.list", "a,c", "Invalid value a,c for configuration a.list: String must be one of: a, b"),
        ("a.list", "a,", "Invalid value a, for configuration a.list: String must be one of: a, b"),
        ("a.number", None, "Invalid value null for configuration a.number: a value is required"),
    ],
)
def test_a_text_that_cannot_be_is_refused_with_the_reason(name: str, text: str | None, expected: str) -> None:
    assert problem(name, text) == expected


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, None),
        (True, "true"),
        (False, "false"),
        (5, "5"),
        (0.5, "0.5"),
        ((), ""),
        (("a", "b"), "a,b"),
        ("x y", "x y"),
        (LONG_MAX, "9223372036854775807"),
    ],
)
def test_values_are_printed_as_kafka_prints_them(value: Any, text: str | None) -> None:
    assert to_text(value) == text


def test_printing_and_parsing_go_round() -> None:
    for one in keys(Sample).values():
        assert parse(one, to_text(one.default)) == one.default


def test_a_settings_class_is_frozen_and_has_its_defaults() -> None:
    sample = Sample()
    assert (sample.number, sample.words, sample.optional) == (5, (), None)
    with pytest.raises(dataclasses.FrozenInstanceError):
        sample.number = 6  # type: ignore[misc]
    assert Sample(number=7) != sample


def test_keys_know_their_attribute_and_type() -> None:
    assert key("a.free.list").attribute == "any_words"
    assert key("a.free.list").type is KeyType.LIST
    assert key("a.secret").is_sensitive
    assert not key("a.word").is_sensitive
    assert list(keys(Sample)) == [f.metadata["key"].name for f in dataclasses.fields(Sample)]  # type: ignore[arg-type]


def test_types_have_the_codes_of_the_protocol() -> None:
    assert [(kind.name, int(kind)) for kind in KeyType] == [
        ("BOOLEAN", 1),
        ("STRING", 2),
        ("INT", 3),
        ("SHORT", 4),
        ("LONG", 5),
        ("DOUBLE", 6),
        ("LIST", 7),
        ("CLASS", 8),
        ("PASSWORD", 9),
    ]
