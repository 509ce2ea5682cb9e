"""Framing: whatever pieces a stream arrives in, the same frames come out, and no more memory is held than needed."""

from __future__ import annotations

import resource
import struct
import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.wire.frame import SHARED_BUFFER_BYTES, SIZE_BYTES, FrameBuffer

SIZE_MAX = 1000
MIB = 1024 * 1024


def framed(frames: Iterable[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


def make_buffer(shared_bytes: int = 64, size_max: int = SIZE_MAX) -> FrameBuffer:
    return FrameBuffer(memoryview(bytearray(shared_bytes)), size_max)


def feed(buffer: FrameBuffer, data: bytes) -> tuple[list[bytes], int]:
    """Give the buffer as much of `data` as it has room for, as a socket would. Returns the frames, and how much it was.

    Frames are only valid until the next read, so they are copied at once.
    """
    room = buffer.writable(len(data))
    count = min(len(room), len(data))
    assert count > 0
    room[:count] = data[:count]
    return [bytes(frame) for frame in buffer.received(count)], count


def feed_all(buffer: FrameBuffer, data: bytes) -> list[bytes]:
    frames = []
    while data:
        more, count = feed(buffer, data)
        frames += more
        data = data[count:]
    return frames


def in_pieces(data: bytes, sizes: list[int]) -> list[bytes]:
    pieces, start = [], 0
    for size in sizes:
        pieces.append(data[start : start + size])
        start += size
    return [piece for piece in [*pieces, data[start:]] if piece]


long_frames = st.integers(0, 300).map(lambda size: bytes(number % 251 for number in range(size)))
frame_lists = st.lists(st.binary(max_size=20) | long_frames, max_size=8)


def expected_pending(arrived: bytes) -> int:
    """The size of the frame that has begun to arrive and whose size is known; 0 if there is none."""
    position = 0
    while len(arrived) - position >= SIZE_BYTES:
        (size,) = struct.unpack_from(">i", arrived, position)
        if position + SIZE_BYTES + size > len(arrived):
            return int(size)
        position += SIZE_BYTES + size
    return 0


@given(
    frames=frame_lists,
    sizes=st.lists(st.integers(1, 40), max_size=60),
    shared_bytes=st.integers(SIZE_BYTES, 400),
)
@settings(deadline=None, max_examples=300)
def test_frames_come_out_the_same_whatever_pieces_they_arrive_in(
    frames: list[bytes], sizes: list[int], shared_bytes: int
) -> None:
    buffer = make_buffer(shared_bytes)
    stream = framed(frames)
    seen: list[bytes] = []
    arrived = 0
    for piece in in_pieces(stream, sizes):
        rest = piece
        while rest:
            more, count = feed(buffer, rest)
            rest = rest[count:]
            seen += more
            arrived += count
            assert seen == frames[: len(seen)]
            assert buffer.pending_bytes == expected_pending(stream[:arrived])
    assert seen == frames
    assert buffer.pending_bytes == 0


@given(frames=frame_lists)
@settings(deadline=None, max_examples=50)
def test_frames_come_out_as_soon_as_their_last_byte_is_there(frames: list[bytes]) -> None:
    buffer = make_buffer()
    stream = framed(frames)
    ends = []
    for frame in frames:
        ends.append((ends[-1] if ends else 0) + SIZE_BYTES + len(frame))
    for position in range(len(stream)):
        seen, _ = feed(buffer, stream[position : position + 1])
        assert len(seen) == ends.count(position + 1)


def test_frames_that_arrive_together_come_out_together() -> None:
    frames = [b"one", b"", b"three", b"four"]
    assert feed(make_buffer(), framed(frames)) == (frames, len(framed(frames)))


def test_a_frame_that_arrives_whole_is_a_view_of_the_shared_buffer() -> None:
    shared = bytearray(64)
    buffer = FrameBuffer(memoryview(shared), SIZE_MAX)
    buffer.writable()[:7] = framed([b"abc"])
    [frame] = buffer.received(7)
    shared[4] = ord("X")
    assert bytes(frame) == b"Xbc"


def test_a_frame_that_arrives_in_pieces_outlives_the_next_read() -> None:
    buffer = make_buffer()
    feed(buffer, framed([b"a frame in pieces"])[:9])
    room = buffer.writable()
    rest = framed([b"a frame in pieces"])[9:]
    assert len(room) == len(rest)
    room[:] = rest
    [frame] = buffer.received(len(rest))
    feed_all(buffer, framed([b"x" * 40]))
    assert bytes(frame) == b"a frame in pieces"


@pytest.mark.parametrize("size", [61, 64, 65, 128, 999, 1000])
def test_a_frame_larger_than_the_shared_buffer_arrives(size: int) -> None:
    frame = bytes(number % 251 for number in range(size))
    assert feed_all(make_buffer(64), framed([b"before", frame, b"behind"])) == [b"before", frame, b"behind"]


@pytest.mark.parametrize("cut", [1, 2, 3])
def test_a_size_that_arrives_torn_is_put_together(cut: int) -> None:
    buffer = make_buffer()
    stream = framed([b"first", b"second"])
    assert feed_all(buffer, stream[: 9 + cut]) == [b"first"]
    assert buffer.pending_bytes == 0
    assert feed_all(buffer, stream[9 + cut :]) == [b"second"]


def test_a_size_that_arrives_byte_by_byte_is_put_together() -> None:
    buffer = make_buffer()
    stream = framed([b"frame"])
    seen = [frame for position in range(len(stream)) for frame in feed_all(buffer, stream[position : position + 1])]
    assert seen == [b"frame"]


def test_a_frame_of_no_bytes_is_a_frame() -> None:
    buffer = make_buffer()
    assert feed_all(buffer, framed([b"", b"", b"x", b""])) == [b"", b"", b"x", b""]
    for position in range(3):
        assert feed_all(buffer, bytes(1)) == [], position
    assert feed_all(buffer, bytes(1)) == [b""]


def test_a_frame_of_exactly_the_limit_is_taken() -> None:
    assert feed_all(make_buffer(), framed([b"x" * SIZE_MAX])) == [b"x" * SIZE_MAX]


@pytest.mark.parametrize("size", [SIZE_MAX + 1, 2**31 - 1, -1, -2, -(2**31)])
@pytest.mark.parametrize("before", [b"", framed([b"a frame before"])])
def test_a_frame_beyond_the_limit_or_of_negative_size_is_refused_and_nothing_is_allocated(
    size: int, before: bytes
) -> None:
    buffer = make_buffer()
    room = buffer.writable()
    data = before + struct.pack(">i", size)
    room[: len(data)] = data
    tracemalloc.start()
    try:
        frames = [bytes(frame) for frame in buffer.received(len(data))]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16 * 1024
    assert framed(frames) == before  # what came whole before it is served
    assert buffer.problem is not None
    assert buffer.pending_bytes == 0
    assert feed_all(buffer, framed([b"and nothing after it"])) == []


def test_a_size_beyond_the_limit_that_arrives_torn_is_refused_with_its_last_byte() -> None:
    buffer = make_buffer()
    size = struct.pack(">i", SIZE_MAX + 1)
    assert feed_all(buffer, size[:3]) == []
    assert buffer.problem is None
    assert feed_all(buffer, size[3:]) == []
    assert buffer.problem is not None


def test_pending_bytes_is_the_memory_held_for_a_frame_in_pieces() -> None:
    buffer = make_buffer()
    stream = framed([b"x" * 500])
    assert buffer.pending_bytes == 0
    feed_all(buffer, stream[:4])
    assert buffer.pending_bytes == 500
    feed_all(buffer, stream[4:503])
    assert buffer.pending_bytes == 500
    assert feed_all(buffer, stream[503:]) == [b"x" * 500]
    assert buffer.pending_bytes == 0


@pytest.mark.parametrize("size", [4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 9 * MIB])
def test_frames_of_many_megabytes_arrive(size: int) -> None:
    """Beyond some size they lie in a memory map of their own."""
    frame = bytes(range(251)) * (size // 251 + 1)
    frame = frame[:size]
    buffer = make_buffer(SHARED_BUFFER_BYTES, size_max=10 * MIB)
    assert feed_all(buffer, framed([b"before", frame, b"behind"])) == [b"before", frame, b"behind"]


def resident_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def test_a_large_frame_costs_memory_only_as_its_bytes_arrive() -> None:
    """Four bytes can claim a hundred megabytes: that must not be what they cost."""
    shared = memoryview(bytearray(64))
    before = resident_bytes()
    buffers = [FrameBuffer(shared, 100 * MIB) for _ in range(5)]
    for buffer in buffers:
        assert feed(buffer, struct.pack(">i", 100 * MIB) + b"first bytes") == ([], 15)
    assert resident_bytes() - before < 20 * MIB
    assert [buffer.pending_bytes for buffer in buffers] == [100 * MIB] * 5


@pytest.mark.parametrize("arrived", [2, 4, 50])
def test_a_discarded_frame_is_forgotten(arrived: int) -> None:
    buffer = make_buffer()
    feed_all(buffer, framed([b"x" * 500])[:arrived])
    buffer.discard()
    assert buffer.pending_bytes == 0
    assert feed_all(buffer, framed([b"next"])) == [b"next"]


def test_an_idle_buffer_holds_nothing() -> None:
    """After any traffic, what a connection keeps for itself is a few bytes: the shared buffer is not its own."""
    shared = memoryview(bytearray(SHARED_BUFFER_BYTES))
    large = framed([b"x" * 3_000_000])

    def serve() -> FrameBuffer:
        buffer = FrameBuffer(shared, 4_000_000)
        for data in (framed([b"small"]), large, framed([b"small"])):
            feed_all(buffer, data)
        return buffer

    serve()
    tracemalloc.start()
    try:
        idle = [serve() for _ in range(10)]
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 10 * 1024
    for buffer in idle:
        assert buffer.pending_bytes == 0
        assert buffer.writable().obj is shared.obj
        assert len(buffer.writable()) == SHARED_BUFFER_BYTES
