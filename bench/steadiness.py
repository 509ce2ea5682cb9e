"""Whether the machine itself kept still: a virtual one may be paused by its host, which spoils what is measured
meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.scenarios import Numbers

STOLEN = "stolen"  # the number that says which part of the processor time asked for the host has kept
_LIMIT = 0.1
_PATIENCE_S = 60.0


def steadied(run: Callable[[], Numbers]) -> Numbers:
    """The numbers of a run. One in which the host kept more than a tenth of the time is made again, for up to a
    minute; then the one with the least loss counts. The rule looks at the host alone, never at the numbers.
    """
    best: Numbers | None = None
    end = time.monotonic() + _PATIENCE_S
    while best is None or (best[STOLEN] > _LIMIT and time.monotonic() < end):
        busy, stolen = _processor_times()
        numbers = run()
        busy_now, stolen_now = _processor_times()
        asked_for = busy_now - busy + stolen_now - stolen
        numbers[STOLEN] = (stolen_now - stolen) / asked_for if asked_for else 0.0
        if best is None or numbers[STOLEN] < best[STOLEN]:
            best = numbers
    return best


def _processor_times() -> tuple[int, int]:
    """What all processors have spent with work, and what the host has kept, in ticks since the start."""
    with open("/proc/stat") as file:
        user, nice, system, _idle, _waiting, hard, soft, stolen = map(int, file.readline().split()[1:9])
    return user + nice + system + hard + soft, stolen
