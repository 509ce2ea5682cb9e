"""A minimal client of the wire protocol: one connection, one request after the other.

It knows every message and version, does no retries, follows no leader and hides nothing. For whoever needs exactly
that: tests, tools, Spark tasks.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

from penstock.wire.api import APIS, Api
from penstock.wire.errors import DecodeError
from penstock.wire.frame import SIZE_BYTES

_FRAME_BYTES_MAX = 256 * 1024 * 1024


class ConnectionLost(Exception):
    """The other side closed the connection."""


class Scattered:
    """Records of a request that lie in several places, one after the other. They are sent from there."""

    def __init__(self, *pieces: Any) -> None:
        self.pieces = pieces

    def __len__(self) -> int:
        return sum(map(len, self.pieces))


class Connection:
    """A blocking connection to a broker."""

    def __init__(self, host: str, port: int, *, client_id: str | None = "penstock", timeout_s: float = 30.0) -> None:
        self._socket = socket.create_connection((host, port), timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _let_the_kernel_wait(self._socket, timeout_s)
        self._client_id = client_id
        self._correlation_id = 0

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def fileno(self) -> int:
        """For whoever waits for several connections at once. Nothing is read ahead."""
        return self._socket.fileno()

    def call(self, request: Any, version: int | None = None) -> Any:
        """Send a request and wait for its response. The newest version we know is used if none is given."""
        api = api_of(request)
        version = api.high if version is None else version
        self.send(request, version)
        return self.receive(api, version)

    def send(self, request: Any, version: int) -> int:
        """Send a request without waiting; returns its correlation id."""
        api = api_of(request)
        self._correlation_id += 1
        frame = api.request_codec(version).encode_request(
            api.key,
            version,
            self._correlation_id,
            self._client_id,
            api.has_flexible_request_header(version),
            request,
        )
        self._send_parts([frame] if isinstance(frame, bytes) else frame)
        return self._correlation_id

    def receive(self, api: Api, version: int) -> Any:
        """The next response, which must be one of this API and version."""
        frame = self.receive_frame()
        position = 4
        if api.has_flexible_response_header(version):
            if frame[position] != 0:
                raise DecodeError("unexpected tagged fields in a response header")
            position += 1
        # Records are looked at where they lie in the frame, not copied out of it.
        response, end = api.response_codec(version).read(memoryview(frame), position)
        if end != len(frame):
            raise DecodeError(f"{len(frame) - end} bytes follow the {api.name} response")
        return response

    def send_bytes(self, data: bytes) -> None:
        self._send_parts([data])

    def _send_parts(self, parts: list[Any]) -> None:
        """Send what lies in several places, without bringing it together first."""
        left = [
            memoryview(piece) for part in parts for piece in (part.pieces if isinstance(part, Scattered) else [part])
        ]
        while left:
            try:
                sent = self._socket.sendmsg(left)
            except BlockingIOError:
                raise TimeoutError("timed out") from None
            while left and sent >= len(left[0]):
                sent -= len(left.pop(0))
            if sent:
                left[0] = left[0][sent:]

    def receive_frame(self) -> bytes:
        """The next frame without its size: correlation id, header, body."""
        size = int.from_bytes(self._receive_exactly(SIZE_BYTES), "big", signed=True)
        if not 0 <= size <= _FRAME_BYTES_MAX:
            raise DecodeError(f"frame of {size} bytes")
        return self._receive_exactly(size)

    def _receive_exactly(self, count: int) -> bytes:
        """All of it at once, as a rule: into memory that nobody has cleared before, and from which nobody copies it."""
        parts: list[bytes] = []
        while count:
            part = self._receive(count)
            if not part:
                raise ConnectionLost("the broker closed the connection")
            parts.append(part)
            count -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _receive(self, count: int) -> bytes:
        try:
            return self._socket.recv(count, socket.MSG_WAITALL)
        except BlockingIOError:
            raise TimeoutError("timed out") from None


def _let_the_kernel_wait(connected: socket.socket, timeout_s: float) -> None:
    """Time out in the kernel, not in Python: only so can one call wait for a whole frame."""
    seconds, rest = divmod(timeout_s, 1)
    limit = struct.pack("@ll", int(seconds), int(rest * 1e6))
    connected.setblocking(True)
    for direction in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
        connected.setsockopt(socket.SOL_SOCKET, direction, limit)


def api_of(request: Any) -> Api:
    """The API that a request belongs to."""
    name = type(request).__name__.removesuffix("Request")
    for api in APIS.values():
        if api.name == name:
            return api
    raise ValueError(f"{type(request).__name__} is not a request of a known API")
