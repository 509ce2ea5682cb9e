"""Waiting for what a cluster does in its own time."""

from __future__ import annotations

import time
from collections.abc import Callable

# An hour ago: records that are older than retention.ms would be deleted under the tests' hands.
BASE_MS = (int(time.time()) - 3600) * 1000


def eventually(condition: Callable[[], bool], timeout_s: float = 20.0) -> None:
    """Wait until the condition holds; fail if it does not in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.02)
