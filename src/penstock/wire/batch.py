"""Record batches: build them from records, read records from them, walk over a run of them.

The format itself, and the loops that touch every byte, are in `_kernel.pyx`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.wire import _kernel
from penstock.wire._kernel import HEADER_BYTES, LOG_OVERHEAD_BYTES, Batch, parse_header, verify
from penstock.wire.compression import Codec, compress, decompress
from penstock.wire.errors import CorruptBatch
from penstock.wire.record import Record

__all__ = [
    "HEADER_BYTES",
    "LOG_OVERHEAD_BYTES",
    "Batch",
    "batches_in",
    "decode_records",
    "encode_batch",
    "parse_header",
    "verify",
]

Buffer = Any  # anything with the buffer protocol

LOG_APPEND_TIME = 8
TRANSACTIONAL = 16
CONTROL = 32
DELETE_HORIZON = 64  # the base timestamp is the time until which deletions and markers are kept (KIP-534)


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    codec: int = Codec.NONE,
    level: int | None = None,
    is_transactional: bool = False,
    is_control: bool = False,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray:
    """A batch of these records, whose offsets count from 0."""
    if not records:
        raise ValueError("a batch needs at least one record")
    base_timestamp = records[0].timestamp
    attributes = codec | (TRANSACTIONAL if is_transactional else 0) | (CONTROL if is_control else 0)
    return _kernel.build_batch(
        compress(codec, _kernel.encode_records(records, 0, base_timestamp), level),
        base_offset=base_offset,
        last_offset_delta=records[-1].offset,
        count=len(records),
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in records),
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
    )


def decode_records(buffer: Buffer, batch: Batch) -> list[Record]:
    """The records of a batch that lies in `buffer`."""
    payload = memoryview(buffer)[batch.position + HEADER_BYTES : batch.position + batch.size]
    return _kernel.decode_records(
        decompress(batch.codec, payload),
        batch.count,
        batch.base_offset,
        batch.base_timestamp,
        batch.max_timestamp if batch.is_log_append_time else None,
        Record,
    )


def batches_in(buffer: Buffer, *, is_verified: bool = True) -> Iterator[Batch]:
    """The whole batches in a buffer, one after the other; a torn one at the end is left out.

    With `is_verified`, a batch that fails its checksum raises CorruptBatch.
    """
    position = 0
    size = len(buffer)
    while size - position >= HEADER_BYTES:
        batch = parse_header(buffer, position)
        if batch.size < HEADER_BYTES:
            raise CorruptBatch(f"record batch at {position} claims {batch.size} bytes")
        if batch.size > size - position:
            return
        yield verify(buffer, position) if is_verified else batch
        position += batch.size
