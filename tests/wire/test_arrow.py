"""Records as Arrow columns hold just what the records hold."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire._arrow import Columns, Encoder, next_offset, partitions_of
from penstock.wire._kernel import decode_records
from penstock.wire.batch import batches_in, encode_batch
from penstock.wire.errors import CorruptBatch, InvalidRecords
from penstock.wire.record import Record

pa = pytest.importorskip("pyarrow", reason="the pipeline's extra is not installed")

blobs = st.one_of(st.none(), st.binary(max_size=20))
headers = st.lists(st.tuples(st.text(max_size=5), blobs), max_size=3).map(tuple)
batches = st.lists(
    st.lists(st.tuples(st.integers(-1, 2**41), blobs, blobs, headers), min_size=1, max_size=12), min_size=1, max_size=4
)


def binary(count: int, column: Any, kind: Any = None) -> list[Any]:
    nulls, validity, ends, content = column
    buffers = [None if block is None else pa.py_buffer(block) for block in (validity, ends, content)]
    made = pa.Array.from_buffers(kind or pa.binary(), count, buffers, nulls)
    made.validate(full=True)
    found: list[Any] = made.to_pylist()
    return found


def numbers(kind: Any, count: int, block: Any) -> list[Any]:
    found: list[Any] = pa.Array.from_buffers(kind, count, [None, pa.py_buffer(block)]).to_pylist()
    return found


def add(columns: Columns, records: list[Record], base_offset: int, append_time: int = -1, bounds: Any = None) -> None:
    data = encode_batch(records)
    (batch,) = batches_in(data)
    low, high = bounds or (0, 2**62)
    columns.add(memoryview(data)[61:], batch.count, base_offset, batch.base_timestamp, append_time, low, high)


@given(batches=batches)
def test_columns_hold_what_the_records_hold(batches: list[Any]) -> None:
    columns = Columns(with_headers=True)
    expected: list[Record] = []
    for number, content in enumerate(batches):
        records = [Record(n, *fields) for n, fields in enumerate(content)]
        add(columns, records, 100 * number)
        expected += [record._replace(offset=100 * number + record.offset) for record in records]
    assert columns.count == len(expected)
    count, keys, values, offsets, timestamps, types, found = columns.take()
    assert count == len(expected)
    assert binary(count, keys) == [record.key for record in expected]
    assert binary(count, values) == [record.value for record in expected]
    assert numbers(pa.int64(), count, offsets) == [record.offset for record in expected]
    assert numbers(pa.int64(), count, timestamps) == [record.timestamp * 1000 for record in expected]
    assert numbers(pa.int32(), count, types) == [0] * count
    assert found is not None
    _, validity, ends, header_count, names, contents = found
    assert binary(header_count, names, pa.string()) == [name for record in expected for name, _ in record.headers]
    assert binary(header_count, contents) == [value for record in expected for _, value in record.headers]
    assert numbers(pa.int32(), count + 1, ends)[-1] == header_count
    assert (validity is None) == all(record.headers for record in expected)
    assert columns.count == columns.size == 0, "after taking, it begins anew"


def test_only_the_wanted_offsets_are_taken() -> None:
    columns = Columns()
    add(columns, [Record(n, 1000, None, b"%d" % n) for n in range(10)], 50, bounds=(53, 56))
    count, _, values, offsets, *_ = columns.take()
    assert binary(count, values) == [b"3", b"4", b"5"]
    assert numbers(pa.int64(), count, offsets) == [53, 54, 55]


def test_the_brokers_time_counts_where_it_dated_the_batch() -> None:
    columns = Columns()
    add(columns, [Record(0, 1000, None, b"")], 0, append_time=7777)
    count, _, _, _, timestamps, types, _ = columns.take()
    assert numbers(pa.int64(), count, timestamps) == [7_777_000]
    assert numbers(pa.int32(), count, types) == [1]


@given(data=st.binary(max_size=60), count=st.integers(-5, 70))
def test_garbage_is_refused_and_hurts_nobody(data: bytes, count: int) -> None:
    columns = Columns(with_headers=True)
    try:
        columns.add(data, count, 0, 0, -1, 0, 2**62)
    except InvalidRecords:
        pass
    else:
        assert columns.count <= max(count, 0)


def test_memory_that_was_taken_outlives_its_maker() -> None:
    columns = Columns()
    add(columns, [Record(n, 1000, b"k%d" % n, b"v") for n in range(100)], 0)
    count, keys, *_ = columns.take()
    view = pa.py_buffer(keys[3])
    del columns, keys
    assert view.to_pybytes() == b"".join(b"k%d" % n for n in range(count))


def test_the_offset_behind_fetched_batches() -> None:
    first = encode_batch([Record(0, 0, None, b"a"), Record(1, 0, None, b"b")], base_offset=40)
    second = encode_batch([Record(0, 0, None, b"c")], base_offset=42)
    assert next_offset(b"") == -1
    assert next_offset(first) == 42
    assert next_offset(first + second) == 43
    assert next_offset((first + second)[:-1]) == 42, "a torn batch does not count"
    first[8:12] = bytes(4)
    with pytest.raises(CorruptBatch):
        next_offset(first)


# ---- from columns to records ----


def header_columns(column: Any) -> Any:
    buffers = column.buffers()
    names, contents = column.values.field(0), column.values.field(1)
    return buffers[1], names, contents, column.offset, buffers[0]


@given(
    rows=st.lists(
        st.tuples(blobs, blobs, st.one_of(st.none(), headers), st.integers(0, 3), st.integers(0, 2**60)), max_size=40
    ),
    has_times=st.booleans(),
    skipped=st.integers(0, 5),
    bytes_max=st.sampled_from([1, 30, 100, 10_000]),
)
def test_rows_become_the_records_they_were(rows: list[Any], has_times: bool, skipped: int, bytes_max: int) -> None:
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    named = [[{"key": name, "value": value} for name, value in row[2]] if row[2] is not None else None for row in rows]
    columns = (
        pa.array([row[0] for row in rows], pa.binary()),
        pa.array([row[1] for row in rows], pa.binary()),
        pa.array(named, kind),
        pa.array([row[3] for row in rows], pa.int32()),
        pa.array([row[4] for row in rows], pa.int64()),
    )
    keys, values, found, partitions, times = (
        column.slice(skipped) for column in columns
    )  # Spark hands over slices too
    encoder = Encoder(4, bytes_max)
    read: dict[int, list[Any]] = {number: [] for number in range(4)}

    def send(number: int) -> None:
        payload = encoder.take(number)
        if payload is None:
            return
        assert payload.count == 1 or len(payload.content) <= bytes_max
        first = payload.first_timestamp if has_times else 1234
        new = decode_records(payload.content, payload.count, 0, first, None, Record)
        assert not has_times or payload.max_timestamp == max(record.timestamp for record in new)
        read[number] += new

    row = 0
    while row < len(values):
        row = encoder.add(keys, values, header_columns(found), partitions, row, times if has_times else None)
        if row < len(values):
            send(partitions[row].as_py())
    for number in range(4):
        send(number)
        assert encoder.take(number) is None
        expected = [
            (key, value, content or (), time if has_times else 1234)
            for key, value, content, place, time in rows[skipped:]
            if place == number
        ]
        assert [(one.key, one.value, one.headers, one.timestamp) for one in read[number]] == expected


def test_a_partition_that_is_not_there_is_refused() -> None:
    encoder = Encoder(2, 1000)
    with pytest.raises(ValueError, match="there is no partition 2: the topic has 2"):
        encoder.add(None, pa.array([b"v"]), None, pa.array([2], pa.int32()), 0)


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_keys_go_where_javas_clients_send_them(key: bytes, expected: int) -> None:
    for count in (1, 3, 12, 1000):
        (found,) = numbers(pa.int32(), 1, partitions_of(pa.array([key]), 1, count, 0))
        assert found == (expected & 0x7FFFFFFF) % count


def test_rows_without_a_key_are_spread_evenly() -> None:
    found = numbers(pa.int32(), 7, partitions_of(None, 7, 3, 4))
    assert found == [1, 2, 0, 1, 2, 0, 1]
    mixed = pa.array([None, b"abc", None], pa.binary())
    assert numbers(pa.int32(), 3, partitions_of(mixed, 3, 5, 0)) == [0, 479470107 % 5, 1]
