"""Groups as Python's clients use them: librdkafka (both protocols), aiokafka and kafka-python."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from confluent_kafka import (
    Consumer,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import TopicPartition as PythonTopicPartition
from kafka.admin import KafkaAdminClient
from kafka.structs import OffsetAndMetadata

from penstock.wire.errors import ErrorCode
from tests.support.groups import ClassicMember, wait_for_coordinator, wait_until
from tests.support.readers import READERS, Ledger, RdKafkaReader, Reader
from tests.support.systems import System

PARTITIONS = 4
PROTOCOLS = ["classic", "consumer"]


@pytest.fixture
def admin(system: System) -> AdminClient:
    wait_for_coordinator(system)
    return AdminClient({"bootstrap.servers": system.bootstrap})


@pytest.fixture
def create(admin: AdminClient) -> Callable[..., None]:
    def make(name: str, partitions: int = PARTITIONS) -> None:
        admin.create_topics([NewTopic(name, partitions, 1)])[name].result(10)
        wait_until(lambda: len(admin.list_topics(name, 10).topics[name].partitions) == partitions)

    return make


@pytest.fixture
def group(unique: Callable[[str], str]) -> str:
    return unique("group")


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def reader(system: System, group: str, ledger: Ledger) -> Iterator[Callable[..., Reader]]:
    """Starts members of the test's group; they are stopped after it."""
    made: list[Reader] = []

    def make(kind: str, topics: list[str] | str, **config: Any) -> Reader:
        made.append(READERS[kind](system.bootstrap, group, topics, ledger, f"member-{len(made)}", **config))
        return made[-1].start()

    yield make
    for one in made:
        one.stop()


@pytest.fixture
def consumer(system: System, group: str) -> Iterator[Callable[..., Consumer]]:
    """Makes librdkafka consumers that commit only when told; they are closed after the test."""
    made: list[Consumer] = []

    def make(**config: Any) -> Consumer:
        settings = {
            "bootstrap.servers": system.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **{key.replace("_", "."): value for key, value in config.items()},
        }
        if settings.get("group.protocol") != "consumer":
            settings |= {"heartbeat.interval.ms": 200, "session.timeout.ms": 10_000}
        made.append(Consumer(settings))
        return made[-1]

    yield make
    for one in made:
        one.close()


def fill(system: System, topic: str, count: int, first: int = 0, partitions: int = PARTITIONS) -> None:
    """Produce numbered records, to the partitions in turn."""
    producer = Producer({"bootstrap.servers": system.bootstrap, "linger.ms": 5})
    for number in range(first, first + count):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
    assert producer.flush(20) == 0


def numbers(*readers: Reader) -> list[int]:
    """What the readers have received, in order of the numbers."""
    return sorted(int(got.value) for one in readers for got in one.received)


def poll(consumer: Consumer, count: int, seconds: float = 30.0) -> list[Message]:
    messages: list[Message] = []
    deadline = time.monotonic() + seconds
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} records"
        message = consumer.poll(0.1)
        if message is not None:
            assert message.error() is None, message.error()
            messages.append(message)
    return messages


def wait_for_assignment(consumer: Consumer, count: int) -> list[TopicPartition]:
    def assigned() -> Any:
        message = consumer.poll(0.05)
        assert message is None or message.error() is None, message.error()
        return len(consumer.assignment()) == count and consumer.assignment()

    partitions: list[TopicPartition] = wait_until(assigned)
    return partitions


# ---- every client, every assignor ----


RESUMING_READERS = [
    "librdkafka range",
    "librdkafka cooperative-sticky",
    "librdkafka consumer",
    "aiokafka range",
    "kafka-python range",
]


@pytest.mark.parametrize("kind", RESUMING_READERS)
def test_a_group_resumes_where_it_committed(
    system: System, topic: str, create: Any, reader: Any, ledger: Ledger, kind: str
) -> None:
    create(topic)
    fill(system, topic, 40)
    first = reader(kind, [topic])
    wait_until(lambda: len(first.received) >= 40)
    first.stop()
    fill(system, topic, 40, first=40)
    second = reader(kind, [topic])
    wait_until(lambda: len(second.received) >= 40)
    second.stop()
    assert numbers(first) == list(range(40))
    assert numbers(second) == list(range(40, 80)), "nothing twice, nothing missed"
    for one in (first, second):
        for index in range(PARTITIONS):
            offsets = [got.offset for got in one.received if got.partition == index]
            assert offsets == sorted(offsets)
    assert ledger.faults == []


@pytest.mark.parametrize("kind", READERS)
def test_partitions_move_when_members_come_and_go(
    system: System, topic: str, create: Any, reader: Any, ledger: Ledger, kind: str
) -> None:
    create(topic)
    first = reader(kind, [topic])
    wait_until(lambda: ledger.is_shared_by(["member-0"], PARTITIONS))
    second = reader(kind, [topic])
    wait_until(lambda: ledger.is_shared_by(["member-0", "member-1"], PARTITIONS))
    wait_until(lambda: len(first.owned) == len(second.owned) == 2)
    fill(system, topic, 40)
    wait_until(lambda: len(first.received) + len(second.received) >= 40)
    assert numbers(first, second) == list(range(40))
    assert len(first.received) == len(second.received) == 20
    second.stop()
    wait_until(lambda: ledger.is_shared_by(["member-0"], PARTITIONS))
    fill(system, topic, 40, first=40)
    wait_until(lambda: set(numbers(first, second)) == set(range(80)))
    first.stop()
    assert ledger.faults == [], "at no moment had two members the same partition"


MIXES = {
    "range": ["librdkafka range", "aiokafka range", "kafka-python range"],
    "roundrobin": ["librdkafka roundrobin", "aiokafka roundrobin", "kafka-python roundrobin"],
    "cooperative-sticky": ["librdkafka cooperative-sticky", "kafka-python cooperative-sticky"],
    "both protocols": ["librdkafka consumer", "librdkafka range", "aiokafka range"],
}


@pytest.mark.parametrize("mix", MIXES)
def test_different_clients_share_a_group(
    system: System, topic: str, create: Any, reader: Any, ledger: Ledger, mix: str
) -> None:
    create(topic, 6)
    members = [reader(MIXES[mix][0], [topic])]
    wait_until(lambda: len(members[0].owned) == 6)  # Kafka 4.3 cannot form a group of both protocols at once
    members += [reader(kind, [topic]) for kind in MIXES[mix][1:]]
    names = [member.name for member in members]
    wait_until(lambda: ledger.is_shared_by(names, 6))
    wait_until(lambda: {len(member.owned) for member in members} == {6 // len(members)})
    fill(system, topic, 60, partitions=6)
    wait_until(lambda: set(numbers(*members)) == set(range(60)))
    members[0].stop()
    wait_until(lambda: ledger.is_shared_by(names[1:], 6))
    for member in members[1:]:
        member.stop()
    assert ledger.faults == []


# ---- committing and positions ----


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_was_committed_is_where_reading_goes_on(
    system: System, topic: str, create: Any, consumer: Any, protocol: str
) -> None:
    create(topic, 1)
    fill(system, topic, 10, partitions=1)
    first = consumer(group_protocol=protocol)
    first.subscribe([topic])
    poll(first, 10)
    first.commit(offsets=[TopicPartition(topic, 0, 4, metadata="half way: ½")], asynchronous=False)
    (found,) = first.committed([TopicPartition(topic, 0)], timeout=10)
    assert (found.offset, found.metadata) == (4, "half way: ½")
    first.close()
    second = consumer(group_protocol=protocol)
    second.subscribe([topic])
    assert [int(message.value()) for message in poll(second, 6)] == [4, 5, 6, 7, 8, 9]
    (position,) = second.position([TopicPartition(topic, 0)])
    assert position.offset == 10


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_member_seeks_within_its_partitions(
    system: System, topic: str, create: Any, consumer: Any, protocol: str
) -> None:
    create(topic, 1)
    fill(system, topic, 10, partitions=1)
    member = consumer(group_protocol=protocol)
    member.subscribe([topic])
    poll(member, 10)
    member.seek(TopicPartition(topic, 0, 7))
    assert [int(message.value()) for message in poll(member, 3)] == [7, 8, 9]
    assert member.committed([TopicPartition(topic, 0)], timeout=10)[0].offset == -1001, "seeking commits nothing"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_commit_by_a_former_member_is_refused(
    system: System, topic: str, create: Any, consumer: Any, protocol: str
) -> None:
    create(topic, 1)
    member = consumer(group_protocol=protocol)
    member.subscribe([topic])
    wait_for_assignment(member, 1)
    outsider = consumer()
    outsider.assign([TopicPartition(topic, 0)])
    with pytest.raises(KafkaException) as refused:  # the group has a member, and this is not one
        outsider.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    assert refused.value.args[0].code() == KafkaError.UNKNOWN_MEMBER_ID
    member.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
    member.close()
    outsider.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    assert outsider.committed([TopicPartition(topic, 0)], timeout=10)[0].offset == 3


# ---- static members ----


def test_a_static_member_that_restarts_keeps_its_partitions(
    system: System, topic: str, create: Any, reader: Any, ledger: Ledger, admin: AdminClient, group: str
) -> None:
    create(topic)
    kind = "librdkafka range"
    first = reader(kind, [topic], **{"group.instance.id": "first"})
    second = reader(kind, [topic], **{"group.instance.id": "second"})
    wait_until(lambda: len(first.owned) == len(second.owned) == 2)
    before, moves = first.owned, ledger.moves
    first.stop()  # a static member does not say that it leaves
    again = reader(kind, [topic], **{"group.instance.id": "first"})
    wait_until(lambda: again.owned == before)
    assert ledger.moves == moves + 2, "the other member was not disturbed"
    described = admin.describe_consumer_groups([group])[group].result(10)
    assert sorted(member.group_instance_id for member in described.members) == ["first", "second"]
    assert ledger.faults == []


@pytest.mark.parametrize("kind", ["aiokafka range", "kafka-python range"])
def test_static_members_of_other_clients_keep_their_partitions(
    system: System, topic: str, create: Any, reader: Any, ledger: Ledger, kind: str
) -> None:
    create(topic)
    steady = reader("librdkafka range", [topic])
    first = reader(kind, [topic], group_instance_id="first")
    wait_until(lambda: len(first.owned) == len(steady.owned) == 2)
    before, moves = first.owned, ledger.moves
    first.stop()
    again = reader(kind, [topic], group_instance_id="first")
    wait_until(lambda: again.owned == before)
    assert ledger.moves == moves + 2
    assert ledger.faults == []


def test_the_second_with_an_instance_id_fences_the_first(
    system: System, topic: str, create: Any, reader: Any, consumer: Any
) -> None:
    create(topic, 1)
    fenced = reader("librdkafka range", [topic], **{"group.instance.id": "one"})
    wait_until(lambda: len(fenced.owned) == 1)
    usurper = consumer(group_instance_id="one", partition_assignment_strategy="range")
    usurper.subscribe([topic])
    wait_for_assignment(usurper, 1)
    wait_until(lambda: fenced.failure is not None)
    failure, fenced.failure = fenced.failure, None
    assert "Static consumer fenced by other consumer with same group.instance.id" in str(failure)


def test_the_second_with_an_instance_id_is_refused_in_the_consumer_protocol(
    system: System, topic: str, create: Any, reader: Any, ledger: Ledger
) -> None:
    create(topic, 1)
    owner = reader("librdkafka consumer", [topic], **{"group.instance.id": "one"})
    wait_until(lambda: len(owner.owned) == 1)
    refused = reader("librdkafka consumer", [topic], **{"group.instance.id": "one"})
    wait_until(lambda: refused.failure is not None)
    failure, refused.failure = refused.failure, None
    assert "The instance ID is still used by another member in the consumer group" in str(failure)
    owner.stop()
    assert ledger.faults == []


# ---- subscriptions by pattern ----


PATTERN_READERS = ["librdkafka range", "librdkafka consumer", "aiokafka range", "kafka-python range"]


@pytest.mark.parametrize("kind", PATTERN_READERS)
def test_a_pattern_finds_topics_and_later_ones(
    system: System, unique: Any, create: Any, reader: Any, ledger: Ledger, kind: str
) -> None:
    prefix = unique("flock")
    create(f"{prefix}.duck", 2)
    create(f"not-{prefix}.duck", 1)
    member = reader(kind, rf"^{prefix}\..*")
    wait_until(lambda: member.owned == {(f"{prefix}.duck", 0), (f"{prefix}.duck", 1)})
    create(f"{prefix}.goose", 1)
    wait_until(lambda: (f"{prefix}.goose", 0) in member.owned)
    fill(system, f"{prefix}.goose", 5, partitions=1)
    fill(system, f"{prefix}.duck", 5, first=5, partitions=2)
    wait_until(lambda: numbers(member) == list(range(10)))
    member.stop()
    assert ledger.faults == []


# ---- silent members ----


@pytest.mark.parametrize("kind", ["librdkafka range", "aiokafka range", "kafka-python range"])
def test_a_silent_member_loses_its_partitions(
    system: System, topic: str, create: Any, reader: Any, group: str, kind: str
) -> None:
    create(topic)
    silent = ClassicMember(system, group, [topic], session_timeout_ms=1500)
    silent.settle({topic: [0, 1, 2, 3]})
    began = time.monotonic()
    member = reader(kind, [topic])
    wait_until(lambda: len(member.owned) == PARTITIONS)
    assert time.monotonic() - began > 1.0, "it was given the time to say something"
    assert silent.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    silent.close()


# ---- administration ----


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_groups_are_listed_and_described(
    system: System, topic: str, create: Any, consumer: Any, admin: AdminClient, group: str, protocol: str
) -> None:
    create(topic, 2)
    member = consumer(group_protocol=protocol, client_id="my-client")
    member.subscribe([topic])
    wait_for_assignment(member, 2)
    kind = ConsumerGroupType.CLASSIC if protocol == "classic" else ConsumerGroupType.CONSUMER

    def find(**filters: Any) -> Any:
        result = admin.list_consumer_groups(**filters).result(10)
        assert result.errors == []
        return {listed.group_id: listed for listed in result.valid}.get(group)

    found = find()
    assert (found.state, found.type, found.is_simple_consumer_group) == (ConsumerGroupState.STABLE, kind, False)
    assert find(states={ConsumerGroupState.STABLE}) is not None
    assert find(states={ConsumerGroupState.EMPTY}) is None
    assert find(types={kind}) is not None
    assert find(types=set(ConsumerGroupType) - {kind, ConsumerGroupType.UNKNOWN}) is None
    described = admin.describe_consumer_groups([group])[group].result(10)
    assert (described.group_id, described.state, described.type) == (group, ConsumerGroupState.STABLE, kind)
    assert described.coordinator.id == 1
    assert described.partition_assignor == ("range" if protocol == "classic" else "uniform")
    (seen,) = described.members
    assert (seen.client_id, seen.host, seen.group_instance_id) == ("my-client", "/127.0.0.1", None)
    assert sorted((p.topic, p.partition) for p in seen.assignment.topic_partitions) == [(topic, 0), (topic, 1)]
    member.close()
    assert find(states={ConsumerGroupState.EMPTY}) is not None
    assert admin.describe_consumer_groups([group])[group].result(10).members == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_offsets_of_a_group_are_listed_and_altered(
    system: System, topic: str, create: Any, consumer: Any, admin: AdminClient, group: str, protocol: str
) -> None:
    create(topic, 2)
    fill(system, topic, 10, partitions=2)
    member = consumer(group_protocol=protocol)
    member.subscribe([topic])
    poll(member, 10)
    member.commit(asynchronous=False)

    def offsets(*partitions: TopicPartition) -> dict[int, int]:
        wanted = [ConsumerGroupTopicPartitions(group, list(partitions) or None)]
        (result,) = admin.list_consumer_group_offsets(wanted).values()
        return {one.partition: one.offset for one in result.result(10).topic_partitions}

    def alter(wanted: dict[int, int]) -> list[Any]:
        """Returns the errors."""
        partitions = [TopicPartition(topic, index, offset) for index, offset in wanted.items()]
        (result,) = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, partitions)]).values()
        return [one.error and one.error.code() for one in result.result(10).topic_partitions]

    assert offsets() == {0: 5, 1: 5}
    assert offsets(TopicPartition(topic, 1)) == {1: 5}
    assert alter({0: 1}) == [KafkaError.UNKNOWN_MEMBER_ID], "the group is in use"
    member.close()
    assert alter({0: 2, 1: 4}) == [None, None]
    assert offsets() == {0: 2, 1: 4}
    again = consumer(group_protocol=protocol)
    again.subscribe([topic])
    read = [(message.partition(), message.offset()) for message in poll(again, 4)]
    assert sorted(read) == [(0, 2), (0, 3), (0, 4), (1, 4)]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_only_an_empty_group_is_deleted(
    system: System, topic: str, create: Any, consumer: Any, admin: AdminClient, group: str, protocol: str
) -> None:
    create(topic, 1)
    member = consumer(group_protocol=protocol)
    member.subscribe([topic])
    wait_for_assignment(member, 1)
    member.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([group])[group].result(10)
    assert refused.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    member.close()
    admin.delete_consumer_groups([group])[group].result(10)
    with pytest.raises(KafkaException) as refused:
        admin.delete_consumer_groups([group])[group].result(10)
    assert refused.value.args[0].code() == KafkaError.GROUP_ID_NOT_FOUND
    assert group not in {listed.group_id for listed in admin.list_consumer_groups().result(10).valid}
    outsider = consumer()
    assert outsider.committed([TopicPartition(topic, 0)], timeout=10)[0].offset == -1001


def test_kafka_python_administers_groups(
    system: System, topic: str, create: Any, reader: Any, group: str, unique: Any
) -> None:
    create(topic, 2)
    fill(system, topic, 10, partitions=2)
    member = reader("kafka-python range", [topic])
    wait_until(lambda: len(member.received) == 10)
    administrator = KafkaAdminClient(bootstrap_servers=system.bootstrap)
    described = administrator.describe_groups([group])
    assert group in str(described)
    assert "Stable" in str(described)
    member.stop()
    partitions = [PythonTopicPartition(topic, index) for index in range(2)]

    def offsets() -> dict[int, int]:
        found = administrator.list_group_offsets({group: None})[group]
        return {partition.partition: committed.offset for partition, committed in found.items()}

    assert offsets() == {0: 5, 1: 5}
    administrator.alter_group_offsets(group, {partitions[0]: OffsetAndMetadata(1, "back", None)})
    assert offsets() == {0: 1, 1: 5}
    administrator.delete_group_offsets(group, [partitions[1]])
    assert offsets() == {0: 1}
    administrator.delete_groups([group])
    assert offsets() == {}
    administrator.close()


def test_aiokafka_administers_groups(system: System, topic: str, create: Any, reader: Any, group: str) -> None:
    create(topic, 1)
    fill(system, topic, 5, partitions=1)
    member = reader("aiokafka range", [topic])
    wait_until(lambda: len(member.received) == 5)

    async def ask() -> None:
        administrator = AIOKafkaAdminClient(bootstrap_servers=system.bootstrap)
        await administrator.start()
        assert (group, "consumer") in await administrator.list_consumer_groups()
        (described,) = await administrator.describe_consumer_groups([group])
        assert "Stable" in str(described)
        member.stop()
        offsets = await administrator.list_consumer_group_offsets(group)
        assert [committed.offset for committed in offsets.values()] == [5]
        await administrator.close()

    asyncio.run(ask())


# ---- offsets and topics ----


def test_offsets_of_a_deleted_topic_are_gone(
    system: System, topic: str, create: Any, consumer: Any, admin: AdminClient
) -> None:
    create(topic, 1)
    outsider = consumer()
    outsider.commit(offsets=[TopicPartition(topic, 0, 3)], asynchronous=False)
    assert outsider.committed([TopicPartition(topic, 0)], timeout=10)[0].offset == 3
    admin.delete_topics([topic])[topic].result(10)
    wait_until(lambda: outsider.committed([TopicPartition(topic, 0)], timeout=10)[0].offset == -1001)


def test_a_group_survives_a_topic_that_is_deleted_and_made_again(
    system: System, unique: Any, create: Any, reader: Any, admin: AdminClient, ledger: Ledger
) -> None:
    kept, doomed = unique("kept"), unique("doomed")
    create(kept, 1)
    create(doomed, 1)
    member = reader("librdkafka consumer", [kept, doomed])
    wait_until(lambda: len(member.owned) == 2)
    admin.delete_topics([doomed])[doomed].result(10)
    wait_until(lambda: member.owned == {(kept, 0)})
    create(doomed, 2)
    wait_until(lambda: len(member.owned) == 3)
    fill(system, doomed, 4, partitions=2)
    wait_until(lambda: numbers(member) == [0, 1, 2, 3])
    member.stop()
    assert ledger.faults == []


def test_a_reader_that_fails_says_so(system: System, topic: str, create: Any, ledger: Ledger) -> None:
    broken = RdKafkaReader(system.bootstrap, "unused", [topic], ledger, "broken", **{"no.such.setting": 1}).start()
    with pytest.raises(KafkaException, match=r"no\.such\.setting"):
        broken.stop()
