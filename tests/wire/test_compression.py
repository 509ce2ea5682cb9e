"""The four codecs: as Kafka's clients write and expect them, and never more memory than the limit allows."""

from __future__ import annotations

import random
import struct
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from typing import Any

import aiokafka.codec
import cramjam
import kafka.codec
import lz4.block
import lz4.frame
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.wire.compression import Codec, compress, decompress
from penstock.wire.errors import InvalidRecords

KIB = 1024
MIB = 1024 * KIB

COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
each_codec = pytest.mark.parametrize("codec", COMPRESSING, ids=lambda codec: codec.name)

XERIAL_HEADER = b"\x82SNAPPY\x00" + b"\x00\x00\x00\x01" + b"\x00\x00\x00\x01"
LZ4_HEADER = bytes.fromhex("04224d18604082")

# Around the block limits of the formats: 32 KiB in xerial's, 64 KiB in LZ4's.
SIZES = [0, 1, 15, 16, 17, 32767, 32768, 32769, 65535, 65536, 65537, 98304, 131071, 131072, 131073, 1_000_000]


def noise(size: int, seed: int = 1) -> bytes:
    """What no codec can make smaller."""
    return random.Random(seed).randbytes(size)


def text(size: int) -> bytes:
    """What every codec makes smaller."""
    line = b"a line of a log file, and the next one is like it; "
    return (line * (size // len(line) + 1))[:size]


SAMPLES = {"noise": noise, "text": text, "zeros": bytes}
each_sample = pytest.mark.parametrize("make", SAMPLES.values(), ids=SAMPLES)


# ---- what is compressed is decompressed again ----


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
@given(
    payload=st.binary(max_size=300) | st.tuples(st.binary(max_size=20), st.integers(0, 5000)).map(lambda p: p[0] * p[1])
)
@settings(deadline=None, max_examples=60)
def test_any_payload_survives(codec: Codec, payload: bytes) -> None:
    assert bytes(decompress(codec, compress(codec, payload))) == payload


@each_codec
@each_sample
@pytest.mark.parametrize("size", SIZES)
def test_payloads_around_the_block_limits_survive(codec: Codec, make: Callable[[int], bytes], size: int) -> None:
    payload = make(size)
    packed = compress(codec, payload)
    assert bytes(decompress(codec, packed)) == payload
    assert bytes(decompress(codec, memoryview(bytearray(b"x" + packed))[1:])) == payload


@pytest.mark.parametrize(
    ("codec", "levels"),
    [
        (Codec.GZIP, [-1, *range(1, 10)]),
        (Codec.LZ4, range(1, 18)),
        (Codec.ZSTD, [-131072, -7, -1, *range(1, 23)]),
    ],
    ids=["GZIP", "LZ4", "ZSTD"],
)
def test_every_level_that_kafka_allows_works(codec: Codec, levels: list[int]) -> None:
    payload = text(70_000) + noise(1000)
    for level in levels:
        assert bytes(decompress(codec, compress(codec, payload, level))) == payload


@pytest.mark.parametrize(
    ("codec", "low", "high"),
    [(Codec.GZIP, 1, 9), (Codec.LZ4, 1, 12), (Codec.ZSTD, -50, 19)],
    ids=["GZIP", "LZ4", "ZSTD"],
)
def test_a_higher_level_compresses_more(codec: Codec, low: int, high: int) -> None:
    numbers = random.Random(3)
    payload = b"".join(
        b'{"user": %d, "page": "/item/%d"}\n' % (numbers.randrange(10**9), numbers.randrange(500)) for _ in range(3000)
    )
    assert len(compress(codec, payload, high)) < len(compress(codec, payload, low))


def test_the_none_codec_leaves_the_payload_alone() -> None:
    payload = b"as it is"
    assert compress(Codec.NONE, payload) == payload
    assert decompress(Codec.NONE, payload) is payload


def test_a_codec_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="no codec 5"):
        compress(5, b"payload")
    for codec in (5, 6, 7):
        with pytest.raises(InvalidRecords):
            decompress(codec, b"payload")


# ---- other implementations ----

OTHER_CODECS: dict[str, tuple[Codec, Callable[[bytes], bytes], Callable[[bytes], bytes]]] = {
    "aiokafka gzip": (Codec.GZIP, aiokafka.codec.gzip_encode, aiokafka.codec.gzip_decode),
    "aiokafka snappy": (Codec.SNAPPY, aiokafka.codec.snappy_encode, aiokafka.codec.snappy_decode),
    "aiokafka lz4": (Codec.LZ4, aiokafka.codec.lz4_encode, aiokafka.codec.lz4_decode),
    "aiokafka zstd": (Codec.ZSTD, aiokafka.codec.zstd_encode, aiokafka.codec.zstd_decode),
    "kafka-python gzip": (Codec.GZIP, kafka.codec.gzip_encode, kafka.codec.gzip_decode),
    "kafka-python lz4": (Codec.LZ4, kafka.codec.lz4_encode, kafka.codec.lz4_decode),
    "lz4 package": (Codec.LZ4, lz4.frame.compress, lz4.frame.decompress),
}


@pytest.mark.parametrize("other", OTHER_CODECS.values(), ids=OTHER_CODECS)
@each_sample
@pytest.mark.parametrize("size", [1, 1000, 32769, 65537, 300_000])
def test_others_read_ours_and_we_read_theirs(other: Any, make: Callable[[int], bytes], size: int) -> None:
    codec, encode, decode = other
    payload = make(size)
    assert bytes(decode(compress(codec, payload))) == payload
    assert bytes(decompress(codec, encode(payload))) == payload


@pytest.mark.parametrize("level", [1, 9, 17])
def test_the_lz4_package_reads_every_level(level: int) -> None:
    payload = text(200_000) + noise(70_000)
    assert lz4.frame.decompress(compress(Codec.LZ4, payload, level)) == payload


@pytest.mark.parametrize(
    "options",
    [
        {"block_linked": True},
        {"block_linked": False, "block_checksum": True, "content_checksum": True},
        {"block_size": lz4.frame.BLOCKSIZE_MAX4MB},
        {"store_size": False},
    ],
)
def test_lz4_frames_with_other_options_are_read(options: dict[str, Any]) -> None:
    payload = text(200_000) + noise(70_000)
    assert bytes(decompress(Codec.LZ4, lz4.frame.compress(payload, **options))) == payload


# ---- snappy as xerial frames it ----


def xerial_blocks(stream: bytes) -> list[bytes]:
    assert stream[:16] == XERIAL_HEADER
    blocks, position = [], 16
    while position < len(stream):
        (size,) = struct.unpack_from(">i", stream, position)
        blocks.append(stream[position + 4 : position + 4 + size])
        assert len(blocks[-1]) == size
        position += 4 + size
    return blocks


@pytest.mark.parametrize("size", SIZES)
def test_snappy_is_framed_as_xerial_does_in_blocks_of_32_kib(size: int) -> None:
    payload = text(size)
    blocks = [bytes(cramjam.snappy.decompress_raw(block)) for block in xerial_blocks(compress(Codec.SNAPPY, payload))]
    assert b"".join(blocks) == payload
    assert all(len(block) == 32 * KIB for block in blocks[:-1])
    assert len(blocks) == -(-size // (32 * KIB))


@given(payload=st.binary(min_size=1, max_size=500))
@settings(deadline=None, max_examples=50)
def test_snappy_without_framing_is_read(payload: bytes) -> None:
    """librdkafka writes it so."""
    assert bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(payload)))) == payload


@pytest.mark.parametrize("size", [-1, -(2**31), 100, 2**31 - 1])
def test_a_xerial_block_size_that_lies_is_refused(size: int) -> None:
    block = bytes(cramjam.snappy.compress_raw(b"payload"))
    with pytest.raises(InvalidRecords):
        decompress(Codec.SNAPPY, XERIAL_HEADER + struct.pack(">i", size) + block)


# ---- LZ4 frames ----


def lz4_blocks(frame: bytes) -> list[tuple[bool, bytes]]:
    """The blocks of a frame, each as (whether it is stored as it is, its bytes)."""
    assert frame[:7] == LZ4_HEADER
    blocks, position = [], 7
    while True:
        (size,) = struct.unpack_from("<I", frame, position)
        position += 4
        if size == 0:
            assert position == len(frame)
            return blocks
        length = size & 0x7FFFFFFF
        blocks.append((bool(size & 0x80000000), frame[position : position + length]))
        position += length


@each_sample
@pytest.mark.parametrize("size", SIZES)
def test_lz4_blocks_are_independent_and_at_most_64_kib(make: Callable[[int], bytes], size: int) -> None:
    payload = make(size)
    plain = [
        block if is_stored else lz4.block.decompress(block, uncompressed_size=64 * KIB)
        for is_stored, block in lz4_blocks(compress(Codec.LZ4, payload))
    ]
    assert b"".join(plain) == payload
    assert all(len(block) == 64 * KIB for block in plain[:-1])
    assert len(plain) == -(-size // (64 * KIB))


def test_lz4_stores_what_cannot_be_compressed() -> None:
    frame = compress(Codec.LZ4, noise(100_000))
    assert [is_stored for is_stored, _ in lz4_blocks(frame)] == [True, True]
    assert len(frame) == 100_000 + 7 + 4 + 4 + 4
    assert [is_stored for is_stored, _ in lz4_blocks(compress(Codec.LZ4, text(100_000)))] == [False, False]


def test_the_lz4_header_says_what_the_frame_is() -> None:
    info = lz4.frame.get_frame_info(compress(Codec.LZ4, b"payload"))
    assert info["block_size_id"] == lz4.frame.BLOCKSIZE_MAX64KB
    assert not info["block_linked"]
    assert not info["content_checksum"]
    assert not info["block_checksum"]


def test_a_wrong_lz4_header_checksum_is_refused() -> None:
    frame = bytearray(compress(Codec.LZ4, b"payload"))
    frame[6] ^= 1
    with pytest.raises(InvalidRecords):
        decompress(Codec.LZ4, frame)


# ---- gzip ----


def gzip(payload: bytes) -> bytes:
    return zlib.compress(payload, 6, 31)


def test_gzip_streams_of_several_members_are_read() -> None:
    assert decompress(Codec.GZIP, gzip(b"one ") + gzip(b"") + gzip(b"two ") + gzip(text(100_000))) == (
        b"one two " + text(100_000)
    )


def test_a_wrong_gzip_checksum_is_refused() -> None:
    packed = bytearray(gzip(b"payload"))
    packed[-8] ^= 1
    with pytest.raises(InvalidRecords):
        decompress(Codec.GZIP, packed)


def test_many_gzip_members_take_time_in_proportion() -> None:
    """Twenty bytes make a member: time that grows with their square would let one request stall the broker."""

    def seconds(members: int) -> float:
        stream = gzip(b"") * members
        best = 1e9
        for _ in range(2):
            start = time.process_time()
            decompress(Codec.GZIP, stream)
            best = min(best, time.process_time() - start)
        return best

    assert seconds(40_000) < 20 * seconds(5_000)


# ---- limits ----


@each_codec
@each_sample
@pytest.mark.parametrize("size", [1, 1000, 16 * KIB, 16 * KIB + 1, 64 * KIB, 100_000, MIB])
def test_the_limit_is_exact(codec: Codec, make: Callable[[int], bytes], size: int) -> None:
    payload = make(size)
    packed = compress(codec, payload)
    assert bytes(decompress(codec, packed, size)) == payload
    with pytest.raises(InvalidRecords, match="more than"):
        decompress(codec, packed, size - 1)


def test_the_limit_counts_all_gzip_members_together() -> None:
    with pytest.raises(InvalidRecords, match="more than"):
        decompress(Codec.GZIP, gzip(bytes(600)) + gzip(bytes(600)), 1000)


def test_the_limit_counts_all_zstd_frames_together() -> None:
    frame = compress(Codec.ZSTD, bytes(600))
    assert bytes(decompress(Codec.ZSTD, frame + frame, 1200)) == bytes(1200)
    with pytest.raises(InvalidRecords, match="more than"):
        decompress(Codec.ZSTD, frame + frame, 1000)


BOMB_BYTES = 256 * MIB
LIMIT = 8 * MIB


def gzip_bomb() -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(packer.compress(bytes(MIB)) for _ in range(BOMB_BYTES // MIB)) + packer.flush()


def gzip_members_bomb() -> bytes:
    return gzip(bytes(4 * MIB)) * (BOMB_BYTES // (4 * MIB))


def xerial_bomb() -> bytes:
    block = bytes(cramjam.snappy.compress_raw(bytes(MIB)))
    return XERIAL_HEADER + (struct.pack(">i", len(block)) + block) * (BOMB_BYTES // MIB)


def raw_snappy_bomb() -> bytes:
    return bytes(cramjam.snappy.compress_raw(bytes(BOMB_BYTES)))


def lying_snappy_bomb() -> bytes:
    """Five bytes that claim 4 GiB."""
    return b"\xff\xff\xff\xff\x0f\x00"


def lz4_bomb() -> bytes:
    block = lz4.block.compress(bytes(64 * KIB), store_size=False)
    return LZ4_HEADER + (struct.pack("<I", len(block)) + block) * (BOMB_BYTES // (64 * KIB)) + bytes(4)


def zstd_bomb() -> bytes:
    """Blocks that say "this byte, 128 Ki times": four bytes each."""
    block_bytes = 128 * KIB
    block = struct.pack("<I", block_bytes << 3 | 1 << 1)[:3] + b"\0"
    last = struct.pack("<I", block_bytes << 3 | 1 << 1 | 1)[:3] + b"\0"
    return b"\x28\xb5\x2f\xfd\x00\x58" + block * (BOMB_BYTES // block_bytes - 1) + last


def zstd_window_bomb() -> bytes:
    """A frame that asks for a window of 128 MiB and then for everything."""
    return zstd_bomb()[:5] + b"\x88" + zstd_bomb()[6:]


BOMBS = {
    "gzip": (Codec.GZIP, gzip_bomb),
    "gzip of many members": (Codec.GZIP, gzip_members_bomb),
    "snappy in xerial frames": (Codec.SNAPPY, xerial_bomb),
    "raw snappy": (Codec.SNAPPY, raw_snappy_bomb),
    "snappy that claims 4 GiB": (Codec.SNAPPY, lying_snappy_bomb),
    "lz4": (Codec.LZ4, lz4_bomb),
    "zstd": (Codec.ZSTD, zstd_bomb),
    "zstd with a large window": (Codec.ZSTD, zstd_window_bomb),
}

# Prints by how much the largest resident memory of the process grew. In a process of its own, because what native code
# allocates is not seen otherwise, and because a peak cannot be reset.
MEASURE = """
import sys
from penstock.wire.compression import decompress
from penstock.wire.errors import InvalidRecords

def status(name):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith(name))

codec, limit = int(sys.argv[1]), int(sys.argv[2])
bomb = sys.stdin.buffer.read()
before = status("VmRSS")
try:
    decompress(codec, bomb, limit)
except InvalidRecords:
    print("refused", (status("VmHWM") - before) * 1024)
else:
    print("unfolded", (status("VmHWM") - before) * 1024)
"""


@pytest.mark.parametrize(("codec", "make_bomb"), BOMBS.values(), ids=BOMBS)
def test_a_small_batch_that_unfolds_beyond_the_limit_is_refused_and_costs_little(
    codec: Codec, make_bomb: Callable[[], bytes]
) -> None:
    bomb = make_bomb()
    assert len(bomb) < BOMB_BYTES // 15
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, str(int(codec)), str(LIMIT)], input=bomb, capture_output=True, check=True
    )
    verdict, grown = done.stdout.split()
    assert verdict == b"refused"
    assert int(grown) < 3 * LIMIT


# ---- bytes from anyone ----


@each_codec
@given(garbage=st.binary(max_size=200))
@settings(deadline=None, max_examples=150)
def test_garbage_is_refused_with_invalid_records_only(codec: Codec, garbage: bytes) -> None:
    for data in (garbage, compress(codec, b"")[:16] + garbage, LZ4_HEADER + garbage, XERIAL_HEADER + garbage):
        try:
            decompress(codec, data, MIB)
        except InvalidRecords:
            continue


@each_codec
@given(at=st.floats(0, 1, exclude_max=True), value=st.integers(0, 255), other=st.floats(0, 1, exclude_max=True))
@settings(deadline=None, max_examples=150)
def test_a_damaged_payload_is_refused_with_invalid_records_only(
    codec: Codec, at: float, value: int, other: float
) -> None:
    packed = bytearray(compress(codec, text(3000) + noise(200)))
    packed[int(at * len(packed))] = value
    packed[int(other * len(packed))] ^= 0x80
    try:
        decompress(codec, packed, MIB)
    except InvalidRecords:
        return


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.name)
@pytest.mark.parametrize("make", [text, noise])
def test_a_payload_cut_off_anywhere_is_refused(codec: Codec, make: Callable[[int], bytes]) -> None:
    packed = compress(codec, make(500))
    for size in range(1, len(packed)):
        with pytest.raises(InvalidRecords):
            decompress(codec, packed[:size])


@pytest.mark.parametrize("make", [text, noise])
def test_snappy_cut_off_anywhere_is_refused_or_ends_with_a_whole_block(make: Callable[[int], bytes]) -> None:
    """Xerial's format has no end mark, so a stream may end behind any block."""
    payload = make(40_000)
    packed = compress(Codec.SNAPPY, payload)
    (size,) = struct.unpack_from(">i", packed, 16)
    first_block_end = 20 + size
    assert decompress(Codec.SNAPPY, packed[:first_block_end]) == payload[: 32 * KIB]
    step = max(1, len(packed) // 500)
    for cut in [*range(17, len(packed), step), first_block_end - 1, first_block_end + 1, len(packed) - 1]:
        if cut != first_block_end:
            with pytest.raises(InvalidRecords):
                decompress(Codec.SNAPPY, packed[:cut])
    raw = bytes(cramjam.snappy.compress_raw(payload))
    for cut in range(1, len(raw), step):
        with pytest.raises(InvalidRecords):
            decompress(Codec.SNAPPY, raw[:cut])
