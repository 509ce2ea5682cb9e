"""A produce load from raw connections: requests are made once and sent again and again, so the load costs little
itself.

    python -m bench.load PORT TOPIC CONNECTIONS DEPTH SECONDS

Each connection keeps DEPTH requests of one record under way. Prints requests per second and the round trip's
percentiles in microseconds, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import uvloop

from penstock.wire.api import APIS, ApiKey
from penstock.wire.batch import encode_batch
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.record import Record

_VERSION = 9
_WARM_UP_S = 1.0


def _request(topic: str) -> bytes:
    records = encode_batch([Record(0, int(time.time() * 1000), None, b"x" * 100)])
    data = [PartitionProduceData(index=0, records=memoryview(records))]
    request = ProduceRequest(acks=1, timeout_ms=10_000, topic_data=[TopicProduceData(name=topic, partition_data=data)])
    return APIS[ApiKey.PRODUCE].request_codec(_VERSION).encode_request(0, _VERSION, 1, "load", True, request)


class Load(asyncio.BufferedProtocol):
    """One connection. Responses all have the same size, so counting bytes counts them."""

    def __init__(self, frame: bytes, depth: int, tally: Tally) -> None:
        self._frame = frame
        self._depth = depth
        self._tally = tally
        self._buffer = bytearray(65536)
        self._view = memoryview(self._buffer)
        self._received = 0
        self._response_bytes = 0
        self._sent_at = 0.0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._sent_at = time.perf_counter()
        transport.write(self._frame * self._depth)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._view

    def buffer_updated(self, count: int) -> None:
        if not self._response_bytes:
            self._check_first_response(count)
        self._received += count
        done, self._received = divmod(self._received, self._response_bytes)
        if not done:
            return
        self._tally.requests += done
        if self._depth == 1:
            now = time.perf_counter()
            self._tally.round_trips.append(now - self._sent_at)
            self._sent_at = now
        self._transport.write(self._frame * done)

    def _check_first_response(self, count: int) -> None:
        self._response_bytes = 4 + int.from_bytes(self._buffer[:4], "big")
        response, _ = APIS[ApiKey.PRODUCE].response_codec(_VERSION).read(bytes(self._buffer[: self._response_bytes]), 9)
        code = response.responses[0].partition_responses[0].error_code
        if code:
            raise SystemExit(f"the broker answered with error {code}")


class Tally:
    def __init__(self) -> None:
        self.requests = 0
        self.round_trips: list[float] = []


async def _run(port: int, topic: str, connections: int, depth: int, seconds: float) -> dict[str, float]:
    tally = Tally()
    frame = _request(topic)
    loop = asyncio.get_running_loop()
    for _ in range(connections):
        await loop.create_connection(lambda: Load(frame, depth, tally), "127.0.0.1", port)
    await asyncio.sleep(_WARM_UP_S)
    tally.requests = 0
    tally.round_trips.clear()
    started = time.perf_counter()
    await asyncio.sleep(seconds)
    elapsed = time.perf_counter() - started
    result = {"per_second": tally.requests / elapsed}
    if tally.round_trips:
        ordered = sorted(tally.round_trips)
        result["p50_us"] = ordered[len(ordered) // 2] * 1e6
        result["p99_us"] = ordered[int(len(ordered) * 0.99)] * 1e6
    return result


if __name__ == "__main__":
    _, port, topic, connections, depth, seconds = sys.argv
    print(json.dumps(uvloop.run(_run(int(port), topic, int(connections), int(depth), float(seconds)))))
