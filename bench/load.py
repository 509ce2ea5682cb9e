"""A produce load from raw connections: requests are made once and sent again and again, so the load costs little
itself.

    python -m bench.load PORT TOPIC CONNECTIONS DEPTH SECONDS

Each connection keeps DEPTH requests of one record under way. Prints requests per second and the round trip's
percentiles in microseconds, as JSON.
"""

from __future__ import annotations

import json
import select
import socket
import sys
import time

from penstock.wire.api import APIS, ApiKey
from penstock.wire.batch import encode_batch
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.record import Record

_VERSION = 9
_WARM_UP_S = 1.0
_HEADER_BYTES = 5  # correlation id and no tagged fields


def _request(topic: str) -> bytes:
    records = encode_batch([Record(0, int(time.time() * 1000), None, b"x" * 100)])
    data = [PartitionProduceData(index=0, records=memoryview(records))]
    request = ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=data)])
    return APIS[ApiKey.PRODUCE].request_codec(_VERSION).encode_request(0, _VERSION, 1, "load", True, request)


class Client:
    """One connection. Responses all have the same size, so counting bytes counts them."""

    def __init__(self, port: int, frame: bytes) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(frame)
        size = int.from_bytes(self.socket.recv(4, socket.MSG_WAITALL), "big")
        response, _ = APIS[ApiKey.PRODUCE].response_codec(_VERSION).read(self._receive_whole(size), _HEADER_BYTES)
        code = response.responses[0].partition_responses[0].error_code
        if code:
            raise SystemExit(f"the broker answered with error {code}")
        self.response_bytes = 4 + size
        self.received = 0
        self.sent_at = 0.0

    def _receive_whole(self, size: int) -> bytes:
        return self.socket.recv(size, socket.MSG_WAITALL)


class Load:
    """All connections on one epoll, with nothing between it and the system calls: what is measured is the broker."""

    def __init__(self, port: int, topic: str, connections: int, depth: int) -> None:
        self._frame = _request(topic)
        self._depth = depth
        self._buffer = bytearray(65536)
        self._epoll = select.epoll()
        self._clients: dict[int, Client] = {}
        for _ in range(connections):
            client = Client(port, self._frame)
            self._clients[client.socket.fileno()] = client
        for fd, client in self._clients.items():
            self._epoll.register(fd, select.EPOLLIN)
            client.sent_at = time.perf_counter()
            client.socket.sendall(self._frame * depth)

    def run(self, seconds: float) -> tuple[int, list[float]]:
        """The number of answers, and the round trips if each connection has one request under way."""
        requests = 0
        round_trips: list[float] = []
        end = time.perf_counter() + seconds
        now = 0.0
        while now < end:
            ready = self._epoll.poll()
            now = time.perf_counter()
            for fd, _ in ready:
                client = self._clients[fd]
                client.received += client.socket.recv_into(self._buffer)
                done, client.received = divmod(client.received, client.response_bytes)
                requests += done
                if self._depth == 1 and done:
                    now = time.perf_counter()
                    round_trips.append(now - client.sent_at)
                    client.sent_at = now
                client.socket.sendall(self._frame * done)
        return requests, round_trips


def main(port: int, topic: str, connections: int, depth: int, seconds: float) -> dict[str, float]:
    load = Load(port, topic, connections, depth)
    load.run(_WARM_UP_S)
    started = time.perf_counter()
    requests, round_trips = load.run(seconds)
    result = {"per_second": requests / (time.perf_counter() - started)}
    if round_trips:
        ordered = sorted(round_trips)
        result["p50_us"] = ordered[len(ordered) // 2] * 1e6
        result["p99_us"] = ordered[int(len(ordered) * 0.99)] * 1e6
    return result


if __name__ == "__main__":
    _, port, topic, connections, depth, seconds = sys.argv
    print(json.dumps(main(int(port), topic, int(connections), int(depth), float(seconds))))
