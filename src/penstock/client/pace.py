"""How many records to fetch at once.

Many, if the program takes them quickly: each fetch has a price. Few, if it takes its time: what waits here is neither
done nor committed, and a member of a group must fetch now and then to remain one.
"""

from __future__ import annotations

_QUICK_S = 0.05
_SLOW_S = 0.2
_WANTED_S = 0.1


class Pace:
    """Adapts the size of batches so that one is worked through in about a tenth of a second."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self.size = 1

    def took(self, seconds: float) -> None:
        """Learn how long the program needed for a batch."""
        if seconds < _QUICK_S:
            self.size = min(self.size * 2, self._size_max)
        elif seconds > _SLOW_S:
            self.size = max(1, int(self.size * _WANTED_S / seconds))
