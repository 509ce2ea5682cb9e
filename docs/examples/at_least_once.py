"""Read every record at least once, and set aside what cannot be handled.

python docs/examples/at_least_once.py localhost:9092 orders
"""

import signal
import sys

from penstock import Consumer, Record, Retry

bootstrap, topic = sys.argv[1:3]


def handle(record: Record) -> None:
    """Called again for a record after a crash, and after each delay if it raises."""
    if record.value["order"] == 3:
        raise ValueError("there is no order 3")
    print(record.value["order"])


with Consumer(
    bootstrap,
    group="at-least-once",
    topics=[topic],
    value_deserializer="json",
    auto_offset_reset="earliest",
    retry=Retry(delays=[0.1, 0.5, 1.0], dead_letter=f"{topic}.dlq"),
    stop_at_end=True,  # a service leaves this out, and goes on until it is told to stop:
) as consumer:
    signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
    consumer.process(handle)
