"""What a record batch must be before it may enter a log.

Pure: bytes and settings in, a checked batch out. So it can run in a thread when a batch is costly to unfold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.config.topic import TopicConfig
from penstock.wire import _kernel
from penstock.wire._kernel import HEADER_BYTES, Batch, PlainBatches
from penstock.wire.compression import Codec, compress, decompress
from penstock.wire.errors import ApiError, CorruptBatch, ErrorCode, InvalidRecords

Buffer = Any  # anything with the buffer protocol

_INVALID_TIMESTAMP = "One or more records have been rejected due to invalid timestamp"

# Unfolding a compressed batch up to this size takes well under a millisecond.
_CHEAP_COMPRESSED_BYTES = 32 * 1024

_TARGET_CODECS = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}

# Far enough for any timestamp, and sums with one still fit 64 bits.
_DISTANCE_MS_MAX = 2**62


class RecordsRejected(ApiError):
    """A batch that was refused because of single records in it; says which, and why."""

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[tuple[int, str]]) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


@dataclass(frozen=True, slots=True)
class BatchRules:
    """What a topic's settings say about the batches it takes."""

    plain: PlainBatches  # what may be stored as it comes
    bytes_max: int
    segment_bytes: int  # a batch lies within one segment
    before_max_ms: int
    after_max_ms: int
    require_keys: bool
    is_log_append_time: bool
    codec: Codec | None  # None: as the producer chose
    level: int | None

    @classmethod
    def of(cls, config: TopicConfig) -> BatchRules:
        codec = _TARGET_CODECS.get(config.compression_type)
        levels = {
            Codec.GZIP: config.compression_gzip_level,
            Codec.LZ4: config.compression_lz4_level,
            Codec.ZSTD: config.compression_zstd_level,
        }
        may_be_plain = not codec and not config.is_log_append_time
        plain_bytes_max = min(config.max_message_bytes, config.segment_bytes) if may_be_plain else 0
        before_max_ms = min(config.message_timestamp_before_max_ms, _DISTANCE_MS_MAX)
        after_max_ms = min(config.message_timestamp_after_max_ms, _DISTANCE_MS_MAX)
        return cls(
            plain=PlainBatches(plain_bytes_max, before_max_ms, after_max_ms, config.is_compacted),
            bytes_max=config.max_message_bytes,
            segment_bytes=config.segment_bytes,
            before_max_ms=before_max_ms,
            after_max_ms=after_max_ms,
            require_keys=config.is_compacted,
            is_log_append_time=config.is_log_append_time,
            codec=codec,
            level=levels.get(codec) if codec is not None else None,
        )

    def is_costly(self, records: Buffer) -> bool:
        """Whether checking this batch may take long enough to be worth a thread."""
        return len(records) > _CHEAP_COMPRESSED_BYTES and (bool(records[22] & 7) or bool(self.codec))


def check_client_batch(records: Buffer, rules: BatchRules, now_ms: int) -> Batch:
    """Check the records of one partition in a produce request: exactly one batch, as its header describes it.

    Returns the batch, ready to be appended.
    """
    batch = rules.plain.check(records, now_ms)
    if batch is not None:
        return batch
    if len(records) < HEADER_BYTES or _kernel.parse_header(records).size != len(records):
        raise ApiError(ErrorCode.INVALID_RECORD, "a produce request must hold exactly one record batch per partition")
    try:
        batch = _kernel.verify(records)
    except CorruptBatch as error:
        is_old_format = records[16] in (0, 1)
        raise ApiError(ErrorCode.INVALID_RECORD if is_old_format else ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    _check_header(batch)
    return _check_contents(batch, records, rules, now_ms)


def own_batch(data: bytearray) -> Batch:
    """A batch that the broker made itself, ready to be appended."""
    batch = _kernel.parse_header(data)
    batch.data = data
    return batch


def _check_contents(batch: Batch, data: Buffer, rules: BatchRules, now_ms: int) -> Batch:
    """Check size and records of a batch whose checksum is right; re-compress it if the topic wants another codec."""
    _check_size(batch, rules)
    payload = memoryview(data)[HEADER_BYTES : batch.size]
    try:
        plain = decompress(batch.codec, payload)
        max_timestamp, bad = _check_records(batch, plain, rules, now_ms)
    except InvalidRecords as error:
        raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from None
    if bad:
        raise _rejection(bad, rules, now_ms)
    if rules.codec is not None and rules.codec != batch.codec:
        data = _recompress(batch, plain, rules.codec, rules.level)
        batch = _kernel.parse_header(data)
        _check_size(batch, rules)
    batch.data = data
    if rules.is_log_append_time:
        _kernel.stamp_timestamp(data, batch, True, now_ms)
        batch.log_append_time = now_ms
    elif max_timestamp != batch.max_timestamp or batch.is_log_append_time:  # what the client wrote there is not for it
        _kernel.stamp_timestamp(data, batch, False, max_timestamp)
    return batch


def _check_header(batch: Batch) -> None:
    """What only clients must keep to. The messages follow Kafka's LogValidator."""
    problem = None
    if batch.base_offset != 0:
        problem = f"the base offset of a batch from a client must be 0, but it is {batch.base_offset}"
    elif batch.last_offset_delta < 0:
        problem = f"the batch has an invalid offset range: [0, {batch.last_offset_delta}]"
    elif batch.count <= 0:
        problem = f"the batch declares {batch.count} records"
    elif batch.count != batch.last_offset_delta + 1:
        problem = f"the batch's offset range [0, {batch.last_offset_delta}] does not fit its {batch.count} records"
    elif batch.is_control:
        problem = "clients are not allowed to write control records"
    elif batch.producer_id >= 0 and batch.base_sequence < 0:
        problem = f"invalid sequence number {batch.base_sequence} in a batch of producer {batch.producer_id}"
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_RECORD, problem)


def _check_records(
    batch: Batch, plain: Buffer, rules: BatchRules, now_ms: int
) -> tuple[int, Sequence[tuple[int, int, bool]]]:
    if rules.is_log_append_time:
        if batch.is_log_append_time:
            message = "a producer must not set the timestamp type to LogAppendTime"
            raise RecordsRejected(ErrorCode.INVALID_TIMESTAMP, _INVALID_TIMESTAMP, [(0, message)])
        return _kernel.check_records(plain, batch.count, batch.base_timestamp, require_keys=rules.require_keys)
    return _kernel.check_records(
        plain,
        batch.count,
        batch.base_timestamp,
        True,
        now_ms - rules.before_max_ms,
        now_ms + rules.after_max_ms,
        rules.require_keys,
    )


def _rejection(bad: Sequence[tuple[int, int, bool]], rules: BatchRules, now_ms: int) -> RecordsRejected:
    window = f"[{now_ms - rules.before_max_ms}, {now_ms + rules.after_max_ms}]"
    errors = [
        (
            index,
            "Compacted topic cannot accept message without key"
            if is_keyless
            else f"Timestamp {timestamp} is out of range. It should be within {window}",
        )
        for index, timestamp, is_keyless in bad
    ]
    if all(is_keyless for _, _, is_keyless in bad):
        return RecordsRejected(
            ErrorCode.INVALID_RECORD,
            f"One or more records have been rejected due to {len(errors)} record errors; the first: {errors[0][1]}",
            errors,
        )
    return RecordsRejected(ErrorCode.INVALID_TIMESTAMP, _INVALID_TIMESTAMP, errors)


def _recompress(batch: Batch, plain: Buffer, codec: Codec, level: int | None) -> bytearray:
    return _kernel.build_batch(
        compress(codec, plain, level),
        base_offset=batch.base_offset,
        last_offset_delta=batch.last_offset_delta,
        count=batch.count,
        attributes=batch.attributes & ~7 | codec,
        base_timestamp=batch.base_timestamp,
        max_timestamp=batch.max_timestamp,
        leader_epoch=batch.leader_epoch,
        producer_id=batch.producer_id,
        producer_epoch=batch.producer_epoch,
        base_sequence=batch.base_sequence,
    )


def _check_size(batch: Batch, rules: BatchRules) -> None:
    if batch.size > rules.bytes_max:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"the record batch has {batch.size} bytes, more than the {rules.bytes_max} of max.message.bytes",
        )
    if batch.size > rules.segment_bytes:
        raise ApiError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"the record batch has {batch.size} bytes, more than a segment's {rules.segment_bytes}",
        )
