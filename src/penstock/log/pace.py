"""A limit on bytes per second that several threads share."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable

# How much may be done at once after a pause.
_BURST_S = 0.1


class Pace:
    """Tells how long to wait after some bytes, so that on average no more than the rate is used.

    The rate is asked for each time: it may be changed while work goes on.
    """

    def __init__(self, bytes_per_second: Callable[[], float], monotonic: Callable[[], float]) -> None:
        self._bytes_per_second = bytes_per_second
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._paid_until = -math.inf  # when all bytes so far would have been done at the rate

    def delay_s(self, count: int) -> float:
        """How long to wait now that `count` bytes were read or written."""
        rate = self._bytes_per_second()
        if rate <= 0:
            return 0.0
        with self._lock:
            now = self._monotonic()
            self._paid_until = max(self._paid_until, now - _BURST_S) + count / rate
            return max(self._paid_until - now, 0.0)
