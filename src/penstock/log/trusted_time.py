"""A clock that is not believed at once when it jumps ahead: else one wrong second could delete years of data."""

from __future__ import annotations

import logging

from penstock.clock import Clock

logger = logging.getLogger(__name__)

# Small corrections are what keeps clocks right.
TOLERANCE_MS = 600_000


class TrustedTime:
    """The wall clock, as far as the monotonic clock confirms it.

    Between two looks both should advance by the same. If the wall clock is ahead by more than `TOLERANCE_MS`, time goes
    on from the last look as the monotonic clock counts it, and the jump is told. There are `patience_ms` to put the
    clock right; after that the new time counts. A clock that is set back is believed at once: it deletes nothing.
    """

    def __init__(self, clock: Clock, patience_ms: int) -> None:
        self._clock = clock
        self._patience_ms = patience_ms
        self._time_ms = clock.time_ms()
        self._looked_at = clock.monotonic()
        self._jump_ms = 0
        self._doubtful_since = 0.0

    def time_ms(self) -> int:
        wall_ms, monotonic = self._clock.time_ms(), self._clock.monotonic()
        expected_ms = self._time_ms + int((monotonic - self._looked_at) * 1000)
        jump_ms = wall_ms - expected_ms
        if jump_ms <= TOLERANCE_MS or self._is_confirmed(jump_ms, monotonic):
            self._time_ms = wall_ms
            self._jump_ms = 0
        else:
            self._time_ms = expected_ms
        self._looked_at = monotonic
        return self._time_ms

    def _is_confirmed(self, jump_ms: int, monotonic: float) -> bool:
        if abs(jump_ms - self._jump_ms) > TOLERANCE_MS:
            self._jump_ms = jump_ms
            self._doubtful_since = monotonic
            if self._patience_ms > 0:
                logger.warning(
                    "the clock jumped ahead by %d s. Nothing is deleted by its new time for the next %d s: "
                    "if it is wrong, put it right until then",
                    jump_ms // 1000, self._patience_ms // 1000,
                )  # fmt: skip
        return (monotonic - self._doubtful_since) * 1000 >= self._patience_ms
