"""Records one by one: nothing malformed gets into a log, neither the long way nor by the short cut."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.wire import _kernel
from penstock.wire.batch import HEADER_BYTES, Batch, encode_batch, verify
from penstock.wire.compression import Codec
from penstock.wire.errors import CorruptBatch, InvalidRecords
from penstock.wire.record import Record
from tests.wire.batch_samples import CRC_AT, NOW, record_lists, simple_batch, with_right_crc, with_size

# ---- single records ----


def varint(number: int, width: int = 1) -> bytes:
    """A zigzag varint, padded to at least `width` bytes."""
    bits = number << 1 if number >= 0 else (-number << 1) - 1
    out = bytearray()
    while bits >= 0x80 or len(out) < width - 1:
        out.append(bits & 0x7F | 0x80)
        bits >>= 7
    return bytes([*out, bits])


def blob(content: bytes | None, claimed: int | None = None, width: int = 1) -> bytes:
    size = -1 if content is None else len(content)
    return varint(size if claimed is None else claimed, width) + (content or b"")


class Lies(NamedTuple):
    """How a record may deviate from what it should be."""

    length: int = 0  # added to the declared length
    key_length: int | None = None
    value_length: int | None = None
    header_count: int | None = None
    header_key_length: int | None = None
    header_value_length: int | None = None
    trailing: bytes = b""
    padded: str = ""  # the number that is written in `width` bytes
    width: int = 6


def raw_record(
    offset_delta: int = 0,
    timestamp_delta: int = 0,
    key: bytes | None = b"key",
    lies: Lies = Lies(),  # noqa: B008
) -> bytes:
    def width(name: str) -> int:
        return lies.width if lies.padded == name else 1

    body = b"".join(
        [
            b"\0",
            varint(timestamp_delta, width("timestamp")),
            varint(offset_delta, width("offset")),
            blob(key, lies.key_length, width("key")),
            blob(b"value", lies.value_length, width("value")),
            varint(1 if lies.header_count is None else lies.header_count, width("headers")),
            blob(b"name", lies.header_key_length, width("header key")),
            blob(b"content", lies.header_value_length, width("header value")),
            lies.trailing,
        ]
    )
    return varint(len(body) + lies.length, width("length")) + body


def test_right_records_pass() -> None:
    payload = raw_record(0, 5) + raw_record(1, 9) + raw_record(2, -3)
    assert _kernel.check_records(payload, 3, NOW) == (NOW + 9, ())
    assert payload == _kernel.encode_records(
        [
            Record(index, NOW + delta, b"key", b"value", (("name", b"content"),))
            for index, delta in enumerate((5, 9, -3))
        ],
        0,
        NOW,
    )


@pytest.mark.parametrize("count", [0, 1, 2, 4, 5, 2**31 - 1])
def test_a_count_that_is_not_the_number_of_records_is_refused(count: int) -> None:
    payload = raw_record(0) + raw_record(1) + raw_record(2)
    with pytest.raises(InvalidRecords):
        _kernel.check_records(payload, count, NOW)


@pytest.mark.parametrize("deltas", [(1, 2), (0, 2), (1, 0), (0, 0), (-1, 0), (0, 1 + 2**32)])
def test_offset_deltas_that_do_not_count_up_from_zero_are_refused(deltas: tuple[int, ...]) -> None:
    with pytest.raises(InvalidRecords, match="offset delta"):
        _kernel.check_records(b"".join(map(raw_record, deltas)), len(deltas), NOW)


@pytest.mark.parametrize(
    "lies",
    [
        Lies(length=1),
        Lies(length=-1),
        Lies(length=1000),
        Lies(length=-1000),
        Lies(key_length=2),
        Lies(key_length=4),
        Lies(key_length=1000),
        Lies(key_length=-1),
        Lies(key_length=-2),
        Lies(key_length=2**62),
        Lies(value_length=4),
        Lies(value_length=6),
        Lies(value_length=1000),
        Lies(value_length=-2),
        Lies(value_length=2**31 - 1),
        Lies(header_count=0),
        Lies(header_count=2),
        Lies(header_count=10**6),
        Lies(header_count=-1),
        Lies(header_count=2**62),
        Lies(header_key_length=-1),
        Lies(header_key_length=-2),
        Lies(header_key_length=3),
        Lies(header_key_length=1000),
        Lies(header_value_length=-2),
        Lies(header_value_length=6),
        Lies(header_value_length=8),
        Lies(header_value_length=2**62),
        Lies(trailing=b"!"),
    ],
    ids=lambda lies: ", ".join(
        f"{name} {value}" for name, value in lies._asdict().items() if value != Lies._field_defaults[name]
    ),
)
@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_record_whose_lengths_lie_is_refused(lies: Lies, index: int) -> None:
    payload = b"".join(raw_record(number, lies=lies if number == index else Lies()) for number in range(3))
    with pytest.raises(InvalidRecords):
        _kernel.check_records(payload, 3, NOW)
    with pytest.raises(InvalidRecords):
        _kernel.decode_records(payload, 3, 0, NOW, None, Record)


def test_a_header_without_a_key_is_refused() -> None:
    body = b"\0\0\0" + blob(b"k") + blob(b"v") + varint(1) + blob(None) + blob(b"content")
    with pytest.raises(InvalidRecords, match="headers"):
        _kernel.check_records(varint(len(body)) + body, 1, NOW)


def test_a_header_whose_key_is_not_utf8_is_decoded_as_java_does_it() -> None:
    body = b"\0\0\0" + blob(b"k") + blob(b"v") + varint(1) + blob(b"\xff\xfe") + blob(b"content")
    (record,) = _kernel.decode_records(varint(len(body)) + body, 1, 0, NOW, None, Record)
    assert record.headers == (("\ufffd\ufffd", b"content"),)


def test_bytes_behind_the_last_record_are_refused() -> None:
    for trailing in (b"\0", b"!", raw_record(2)):
        with pytest.raises(InvalidRecords, match="follow"):
            _kernel.check_records(raw_record(0) + raw_record(1) + trailing, 2, NOW)


def test_records_cut_off_anywhere_are_refused() -> None:
    payload = raw_record(0) + raw_record(1)
    for size in range(len(payload)):
        with pytest.raises(InvalidRecords):
            _kernel.check_records(payload[:size], 2, NOW)
        with pytest.raises(InvalidRecords):
            _kernel.decode_records(payload[:size], 2, 0, NOW, None, Record)


def test_a_number_of_more_than_ten_bytes_is_refused() -> None:
    for padded in ("length", "timestamp", "offset", "key", "value", "headers", "header key", "header value"):
        with pytest.raises(InvalidRecords):
            _kernel.check_records(raw_record(lies=Lies(padded=padded, width=11)), 1, NOW)


@pytest.mark.parametrize("padded", ["length", "offset", "key", "value", "headers", "header key", "header value"])
def test_a_32_bit_number_of_more_than_five_bytes_is_refused(padded: str) -> None:
    """Kafka's consumers read these with `ByteUtils.readVarint`, which throws after five bytes: they would be stuck."""
    _kernel.check_records(raw_record(lies=Lies(padded=padded, width=5)), 1, NOW)
    for width in (6, 10):
        with pytest.raises(InvalidRecords):
            _kernel.check_records(raw_record(lies=Lies(padded=padded, width=width)), 1, NOW)


def test_a_timestamp_delta_may_have_ten_bytes() -> None:
    assert _kernel.check_records(raw_record(0, 7, lies=Lies(padded="timestamp", width=10)), 1, NOW) == (NOW + 7, ())


def test_timestamps_outside_the_window_are_listed() -> None:
    payload = b"".join(raw_record(index, delta) for index, delta in enumerate((-11, -10, 0, 20, 21)))
    max_timestamp, bad = _kernel.check_records(payload, 5, NOW, True, NOW - 10, NOW + 20)
    assert max_timestamp == NOW + 21
    assert list(bad) == [(0, NOW - 11, False), (4, NOW + 21, False)]


def test_a_record_without_timestamp_is_in_any_window() -> None:
    assert _kernel.check_records(raw_record(0, 0), 1, -1, True, NOW, NOW) == (-1, ())
    assert _kernel.check_records(raw_record(0, -1 - NOW), 1, NOW, True, NOW, NOW) == (-1, ())


def test_records_without_keys_are_listed_where_keys_are_required() -> None:
    payload = raw_record(0) + raw_record(1, key=None) + raw_record(2, key=b"") + raw_record(3, key=None)
    assert _kernel.check_records(payload, 4, NOW) == (NOW, ())
    _, bad = _kernel.check_records(payload, 4, NOW, require_keys=True)
    assert list(bad) == [(1, NOW, True), (3, NOW, True)]


def test_at_most_a_hundred_bad_records_are_listed() -> None:
    payload = b"".join(raw_record(index, key=None) for index in range(250))
    _, bad = _kernel.check_records(payload, 250, NOW, require_keys=True)
    assert [index for index, _, _ in bad] == list(range(100))


@pytest.mark.parametrize("size", [10, 5000])
def test_long_payloads_are_checked_like_short_ones(size: int) -> None:
    """Beyond 128 KiB the walk lets other threads run."""
    payload = b"".join(raw_record(index, index) for index in range(size))
    assert _kernel.check_records(payload, size, NOW) == (NOW + size - 1, ())
    with pytest.raises(InvalidRecords):
        _kernel.check_records(payload[:-1], size, NOW)


@given(payload=st.binary(max_size=60), count=st.integers(-1, 5))
@settings(deadline=None, max_examples=300)
def test_random_bytes_are_records_or_refused(payload: bytes, count: int) -> None:
    for check in (
        lambda: _kernel.check_records(payload, count, NOW, True, 0, 2**62, True),
        lambda: _kernel.decode_records(payload, count, 0, NOW, None, Record),
    ):
        try:
            check()
        except InvalidRecords:
            continue


def test_the_walk_of_a_kernel_function_never_reads_behind_its_buffer() -> None:
    """A batch whose records claim more than there is lies at the very end of a larger buffer, seen through a view."""
    data = simple_batch()
    around = bytearray(data + b"\x7f" * 1000)
    view = memoryview(around)[: len(data)]
    checks: list[Callable[[], Any]] = [
        lambda: _kernel.check_records(view[HEADER_BYTES:], 4, NOW),
        lambda: _kernel.decode_records(view[HEADER_BYTES:], 4, 0, NOW, None, Record),
    ]
    for check in checks:
        with pytest.raises(InvalidRecords):
            check()
    around[8:12] = struct.pack(">i", len(data) - 12 + 1)
    with pytest.raises(CorruptBatch):
        verify(view)


# ---- the short cut for plain batches ----

Verdict = tuple[Any, ...]


def verdict(batch: Batch | None) -> Verdict | None:
    if batch is None:
        return None
    names = ("base_offset", "size", "crc", "attributes", "last_offset_delta", "max_timestamp", "producer_id", "count")
    return tuple(getattr(batch, name) for name in names)


def check_plain(data: Any, bytes_max: int, earliest: int, latest: int, require_keys: bool) -> Batch | None:
    """The short cut, for a window of time."""
    return _kernel.PlainBatches(bytes_max, -earliest, latest, require_keys).check(data, 0)


def long_way(data: bytes, bytes_max: int, earliest: int, latest: int, require_keys: bool) -> Verdict | None:
    """What `PlainBatches` stands for: every single rule for a batch that a client may write just as it is."""
    try:
        batch = verify(data)
        if len(data) != batch.size or batch.size > bytes_max:
            return None
        if batch.codec or batch.is_control or batch.is_log_append_time:
            return None
        if batch.base_offset != 0 or batch.count <= 0 or batch.count != batch.last_offset_delta + 1:
            return None
        if batch.producer_id >= 0 and batch.base_sequence < 0:
            return None
        max_timestamp, bad = _kernel.check_records(
            data[HEADER_BYTES:], batch.count, batch.base_timestamp, True, earliest, latest, require_keys
        )
    except (CorruptBatch, InvalidRecords):
        return None
    return None if bad or max_timestamp != batch.max_timestamp else verdict(batch)


plain_batches = st.builds(
    encode_batch,
    record_lists,
    base_offset=st.just(0) | st.integers(0, 1),
    codec=st.sampled_from([Codec.NONE] * 4 + [Codec.GZIP]),
    is_transactional=st.booleans(),
    is_control=st.sampled_from([False, False, False, True]),
    producer_id=st.integers(-1, 1),
    base_sequence=st.integers(-1, 1),
)


@given(
    data=plain_batches,
    slack=st.sampled_from([-1, 0, 1]),
    window=st.sampled_from([(0, 2**62), (-(2**62), 2**62), (NOW - 500, NOW + 500)]),
    require_keys=st.booleans(),
)
@settings(deadline=None, max_examples=300)
def test_the_short_cut_takes_exactly_the_plain_batches(
    data: bytearray, slack: int, window: tuple[int, int], require_keys: bool
) -> None:
    rules = (len(data) + slack, *window, require_keys)
    assert verdict(check_plain(data, *rules)) == long_way(data, *rules)


def test_the_short_cut_takes_a_plain_batch_and_hands_on_its_bytes() -> None:
    data = simple_batch()
    batch = check_plain(memoryview(data), len(data), 0, 2**62, True)
    assert batch is not None
    assert batch.data.obj is data
    assert batch.log_append_time == -1
    assert verdict(batch) == verdict(verify(data))


def with_field(data: bytearray, position: int, layout: str, value: int) -> bytearray:
    changed = bytearray(data)
    struct.pack_into(layout, changed, position, value)
    return with_right_crc(changed)


PLAIN = simple_batch()
PLAIN_RULES = (len(PLAIN), NOW, NOW + 2, True)  # as narrow as the batch allows
NOT_QUITE_PLAIN: dict[str, tuple[bytes | bytearray, tuple[int, int, int, bool]]] = {
    "a byte beyond the limit": (PLAIN, (len(PLAIN) - 1, NOW, NOW + 2, True)),
    "a record too early": (PLAIN, (len(PLAIN), NOW + 1, NOW + 2, True)),
    "a record too late": (PLAIN, (len(PLAIN), NOW, NOW + 1, True)),
    "a record without key": (encode_batch([Record(0, NOW, None, b"value")]), PLAIN_RULES),
    "compressed": (with_field(PLAIN, 21, ">h", Codec.GZIP), PLAIN_RULES),
    "dated by the log": (with_field(PLAIN, 21, ">h", 8), PLAIN_RULES),
    "a control batch": (with_field(PLAIN, 21, ">h", 32), PLAIN_RULES),
    "base offset 1": (with_field(PLAIN, 0, ">q", 1), PLAIN_RULES),
    "format 1": (with_field(PLAIN, 16, ">b", 1), PLAIN_RULES),
    "last offset delta too small": (with_field(PLAIN, 23, ">i", 1), PLAIN_RULES),
    "last offset delta too large": (with_field(PLAIN, 23, ">i", 3), PLAIN_RULES),
    "fewer records than there are": (with_field(with_field(PLAIN, 57, ">i", 2), 23, ">i", 1), PLAIN_RULES),
    "more records than there are": (with_field(with_field(PLAIN, 57, ">i", 4), 23, ">i", 3), PLAIN_RULES),
    "no records": (with_field(with_field(PLAIN, 57, ">i", 0), 23, ">i", -1)[:HEADER_BYTES], PLAIN_RULES),
    "a largest timestamp that is not": (with_field(PLAIN, 35, ">q", NOW + 1), PLAIN_RULES),
    "a producer without sequence": (with_field(PLAIN, 43, ">q", 5), PLAIN_RULES),
    "a wrong checksum": (PLAIN[:CRC_AT] + bytes(4) + PLAIN[CRC_AT + 4 :], PLAIN_RULES),
    "a smaller size": (with_size(PLAIN, len(PLAIN) - 1), PLAIN_RULES),
    "a byte behind it": (with_right_crc(PLAIN + b"!"), (1000, NOW, NOW + 2, True)),
    "two batches": (PLAIN + PLAIN, (1000, NOW, NOW + 2, True)),
    "nothing": (b"", PLAIN_RULES),
}


def test_the_short_cut_takes_a_batch_that_just_fits_the_rules() -> None:
    assert check_plain(PLAIN, *PLAIN_RULES) is not None
    transactional = simple_batch(is_transactional=True, producer_id=5, producer_epoch=0, base_sequence=0)
    assert check_plain(transactional, *PLAIN_RULES) is not None


@pytest.mark.parametrize(("data", "rules"), NOT_QUITE_PLAIN.values(), ids=NOT_QUITE_PLAIN)
def test_the_short_cut_leaves_to_the_long_way(data: bytes, rules: tuple[int, int, int, bool]) -> None:
    assert check_plain(data, *rules) is None
    assert long_way(data, *rules) is None


header_edits = st.lists(
    st.tuples(st.integers(0, HEADER_BYTES + 60), st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFF]) | st.integers(0, 255)),
    min_size=1,
    max_size=3,
)


@given(records=record_lists, edits=header_edits, is_crc_right=st.booleans(), cut=st.integers(-3, 3))
@settings(deadline=None, max_examples=500)
def test_the_short_cut_never_takes_what_the_long_way_refuses(
    records: list[Record], edits: list[tuple[int, int]], is_crc_right: bool, cut: int
) -> None:
    """Also where the checksum is right, so that it is not what finds the damage."""
    data = encode_batch(records)
    for position, value in edits:
        data[position % len(data)] = value
    data = data[:cut] if cut < 0 else data + bytes(cut)
    if is_crc_right:
        data = with_right_crc(data)
    rules = (10**6, -(2**62), 2**62, False)
    short = verdict(check_plain(data, *rules))
    assert short is None or short == long_way(data, *rules)


def test_the_short_cut_refuses_every_flipped_bit() -> None:
    data = simple_batch()
    for bit in range(len(data) * 8):
        if 12 <= bit // 8 < 16:  # the leader epoch: the broker's to set
            continue
        data[bit // 8] ^= 1 << bit % 8
        assert check_plain(data, 10**6, 0, 2**62, False) is None, bit
        data[bit // 8] ^= 1 << bit % 8
    assert check_plain(data, 10**6, 0, 2**62, False) is not None
