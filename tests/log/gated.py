"""A disk whose syncs take as long as the test wants."""

from __future__ import annotations

import asyncio
import threading

from penstock.log.storage import File, Storage
from tests.log.samples import opened_as


class GatedStorage(Storage):
    """Syncs of log files wait until the test lets them pass; while the gate is open, they do not."""

    def __init__(self, *, is_open: bool = False) -> None:
        self.is_open = is_open
        self.sync_count = 0
        self.error: OSError | None = None
        self._began = threading.Semaphore(0)
        self._may_end = threading.Semaphore(0)

    def open(self, path: str, *, create: bool = False) -> File:
        storage = self

        class Gated(File):
            def sync(self) -> None:
                if self.path.endswith(".log"):
                    storage._pass_gate()
                super().sync()

        return opened_as(Gated, super().open(path, create=create))

    def _pass_gate(self) -> None:
        self.sync_count += 1
        self._began.release()
        if not self.is_open:
            self._may_end.acquire()
        if self.error is not None:
            raise self.error

    async def sync_begins(self) -> None:
        assert await asyncio.to_thread(self._began.acquire, timeout=30)

    def let_sync_end(self, count: int = 1) -> None:
        self._may_end.release(count)
