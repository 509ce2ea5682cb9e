"""A small demonstration: a broker comes up, events go in, events come out, and everything is counted.

make demo
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console
from rich.table import Table

TOPIC = "page-views"
PARTITIONS = 3
EVENTS = 20_000
PAGES = ["/", "/products", "/products/42", "/cart", "/checkout", "/help"]

console = Console()


def start_broker(folder: Path) -> tuple[subprocess.Popen[str], str]:
    """Start `penstock broker` on a free port; returns the process and its address."""
    command = [
        sys.executable,
        "-m",
        "penstock.cli.main",
        "broker",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        str(folder),
    ]
    broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert broker.stdout is not None
    ready = broker.stdout.readline()
    if "ready on" not in ready:
        sys.exit("the broker did not start; run `penstock broker --data-dir DIR` to see why")
    return broker, ready.split()[-1]


def produce(bootstrap: str) -> Counter[str]:
    """Send events, and count those that the broker acknowledged."""
    acknowledged: Counter[str] = Counter()

    def report(error: object, message: Message) -> None:
        if error is None:
            acknowledged[json.loads(message.value())["page"]] += 1

    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": "zstd", "enable.idempotence": True})
    chance = random.Random(7)
    for number in range(EVENTS):
        event = {"event": number, "user": f"user-{chance.randrange(500)}", "page": chance.choice(PAGES)}
        producer.produce(TOPIC, json.dumps(event), key=event["user"], on_delivery=report)
        producer.poll(0)
    producer.flush(30)
    return acknowledged


def consume(bootstrap: str) -> Counter[str]:
    """Read everything back, and count it."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "demo", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
    seen: Counter[str] = Counter()
    deadline = time.monotonic() + 30
    while seen.total() < EVENTS and time.monotonic() < deadline:
        for message in consumer.consume(1000, 1.0):
            if message.error() is None:
                seen[json.loads(message.value())["page"]] += 1
    consumer.close()
    return seen


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        began = time.perf_counter()
        broker, bootstrap = start_broker(Path(folder) / "data")
        console.print(f"broker ready on {bootstrap} after {time.perf_counter() - began:.2f} s")
        try:
            admin = AdminClient({"bootstrap.servers": bootstrap})
            admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(10)
            console.print(f"topic {TOPIC} created with {PARTITIONS} partitions")
            began = time.perf_counter()
            acknowledged = produce(bootstrap)
            seconds = time.perf_counter() - began
            console.print(f"{acknowledged.total():,} events acknowledged in {seconds:.2f} s")
            began = time.perf_counter()
            seen = consume(bootstrap)
            console.print(f"{seen.total():,} events read back in {time.perf_counter() - began:.2f} s")
        finally:
            broker.send_signal(signal.SIGTERM)
            broker.wait(30)
    table = Table("page", "views in", "views out")
    for page in PAGES:
        table.add_row(page, f"{acknowledged[page]:,}", f"{seen[page]:,}")
    console.print(table)
    is_right = acknowledged == seen and seen.total() == EVENTS
    console.print("everything that went in came out" if is_right else "[red]counts differ[/red]")
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main())
