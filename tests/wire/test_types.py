"""UUIDs as people see them."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire.types import ZERO_UUID, random_uuid, uuid_from_text, uuid_text

ALPHABET = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
RANDOM_COUNT = 5000  # one in 64 random UUIDs would begin with "-" if nothing kept them from it


@given(st.binary(min_size=16, max_size=16))
def test_a_uuid_is_read_from_its_own_text(raw: bytes) -> None:
    text = uuid_text(raw)
    assert len(text) == 22
    assert set(text) <= ALPHABET
    assert uuid_from_text(text) == raw


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (ZERO_UUID, "AAAAAAAAAAAAAAAAAAAAAA"),
        (bytes(15) + b"\x01", "AAAAAAAAAAAAAAAAAAAAAQ"),  # the id of Kafka's metadata topic
        (b"\xff" * 16, "_____________________w"),
        (b"\xfb" * 16, "-_v7-_v7-_v7-_v7-_v7-w"),
    ],
)
def test_text_is_what_kafka_prints(raw: bytes, text: str) -> None:
    assert uuid_text(raw) == text
    assert uuid_from_text(text) == raw


@pytest.mark.parametrize("text", ["", "A", "A" * 20, "A" * 21, "A" * 23, "A" * 24, "A" * 44, "ü" * 22, "水" * 22])
def test_text_of_the_wrong_length_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        uuid_from_text(text)


@pytest.mark.parametrize(
    "text",
    [
        "AAAA****AAAAAAAAAAAAAAAAAA",
        "AAAAAAAAAAAAAAAAAAAAAA\n\n\n\n",
        "    AAAAAAAAAAAAAAAAAAAAAA",
        "A.A.A.A.AAAAAAAAAAAAAAAAAA",
        "++//AAAAAAAAAAAAAAAAAA",  # the other base64
        "00000000-0000-0000-0000-000000000000",
    ],
)
def test_text_with_characters_outside_the_alphabet_is_refused(text: str) -> None:
    """As Kafka's `Uuid.fromString` does; Python's decoder would skip them."""
    with pytest.raises(ValueError):  # noqa: PT011
        uuid_from_text(text)


def test_random_uuids_are_version_4_and_never_look_like_an_option() -> None:
    seen = {random_uuid() for _ in range(RANDOM_COUNT)}
    assert len(seen) == RANDOM_COUNT
    for raw in seen:
        assert len(raw) == 16
        assert not uuid_text(raw).startswith("-")
        parsed = uuid.UUID(bytes=raw)
        assert parsed.version == 4
        assert parsed.variant == uuid.RFC_4122


def test_random_uuids_use_all_other_first_characters() -> None:
    assert {uuid_text(random_uuid())[0] for _ in range(RANDOM_COUNT)} == ALPHABET - {"-"}
