"""Bad input: the sender gets the protocol's error or is cut off; nobody else notices, and nothing reaches a log."""

from __future__ import annotations

import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.client.connection import Connection, ConnectionLost
from penstock.wire.api import APIS
from penstock.wire.batch import encode_batch
from penstock.wire.compression import Codec, compress
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.messages.metadata import MetadataRequest
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.record import Record
from tests.compat.test_protocol import Client, bent
from tests.support import systems
from tests.support.systems import System

LIMITS = {
    "socket.request.max.bytes": str(10 * 1024 * 1024),
    "queued.max.request.bytes": str(32 * 1024 * 1024),
    "max.connections.per.ip": "400",
    "auto.create.topics.enable": "false",
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    system = System("penstock", tmp_path_factory.mktemp("hostile") / "data", dict(LIMITS)).start()
    client = Client(system)
    client.create("t", 2)
    client.produce("t", encode_batch([Record(0, 1_700_000_000_000, b"k", b"v")]))
    client.connection.close()
    yield system
    assert "Traceback" not in system.log
    assert system.stop() == 0


def _is_well(system: System) -> None:
    """The broker serves others, has not grown, and its log has the one record it had before."""
    with system.connect() as connection:
        assert connection.call(MetadataRequest(topics=[])).brokers
    client = Client(system)
    assert [client.list_offset("t", -1, index=index) for index in range(2)] == [(0, -1, 1), (0, -1, 0)]
    client.connection.close()


def _send_and_drain(system: System, data: bytes) -> None:
    """Send bytes, then read until the broker closes or has nothing more to say."""
    with socket.create_connection(("127.0.0.1", system.port), 5) as raw:
        try:
            raw.sendall(data)
            raw.shutdown(socket.SHUT_WR)
            while raw.recv(65536):
                pass
        except OSError:
            pass


def _valid_requests() -> list[bytes]:
    """One real request per API and version, as bytes."""
    frames = []
    for api in APIS.values():
        for version in range(api.low, api.high + 1):
            request = api.request_type()
            codec = api.request_codec(version)
            header = api.has_flexible_request_header(version)
            frames.append(codec.encode_request(api.key, version, 1, "fuzz", header, request))
    records = encode_batch([Record(n, 1_700_000_000_000, b"k", b"v" * 20) for n in range(5)])
    records[20] ^= 1  # the checksum is wrong: whatever becomes of it, it must not be stored
    data = [PartitionProduceData(index=0, records=memoryview(records))]
    produce = ProduceRequest(acks=1, timeout_ms=10, topic_data=[TopicProduceData(name="t", partition_data=data)])
    wanted = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)]
    fetch = FetchRequest(max_wait_ms=5, min_bytes=1, topics=[FetchTopic(topic="t", partitions=wanted)])
    for request, key, version in ((produce, 0, 9), (produce, 0, 3), (fetch, 1, 12), (fetch, 1, 4)):
        api = APIS[key]
        codec = api.request_codec(version)
        frames.append(codec.encode_request(key, version, 1, "fuzz", api.has_flexible_request_header(version), request))
    # Creating and changing things by chance is not what this is about: those keys are not fuzzed with valid bodies.
    return [frame for frame in frames if struct.unpack_from(">h", frame, 4)[0] not in (19, 20, 33, 37, 44)]


CORPUS = _valid_requests()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=600))
def test_random_bytes(broker: System, data: bytes) -> None:
    _send_and_drain(broker, data)
    _is_well(broker)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(number=st.integers(0, len(CORPUS) - 1), seed=st.integers(0, 2**32), changes=st.integers(1, 8))
def test_mutated_real_requests(broker: System, number: int, seed: int, changes: int) -> None:
    frame = bytearray(CORPUS[number])
    chance = random.Random(seed)
    for _ in range(changes):
        at = chance.randrange(4, len(frame))
        kind = chance.randrange(4)
        if kind == 0:
            frame[at] = chance.randrange(256)
        elif kind == 1:
            frame[at:at] = chance.randbytes(chance.randrange(1, 9))
        elif kind == 2 and len(frame) > 13:
            del frame[at : at + chance.randrange(1, 5)]
        else:
            frame[at : at + 4] = struct.pack(">i", chance.choice((-1, -2, 2**31 - 1, -(2**31), 0, 65536)))
    frame[:4] = struct.pack(">i", len(frame) - 4)
    _send_and_drain(broker, bytes(frame))
    _is_well(broker)


def test_truncated_frames_at_every_length(broker: System) -> None:
    frame = CORPUS[-1]
    for length in range(0, len(frame), 3):
        _send_and_drain(broker, frame[:length])
    _is_well(broker)


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])
def test_a_small_batch_that_unfolds_to_gigabytes_is_refused_in_flat_memory(broker: System, codec: Codec) -> None:
    client = Client(broker)
    bomb = compress(codec, bytes(180_000_000)) if codec != Codec.SNAPPY else _snappy_bomb()
    assert len(bomb) < 1_000_000
    before = broker.memory_bytes()
    peak = [before]
    is_done = threading.Event()

    def watch() -> None:
        while not is_done.is_set():
            peak.append(broker.memory_bytes())
            time.sleep(0.002)

    watcher = threading.Thread(target=watch)
    watcher.start()
    for _ in range(5):
        assert client.produce("t", bent(bomb, attributes=codec)).error_code != 0
    is_done.set()
    watcher.join()
    assert max(peak) - before < 160 * 1024 * 1024
    client.connection.close()
    _is_well(broker)


def _snappy_bomb() -> bytes:
    """A raw snappy block that claims to be 4 GiB."""
    return b"\xff\xff\xff\xff\x0f" + b"\x00" * 100


def test_large_requests_that_never_end_do_not_fill_memory(broker: System) -> None:
    """Hundreds of clients announce 9 MB each and send only a part: memory stays within the budget."""
    before = broker.memory_bytes()
    lingering = []
    for _ in range(200):
        raw = socket.create_connection(("127.0.0.1", broker.port), 5)
        raw.settimeout(0.05)
        with suppress(TimeoutError):  # the broker stops reading: that is the point
            raw.sendall(struct.pack(">i", 9_000_000) + bytes(1_000_000))
        lingering.append(raw)
    _is_well(broker)
    assert broker.memory_bytes() - before < 150 * 1024 * 1024
    for raw in lingering:
        raw.close()
    _is_well(broker)


def test_a_client_that_does_not_read_its_answers_is_not_read_from(broker: System) -> None:
    before = broker.memory_bytes()
    api = APIS[3]
    frame = api.request_codec(12).encode_request(3, 12, 1, "greedy", True, MetadataRequest(topics=None))
    raw = socket.create_connection(("127.0.0.1", broker.port), 5)
    raw.settimeout(1.0)
    sent = 0
    try:
        while sent < 200 * 1024 * 1024:
            sent += raw.send(frame * 1000)
    except TimeoutError:
        pass
    assert sent < 100 * 1024 * 1024
    assert broker.memory_bytes() - before < 60 * 1024 * 1024
    _is_well(broker)
    raw.close()


def test_connections_per_address_are_limited(broker: System) -> None:
    open_connections: list[Connection] = []
    refused = 0
    for _ in range(450):
        try:
            connection = broker.connect(timeout_s=5.0)
            connection.call(MetadataRequest(topics=[]))
            open_connections.append(connection)
        except (ConnectionLost, OSError):
            refused += 1
    assert len(open_connections) <= 400
    assert refused >= 50
    for connection in open_connections:
        connection.close()
    time.sleep(0.1)
    _is_well(broker)


def test_idle_connections_are_closed_and_busy_ones_are_not(tmp_path: Path) -> None:
    system = systems.penstock(tmp_path / "data", connections_max_idle_ms="300").start()
    idle = system.connect(timeout_s=5.0)
    busy = system.connect(timeout_s=5.0)
    deadline = time.monotonic() + 1.5
    while time.monotonic() < deadline:
        busy.call(MetadataRequest(topics=[]))
        time.sleep(0.05)
    with pytest.raises((ConnectionLost, OSError)):
        idle.receive_frame()
    assert busy.call(MetadataRequest(topics=[])).brokers
    system.stop()


def test_a_request_with_more_elements_than_any_client_sends_is_refused(broker: System) -> None:
    api = APIS[3]
    topics: list[Any] = [None] * 0
    frame = bytearray(api.request_codec(12).encode_request(3, 12, 1, "x", True, MetadataRequest(topics=topics)))
    header = frame.index(b"\x01", 13)  # where the compact array length stands
    count = 2_000_000
    varint = bytearray()
    value = count + 1
    while value >= 0x80:
        varint.append(value & 0x7F | 0x80)
        value >>= 7
    varint.append(value)
    body = bytes(frame[4:header]) + bytes(varint) + bytes(count * 4)
    before = broker.memory_bytes()
    _send_and_drain(broker, struct.pack(">i", len(body)) + body)
    _is_well(broker)
    assert broker.memory_bytes() - before < 120 * 1024 * 1024
