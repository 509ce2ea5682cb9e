"""The one way to wait here: until an offset is reached, or a deadline has passed."""

from __future__ import annotations

import asyncio
import heapq

# So many futures whose time is up may stay in the list; then it is worth to clean it.
_EXPIRED_MIN = 100


class OffsetWaiters:
    """Futures that wait for an offset which only grows.

    Each resolves to True when the offset is reached and to False when its time is up. Owned by the event loop.
    """

    def __init__(self) -> None:
        self.waiting: list[tuple[int, int, asyncio.Future[bool]]] = []
        self._sequence = 0
        self._expired = 0  # of those in the list

    def wait(self, offset: int, timeout_s: float | None = None) -> asyncio.Future[bool]:
        """A future for the moment when `reached` is called with at least `offset`."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        self._sequence += 1
        heapq.heappush(self.waiting, (offset, self._sequence, future))
        if timeout_s is not None:
            timer = loop.call_later(timeout_s, self._time_is_up, future)
            future.add_done_callback(lambda _: timer.cancel())
        return future

    def reached(self, offset: int) -> None:
        waiting = self.waiting
        while waiting and waiting[0][0] <= offset:
            future = heapq.heappop(waiting)[2]
            if not future.done():
                future.set_result(True)
            elif self._expired:
                self._expired -= 1

    def fail(self, error: Exception) -> None:
        """What they wait for will never happen."""
        waiting, self.waiting = self.waiting, []
        for _, _, future in waiting:
            if not future.done():
                future.set_exception(error)

    def _time_is_up(self, future: asyncio.Future[bool]) -> None:
        if future.done():
            return
        future.set_result(False)
        self._expired += 1
        if self._expired > _EXPIRED_MIN and self._expired > len(self.waiting) // 2:
            self.waiting = [entry for entry in self.waiting if not entry[2].done()]
            heapq.heapify(self.waiting)
            self._expired = 0
