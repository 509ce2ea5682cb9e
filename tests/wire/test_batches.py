"""Record batches: what is written is read again, here and by other clients, and no damage goes unseen."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import aiokafka.record.control_record
import aiokafka.record.default_records as aiokafka_records
import kafka.codec
import kafka.record.default_records as kafka_python_records
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.wire import _kernel
from penstock.wire.batch import HEADER_BYTES, batches_in, decode_records, encode_batch, parse_header, verify
from penstock.wire.compression import Codec
from penstock.wire.errors import CorruptBatch, InvalidRecords
from penstock.wire.record import (
    ControlType,
    EndTxnMarker,
    Record,
    control_type,
    decode_end_txn_marker,
    encode_end_txn_marker,
)
from tests.wire.batch_samples import (
    CRC_AT,
    NOW,
    blobs,
    codecs,
    header_lists,
    int64s,
    numbered,
    record_lists,
    simple_batch,
    with_size,
)


def moved(records: list[Record], base_offset: int) -> list[Record]:
    return [record._replace(offset=base_offset + record.offset) for record in records]


# ---- what is written is read again ----


@given(
    records=record_lists,
    codec=codecs,
    base_offset=st.integers(0, 2**62),
    leader_epoch=st.integers(-1, 2**31 - 1),
    is_transactional=st.booleans(),
    is_control=st.booleans(),
    producer=st.tuples(st.integers(-1, 2**63 - 1), st.integers(-1, 2**15 - 1), st.integers(-1, 2**31 - 1)),
)
@settings(deadline=None, max_examples=300)
def test_a_batch_is_read_as_it_was_written(
    records: list[Record],
    codec: Codec,
    base_offset: int,
    leader_epoch: int,
    is_transactional: bool,
    is_control: bool,
    producer: tuple[int, int, int],
) -> None:
    producer_id, producer_epoch, base_sequence = producer
    data = encode_batch(
        records,
        base_offset=base_offset,
        codec=codec,
        is_transactional=is_transactional,
        is_control=is_control,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )
    batch = verify(data)
    assert decode_records(data, batch) == moved(records, base_offset)
    assert (batch.size, batch.position, batch.magic) == (len(data), 0, 2)
    assert (batch.base_offset, batch.last_offset) == (base_offset, base_offset + len(records) - 1)
    assert (batch.next_offset, batch.count) == (base_offset + len(records), len(records))
    assert (batch.codec, batch.leader_epoch) == (codec, leader_epoch)
    assert (batch.is_transactional, batch.is_control, batch.is_log_append_time) == (is_transactional, is_control, False)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == producer
    assert batch.has_producer_id == (producer_id >= 0)
    assert batch.base_timestamp == records[0].timestamp
    assert batch.max_timestamp == max(record.timestamp for record in records)


@given(records=st.lists(st.tuples(int64s, blobs, blobs), min_size=1, max_size=5).map(numbered))
@settings(deadline=None, max_examples=100)
def test_any_timestamp_is_read_as_it_was_written(records: list[Record]) -> None:
    data = encode_batch(records)
    assert decode_records(data, verify(data)) == records


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_with_many_records_is_read_as_it_was_written(codec: Codec) -> None:
    records = [Record(index, NOW - index, b"k%d" % index, b"v" * (index % 200)) for index in range(5000)]
    data = encode_batch(records, codec=codec)
    assert decode_records(data, verify(data)) == records


def test_a_batch_is_read_where_it_lies_in_a_buffer() -> None:
    data = simple_batch(base_offset=40, codec=Codec.LZ4)
    buffer = b"x" * 100 + data + b"y" * 100
    batch = verify(buffer, 100)
    assert batch.position == 100
    assert [record.offset for record in decode_records(buffer, batch)] == [40, 41, 42]


def test_offsets_with_gaps_keep_the_last_offset_of_the_batch() -> None:
    """As compaction leaves them."""
    records = [Record(2, NOW, b"a", b"1"), Record(7, NOW, b"b", b"2")]
    data = encode_batch(records, base_offset=100)
    batch = verify(data)
    assert (batch.last_offset, batch.count) == (107, 2)
    assert [record.offset for record in decode_records(data, batch)] == [102, 107]


def test_a_batch_needs_a_record() -> None:
    with pytest.raises(ValueError, match="at least one record"):
        encode_batch([])


@pytest.mark.parametrize(
    ("base_sequence", "count", "last"),
    [(0, 1, 0), (5, 3, 7), (2**31 - 1, 1, 2**31 - 1), (2**31 - 1, 2, 0), (2**31 - 2, 4, 1), (-1, 3, -1)],
)
def test_sequence_numbers_wrap_to_zero(base_sequence: int, count: int, last: int) -> None:
    batch = verify(simple_batch(count, producer_id=1, producer_epoch=0, base_sequence=base_sequence))
    assert batch.last_sequence == last


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_marker_is_read_as_it_was_written(is_commit: bool) -> None:
    marker = EndTxnMarker(is_commit, coordinator_epoch=12)
    data = encode_batch([encode_end_txn_marker(marker, NOW)], is_control=True, is_transactional=True, producer_id=9)
    [record] = decode_records(data, verify(data))
    assert decode_end_txn_marker(record) == marker
    [theirs] = list(kafka_python_records.DefaultRecordBatch(bytes(data)))
    assert (theirs.commit, theirs.abort) == (is_commit, not is_commit)
    assert aiokafka.record.control_record.ControlRecord.parse(record.key).type_ == int(is_commit)


@pytest.mark.parametrize("key", [None, b"", b"\0\0\0", b"\xff\xff\0\0"])
def test_a_malformed_control_key_is_refused(key: bytes | None) -> None:
    with pytest.raises(InvalidRecords):
        control_type(key)


@pytest.mark.parametrize(
    "record",
    [
        Record(0, NOW, struct.pack(">hh", 0, ControlType.LEADER_CHANGE), bytes(6)),
        Record(0, NOW, struct.pack(">hh", 0, ControlType.COMMIT), None),
        Record(0, NOW, struct.pack(">hh", 0, ControlType.COMMIT), bytes(5)),
    ],
)
def test_a_control_record_that_ends_no_transaction_is_refused(record: Record) -> None:
    with pytest.raises(InvalidRecords):
        decode_end_txn_marker(record)


# ---- other clients ----


class OtherClient(NamedTuple):
    """A client whose code for record batches shares nothing with ours."""

    reader: Any
    builder: Any
    codecs: tuple[Codec, ...]


OTHER_CLIENTS = {
    "aiokafka": OtherClient(
        aiokafka_records.DefaultRecordBatch, aiokafka_records.DefaultRecordBatchBuilder, tuple(Codec)
    ),
    # Its snappy needs a package that is not among our dependencies.
    "kafka-python": OtherClient(
        kafka_python_records.DefaultRecordBatch,
        kafka_python_records.DefaultRecordBatchBuilder,
        (Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD),
    ),
}
client_codecs = pytest.mark.parametrize(
    ("client", "codec"),
    [
        pytest.param(client, codec, id=f"{name} {codec.name}")
        for name, client in OTHER_CLIENTS.items()
        for codec in client.codecs
    ],
)


def test_the_codecs_of_other_clients_are_all_that_they_support_here() -> None:
    assert not kafka.codec.has_snappy()
    assert kafka.codec.has_zstd()


def as_theirs(record: Any) -> tuple[Any, ...]:
    return (record.offset, record.timestamp, record.key, record.value, tuple(record.headers))


client_records = st.lists(
    st.tuples(st.integers(0, 2**48), blobs, blobs | st.just(b"long " * 200), header_lists), min_size=1, max_size=5
).map(numbered)


@client_codecs
@given(records=client_records, base_offset=st.integers(0, 2**40), is_transactional=st.booleans())
@settings(deadline=None, max_examples=40)
def test_other_clients_read_our_batches(
    client: OtherClient, codec: Codec, records: list[Record], base_offset: int, is_transactional: bool
) -> None:
    data = encode_batch(
        records,
        base_offset=base_offset,
        codec=codec,
        is_transactional=is_transactional,
        producer_id=77,
        producer_epoch=3,
        base_sequence=5,
    )
    theirs = client.reader(bytes(data))
    assert theirs.validate_crc()
    assert theirs.compression_type == codec
    assert theirs.is_transactional == is_transactional
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (77, 3, 5)
    assert theirs.next_offset == base_offset + len(records)
    assert [as_theirs(record) for record in theirs] == [tuple(record) for record in moved(records, base_offset)]


def theirs_built(client: OtherClient, codec: Codec, records: list[Record], is_transactional: bool = False) -> bytes:
    builder = client.builder(
        magic=2,
        compression_type=int(codec),
        is_transactional=int(is_transactional),
        producer_id=77,
        producer_epoch=3,
        base_sequence=5,
        batch_size=10**7,
    )
    for record in records:
        builder.append(record.offset, record.timestamp, record.key, record.value, headers=list(record.headers))
    return bytes(builder.build())


@client_codecs
@given(records=client_records, is_transactional=st.booleans())
@settings(deadline=None, max_examples=40)
def test_we_read_the_batches_of_other_clients(
    client: OtherClient, codec: Codec, records: list[Record], is_transactional: bool
) -> None:
    data = theirs_built(client, codec, records, is_transactional)
    batch = verify(data)
    assert decode_records(data, batch) == records
    assert batch.is_transactional == is_transactional
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (77, 3, 5)
    assert (batch.count, batch.last_offset_delta) == (len(records), len(records) - 1)
    assert batch.codec in (codec, Codec.NONE)  # they leave small batches uncompressed


@client_codecs
def test_we_read_the_large_batches_of_other_clients(client: OtherClient, codec: Codec) -> None:
    records = [Record(index, NOW, None, b"some value, again and again " * 10) for index in range(2000)]
    data = theirs_built(client, codec, records)
    assert verify(data).codec == codec
    assert decode_records(data, verify(data)) == records


@pytest.mark.parametrize("client", OTHER_CLIENTS.values(), ids=OTHER_CLIENTS)
@given(records=client_records)
@settings(deadline=None, max_examples=40)
def test_uncompressed_batches_are_byte_for_byte_those_of_other_clients(
    client: OtherClient, records: list[Record]
) -> None:
    ours = encode_batch(records, leader_epoch=0, producer_id=77, producer_epoch=3, base_sequence=5)
    theirs = bytearray(theirs_built(client, Codec.NONE, records))
    theirs[12:16] = ours[12:16]  # the leader epoch, which clients do not know
    assert ours == theirs


# ---- checksum, size and format ----


def test_every_flipped_bit_under_the_checksum_is_found() -> None:
    data = simple_batch()
    for bit in range(CRC_AT * 8, len(data) * 8):
        data[bit // 8] ^= 1 << bit % 8
        with pytest.raises(CorruptBatch):
            verify(data)
        data[bit // 8] ^= 1 << bit % 8
    verify(data)


@pytest.mark.parametrize("magic", [0, 1, 3, 127, 255])
def test_another_format_is_refused(magic: int) -> None:
    data = simple_batch()
    data[16] = magic
    with pytest.raises(CorruptBatch, match="format"):
        verify(data)


def test_a_wrong_size_is_refused() -> None:
    data = simple_batch()
    for size in (0, 11, 12, HEADER_BYTES - 1, HEADER_BYTES, len(data) - 1, len(data) + 1, 2**31 + 11, -(2**31) + 12):
        with pytest.raises(CorruptBatch):
            verify(with_size(data, size))


def test_a_batch_cut_off_anywhere_is_refused() -> None:
    data = simple_batch()
    for size in range(len(data)):
        with pytest.raises(CorruptBatch):
            verify(data[:size])
    for size in range(HEADER_BYTES):
        with pytest.raises(CorruptBatch):
            parse_header(data[:size])


@pytest.mark.parametrize("position", [-1, -61, -(2**62), 1, 10**6, 2**62])
def test_a_position_without_a_batch_is_refused(position: int) -> None:
    data = simple_batch()
    with pytest.raises(CorruptBatch):
        verify(data, position)
    if not 0 <= position <= len(data) - HEADER_BYTES:
        with pytest.raises(CorruptBatch):
            parse_header(data, position)


def changed_bytes(before: bytes, after: bytes | bytearray) -> set[int]:
    assert len(before) == len(after)
    return {index for index in range(len(before)) if before[index] != after[index]}


@given(offset=int64s, epoch=st.integers(-(2**31), 2**31 - 1), codec=codecs)
@settings(deadline=None, max_examples=50)
def test_stamping_changes_the_base_offset_and_the_epoch_and_nothing_else(offset: int, epoch: int, codec: Codec) -> None:
    batch_bytes = simple_batch(codec=codec)
    buffer = bytearray(b"x" * 10 + batch_bytes + b"y" * 10)
    before = bytes(buffer)
    batch = verify(buffer, 10)
    _kernel.stamp(buffer, batch, offset, epoch)
    assert changed_bytes(before, buffer) <= {*range(10, 18), *range(22, 26)}
    stamped = verify(buffer, 10)
    assert (stamped.base_offset, stamped.leader_epoch) == (offset, epoch)
    assert (batch.base_offset, batch.leader_epoch) == (offset, epoch)


@given(is_log_append_time=st.booleans(), timestamp=int64s, codec=codecs)
@settings(deadline=None, max_examples=50)
def test_stamping_a_timestamp_keeps_the_checksum_right(is_log_append_time: bool, timestamp: int, codec: Codec) -> None:
    buffer = bytearray(b"x" * 10 + simple_batch(codec=codec, is_transactional=True) + b"y" * 10)
    before = bytes(buffer)
    batch = verify(buffer, 10)
    _kernel.stamp_timestamp(buffer, batch, is_log_append_time, timestamp)
    assert changed_bytes(before, buffer) <= {*range(27, 33), *range(45, 53)}
    stamped = verify(buffer, 10)
    assert (stamped.max_timestamp, stamped.is_log_append_time) == (timestamp, is_log_append_time)
    assert (batch.max_timestamp, batch.is_log_append_time, batch.crc) == (timestamp, is_log_append_time, stamped.crc)
    assert (stamped.codec, stamped.is_transactional) == (codec, True)
    seen = [record.timestamp for record in decode_records(buffer, stamped)]
    assert seen == ([timestamp] * 3 if is_log_append_time else [NOW, NOW + 1, NOW + 2])


def test_the_timestamp_type_can_be_set_back() -> None:
    data = simple_batch()
    batch = verify(data)
    original = bytes(data)
    _kernel.stamp_timestamp(data, batch, True, NOW + 50)
    _kernel.stamp_timestamp(data, batch, False, NOW + 2)
    assert data == original


def test_stamping_outside_the_buffer_is_refused() -> None:
    batch = verify(bytes(10) + simple_batch(), 10)
    with pytest.raises(CorruptBatch):
        _kernel.stamp(bytearray(HEADER_BYTES + 9), batch, 1, 1)
    with pytest.raises(CorruptBatch):
        _kernel.stamp_timestamp(bytearray(batch.size + 9), batch, True, 1)


def test_a_buffer_that_cannot_be_written_cannot_be_stamped() -> None:
    data = bytes(simple_batch())
    with pytest.raises(BufferError):
        _kernel.stamp(data, verify(data), 1, 1)


# ---- runs of batches ----

run_shapes = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4), st.integers(0, 40)), min_size=1, max_size=6)


def make_run(shapes: list[tuple[int, int, int]], first_offset: int = 0, **options: Any) -> list[bytearray]:
    """Batches one after the other, each given as (gap in offsets before it, records, bytes per value)."""
    run, offset = [], first_offset
    for gap, count, value_bytes in shapes:
        offset += gap
        run.append(simple_batch(count, base_offset=offset, value=bytes(value_bytes), **options))
        offset += count
    return run


def model_seek(run: list[bytearray], window: int, offset: int, start: int) -> tuple[int, int, int]:
    position = 0
    for data in run:
        if position >= start:
            if position + HEADER_BYTES > window:
                break
            batch = parse_header(data)
            if batch.last_offset >= offset:
                return position, len(data), batch.base_offset
        position += len(data)
    return position, 0, -1


@given(shapes=run_shapes, data=st.data())
@settings(deadline=None, max_examples=100)
def test_seek_finds_the_first_batch_that_reaches_an_offset(
    shapes: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    run = make_run(shapes, first_offset=10)
    whole = b"".join(run)
    starts = [sum(len(batch) for batch in run[:index]) for index in range(len(run) + 1)]
    start = data.draw(st.sampled_from(starts))
    window = data.draw(st.integers(start, len(whole)) | st.just(len(whole)))
    for offset in range(8, parse_header(run[-1]).next_offset + 2):
        assert _kernel.seek(whole[:window], offset, start) == model_seek(run, window, offset, start)


def test_seek_works_for_windows_that_end_anywhere() -> None:
    run = make_run([(0, 2, 0), (3, 1, 10), (0, 3, 5)])
    whole = b"".join(run)
    for window in range(len(whole) + 1):
        for offset in range(parse_header(run[-1]).next_offset + 1):
            assert _kernel.seek(whole[:window], offset) == model_seek(run, window, offset, 0)


def test_seek_tells_where_the_next_batch_starts_even_behind_the_window() -> None:
    run = [simple_batch(base_offset=0, value=bytes(500)), simple_batch(base_offset=3)]
    whole = b"".join(run)
    assert _kernel.seek(whole[:100], 3) == (len(run[0]), 0, -1)
    assert _kernel.seek(whole[:100], 2) == (0, len(run[0]), 0)
    assert _kernel.seek(b"", 0) == (0, 0, -1)


@pytest.mark.parametrize("size", [HEADER_BYTES - 1, 12, 0, -(2**31) + 12])
def test_seek_refuses_a_size_that_no_batch_can_have(size: int) -> None:
    """Else it would read the same batch for ever, or run backwards."""
    with pytest.raises(CorruptBatch):
        _kernel.seek(with_size(simple_batch(), size), 100)


@given(shapes=run_shapes, cut=st.floats(0, 1))
@settings(deadline=None, max_examples=100)
def test_batches_in_gives_the_whole_batches(shapes: list[tuple[int, int, int]], cut: float) -> None:
    run = make_run(shapes)
    whole = b"".join(run)
    window = int(cut * len(whole))
    found = list(batches_in(whole[:window]))
    expected, position = [], 0
    for data in run:
        if position + len(data) <= window:
            expected.append((position, parse_header(data).base_offset, len(data)))
        position += len(data)
    assert [(batch.position, batch.base_offset, batch.size) for batch in found] == expected


def test_batches_in_raises_at_a_batch_that_fails_its_checksum() -> None:
    run = make_run([(0, 2, 5), (0, 2, 5), (0, 2, 5)])
    run[1][-1] ^= 1
    found = batches_in(b"".join(run))
    assert next(found).base_offset == 0
    with pytest.raises(CorruptBatch):
        next(found)
    assert [batch.base_offset for batch in batches_in(b"".join(run), is_verified=False)] == [0, 2, 4]


@pytest.mark.parametrize("is_verified", [True, False])
def test_batches_in_refuses_a_size_that_no_batch_can_have(is_verified: bool) -> None:
    with pytest.raises(CorruptBatch):
        list(batches_in(with_size(simple_batch(), 60), is_verified=is_verified))
