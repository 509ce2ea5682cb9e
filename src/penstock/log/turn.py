"""What clients write within one turn of the event loop goes to the files at its end: each log's in one piece.

Until then it is in memory only. Nobody may be told of it before: not the producer that it is there, nor a consumer
that it can be read. The first that a log is given in a turn goes to its file at once. Often it is the only one; then
its producer hears what is wrong, if something is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.log.log import Log

# So many logs may wait. With what each of them may keep (see `Segment`), it bounds the memory.
_LOGS_MAX = 64


class Turn:
    """The turn that the event loop is in, and the logs that have something to be written when it ends."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], Any], on_lost: Callable[[], None]) -> None:
        """`on_lost` is called when something could not be written."""
        self._call_soon = call_soon
        self._on_lost = on_lost
        self._number = 0
        self._waiting: list[Log] = []

    def takes(self, log: Log) -> bool:
        """Whether what a log is given now may wait. If so, it and all that follows is written when the turn ends."""
        if log.turn != self._number:
            log.turn = self._number
            return False
        if len(self._waiting) >= _LOGS_MAX:
            return False
        if not self._waiting:
            self._call_soon(self.end)
        self._waiting.append(log)
        log.is_waiting = True
        return True

    def end(self) -> None:
        """Write everything, now."""
        self._number += 1
        if self._waiting:
            logs, self._waiting = self._waiting, []
            lost = [log for log in logs if not log.write_out()]
            if lost:
                self._on_lost()
