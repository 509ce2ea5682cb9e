"""Scanning a segment: how far it is valid, and the index entries that belong to it."""

from __future__ import annotations

import struct
from typing import NamedTuple

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.wire import _kernel
from penstock.wire.batch import HEADER_BYTES, encode_batch, parse_header
from penstock.wire.record import Record
from tests.wire.batch_samples import COVERED_FROM, NOW, simple_batch


class Scan(NamedTuple):
    valid_bytes: int
    next_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int
    offset_index: list[tuple[int, int]]
    time_index: list[tuple[int, int]]
    is_whole: bool
    visited: list[int]


def kernel_scan(data: bytes, base: int, interval: int) -> Scan:
    visited: list[int] = []
    scan = _kernel.scan_segment(data, base, interval, lambda batch: visited.append(batch.base_offset))
    return Scan(
        scan.valid_bytes,
        scan.next_offset,
        scan.max_timestamp,
        scan.offset_of_max_timestamp,
        list(struct.iter_unpack(">ii", scan.offset_index)),
        list(struct.iter_unpack(">qi", scan.time_index)),
        scan.problem is None,
        visited,
    )


def model_scan(data: bytes, base: int, interval: int) -> Scan:
    """The same in plain Python, from the format alone."""
    position = last_entry = 0
    last_offset, max_timestamp, offset_of_max = base - 1, -1, base
    last_time_entry, leader_epoch = -1, -1
    offset_index, time_index, visited = [], [], []
    is_whole = True
    while position < len(data):
        header = data[position : position + HEADER_BYTES]
        is_whole = False
        if len(header) < HEADER_BYTES:
            break
        first, length, epoch, magic, crc, _, delta, _, largest, producer_id, _, _, _ = struct.unpack(
            ">qiibIhiqqqhii", header
        )
        batch = data[position : position + 12 + length]
        if magic != 2 or length < HEADER_BYTES - 12 or len(batch) < 12 + length or crc32c(batch[COVERED_FROM:]) != crc:
            break
        if first <= last_offset or delta < 0 or first + delta - base > 2**31 - 1:
            break
        is_whole = True
        last_offset = first + delta
        if largest > max_timestamp:
            max_timestamp, offset_of_max = largest, last_offset
        if position - last_entry > interval:
            offset_index.append((last_offset - base, position))
            last_entry = position
            if max_timestamp > last_time_entry:
                time_index.append((max_timestamp, offset_of_max - base))
                last_time_entry = max_timestamp
        if producer_id >= 0 or epoch > leader_epoch:
            leader_epoch = max(leader_epoch, epoch)
            visited.append(first)
        position += len(batch)
    return Scan(position, last_offset + 1, max_timestamp, offset_of_max, offset_index, time_index, is_whole, visited)


class BatchShape(NamedTuple):
    gap: int
    count: int
    value_bytes: int
    timestamp: int
    leader_epoch: int
    producer_id: int


shapes_in_segment = st.lists(
    st.builds(
        BatchShape,
        gap=st.integers(0, 3),
        count=st.integers(1, 4),
        value_bytes=st.integers(0, 60),
        timestamp=st.integers(NOW, NOW + 5),
        leader_epoch=st.integers(-1, 3),
        producer_id=st.sampled_from([-1, -1, 7]),
    ),
    min_size=1,
    max_size=10,
)


def make_segment(base: int, shapes: list[BatchShape]) -> list[bytearray]:
    batches, offset = [], base
    for shape in shapes:
        offset += shape.gap
        records = [Record(index, shape.timestamp, None, bytes(shape.value_bytes)) for index in range(shape.count)]
        batches.append(
            encode_batch(records, base_offset=offset, leader_epoch=shape.leader_epoch, producer_id=shape.producer_id)
        )
        offset += shape.count
    return batches


bases = st.sampled_from([0, 1, 1000, 2**40])
intervals = st.sampled_from([0, 1, 100, 200, 4096])


@given(base=bases, shapes=shapes_in_segment, interval=intervals)
@settings(deadline=None, max_examples=200)
def test_a_scan_of_a_whole_segment_finds_its_index_entries(base: int, shapes: list[BatchShape], interval: int) -> None:
    batches = make_segment(base, shapes)
    data = b"".join(batches)
    scan = kernel_scan(data, base, interval)
    assert scan == model_scan(data, base, interval)
    assert scan.valid_bytes == len(data)
    assert scan.is_whole
    assert scan.next_offset == parse_header(batches[-1]).next_offset


@given(base=bases, shapes=shapes_in_segment, interval=intervals, data=st.data())
@settings(deadline=None, max_examples=300)
def test_a_scan_of_a_damaged_segment_ends_before_the_damage(
    base: int, shapes: list[BatchShape], interval: int, data: st.DataObject
) -> None:
    segment = bytearray(b"".join(make_segment(base, shapes)))
    damage = data.draw(st.sampled_from(["cut", "flip", "zeros behind", "garbage behind"]))
    if damage == "cut":
        del segment[data.draw(st.integers(0, len(segment))) :]
    elif damage == "flip":
        segment[data.draw(st.integers(0, len(segment) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    else:
        segment += bytes(100) if damage == "zeros behind" else data.draw(st.binary(min_size=1, max_size=100))
    assert kernel_scan(bytes(segment), base, interval) == model_scan(bytes(segment), base, interval)


def test_a_scan_of_nothing_finds_nothing() -> None:
    assert kernel_scan(b"", 50, 4096) == Scan(0, 50, -1, 50, [], [], True, [])


def test_a_scan_ends_at_the_torn_tail() -> None:
    whole = simple_batch(base_offset=0)
    for size in range(1, len(whole)):
        scan = _kernel.scan_segment(whole + simple_batch(base_offset=3)[:size], 0, 4096)
        assert (scan.valid_bytes, scan.next_offset) == (len(whole), 3)
        assert scan.problem is not None


@pytest.mark.parametrize("offset", [0, 2, -5])
def test_a_scan_ends_where_offsets_go_back(offset: int) -> None:
    first = simple_batch(base_offset=0)
    scan = _kernel.scan_segment(first + simple_batch(base_offset=offset), 0, 4096)
    assert (scan.valid_bytes, scan.next_offset) == (len(first), 3)
    assert scan.problem is not None


def test_a_scan_refuses_offsets_below_the_segments_base() -> None:
    scan = _kernel.scan_segment(simple_batch(base_offset=99), 100, 4096)
    assert (scan.valid_bytes, scan.next_offset) == (0, 100)


@pytest.mark.parametrize(
    "offset", [2**31 - 2, 2**31, 2**62, 2**63 - 2], ids=["just too far", "2^31", "2^62", "beyond 64 bits"]
)
def test_a_scan_ends_at_offsets_too_far_for_the_index(offset: int) -> None:
    """And what lies behind the end does not count."""
    first = simple_batch(base_offset=0)
    scan = kernel_scan(bytes(first + simple_batch(base_offset=offset)), 0, 0)
    assert (scan.valid_bytes, scan.next_offset, scan.is_whole) == (len(first), 3, False)
    assert scan.max_timestamp == NOW + 2


def test_a_scan_takes_the_last_offset_that_fits_the_index() -> None:
    first = simple_batch(base_offset=0)
    second = simple_batch(base_offset=2**31 - 3)
    scan = kernel_scan(bytes(first + second), 0, 0)
    assert (scan.valid_bytes, scan.next_offset) == (len(first) + len(second), 2**31)
    assert scan.offset_index == [(2**31 - 1, len(first))]
