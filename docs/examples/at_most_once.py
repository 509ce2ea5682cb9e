"""Read every record at most once: commit first, work then. What a crash interrupts is not done again.

python docs/examples/at_most_once.py localhost:9092 orders
"""

import sys

from penstock import Consumer

bootstrap, topic = sys.argv[1:3]

with Consumer(
    bootstrap,
    group="at-most-once",
    topics=[topic],
    value_deserializer="json",
    auto_offset_reset="earliest",
    auto_commit=False,
    stop_at_end=True,
) as consumer:
    while records := consumer.poll_many(100, timeout=10):
        consumer.commit()
        for record in records:
            print(record.value["order"])
