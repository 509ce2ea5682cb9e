"""A connection in an event loop, for tests that need hundreds of them."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.wire.api import APIS, ApiKey

CALL_TIMEOUT_S = 60.0

Broken = (OSError, EOFError, asyncio.TimeoutError)  # what a call raises when there is no answer


class Wire:
    """One connection in an event loop: one request after the other."""

    def __init__(self, port: int, client_id: str = "raw") -> None:
        self._port = port
        self._client_id = client_id
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def connect(self) -> None:
        self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 22)

    async def call(self, request: Any, key: ApiKey, version: int) -> Any:
        """Send a request, connecting first if need be; raises one of `Broken` when there is no answer."""
        try:
            return await asyncio.wait_for(self._call(request, key, version), CALL_TIMEOUT_S)
        except BaseException:
            self.close()
            raise

    async def _call(self, request: Any, key: ApiKey, version: int) -> Any:
        if self._streams is None:
            await self.connect()
        assert self._streams is not None
        reader, writer = self._streams
        api = APIS[key]
        is_flexible = api.has_flexible_request_header(version)
        writer.write(api.request_codec(version).encode_request(key, version, 1, self._client_id, is_flexible, request))
        size = int.from_bytes(await reader.readexactly(4), "big")
        frame = await reader.readexactly(size)
        response, _ = api.response_codec(version).read(frame, 5 if api.has_flexible_response_header(version) else 4)
        return response

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
