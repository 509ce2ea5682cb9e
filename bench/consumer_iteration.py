"""What iterating over a consumer costs beside a bare loop over confluent-kafka's `consume`.

    python -m bench.consumer_iteration [BOOTSTRAP] [RECORDS] [ROUNDS]

Without an address it starts Apache Kafka. Both read the same records of 100 bytes, in alternating rounds. `bare` looks
at each message's error and value, `bare, all fields` reads what a `Record` holds. Besides the rate, in which the broker
and the machine's other work have their share, it gives the processor time of the reading thread.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import confluent_kafka

from penstock import Admin, Consumer, Producer
from tests.support import systems

_TOPIC = "consumer-iteration"
_BATCH = 500

Loop = Callable[[str, int], tuple[float, float]]


def _fill(bootstrap: str, records: int) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topic(_TOPIC, partitions=1)
    with Producer(bootstrap, linger_ms=20, batch_bytes=1_000_000) as producer:
        for number in range(records):
            producer.send(_TOPIC, b"x" * 100, key=b"key-%d" % (number % 1000))


def _bare(bootstrap: str, records: int, *, all_fields: bool) -> tuple[float, float]:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "bare", "enable.auto.commit": False}
    )
    consumer.assign([confluent_kafka.TopicPartition(_TOPIC, 0, 0)])
    consumer.consume(1, 30)
    started, cpu = time.perf_counter(), time.thread_time()
    left = records - 1
    while left:
        messages = consumer.consume(min(_BATCH, left), 1.0)
        left -= len(messages)
        if all_fields:
            for message in messages:
                assert message.error() is None
                message.topic(), message.partition(), message.offset(), message.timestamp()
                message.key(), message.value(), message.headers()
        else:
            for message in messages:
                assert message.error() is None
                message.value()
    result = time.perf_counter() - started, time.thread_time() - cpu
    consumer.close()
    return result


def _penstock(bootstrap: str, records: int) -> tuple[float, float]:
    with Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(_TOPIC, 0)])
        left = records - 1
        iterator = iter(consumer)
        next(iterator)
        started, cpu = time.perf_counter(), time.thread_time()
        for record in iterator:
            assert record.value is not None
            left -= 1
            if not left:
                break
        return time.perf_counter() - started, time.thread_time() - cpu


LOOPS: dict[str, Loop] = {
    "bare": lambda bootstrap, records: _bare(bootstrap, records, all_fields=False),
    "bare, all fields": lambda bootstrap, records: _bare(bootstrap, records, all_fields=True),
    "for record in consumer": _penstock,
}


def _measure(bootstrap: str, records: int, rounds: int) -> None:
    _fill(bootstrap, records)
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in LOOPS}
    for _ in range(rounds):
        for name, loop in LOOPS.items():
            found[name].append(loop(bootstrap, records))
    for name, results in found.items():
        rate = statistics.median(records / seconds for seconds, _ in results)
        cpu_ns = statistics.median(cpu for _, cpu in results) / records * 1e9
        print(f"{name:24} {rate / 1000:8.0f} k records/s   {cpu_ns:6.0f} ns of processor time per record")


def main() -> None:
    arguments = sys.argv[1:]
    records = int(arguments[1]) if len(arguments) > 1 else 500_000
    rounds = int(arguments[2]) if len(arguments) > 2 else 7
    if arguments:
        _measure(arguments[0], records, rounds)
        return
    with tempfile.TemporaryDirectory() as directory:
        system = systems.kafka(Path(directory) / "data").start()
        try:
            _measure(system.bootstrap, records, rounds)
        finally:
            system.kill()


if __name__ == "__main__":
    main()
