"""A small demonstration: a broker comes up, events go in, events come out, and everything is counted.

make demo
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter
from collections.abc import Callable

from rich.console import Console
from rich.table import Table

import penstock.testing
from penstock import Admin, Consumer, Producer

TOPIC = "page-views"
PARTITIONS = 3
EVENTS = 20_000
PAGES = ["/", "/products", "/products/42", "/cart", "/checkout", "/help"]

console = Console()


def produce(bootstrap: str) -> Counter[str]:
    """Send events, and count those that the broker acknowledged."""
    chance = random.Random(7)
    sent = []
    with Producer(bootstrap, value_serializer="json", compression="zstd") as producer:
        for number in range(EVENTS):
            user, page = f"user-{chance.randrange(500)}", chance.choice(PAGES)
            sent.append((page, producer.send(TOPIC, {"event": number, "user": user, "page": page}, key=user)))
    return Counter(page for page, delivery in sent if delivery.result().offset >= 0)


def consume(bootstrap: str) -> Counter[str]:
    """Read everything back as a member of a group, and count it."""
    settings = {"auto_offset_reset": "earliest", "value_deserializer": "json", "stop_at_end": True}
    with Consumer(bootstrap, group="demo", topics=[TOPIC], **settings) as consumer:
        return Counter(record.value["page"] for record in consumer)


def timed(what: str, work: Callable[[str], Counter[str]], bootstrap: str) -> Counter[str]:
    began = time.perf_counter()
    counts = work(bootstrap)
    console.print(f"{counts.total():,} events {what} in {time.perf_counter() - began:.2f} s")
    return counts


def main() -> int:
    began = time.perf_counter()
    with penstock.testing.broker(as_process=True) as broker:
        console.print(f"broker ready on {broker.bootstrap} after {time.perf_counter() - began:.2f} s")
        with Admin(broker.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
            console.print(f"topic {TOPIC} created with {PARTITIONS} partitions")
        acknowledged = timed("acknowledged", produce, broker.bootstrap)
        seen = timed("read back", consume, broker.bootstrap)
    table = Table("page", "views in", "views out")
    for page in PAGES:
        table.add_row(page, f"{acknowledged[page]:,}", f"{seen[page]:,}")
    console.print(table)
    is_right = acknowledged == seen and seen.total() == EVENTS
    console.print("everything that went in came out" if is_right else "[red]counts differ[/red]")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
