"""aiokafka and kafka-python against both systems."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewTopic as AioNewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonTopicPartition
from kafka.admin import KafkaAdminClient, NewTopic

from tests.support.systems import System

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "zstd"])  # aiokafka needs a package for zstd
def test_aiokafka_produces_and_consumes(system: System, topic: str, codec: str | None) -> None:
    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=system.bootstrap)
        await admin.start()
        await admin.create_topics([AioNewTopic(topic, 2, 1)])
        await admin.close()
        producer = AIOKafkaProducer(
            bootstrap_servers=system.bootstrap, compression_type=codec, enable_idempotence=True, linger_ms=5
        )
        await producer.start()
        sent = [
            await producer.send(topic, b"%d" % n, b"key", partition=n % 2, headers=[("n", b"%d" % n)])
            for n in range(200)
        ]
        positions = [(await report).offset for report in sent]
        await producer.stop()
        assert positions == [n // 2 for n in range(200)]
        consumer = AIOKafkaConsumer(bootstrap_servers=system.bootstrap, enable_auto_commit=False, group_id=None)
        await consumer.start()
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        await consumer.seek_to_beginning()
        received = [await asyncio.wait_for(consumer.getone(), 10) for _ in range(200)]
        assert sorted(int(record.value) for record in received) == list(range(200))
        assert all(record.headers == (("n", record.value),) for record in received)
        assert await consumer.end_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 100}
        await consumer.stop()

    asyncio.run(run())


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec not in ("zstd", "snappy")])
def test_kafka_python_produces_and_consumes(system: System, unique: Callable[[str], str], codec: str | None) -> None:
    name = unique("kafka-python")
    admin = KafkaAdminClient(bootstrap_servers=system.bootstrap)
    admin.create_topics([NewTopic(name, 2, 1)])
    admin.close()
    producer = KafkaProducer(bootstrap_servers=system.bootstrap, compression_type=codec, linger_ms=5)
    reports = [
        producer.send(name, b"%d" % n, key=b"key", partition=n % 2, headers=[("n", b"%d" % n)]) for n in range(200)
    ]
    assert [report.get(10).offset for report in reports] == [n // 2 for n in range(200)]
    producer.close()
    consumer = KafkaConsumer(bootstrap_servers=system.bootstrap, group_id=None, consumer_timeout_ms=10_000)
    partitions = [PythonTopicPartition(name, 0), PythonTopicPartition(name, 1)]
    consumer.assign(partitions)
    consumer.seek_to_beginning()
    received: list[Any] = []
    deadline = time.monotonic() + 20
    while len(received) < 200 and time.monotonic() < deadline:
        for records in consumer.poll(500).values():
            received += records
    assert sorted(int(record.value) for record in received) == list(range(200))
    assert consumer.beginning_offsets(partitions) == {partitions[0]: 0, partitions[1]: 0}
    assert consumer.end_offsets(partitions) == {partitions[0]: 100, partitions[1]: 100}
    consumer.close()
