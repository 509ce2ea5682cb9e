"""A transactional producer: a hundred records, commit, and again.

    python -m bench.transactions PORT TOPIC SECONDS

librdkafka through confluent-kafka, one transaction at a time, over three partitions. Prints records per second, the
percentiles of a commit in milliseconds, and how many transactions there were, as JSON.
"""

from __future__ import annotations

import json
import sys
import time

from confluent_kafka import Producer

_RECORDS = 100
_WARM_UP_S = 1.0


def _run(producer: Producer, topic: str, seconds: float) -> list[float]:
    """How long each commit took."""
    commits = []
    value = b"x" * 100
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        producer.begin_transaction()
        for number in range(_RECORDS):
            producer.produce(topic, value, partition=number % 3)
        began = time.perf_counter()
        producer.commit_transaction()
        commits.append(time.perf_counter() - began)
    return commits


def main(port: int, topic: str, seconds: float) -> dict[str, float]:
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions(60)
    warm_up = len(_run(producer, topic, _WARM_UP_S))
    started = time.perf_counter()
    commits = sorted(_run(producer, topic, seconds))
    return {
        "records_per_second": len(commits) * _RECORDS / (time.perf_counter() - started),
        "commit_p50_ms": commits[len(commits) // 2] * 1000,
        "commit_p99_ms": commits[int(len(commits) * 0.99)] * 1000,
        "transactions": len(commits) + warm_up,
    }


if __name__ == "__main__":
    _, port, topic, seconds = sys.argv
    print(json.dumps(main(int(port), topic, float(seconds))))
