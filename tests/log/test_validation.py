from __future__ import annotations

import random
import struct
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.config.topic import TopicConfig
from penstock.log.validation import BatchRules, RecordsRejected, check_client_batch, own_batch
from penstock.wire import _kernel
from penstock.wire.batch import HEADER_BYTES, Batch, decode_records, encode_batch, verify
from penstock.wire.compression import DECOMPRESSED_BYTES_MAX, Codec, compress
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.record import Record
from tests.log.samples import T0, data_batch, marker_batch

NOW = T0 + 1000
CODECS = list(Codec)
CODEC_NAMES = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}

AT_BASE_OFFSET, AT_LENGTH, AT_MAGIC, AT_CRC, AT_ATTRIBUTES = 0, 8, 16, 17, 21
AT_LAST_OFFSET_DELTA, AT_BASE_TIMESTAMP, AT_MAX_TIMESTAMP, AT_SEQUENCE, AT_COUNT = 23, 27, 35, 53, 57


def patched(data: bytearray, at: int, layout: str, value: int) -> bytearray:
    """The same batch with another header field, and a CRC that fits."""
    data = bytearray(data)
    struct.pack_into(layout, data, at, value)
    struct.pack_into(">I", data, AT_CRC, crc32c(bytes(data[AT_ATTRIBUTES:])))
    return data


def check(data: bytes | bytearray, **config: Any) -> Batch:
    return check_client_batch(memoryview(bytearray(data)), BatchRules.of(TopicConfig(**config)), NOW)


def refusal(data: bytes | bytearray, **config: Any) -> ApiError:
    with pytest.raises(ApiError) as caught:
        check(data, **config)
    return caught.value


def records_of(batch: Batch) -> list[Record]:
    """The records of a batch that was checked; its checksum must be right."""
    data = bytes(batch.data)
    stored = verify(data)
    assert (stored.size, stored.crc, stored.attributes) == (batch.size, batch.crc, batch.attributes)
    assert (stored.max_timestamp, stored.count) == (batch.max_timestamp, batch.count)
    assert len(data) == stored.size
    return decode_records(data, stored)


RECORDS = [
    Record(0, T0, b"a", b"1" * 50),
    Record(1, T0 + 7, b"b", None),
    Record(2, T0 - 5, b"c", b"", (("h", b"x"), ("i", None))),
]


# ---- what is accepted ----


@pytest.mark.parametrize("codec", CODECS)
def test_every_codec_is_accepted_and_kept(codec: Codec) -> None:
    data = encode_batch(RECORDS, codec=codec)
    batch = check(data)
    assert bytes(batch.data) == bytes(data)
    assert batch.codec == codec
    assert batch.log_append_time == -1
    assert records_of(batch) == RECORDS


def test_a_batch_of_an_idempotent_or_transactional_producer_is_accepted() -> None:
    check(data_batch(producer=5, sequence=0))
    assert check(data_batch(producer=5, sequence=2**31 - 1, is_transactional=True)).is_transactional


def test_records_without_timestamps_are_accepted_whatever_the_window_is() -> None:
    batch = check(data_batch(timestamp=-1), message_timestamp_before_max_ms=0, message_timestamp_after_max_ms=0)
    assert batch.max_timestamp == -1


def test_a_keyless_record_is_fine_where_nothing_is_compacted() -> None:
    assert check(data_batch(b"v", key=None)).count == 1


# ---- bytes that are no batch ----


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_flipped_bit_is_noticed_by_the_checksum(codec: Codec) -> None:
    data = encode_batch(RECORDS, codec=codec)
    rng = random.Random(7)
    for at in [AT_CRC, AT_ATTRIBUTES + 1, HEADER_BYTES, len(data) - 1, *rng.choices(range(AT_CRC, len(data)), k=30)]:
        flipped = bytearray(data)
        flipped[at] ^= 1 << rng.randrange(8)
        assert refusal(flipped).code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("size", [0, 1, 16, 60, 61, 100])
def test_a_torn_batch_is_refused(size: int) -> None:
    assert refusal(encode_batch(RECORDS)[:size]).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize(
    ("magic", "code"), [(0, ErrorCode.INVALID_RECORD), (1, ErrorCode.INVALID_RECORD), (3, ErrorCode.CORRUPT_MESSAGE)]
)
def test_only_format_2_is_taken(magic: int, code: ErrorCode) -> None:
    assert refusal(patched(encode_batch(RECORDS), AT_MAGIC, ">b", magic)).code is code


@pytest.mark.parametrize("length", [-(2**31), -13, -1, 0, 48, 49, 2**31 - 1])
def test_a_length_that_is_not_the_batchs_is_refused(length: int) -> None:
    assert refusal(patched(encode_batch(RECORDS), AT_LENGTH, ">i", length)).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_two_batches_are_refused(codec: Codec) -> None:
    data = encode_batch(RECORDS, codec=codec)
    assert refusal(data + data).code is ErrorCode.INVALID_RECORD


def test_bytes_behind_the_batch_are_refused() -> None:
    assert refusal(encode_batch(RECORDS) + b"\0").code is ErrorCode.INVALID_RECORD


# ---- headers ----


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize(
    ("at", "layout", "value"),
    [
        (AT_BASE_OFFSET, ">q", 1),
        (AT_BASE_OFFSET, ">q", -1),
        (AT_LAST_OFFSET_DELTA, ">i", -1),
        (AT_LAST_OFFSET_DELTA, ">i", 1),
        (AT_LAST_OFFSET_DELTA, ">i", 3),
        (AT_COUNT, ">i", 0),
        (AT_COUNT, ">i", -1),
        (AT_COUNT, ">i", 2),
        (AT_COUNT, ">i", 4),
    ],
)
def test_a_header_that_does_not_fit_its_records_is_refused(codec: Codec, at: int, layout: str, value: int) -> None:
    assert refusal(patched(encode_batch(RECORDS, codec=codec), at, layout, value)).code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("count", [2, 4])
def test_a_count_that_fits_its_offsets_but_not_the_records_is_refused(codec: Codec, count: int) -> None:
    data = patched(encode_batch(RECORDS, codec=codec), AT_COUNT, ">i", count)
    data = patched(data, AT_LAST_OFFSET_DELTA, ">i", count - 1)
    assert refusal(data).code is ErrorCode.INVALID_RECORD


def test_clients_may_not_write_control_records() -> None:
    error = refusal(marker_batch(5, is_commit=True))
    assert error.code is ErrorCode.INVALID_RECORD
    assert "control" in str(error)


def test_a_producer_id_needs_a_sequence_number() -> None:
    assert refusal(data_batch(producer=5, sequence=-1)).code is ErrorCode.INVALID_RECORD


def test_records_whose_offsets_skip_one_are_refused() -> None:
    data = encode_batch([Record(0, T0, None, b"a"), Record(2, T0, None, b"b")])
    data = patched(data, AT_LAST_OFFSET_DELTA, ">i", 1)
    assert refusal(data).code is ErrorCode.INVALID_RECORD


# ---- size ----


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
def test_the_size_limit_counts_the_whole_batch_as_it_was_sent(codec: Codec, timestamp_type: str) -> None:
    data = encode_batch(RECORDS, codec=codec)
    check(data, max_message_bytes=len(data), message_timestamp_type=timestamp_type)
    error = refusal(data, max_message_bytes=len(data) - 1, message_timestamp_type=timestamp_type)
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    assert str(len(data)) in str(error)


def test_a_compressed_batch_that_is_too_large_when_stored_otherwise_is_refused() -> None:
    data = encode_batch([Record(0, T0, b"k", b"0" * 5000)], codec=Codec.GZIP)
    assert len(data) < 1000
    error = refusal(data, max_message_bytes=1000, compression_type="uncompressed")
    assert error.code is ErrorCode.MESSAGE_TOO_LARGE
    check(data, max_message_bytes=6000, compression_type="uncompressed")


# ---- compacted topics ----


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("policy", [("compact",), ("compact", "delete")])
def test_a_compacted_topic_takes_no_record_without_a_key(codec: Codec, policy: tuple[str, ...]) -> None:
    records = [Record(0, T0, b"a", b"1"), Record(1, T0, None, b"2"), Record(2, T0, b"", b"3"), Record(3, T0, None, b"")]
    error = refusal(encode_batch(records, codec=codec), cleanup_policy=policy)
    assert isinstance(error, RecordsRejected)
    assert error.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in error.record_errors] == [1, 3]
    assert all("without key" in message for _, message in error.record_errors)


# ---- timestamps ----


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize(
    ("timestamp", "is_fine"),
    [(NOW - 501, False), (NOW - 500, True), (NOW, True), (NOW + 200, True), (NOW + 201, False)],
)
def test_timestamps_must_lie_within_the_window(codec: Codec, timestamp: int, is_fine: bool) -> None:
    limits = {"message_timestamp_before_max_ms": 500, "message_timestamp_after_max_ms": 200}
    data = data_batch(b"a", b"b", b"c", timestamp=(NOW, timestamp, NOW), codec=codec)
    if is_fine:
        check(data, **limits)
        return
    error = refusal(data, **limits)
    assert isinstance(error, RecordsRejected)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    [(index, message)] = error.record_errors
    assert index == 1
    assert str(timestamp) in message


def test_by_default_the_past_has_no_limit_and_the_future_one_hour() -> None:
    check(data_batch(timestamp=0))
    check(data_batch(timestamp=NOW + 3_600_000))
    assert refusal(data_batch(timestamp=NOW + 3_600_001)).code is ErrorCode.INVALID_TIMESTAMP


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("claimed", [T0 + 8, T0 - 5, -1, 2**62])
def test_a_wrong_largest_timestamp_is_corrected(codec: Codec, claimed: int) -> None:
    batch = check(patched(encode_batch(RECORDS, codec=codec), AT_MAX_TIMESTAMP, ">q", claimed))
    assert batch.max_timestamp == T0 + 7
    assert records_of(batch) == RECORDS


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("compression_type", ["producer", "zstd"])
def test_a_producer_cannot_make_a_batch_one_of_log_append_time(codec: Codec, compression_type: str) -> None:
    """Else its records would all have the time that the header claims, which nobody checked."""
    data = patched(encode_batch(RECORDS, codec=codec), AT_ATTRIBUTES, ">h", codec | 8)
    data = patched(data, AT_MAX_TIMESTAMP, ">q", 2**62)
    batch = check(data, compression_type=compression_type)
    assert not batch.is_log_append_time
    assert batch.max_timestamp == T0 + 7
    assert records_of(batch) == RECORDS


@pytest.mark.parametrize("codec", CODECS)
def test_log_append_time_dates_the_whole_batch(codec: Codec) -> None:
    batch = check(encode_batch(RECORDS, codec=codec), message_timestamp_type="LogAppendTime")
    assert batch.is_log_append_time
    assert batch.max_timestamp == NOW
    assert batch.log_append_time == NOW
    assert batch.base_timestamp == T0  # as Kafka: only the largest timestamp changes
    assert records_of(batch) == [record._replace(timestamp=NOW) for record in RECORDS]


def test_log_append_time_does_not_ask_for_the_producers_time() -> None:
    far_off = data_batch(b"a", timestamp=NOW + 10**9)
    check(far_off, message_timestamp_type="LogAppendTime", message_timestamp_after_max_ms=0)


def test_log_append_time_still_asks_for_keys() -> None:
    error = refusal(data_batch(b"a", key=None), message_timestamp_type="LogAppendTime", cleanup_policy=("compact",))
    assert isinstance(error, RecordsRejected)
    assert error.code is ErrorCode.INVALID_RECORD


def test_bad_timestamps_outweigh_missing_keys() -> None:
    records = [Record(0, T0, None, b"1"), Record(1, NOW + 10**9, b"k", b"2")]
    error = refusal(encode_batch(records), cleanup_policy=("compact",))
    assert isinstance(error, RecordsRejected)
    assert error.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in error.record_errors] == [0, 1]


# ---- compression ----


@pytest.mark.parametrize("timestamp_type", ["CreateTime", "LogAppendTime"])
@pytest.mark.parametrize("source", CODECS)
@pytest.mark.parametrize("target", CODEC_NAMES)
def test_a_topic_with_a_codec_of_its_own_stores_every_batch_with_it(
    source: Codec, target: str, timestamp_type: str
) -> None:
    data = encode_batch(RECORDS, codec=source, producer_id=9, producer_epoch=3, base_sequence=44, is_transactional=True)
    batch = check(data, compression_type=target, message_timestamp_type=timestamp_type)
    assert batch.codec == CODEC_NAMES[target]
    stored = records_of(batch)
    if timestamp_type == "CreateTime":
        assert stored == RECORDS
    assert [record[2:] for record in stored] == [record[2:] for record in RECORDS]
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (9, 3, 44)
    assert (batch.is_transactional, batch.count, batch.last_offset_delta) == (True, 3, 2)
    assert (batch.base_offset, batch.base_timestamp) == (0, T0)


def test_a_wrong_largest_timestamp_is_corrected_when_compressing_anew() -> None:
    data = patched(encode_batch(RECORDS), AT_MAX_TIMESTAMP, ">q", T0 + 999)
    batch = check(data, compression_type="zstd")
    assert batch.max_timestamp == T0 + 7
    assert records_of(batch) == RECORDS


@pytest.mark.parametrize(
    ("compression_type", "level"),
    [("gzip", {"compression_gzip_level": 9}), ("zstd", {"compression_zstd_level": 19})],
)
def test_the_level_of_compression_is_the_topics(compression_type: str, level: dict[str, int]) -> None:
    rng = random.Random(3)
    words = [rng.randbytes(6) for _ in range(40)]
    data = data_batch(*[b" ".join(rng.choices(words, k=200)) for _ in range(20)])
    fast = dict.fromkeys(level, 1)
    best = check(data, compression_type=compression_type, **level)
    quick = check(data, compression_type=compression_type, **fast)
    assert best.size < quick.size
    assert records_of(best) == records_of(quick)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_batch_that_unfolds_to_more_than_the_limit_is_refused(codec: Codec) -> None:
    bomb = _kernel.build_batch(
        compress(codec, bytes(DECOMPRESSED_BYTES_MAX + 1)),
        base_offset=0,
        last_offset_delta=0,
        count=1,
        attributes=codec,
        base_timestamp=T0,
        max_timestamp=T0,
    )
    error = refusal(bomb, max_message_bytes=2**31 - 1)
    assert error.code is ErrorCode.INVALID_RECORD
    assert "unfolds" in str(error)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD, 5, 6, 7])
def test_a_payload_that_cannot_be_decompressed_is_refused(codec: int) -> None:
    garbage = _kernel.build_batch(
        b"\x01\x02\x03 this is no compressed payload",
        base_offset=0,
        last_offset_delta=0,
        count=1,
        attributes=codec,
        base_timestamp=T0,
        max_timestamp=T0,
    )
    assert refusal(garbage).code is ErrorCode.INVALID_RECORD


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=80), st.sampled_from(CODECS), st.integers(1, 3))
def test_no_payload_whatsoever_gets_past_the_check_unless_it_is_records(
    payload: bytes, codec: Codec, count: int
) -> None:
    data = _kernel.build_batch(
        compress(codec, payload),
        base_offset=0,
        last_offset_delta=count - 1,
        count=count,
        attributes=codec,
        base_timestamp=T0,
        max_timestamp=T0,
    )
    problem = None
    try:
        batch = check(data)
    except ApiError as error:
        problem = error.code
    if problem is None:
        assert len(records_of(batch)) == count
    else:
        assert problem in (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP)


# ---- cost ----


@pytest.mark.parametrize(
    ("codec", "size", "compression_type", "is_costly"),
    [
        (Codec.NONE, 100_000, "producer", False),
        (Codec.NONE, 100_000, "uncompressed", False),
        (Codec.NONE, 100_000, "zstd", True),
        (Codec.NONE, 1_000, "zstd", False),
        (Codec.LZ4, 100_000, "producer", True),
        (Codec.LZ4, 100_000, "uncompressed", True),
        (Codec.LZ4, 1_000, "producer", False),
    ],
)
def test_large_batches_that_must_be_compressed_or_unfolded_are_costly(
    codec: Codec, size: int, compression_type: str, is_costly: bool
) -> None:
    data = data_batch(random.Random(1).randbytes(size), codec=codec)
    rules = BatchRules.of(TopicConfig(compression_type=compression_type))
    assert rules.is_costly(memoryview(data)) is is_costly


def test_an_empty_request_is_not_costly() -> None:
    assert BatchRules.of(TopicConfig()).is_costly(memoryview(b"")) is False


# ---- own batches ----


def test_the_brokers_own_batches_are_ready_to_be_appended() -> None:
    data = marker_batch(7, is_commit=False)
    batch = own_batch(data)
    assert batch.data is data
    assert batch.is_control
    assert batch.size == len(data)


def test_a_batch_larger_than_a_segment_is_refused() -> None:
    data = encode_batch(RECORDS)
    error = refusal(data, segment_bytes=len(data) - 1)
    assert error.code is ErrorCode.RECORD_LIST_TOO_LARGE
    check(encode_batch(RECORDS), segment_bytes=len(data))


def test_a_client_must_not_date_records_for_the_broker() -> None:
    data = encode_batch(RECORDS)
    batch = _kernel.parse_header(data)
    _kernel.stamp_timestamp(data, batch, True, batch.max_timestamp)
    error = refusal(data, message_timestamp_type="LogAppendTime")
    assert error.code is ErrorCode.INVALID_TIMESTAMP
