"""Producer ids for clients, taken from the cluster in blocks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class ProducerIds:
    """Hands out producer ids. None is given twice, not even after a crash: a block is recorded before it is used."""

    def __init__(self, allocate: Callable[[], Awaitable[range]]) -> None:
        self._allocate = allocate
        self._block = iter(range(0))
        self._allocation: asyncio.Task[None] | None = None

    async def next(self) -> int:
        while True:
            producer_id = next(self._block, None)
            if producer_id is not None:
                return producer_id
            if self._allocation is None:
                self._allocation = asyncio.ensure_future(self._take_block())
            await asyncio.shield(self._allocation)

    async def _take_block(self) -> None:
        try:
            self._block = iter(await self._allocate())
        finally:
            self._allocation = None
