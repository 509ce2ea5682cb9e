"""Groups with clients of other languages: franz-go and Sarama (Go), KafkaJS (JavaScript), alone and in company."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.foreign import ForeignReader, missing_tool
from tests.support.groups import listed, wait_for_coordinator, wait_until
from tests.support.readers import READERS, Ledger, Reader
from tests.support.systems import System

PARTITIONS = 6
FOREIGN = {
    "franz-go range": {"language": "go", "program": "franz", "protocol": "range"},
    "franz-go cooperative-sticky": {"language": "go", "program": "franz", "protocol": "cooperative-sticky"},
    "franz-go consumer": {"language": "go", "program": "franz", "protocol": "consumer"},
    "sarama range": {"language": "go", "program": "sarama", "protocol": "range"},
    "sarama roundrobin": {"language": "go", "program": "sarama", "protocol": "roundrobin"},
    "sarama sticky": {"language": "go", "program": "sarama", "protocol": "sticky"},
    "kafkajs": {"language": "node", "program": "kafkajs", "protocol": "RoundRobinAssigner"},
    "kafkajs roundrobin": {"language": "node", "program": "kafkajs", "protocol": "roundrobin"},
}
MIXES = {
    "range": ["franz-go range", "sarama range", "librdkafka range"],
    "roundrobin": ["sarama roundrobin", "kafkajs roundrobin", "kafka-python roundrobin"],
    "roundrobin led by kafkajs": ["kafkajs roundrobin", "aiokafka roundrobin", "librdkafka roundrobin"],
    "cooperative-sticky": ["franz-go cooperative-sticky", "librdkafka cooperative-sticky"],
    "consumer": ["franz-go consumer", "librdkafka consumer"],
    "both protocols": ["franz-go consumer", "sarama range", "librdkafka range"],
}


@pytest.fixture
def group(unique: Callable[[str], str]) -> str:
    return unique("group")


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def filled(system: System, topic: str) -> Callable[[int], None]:
    """Makes the test's topic; calling it appends so many records, numbered on."""
    wait_for_coordinator(system)
    admin = AdminClient({"bootstrap.servers": system.bootstrap})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(10)
    producer = Producer({"bootstrap.servers": system.bootstrap, "linger.ms": 5})
    numbers = iter(range(1_000_000))

    def fill(count: int) -> None:
        for number in (next(numbers) for _ in range(count)):
            producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
        assert producer.flush(20) == 0

    return fill


@pytest.fixture
def reader(system: System, group: str, topic: str, ledger: Ledger) -> Iterator[Callable[[str], Reader]]:
    """Starts members of the test's group, of any kind."""
    made: list[Reader] = []

    def make(kind: str) -> Reader:
        arguments: Any = (system.bootstrap, group, [topic], ledger, f"{kind} {len(made)}")
        if kind in FOREIGN:
            missing = missing_tool(FOREIGN[kind]["language"])
            if missing is not None:
                pytest.skip(f"{missing} is not installed")
            made.append(ForeignReader(*arguments, **FOREIGN[kind]))
        else:
            made.append(READERS[kind](*arguments))
        return made[-1].start()

    yield make
    for one in made:
        one.stop()


def numbers(*readers: Reader) -> list[int]:
    return sorted(int(got.value) for one in readers for got in one.received)


@pytest.mark.parametrize(
    "kind", ["franz-go cooperative-sticky", "franz-go consumer", "sarama roundrobin", "sarama sticky", "kafkajs"]
)
def test_a_foreign_group_shares_reads_and_resumes(
    system: System, topic: str, group: str, filled: Any, reader: Any, ledger: Ledger, kind: str
) -> None:
    filled(60)
    first = reader(kind)
    wait_until(lambda: numbers(first) == list(range(60)))
    second = reader(kind)
    wait_until(lambda: len(first.owned) == len(second.owned) == PARTITIONS // 2)
    filled(60)
    wait_until(lambda: set(numbers(first, second)) == set(range(120)))
    first.stop()
    wait_until(lambda: len(second.owned) == PARTITIONS)
    filled(60)
    wait_until(lambda: set(numbers(first, second)) == set(range(180)))
    second.stop()
    assert ledger.faults == []
    asking = Consumer({"bootstrap.servers": system.bootstrap, "group.id": group})
    offsets = asking.committed([TopicPartition(topic, index) for index in range(PARTITIONS)], timeout=10)
    assert [one.offset for one in offsets] == [30] * PARTITIONS, "everything is committed"
    asking.close()
    filled(6)
    third = reader(kind)
    wait_until(lambda: numbers(third) == list(range(180, 186)))


@pytest.mark.parametrize("mix", MIXES)
def test_foreign_clients_share_a_group_with_others(
    system: System, group: str, filled: Any, reader: Any, ledger: Ledger, mix: str
) -> None:
    members = [reader(MIXES[mix][0])]
    wait_until(lambda: len(members[0].owned) == PARTITIONS)  # Kafka 4.3 cannot form a group of both protocols at once
    members += [reader(kind) for kind in MIXES[mix][1:]]
    wait_until(lambda: {len(member.owned) for member in members} == {PARTITIONS // len(members)})
    with system.connect() as connection:
        expected = "consumer" if any("consumer" in kind for kind in MIXES[mix]) else "classic"
        assert listed(connection)[group].group_type == expected
    filled(60)
    wait_until(lambda: set(numbers(*members)) == set(range(60)))
    for number, member in enumerate(members[:-1], 1):
        member.stop()
        rest = [other.name for other in members[number:]]
        wait_until(lambda rest=rest: ledger.is_shared_by(rest, PARTITIONS))
        filled(30)
    wait_until(lambda: set(numbers(*members)) == set(range(60 + 30 * (len(members) - 1))))
    members[-1].stop()
    assert ledger.faults == []
