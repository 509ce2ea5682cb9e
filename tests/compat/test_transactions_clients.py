"""Transactions of real clients, all at once on the same partitions, and read by all of them."""

from __future__ import annotations

import asyncio
import json
import subprocess
import threading
from collections.abc import Callable, Iterator
from typing import Any

import aiokafka
import kafka
import pytest
from aiokafka.structs import TopicPartition as AioPartition
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from penstock.client.connection import Connection
from tests.support import foreign, systems
from tests.support.java_tools import JavaTools
from tests.support.systems import System
from tests.support.transactions import (
    GROUPS,
    Txn,
    committed_offset,
    create_topic,
    find_coordinator,
    read,
    wait_until,
    wait_until_stable,
)

pytestmark = pytest.mark.java

PARTITIONS = 3
COUNT = 12  # transactions of each client; every third is aborted
QUICK = {"transaction_state_log_num_partitions": "3", "offsets_topic_num_partitions": "3"}


@pytest.fixture(scope="module", params=["penstock", "kafka"])
def system(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    data = tmp_path_factory.mktemp(f"txn-clients-{request.param}") / "data"
    running = systems.named(request.param, data, **QUICK).start()
    yield running
    running.kill()


@pytest.fixture
def topic(connection: Connection, unique: Callable[[str], str]) -> str:
    name = unique("txn-clients")
    create_topic(connection, name, PARTITIONS)
    return name


def is_committed(number: int) -> bool:
    return number % 3 != 2


# ---- writers: transaction N of NAME writes NAME-N to every partition ----


def write_with_confluent(system: System, transactional_id: str, topic: str, name: str) -> None:
    producer = Producer({"bootstrap.servers": system.bootstrap, "transactional.id": transactional_id})
    producer.init_transactions(30)
    for number in range(COUNT):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce(topic, f"{name}-{number}".encode(), partition=partition)
        producer.flush(30)
        if is_committed(number):
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)


def write_with_aiokafka(system: System, transactional_id: str, topic: str, name: str) -> None:
    async def write() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=system.bootstrap, transactional_id=transactional_id)
        await producer.start()
        try:
            for number in range(COUNT):
                await producer.begin_transaction()
                for partition in range(PARTITIONS):
                    await producer.send_and_wait(topic, f"{name}-{number}".encode(), partition=partition)
                await (producer.commit_transaction() if is_committed(number) else producer.abort_transaction())
        finally:
            await producer.stop()

    asyncio.run(asyncio.wait_for(write(), 120))


def write_with_kafka_python(system: System, transactional_id: str, topic: str, name: str) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=system.bootstrap, transactional_id=transactional_id)
    producer.init_transactions()
    for number in range(COUNT):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.send(topic, f"{name}-{number}".encode(), partition=partition)
        producer.flush(30)
        if is_committed(number):
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()


def write_with_franz(system: System, transactional_id: str, topic: str, name: str) -> None:
    command = [*foreign.program("go", "franz"), system.bootstrap, transactional_id, topic, "transactions"]
    done = subprocess.run(
        [*command, name, str(COUNT), str(PARTITIONS)], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


def java_transactions(topic: str, name: str) -> list[dict[str, Any]]:
    return [
        {
            "records": [{"topic": topic, "partition": p, "value": f"{name}-{number}"} for p in range(PARTITIONS)],
            "end": "commit" if is_committed(number) else "abort",
        }
        for number in range(COUNT)
    ]


def java_config(system: System, transactional_id: str, **more: Any) -> dict[str, Any]:
    return {"bootstrap.servers": system.bootstrap, "transactional.id": transactional_id, **more}


def write_raw(version: int) -> Callable[[System, str, str, str], None]:
    def write(system: System, transactional_id: str, topic: str, name: str) -> None:
        with system.connect() as connection:
            producer = Txn(connection, transactional_id, version=version).claim()
            for number in range(COUNT):
                for partition in range(PARTITIONS):
                    producer.write(topic, f"{name}-{number}", partition=partition)
                producer.commit() if is_committed(number) else producer.abort()

    return write


WRITERS: dict[str, Callable[[System, str, str, str], None]] = {
    "confluent": write_with_confluent,
    "aiokafka": write_with_aiokafka,
    "kafka-python": write_with_kafka_python,
    "raw-1": write_raw(1),
    "raw-2": write_raw(2),
}
if foreign.missing_tool("go") is None:
    WRITERS["franz"] = write_with_franz


# ---- readers ----


def read_with_confluent(system: System, topic: str, partition: int, count: int) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": system.bootstrap,
            "group.id": "unused",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING)])
    seen = []
    while True:
        message = consumer.poll(30)
        assert message is not None
        if message.error():
            break  # the end of the partition
        seen.append(message.value().decode())
    consumer.close()
    return seen


def read_with_aiokafka(system: System, topic: str, partition: int, count: int) -> list[str]:
    async def read() -> list[str]:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=system.bootstrap, isolation_level="read_committed")
        await consumer.start()
        where = AioPartition(topic, partition)
        consumer.assign([where])
        await consumer.seek_to_beginning(where)
        seen: list[str] = []
        while len(seen) < count:
            seen.append((await asyncio.wait_for(consumer.getone(), 30)).value.decode())
        await consumer.stop()
        return seen

    return asyncio.run(read())


def test_transactions_of_all_clients_at_once(
    system: System, connection: Connection, topic: str, java: JavaTools, unique: Callable[[str], str]
) -> None:
    failures: dict[str, BaseException] = {}

    def write(name: str, writer: Callable[[System, str, str, str], None]) -> None:
        try:
            writer(system, unique(name), topic, name)
        except BaseException as failure:
            failures[name] = failure

    threads = [threading.Thread(target=write, args=pair) for pair in WRITERS.items()]
    for thread in threads:
        thread.start()
    task = {"config": java_config(system, unique("java")), "transactions": java_transactions(topic, "java")}
    lines = java.run("Transactor", json.dumps(task)).lines
    for thread in threads:
        thread.join(180)
        assert not thread.is_alive()
    assert not failures, failures
    assert len(lines) == COUNT
    names = [*WRITERS, "java"]
    expected = {name: [f"{name}-{number}" for number in range(COUNT) if is_committed(number)] for name in names}
    for partition in range(PARTITIONS):
        wait_until_stable(connection, topic, partition)
        seen = read(connection, topic, partition)
        for name in names:
            assert [value for value in seen if value.rsplit("-", 1)[0] == name] == expected[name], name
        assert len(seen) == sum(map(len, expected.values()))
        assert read_with_confluent(system, topic, partition, len(seen)) == seen
        assert read_with_aiokafka(system, topic, partition, len(seen)) == seen
        config = {"bootstrap.servers": system.bootstrap, "isolation.level": "read_committed"}
        found = java.consume(config, topic=topic, partition=partition, offset=0, count=len(seen))
        assert [record["value"] for record in found] == seen
        assert len(read(connection, topic, partition, committed=False)) == len(names) * COUNT


def test_the_java_producer_sends_offsets_with_its_transaction(
    system: System, connection: Connection, topic: str, java: JavaTools, unique: Callable[[str], str]
) -> None:
    group = unique("txn-offsets")
    find_coordinator(connection, group, GROUPS)
    record = {"topic": topic, "partition": 0, "value": "x"}
    offset = {"group": group, "topic": topic, "partition": 0, "offset": 5}
    transactions = [
        {"records": [record], "offset": offset, "end": "commit"},
        {"records": [record], "offset": {**offset, "offset": 9}, "end": "abort"},
    ]
    task = {"config": java_config(system, unique("java")), "transactions": transactions}
    assert len(java.run("Transactor", json.dumps(task)).lines) == 2
    wait_until_stable(connection, topic)
    wait_until(lambda: committed_offset(connection, group, topic, stable=True), lambda found: found == (0, 5))
    assert read(connection, topic) == ["x"]


def test_a_java_producer_that_died_is_fenced_by_the_next_one(
    system: System, connection: Connection, topic: str, java: JavaTools, unique: Callable[[str], str]
) -> None:
    name = unique("java")
    record = {"topic": topic, "partition": 0, "value": "lost"}
    left = {"config": java_config(system, name), "transactions": [{"records": [record], "end": "leave"}]}
    assert len(java.run("Transactor", json.dumps(left)).lines) == 1
    assert read(connection, topic) == []
    kept = {"records": [{**record, "value": "kept"}], "end": "commit"}
    assert len(java.run("Transactor", json.dumps({**left, "transactions": [kept]})).lines) == 1
    wait_until_stable(connection, topic)
    assert read(connection, topic) == ["kept"]


def test_librdkafka_is_told_that_it_is_fenced(
    system: System, connection: Connection, topic: str, unique: Callable[[str], str]
) -> None:
    config = {"bootstrap.servers": system.bootstrap, "transactional.id": unique("fenced")}
    first, second = Producer(config), Producer(config)
    first.init_transactions(30)
    first.begin_transaction()
    first.produce(topic, b"lost", partition=0)
    first.flush(30)
    second.init_transactions(30)
    with pytest.raises(KafkaException) as caught:
        first.commit_transaction(30)
    assert caught.value.args[0].fatal()
    second.begin_transaction()
    second.produce(topic, b"kept", partition=0)
    second.commit_transaction(30)
    wait_until_stable(connection, topic)
    assert read(connection, topic) == ["kept"]
