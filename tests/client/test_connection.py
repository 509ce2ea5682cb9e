"""The bare connection: what it sends and how long it waits."""

from __future__ import annotations

import random
import socket
import threading
from collections.abc import Iterator

import pytest

from penstock.client.connection import Connection, Scattered
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

VERSION = 11


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def _request(records: object) -> ProduceRequest:
    data = PartitionProduceData(index=3, records=records)  # type: ignore[arg-type]
    return ProduceRequest(acks=-1, timeout_ms=5, topic_data=[TopicProduceData(name="t", partition_data=[data])])


def _sent(listener: socket.socket, records: object) -> bytes:
    """What the other side gets of a request with these records, of which it takes a little at a time."""
    got = bytearray()

    def read() -> None:
        connection, _ = listener.accept()
        with connection:
            while data := connection.recv(7000):
                got.extend(data)

    reading = threading.Thread(target=read)
    reading.start()
    with Connection("127.0.0.1", listener.getsockname()[1]) as connection:
        connection.send(_request(records), VERSION)
    reading.join()
    return bytes(got)


@pytest.mark.parametrize("size", [1, 1000, 3_000_000])
def test_records_that_lie_in_several_places_are_sent_as_one(listener: socket.socket, size: int) -> None:
    content = random.Random(size).randbytes(size)
    pieces = Scattered(bytearray(b"head"), memoryview(content)[: size // 2], content[size // 2 :])
    assert _sent(listener, pieces) == _sent(listener, memoryview(b"head" + content))


def test_a_broker_that_reads_nothing_is_not_waited_for_longer_than_agreed(listener: socket.socket) -> None:
    with (
        Connection("127.0.0.1", listener.getsockname()[1], timeout_s=0.2) as connection,
        pytest.raises(TimeoutError),
    ):
        connection.send(_request(Scattered(bytes(60), bytes(50_000_000))), VERSION)
