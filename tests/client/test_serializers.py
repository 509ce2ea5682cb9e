"""Serializers, partitioners, headers and times: no broker needed."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.errors import ConfigurationError, SerializationError
from penstock.client.partitioners import RoundRobin, find_partitioner, murmur2
from penstock.client.records import to_headers
from penstock.client.serializers import deserialize, deserializer, serialize, serializer
from penstock.client.times import to_timestamp_ms

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
VALUES = st.one_of(
    st.tuples(st.just("bytes"), st.binary()),
    st.tuples(st.just("str"), st.text(st.characters(codec="utf-8"))),
    st.tuples(st.just("int"), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.just("float"), st.floats(allow_nan=False)),
    st.tuples(st.just("json"), JSON),
)


@given(VALUES)
def test_what_is_serialized_comes_back(named: tuple[str, Any]) -> None:
    name, value = named
    data = serialize(value, serializer(name), "value", "t")
    assert deserialize(data, deserializer(name), "value", "place") == value


def test_the_bytes_are_those_of_java() -> None:
    assert serialize(-2, serializer("int"), "key", "t") == struct.pack(">q", -2)
    assert serialize(1.5, serializer("float"), "key", "t") == struct.pack(">d", 1.5)
    assert serialize({"ä": [1, 2]}, serializer("json"), "key", "t") == '{"ä":[1,2]}'.encode()
    assert serialize(None, serializer("json"), "value", "t") is None


def test_custom_callables_and_errors_name_the_place() -> None:
    assert serialize([1], serializer(lambda value: json.dumps(value).encode()), "value", "t") == b"[1]"
    assert deserialize(b"5", deserializer(int), "value", "place") == 5
    with pytest.raises(SerializationError, match="the key of a record for 't': it is a str, not bytes"):
        serialize("x", serializer("bytes"), "key", "t")
    with pytest.raises(SerializationError, match="the value of here: "):
        deserialize(b"{", deserializer("json"), "value", "here")
    with pytest.raises(ConfigurationError, match="no deserializer 'xml': use a callable or one of bytes, str"):
        deserializer("xml")


# The key hashes are from Kafka's own UtilsTest.testMurmur2.
@pytest.mark.parametrize(
    ("key", "hash"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    ],
)
def test_murmur2_is_that_of_java(key: bytes, hash: int) -> None:
    assert [murmur2(key, count) for count in (1, 7, 100)] == [(hash & 0x7FFFFFFF) % count for count in (1, 7, 100)]


@given(st.integers(1, 50), st.integers(1, 200))
def test_round_robin_is_even(partitions: int, records: int) -> None:
    chosen = RoundRobin()
    counts = [0] * partitions
    for _ in range(records):
        counts[chosen(b"same", partitions)] += 1
    assert max(counts) - min(counts) <= 1


def test_a_topic_gets_a_partitioner_of_its_own_for_round_robin() -> None:
    _, make = find_partitioner("round_robin")
    assert make is not None
    assert make() is not make()
    assert find_partitioner("murmur2") == ("murmur2_random", None)


def test_headers_and_times_are_taken_as_people_write_them() -> None:
    assert to_headers({"a": "ü", "b": b"x", "c": None}) == (("a", "ü".encode()), ("b", b"x"), ("c", None))
    assert to_headers([("a", "1"), ("a", "2")]) == (("a", b"1"), ("a", b"2"))
    assert to_timestamp_ms(datetime(2024, 1, 1, tzinfo=UTC)) == 1_704_067_200_000
    with pytest.raises(ConfigurationError, match="before 1970"):
        to_timestamp_ms(-1)
