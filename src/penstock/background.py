"""Slow work: the one place from which threads and timers are used.

The event loop never waits for a disk. Whatever does (syncing, recovery, deletion, compaction, checking a large batch)
is a plain function that runs here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

logger = logging.getLogger(__name__)


class Background:
    """Threads and timers that belong to one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int) -> None:
        self._loop = loop
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="penstock")
        self._timers: set[asyncio.TimerHandle] = set()
        self._is_closed = False

    def run(self, job: Callable[[], T]) -> asyncio.Future[T]:
        """Run a job in a thread."""
        return self._loop.run_in_executor(self._pool, job)

    def run_logged(self, job: Callable[[], None], what: str) -> None:
        """Run a job in a thread; nobody waits for it, so a failure goes to the log."""

        def done(future: asyncio.Future[None]) -> None:
            if not future.cancelled() and (error := future.exception()) is not None:
                logger.error("%s failed: %s", what, error)

        self.run(job).add_done_callback(done)

    def later(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Call `action` on the event loop after a delay, unless the broker stops before."""

        def act() -> None:
            self._timers.discard(timer)
            action()

        if not self._is_closed:
            timer = self._loop.call_later(delay_ms / 1000, act)
            self._timers.add(timer)

    def every(self, interval_ms: int, action: Callable[[], None], *, first_after_ms: int | None = None) -> None:
        """Call `action` on the event loop again and again. An error in it is logged and does not end the series."""

        def act() -> None:
            try:
                action()
            except Exception:
                logger.exception("a periodic task failed")
            self.later(interval_ms, act)

        self.later(interval_ms if first_after_ms is None else first_after_ms, act)

    def stop_timers(self) -> None:
        self._is_closed = True
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()

    def close(self) -> None:
        """End all timers and wait for the jobs that have begun."""
        self.stop_timers()
        self._pool.shutdown(wait=True, cancel_futures=True)
