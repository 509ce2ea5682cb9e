"""The four codecs of record batches, as Kafka's clients write and expect them.

Decompression always has a limit: what a few kilobytes can unfold into is the sender's choice, not ours. Nothing beyond
the limit is ever allocated.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from typing import Any

import cramjam

from penstock.wire.errors import InvalidRecords

Buffer = Any  # anything with the buffer protocol


class Codec(IntEnum):
    """Bits 0 to 2 of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


# The largest payload one batch may unfold into.
DECOMPRESSED_BYTES_MAX = 64 * 1024 * 1024

_GZIP_WINDOW_BITS = 31  # zlib's way to say: gzip header and trailer, 32 KiB window
_GZIP_LEVEL_DEFAULT = 6
_GZIP_PIECE_BYTES = 4096
_ZSTD_LEVEL_DEFAULT = 3

# snappy-java's stream format: magic, version, lowest compatible version; then blocks, each with its size before it.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024

# LZ4 frame: version 1, independent blocks of at most 64 KiB, no checksums; the last byte is the descriptor's checksum.
# Java's reader insists on independent blocks.
_LZ4_FRAME_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_STORED = 0x80000000
_LZ4_END = b"\x00\x00\x00\x00"


def compress(codec: int, payload: Buffer, level: int | None = None) -> bytes:
    """Compress a batch's payload."""
    if codec == Codec.NONE:
        return bytes(payload)
    if codec == Codec.GZIP:
        return zlib.compress(payload, _GZIP_LEVEL_DEFAULT if level is None else level, _GZIP_WINDOW_BITS)
    if codec == Codec.SNAPPY:
        return _snappy_compress(memoryview(payload))
    if codec == Codec.LZ4:
        return _lz4_compress(memoryview(payload), level)
    if codec == Codec.ZSTD:
        return bytes(cramjam.zstd.compress(payload, _ZSTD_LEVEL_DEFAULT if level is None else level))
    raise ValueError(f"there is no codec {codec}")


def decompress(codec: int, payload: Buffer, limit: int = DECOMPRESSED_BYTES_MAX) -> Buffer:
    """Decompress a batch's payload, or raise InvalidRecords if it is malformed or larger than `limit` bytes."""
    if codec == Codec.NONE:
        return payload
    try:
        if codec == Codec.GZIP:
            return _gzip_decompress(payload, limit)
        if codec == Codec.SNAPPY:
            return _snappy_decompress(memoryview(payload), limit)
        if codec == Codec.LZ4:
            return _decompress_into(cramjam.lz4.decompress_into, payload, limit)
        if codec == Codec.ZSTD:
            return _decompress_into(cramjam.zstd.decompress_into, payload, limit)
    except (zlib.error, cramjam.DecompressionError, struct.error) as error:
        raise InvalidRecords(f"cannot decompress the batch: {error}") from error
    raise InvalidRecords(f"the batch names codec {codec}, which does not exist")


def _too_large(limit: int) -> InvalidRecords:
    return InvalidRecords(f"the batch unfolds to more than {limit} bytes")


def _gzip_decompress(payload: Buffer, limit: int) -> bytes:
    out = bytearray()
    source = memoryview(payload)
    position = 0
    while position < len(source):  # a gzip stream may have several members
        member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        while not member.eof:
            # In pieces: what a member leaves over is copied, and there may be very many of them.
            piece = source[position : position + _GZIP_PIECE_BYTES]
            if not piece:
                raise InvalidRecords("cannot decompress the batch: the gzip stream ends early")
            out += member.decompress(piece, limit - len(out) + 1)
            if len(out) > limit:
                raise _too_large(limit)
            position += len(piece) - len(member.unused_data)
    return bytes(out)


def _snappy_compress(payload: memoryview) -> bytes:
    out = bytearray(_XERIAL_HEADER)
    for start in range(0, len(payload), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(payload[start : start + _XERIAL_BLOCK_BYTES]))
        out += struct.pack(">i", len(block))
        out += block
    return bytes(out)


def _snappy_decompress(payload: memoryview, limit: int) -> bytes | bytearray:
    if payload[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:  # librdkafka and others write one raw block
        return _snappy_block(payload, limit, 0)
    out = bytearray()
    position = len(_XERIAL_HEADER)
    while position < len(payload):
        (size,) = struct.unpack_from(">i", payload, position)
        position += 4
        if size < 0 or size > len(payload) - position:
            raise InvalidRecords(f"cannot decompress the batch: a snappy block claims {size} bytes")
        out += _snappy_block(payload[position : position + size], limit, len(out))
        position += size
    return out


def _snappy_block(block: memoryview, limit: int, used: int) -> bytes:
    if used + cramjam.snappy.decompress_raw_len(block) > limit:
        raise _too_large(limit)
    return bytes(cramjam.snappy.decompress_raw(block))


def _lz4_compress(payload: memoryview, level: int | None) -> bytes:
    out = bytearray(_LZ4_FRAME_HEADER)
    for start in range(0, len(payload), _LZ4_BLOCK_BYTES):
        block = payload[start : start + _LZ4_BLOCK_BYTES]
        packed = _lz4_block(block, level)
        if len(packed) < len(block):
            out += struct.pack("<I", len(packed)) + packed
        else:
            out += struct.pack("<I", len(block) | _LZ4_STORED)
            out += block
    return bytes(out + _LZ4_END)


def _lz4_block(block: memoryview, level: int | None) -> bytes:
    """One compressed block. Only cramjam's frames know levels, so with one the block is taken out of such a frame."""
    if level is None:
        return bytes(cramjam.lz4.compress_block(block, store_size=False))
    frame = bytes(cramjam.lz4.compress(block, level))
    (size,) = struct.unpack_from("<I", frame, len(_LZ4_FRAME_HEADER))
    start = len(_LZ4_FRAME_HEADER) + 4
    return bytes(block) if size & _LZ4_STORED else frame[start : start + size]


def _decompress_into(decompress_into: Any, payload: Buffer, limit: int) -> memoryview:
    """Decompress with a guess at the size, and a larger guess while it was too small."""
    size = min(limit, max(16 * 1024, 6 * len(payload)))
    while True:
        room = bytearray(size)
        try:
            written = decompress_into(payload, room)
        except cramjam.DecompressionError as error:
            if "whole buffer" not in str(error):
                raise
            if size == limit:
                raise _too_large(limit) from error
            size = min(limit, size * 8)
        else:
            return memoryview(room)[:written]
