"""Group commit: many waiters share one sync of the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.background import Background
from penstock.log.flush_job import FlushJob
from penstock.log.log import Log
from penstock.waiters import OffsetWaiters
from penstock.wire.errors import ApiError, ErrorCode


class GroupCommit:
    """Syncs one log in the background, one sync at a time.

    All that was appended before a sync begins is covered by it. Whoever comes while it runs is covered by the next one,
    which begins when it ends: so a slow disk makes larger groups, not a longer queue.
    """

    def __init__(self, log: Log, background: Background, on_flushed: Callable[[], None]) -> None:
        self._log = log
        self._background = background
        self._on_flushed = on_flushed
        self._waiters = OffsetWaiters()
        self._is_running = False
        self._is_wanted_again = False
        self._covered_offset = -1  # how far the running sync goes

    def request(self) -> None:
        """See to it that everything appended so far gets synced."""
        if not self._is_running:
            self._start()
        elif self._log.end_offset > self._covered_offset or self._log.needs_flush:
            self._is_wanted_again = True

    def wait(self, offset: int, timeout_s: float | None = None) -> asyncio.Future[bool]:
        """A future for the moment when everything below `offset` is durable."""
        future = self._waiters.wait(offset, timeout_s)
        if self._log.recovery_point >= offset:
            self._waiters.reached(self._log.recovery_point)
        else:
            self.request()
        return future

    def _start(self) -> None:
        self._is_running = True
        self._is_wanted_again = False
        job = self._log.flush_job()
        self._covered_offset = job.end_offset
        self._background.run(job.run).add_done_callback(lambda done: self._finished(job, done))

    def _finished(self, job: FlushJob, done: asyncio.Future[None]) -> None:
        self._is_running = False
        if done.cancelled():  # the broker is stopping: closing the log will sync it
            self._waiters.fail(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._log.name}: the broker is stopping"))
            return
        error = done.exception()
        if error is not None:
            # After a failed sync nobody knows what is on the disk (the kernel may have dropped the pages).
            if isinstance(error, OSError):
                self._log.failed(error)
            self._waiters.fail(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self._log.name}: {error}"))
            return
        self._log.flushed(job)
        self._on_flushed()
        self._waiters.reached(self._log.recovery_point)
        if self._is_wanted_again:
            self._start()
