"""Send records and learn what became of them.

python docs/examples/produce.py localhost:9092 orders
"""

import sys

from penstock import Producer

bootstrap, topic = sys.argv[1:3]

with Producer(bootstrap, value_serializer="json") as producer:
    # In the background: the end of the `with` block waits for all of them, and raises if one was not delivered.
    for number in range(10):
        producer.send(topic, {"order": number}, key=f"customer-{number % 3}", headers={"source": "example"})

    # And wait for one:
    delivered = producer.send_and_wait(topic, {"order": 10}, key="customer-1")
    print(f"the last one is at offset {delivered.offset} of partition {delivered.partition}")
