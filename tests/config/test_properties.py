"""Java's .properties format. The expectations were written down from java.util.Properties' documentation."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config.properties import parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("\n\n  \n", {}),
        ("key=value", {"key": "value"}),
        ("key=value\n", {"key": "value"}),
        # separators: =, : or white space, with white space around them
        ("key:value", {"key": "value"}),
        ("key value", {"key": "value"}),
        ("key\tvalue", {"key": "value"}),
        ("key = value", {"key": "value"}),
        ("key : value", {"key": "value"}),
        ("   key   =   value", {"key": "value"}),
        ("key==value", {"key": "=value"}),
        ("key = = value", {"key": "= value"}),
        ("key : = value", {"key": "= value"}),
        ("key value = other", {"key": "value = other"}),
        ("key", {"key": ""}),
        ("key=", {"key": ""}),
        ("=value", {"": "value"}),
        # the end of a value belongs to it
        ("key=value  ", {"key": "value  "}),
        ("key=a b\tc", {"key": "a b\tc"}),
        # comments
        ("# no=1\n! no=2\n  # no=3\nyes=1", {"yes": "1"}),
        ("key=value # part of it", {"key": "value # part of it"}),
        ("key=#value", {"key": "#value"}),
        ("# a comment is never continued \\\nkey=value", {"key": "value"}),
        # line ends
        ("a=1\r\nb=2\rc=3\nd=4", {"a": "1", "b": "2", "c": "3", "d": "4"}),
        # continued lines
        ("key=one,\\\n    two,\\\n\tthree", {"key": "one,two,three"}),
        ("key=one\\\r\ntwo", {"key": "onetwo"}),
        ("ke\\\ny=value", {"key": "value"}),
        ("key=a\\\n# no comment", {"key": "a# no comment"}),
        ("key=a\\\n\nother=b", {"key": "a", "other": "b"}),
        ("key=a\\\\\nother=b", {"key": "a\\", "other": "b"}),
        ("key=a\\\\\\\nb", {"key": "a\\b"}),
        ("key=a\\", {"key": "a"}),
        # escapes
        (r"key=a\tb\nc\rd\fe", {"key": "a\tb\nc\rd\fe"}),
        (r"key=a\=b\:c\#d\!e\ f", {"key": "a=b:c#d!e f"}),
        (r"a\ key\=with\:all=value", {"a key=with:all": "value"}),
        (r"key=C:\\temp\\new", {"key": r"C:\temp\new"}),
        (r"key=\q\z", {"key": "qz"}),
        (r"key=\u0041\u00e9\u20ac", {"key": "Aé€"}),
        (r"\u006bey=value", {"key": "value"}),
        ("key=größe", {"key": "größe"}),
        # the last one wins
        ("a=1\na=2", {"a": "2"}),
        # as configuration files have it
        (
            "############# Server Basics #############\n\n# The id\nbroker.id=0\n"
            "listeners=PLAINTEXT://:9092,SSL://host:9093\nlog.dirs = /tmp/kafka logs\n#log.retention.bytes=1\n",
            {
                "broker.id": "0",
                "listeners": "PLAINTEXT://:9092,SSL://host:9093",
                "log.dirs": "/tmp/kafka logs",
            },
        ),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize("character", ["\x0b", "\x1c", "\x1e", "\x85", "\u2028"])
def test_only_line_feeds_and_carriage_returns_end_a_line(character: str) -> None:
    assert parse_properties(f"a=1{character}b=2") == {"a": f"1{character}b=2"}


def test_a_form_feed_is_white_space() -> None:
    assert parse_properties("\fkey\f=\fvalue\nother\fvalue") == {"key": "value", "other": "value"}


def test_other_white_space_is_part_of_a_key() -> None:
    assert parse_properties("\u00a0key=value") == {"\u00a0key": "value"}


@pytest.mark.parametrize("text", [r"key=\u12", r"key=\uxyzw", r"key=\u"])
def test_a_broken_unicode_escape_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 (Java: IllegalArgumentException)
        parse_properties(text)


def escaped(text: str, *, is_key: bool) -> str:
    """As Properties.store writes it."""
    out = ""
    for number, character in enumerate(text):
        if character in "\\=:#!" or (character == " " and (is_key or number == 0)):
            out += "\\" + character
        elif character in "\t\n\r\f":
            out += "\\" + {"\t": "t", "\n": "n", "\r": "r", "\f": "f"}[character]
        elif not 0x20 <= ord(character) <= 0x7E:
            units = character.encode("utf-16-be")
            out += "".join(f"\\u{units[i]:02X}{units[i + 1]:02X}" for i in range(0, len(units), 2))
        else:
            out += character
    return out


@settings(deadline=None, max_examples=300)
@given(
    st.dictionaries(
        st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), min_size=1),
        st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"])),
    )
)
def test_what_java_stores_is_read_again(values: dict[str, str]) -> None:
    lines = [f"{escaped(key, is_key=True)}={escaped(value, is_key=False)}" for key, value in values.items()]
    assert parse_properties("#comment\n" + "\n".join(lines)) == values


def test_a_character_beyond_the_basic_plane_is_written_as_two_escapes() -> None:
    assert parse_properties(r"key=\uD83D\uDE00") == {"key": "😀"}
