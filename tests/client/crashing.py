"""A program that processes records and is killed in the midst of it.

    python -m tests.client.crashing BOOTSTRAP GROUP TOPIC CALLS

Prints each value it handles; odd ones fail and become dead letters. Kills itself in the given call of its handler.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from penstock import Consumer, Record, Retry

bootstrap, group, topic, calls = sys.argv[1:5]
left = int(calls)


def handle(record: Record[Any, Any]) -> None:
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if int(record.value) % 2:
        raise ValueError("odd")
    print(int(record.value), flush=True)


# As a static member it takes its own place again at once.
with Consumer(
    bootstrap,
    group=group,
    topics=[topic],
    instance_id="one",
    auto_offset_reset="earliest",
    auto_commit=False,
    stop_at_end=True,
    config={"fetch.wait.max.ms": 20},
    retry=Retry(delays=[], dead_letter=f"{group}.dlq"),
) as consumer:
    consumer.process(handle)
