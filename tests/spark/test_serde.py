"""Bytes to columns and back, as Kafka's own serializers have them."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from pyspark.sql import functions as f

from penstock.client.errors import ConfigurationError
from penstock.spark.serde import INT, LONG, TEXT, Serde, decode, encode, json

INTS = [0, 1, -1, 127, 128, -128, 65_536, 2**31 - 1, -(2**31)]
LONGS = [*INTS, 2**32, -(2**32) - 1, 2**63 - 1, -(2**63)]


@pytest.mark.parametrize(
    ("serde", "type", "layout", "numbers"),
    [(INT, "int", ">i", INTS), (LONG, "bigint", ">q", LONGS)],
    ids=["int", "long"],
)
def test_integers_are_big_endian(spark: Any, serde: Serde, type: str, layout: str, numbers: list[int]) -> None:
    frame = spark.createDataFrame([(number,) for number in numbers], f"n {type}")
    rows = frame.select("n", serde.write(f.col("n")).alias("b")).withColumn("again", serde.read(f.col("b"))).collect()
    assert [bytes(row.b) for row in rows] == [struct.pack(layout, number) for number in numbers]
    assert [row.again for row in rows] == numbers


@pytest.mark.parametrize("serde", [INT, LONG], ids=["int", "long"])
def test_bytes_of_another_length_are_no_integer(spark: Any, serde: Serde) -> None:
    frame = spark.createDataFrame([(b"",), (b"abc",), (None,), (b"123456789",)], "b binary")
    assert [row[0] for row in frame.select(serde.read(f.col("b"))).collect()] == [None] * 4


def test_a_null_stays_null(spark: Any) -> None:
    frame = spark.sql("select cast(null as int) as n, cast(null as string) as s")
    written = frame.select(INT.write(f.col("n")), TEXT.write(f.col("s")), json().write(f.struct("n"))).first()
    assert (written[0], written[1], bytes(written[2])) == (None, None, b"{}")


def test_json_and_text_go_both_ways(spark: Any) -> None:
    frame = spark.createDataFrame([("ä", {"user": "ann", "age": 7})], "key string, value struct<user string, age int>")
    written = encode(frame, key=TEXT, value=json())
    row = written.first()
    assert (bytes(row.key), bytes(row.value)) == ("ä".encode(), b'{"user":"ann","age":7}')
    again = decode(written, key=TEXT, value=json("user string, age int"))
    assert again.first() == frame.first()
    assert decode(written, key=TEXT).first().value == row.value


def test_what_is_not_json_is_null_or_fails(spark: Any) -> None:
    frame = spark.createDataFrame([(b"{",)], "value binary")
    assert decode(frame, value=json("a int")).first().value.a is None
    with pytest.raises(Exception, match="MALFORMED_RECORD"):
        decode(frame, value=json("a int", strict=True)).collect()
    with pytest.raises(ConfigurationError, match="needs a schema"):
        decode(frame, value=json())
