"""Read, change and write exactly once: output and progress are one transaction.

python docs/examples/exactly_once.py localhost:9092 orders billed
"""

import sys

from penstock import Consumer, PenstockError, Producer

bootstrap, source, sink = sys.argv[1:4]

with (
    Consumer(
        bootstrap,
        group="exactly-once",
        topics=[source],
        value_deserializer="json",
        auto_offset_reset="earliest",
        auto_commit=False,
        stop_at_end=True,
    ) as consumer,
    # One id for each instance of the program; a new instance with the same id fences the old one.
    Producer(bootstrap, transactional_id="billing-1", value_serializer="json") as producer,
):
    while records := consumer.poll_many(100, timeout=10):
        try:
            with producer.transaction():
                for record in records:
                    producer.send(sink, {"billed": record.value["order"]}, key=record.key)
                producer.send_offsets(consumer)
        except PenstockError as error:
            if getattr(error, "is_fatal", False):
                raise
            print(f"again: {error}")
            consumer.seek_to_committed()

print("done")
