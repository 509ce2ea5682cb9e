"""Copies a topic to another, partition by partition, in transactions; a process that may be killed at any time.

    python -m tests.chaos.copier BOOTSTRAP GROUP FROM TO PARTITIONS SEED

What it has read is committed with what it has written. Some transactions it aborts. It ends when told to, by a signal.
"""

from __future__ import annotations

import random
import sys

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

_PATIENCE_S = 30.0
_RECORDS = 40
_ABORTED_SHARE = 0.15


def copy(bootstrap: str, group: str, source: str, target: str, partitions: int, chance: random.Random) -> None:
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"copier-of-{group}",
            "transaction.timeout.ms": 20_000,
            "linger.ms": 2,
            "reconnect.backoff.max.ms": 200,
        }
    )
    producer.init_transactions(_PATIENCE_S)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "reconnect.backoff.max.ms": 200,
        }
    )
    positions = committed(consumer, source, partitions)
    while True:
        records = [record for record in consumer.consume(_RECORDS, 0.3) if record.error() is None]
        if not records:
            continue
        producer.begin_transaction()
        for record in records:
            producer.produce(target, record.value(), partition=record.partition())
            positions[record.partition()] = record.offset() + 1
        try:
            offsets = [TopicPartition(source, partition, offset) for partition, offset in positions.items()]
            producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), _PATIENCE_S)
            if chance.random() > _ABORTED_SHARE:
                producer.commit_transaction(_PATIENCE_S)
                continue
        except KafkaException as failure:
            if not failure.args[0].txn_requires_abort():
                raise  # fenced, or its outcome is not known: the next process finds out
        producer.abort_transaction(_PATIENCE_S)
        positions = committed(consumer, source, partitions)


def committed(consumer: Consumer, source: str, partitions: int) -> dict[int, int]:
    """Go on where the group is."""
    wanted = [TopicPartition(source, partition) for partition in range(partitions)]
    found = consumer.committed(wanted, _PATIENCE_S)
    if any(one.error for one in found):
        raise RuntimeError(f"no committed offsets: {found}")
    positions = {one.partition: max(one.offset, 0) for one in found}
    consumer.assign([TopicPartition(source, partition, offset) for partition, offset in positions.items()])
    return positions


if __name__ == "__main__":
    address, group_id, read_from, write_to, count, seed = sys.argv[1:]
    copy(address, group_id, read_from, write_to, int(count), random.Random(int(seed)))
