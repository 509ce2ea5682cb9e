"""Record batches to test with, right ones and others."""

from __future__ import annotations

import struct
from typing import Any

from crc32c import crc32c
from hypothesis import strategies as st

from penstock.wire.batch import encode_batch
from penstock.wire.compression import Codec
from penstock.wire.record import Record

CRC_AT = 17
COVERED_FROM = 21  # the CRC covers everything from the attributes on
NOW = 1_700_000_000_000

int64s = st.integers(-(2**63), 2**63 - 1)
blobs = st.none() | st.binary(max_size=20) | st.integers(60, 70).map(bytes)
header_lists = st.lists(st.tuples(st.text(max_size=8), blobs), max_size=3).map(tuple)
timestamps = st.integers(-1, 2**48) | st.integers(NOW - 1000, NOW + 1000)
codecs = st.sampled_from(list(Codec))


def numbered(records: list[tuple[Any, ...]], first: int = 0) -> list[Record]:
    return [Record(first + index, *record) for index, record in enumerate(records)]


record_lists = st.lists(st.tuples(timestamps, blobs, blobs, header_lists), min_size=1, max_size=6).map(numbered)


def simple_batch(count: int = 3, *, base_offset: int = 0, value: bytes = b"value", **options: Any) -> bytearray:
    records = [Record(index, NOW + index, b"key-%d" % index, value) for index in range(count)]
    return encode_batch(records, base_offset=base_offset, **options)


def with_right_crc(batch: bytes | bytearray) -> bytearray:
    fixed = bytearray(batch)
    fixed[CRC_AT : CRC_AT + 4] = struct.pack(">I", crc32c(bytes(fixed[COVERED_FROM:])))
    return fixed


def with_size(data: bytes | bytearray, size: int) -> bytearray:
    """A batch that claims to have `size` bytes, header included."""
    return bytearray(data[:8] + struct.pack(">i", size - 12) + data[12:])
