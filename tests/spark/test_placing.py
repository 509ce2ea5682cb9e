"""Rows go where their columns say, else where the Java client would send them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.spark.checkpoints import source_offsets
from penstock.spark.placing import BadRow, Layout, placed
from penstock.spark.ranges import from_json
from penstock.wire._arrow import partitions_of

LAYOUT = Layout({"a": 3, "b": 5}, default="a")


def places(layout: Layout = LAYOUT, **columns: Any) -> list[int]:
    (batch,) = placed(layout, [pa.RecordBatch.from_pydict(columns)])
    found: list[int] = batch.column("place").to_pylist()
    return found


def test_keys_decide_within_each_topic() -> None:
    keys = [f"key-{n}".encode() for n in range(50)]
    topics = ["a" if n % 3 else "b" for n in range(50)]
    found = places(key=pa.array(keys), value=pa.array(keys), topic=pa.array(topics))
    for key, topic, place in zip(keys, topics, found, strict=True):
        count = LAYOUT.topics[topic]
        (expected,) = memoryview(partitions_of(pa.array([key]), 1, count, 0)).cast("i")
        assert place == LAYOUT.firsts[topic] + expected


def test_a_partition_column_wins_where_it_is_not_null() -> None:
    given = pa.array([2, None, 0], pa.int32())
    found = places(value=pa.array(["x"] * 3), partition=given)
    assert (found[0], found[2]) == (2, 0)
    assert 0 <= found[1] < 3


def test_rows_without_a_topic_go_to_the_default() -> None:
    found = places(value=pa.array(["x", "y"]), topic=pa.array([None, "b"]))
    assert found[0] < 3 <= found[1]


def test_keys_and_values_become_bytes_and_headers_stay() -> None:
    headers = pa.array([[{"key": "h", "value": b"1"}]])
    rows = pa.RecordBatch.from_pydict({"key": pa.array(["ö"]), "value": pa.array(["v"]), "headers": headers})
    (batch,) = placed(LAYOUT, [rows])
    assert batch.schema.names == ["place", "key", "value", "headers"]
    assert batch.column("key").to_pylist() == ["ö".encode()]
    assert batch.column("headers").to_pylist() == [[{"key": "h", "value": b"1"}]]


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"topic": pa.array(["c"])}, "goes to topic c, which is not among those that are written: a, b"),
        ({"partition": pa.array([3], pa.int32())}, "goes to partition 3 of a, which has 3, counted from 0"),
        ({"partition": pa.array([-2], pa.int32())}, "goes to partition -2 of a"),
    ],
)
def test_rows_that_cannot_be_placed(columns: dict[str, Any], says: str) -> None:
    with pytest.raises(BadRow, match=says):
        places(value=pa.array([b"x"]), **columns)


def test_without_a_default_a_row_must_name_its_topic() -> None:
    with pytest.raises(BadRow, match="names no topic"):
        places(Layout({"a": 1, "b": 1}, None), value=pa.array([b"x"]), topic=pa.array([None], pa.string()))


def test_offsets_of_topics_are_found_in_sparks_log() -> None:
    log = 'v1\n{"batchWatermarkMs":0,"conf":{}}\n{"in":{"0":5,"1":7}}\n-\n{"logOffset":3}\n{"other":{"2":1}}'
    assert source_offsets(log) == from_json({"in": {"0": 5, "1": 7}, "other": {"2": 1}})
