"""The admin client against a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime

import confluent_kafka
import pytest

from penstock import Admin, AsyncAdmin, NewTopic, Resource, TopicPartition
from penstock.client.errors import (
    ConfigurationError,
    GroupNotEmpty,
    RequestFailed,
    SeveralFailed,
    TopicExists,
    UnknownTopic,
    Unreachable,
)
from tests.client.waiting import BASE_MS, eventually
from tests.support.systems import NODE_ID, System, free_port


def fill(system: System, topic: str, count: int, partition: int = 0) -> None:
    """Records with timestamps that are a second apart."""
    producer = confluent_kafka.Producer({"bootstrap.servers": system.bootstrap})
    for number in range(count):
        producer.produce(topic, str(number), partition=partition, timestamp=BASE_MS + number * 1000)
    assert producer.flush(20) == 0


def commit(system: System, group: str, offsets: dict[TopicPartition, int]) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": system.bootstrap, "group.id": group})
    wanted = [confluent_kafka.TopicPartition(*partition, offset) for partition, offset in offsets.items()]
    consumer.commit(offsets=wanted, asynchronous=False)
    consumer.close()


# ---- topics ----


def test_a_topic_is_created_described_and_deleted(admin: Admin, topic: str, create: Callable[..., None]) -> None:
    create(topic, 3, retention_ms="1000")
    (description,) = admin.describe_topics([topic])
    assert (description.name, description.is_internal) == (topic, False)
    assert [one.partition for one in description.partitions] == [0, 1, 2]
    assert {(one.leader, one.replicas, one.in_sync) for one in description.partitions} == {
        (NODE_ID, (NODE_ID,), (NODE_ID,))
    }
    assert topic in admin.list_topics()
    admin.delete_topics([topic])
    eventually(lambda: topic not in admin.list_topics())


def test_a_topic_goes_to_the_brokers_it_is_assigned_to(admin: Admin, topic: str) -> None:
    admin.create_topics([NewTopic(topic, assignment=[[NODE_ID], [NODE_ID]])])
    eventually(lambda: topic in admin.list_topics())
    assert len(admin.describe_topics([topic])[0].partitions) == 2


def test_a_topic_that_is_only_validated_is_not_created(admin: Admin, topic: str) -> None:
    admin.create_topic(topic, partitions=1, validate_only=True)
    assert topic not in admin.list_topics()


def test_creating_a_topic_twice_says_what_to_do(admin: Admin, topic: str) -> None:
    admin.create_topic(topic)
    with pytest.raises(TopicExists, match=f"cannot create topic '{topic}'.*already exists.*choose another name"):
        admin.create_topic(topic)


def test_several_failures_are_all_told(admin: Admin, unique: Callable[[str], str]) -> None:
    names = [unique("missing"), unique("missing")]
    with pytest.raises(SeveralFailed) as caught:
        admin.delete_topics(names)
    assert set(caught.value.errors) == set(names)
    assert all(isinstance(error, UnknownTopic) and error.name for error in caught.value.errors.values())
    assert "\n" not in str(caught.value)


def test_partitions_are_added(admin: Admin, topic: str, create: Callable[..., None]) -> None:
    create(topic)
    admin.add_partitions(topic, 3)
    eventually(lambda: len(admin.describe_topics([topic])[0].partitions) == 3)
    with pytest.raises(RequestFailed) as caught:
        admin.add_partitions(topic, 2)
    assert caught.value.name == "INVALID_PARTITIONS"


def test_mistakes_are_told_before_anything_is_sent(admin: Admin) -> None:
    with pytest.raises(ConfigurationError, match="at least 1 partition"):
        admin.create_topic("x", partitions=0)
    with pytest.raises(ConfigurationError, match="either an assignment or"):
        admin.create_topic("x", partitions=1, assignment=[[1]])
    with pytest.raises(ConfigurationError, match="must be a list of names, not the string 'orders'"):
        admin.delete_topics("orders")
    with pytest.raises(ConfigurationError, match=r'No such configuration property: "no\.such"'):
        Admin("localhost", config={"no.such": 1})
    with pytest.raises(ConfigurationError, match="timeout"):
        Admin("localhost", timeout=0)
    with pytest.raises(ConfigurationError, match="bootstrap is empty"):
        Admin([])


def test_a_broker_that_is_not_there_is_named_with_the_reason() -> None:
    with (
        Admin(f"127.0.0.1:{free_port()}", timeout=1.0) as admin,
        pytest.raises(Unreachable, match=r"Connection refused.*check the address"),
    ):
        admin.describe_cluster()


# ---- settings ----


def test_topic_settings_are_set_and_deleted(admin: Admin, topic: str, create: Callable[..., None]) -> None:
    create(topic)
    resource = Resource.topic(topic)
    admin.alter_config(resource, {"retention.ms": "5000", "cleanup.policy": "delete"})
    eventually(lambda: admin.describe_config(resource)["retention.ms"].value == "5000")
    config = admin.describe_config(resource)
    assert config["retention.ms"].source == "DYNAMIC_TOPIC_CONFIG"
    assert not config["retention.ms"].is_default
    admin.alter_config(resource, append={"cleanup.policy": "compact"}, delete=["retention.ms"])
    eventually(lambda: admin.describe_config(resource)["cleanup.policy"].value == "delete,compact")
    assert admin.describe_config(resource)["retention.ms"].is_default
    admin.alter_config(resource, subtract={"cleanup.policy": "delete"})
    eventually(lambda: admin.describe_config(resource)["cleanup.policy"].value == "compact")


def test_a_bad_setting_is_refused(admin: Admin, topic: str, create: Callable[..., None]) -> None:
    create(topic)
    with pytest.raises(RequestFailed, match=f"change the settings of topic '{topic}'") as caught:
        admin.alter_config(Resource.topic(topic), {"retention.ms": "soon"})
    assert caught.value.name == "INVALID_CONFIG"
    with pytest.raises(ConfigurationError, match="no change"):
        admin.alter_config(Resource.topic(topic))


def test_broker_settings_are_set_and_deleted(admin: Admin) -> None:
    resource = Resource.broker(NODE_ID)
    before = admin.describe_config(resource)["log.retention.ms"].value
    admin.alter_config(resource, {"log.retention.ms": "123456789"})
    eventually(lambda: admin.describe_config(resource)["log.retention.ms"].value == "123456789")
    admin.alter_config(resource, delete=["log.retention.ms"])
    eventually(lambda: admin.describe_config(resource)["log.retention.ms"].value == before)


def test_settings_of_all_brokers(admin: Admin) -> None:
    everywhere = Resource.all_brokers()
    admin.alter_config(everywhere, {"message.max.bytes": "2000000"})
    eventually(lambda: "message.max.bytes" in admin.describe_config(everywhere))
    assert admin.describe_config(everywhere)["message.max.bytes"].value == "2000000"
    with pytest.raises(RequestFailed, match="INVALID"):
        admin.alter_config(everywhere, {"message.max.bytes": "many"})
    admin.alter_config(everywhere, delete=["message.max.bytes"])
    eventually(lambda: "message.max.bytes" not in admin.describe_config(everywhere))


# ---- offsets and records ----


def test_offsets_of_partitions_by_place_and_time(
    admin: Admin, system: System, topic: str, create: Callable[..., None]
) -> None:
    create(topic, 2)
    fill(system, topic, 10)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert {key: info.offset for key, info in admin.topic_offsets(topic).items()} == {zero: 10, one: 0}
    assert admin.topic_offsets(topic, "earliest")[zero].offset == 0
    by_time = admin.partition_offsets([(topic, 0)], datetime.fromtimestamp(BASE_MS / 1000 + 2.5, UTC))[zero]
    assert (by_time.offset, by_time.timestamp) == (3, BASE_MS + 3000)
    assert admin.partition_offsets([zero], BASE_MS + 3_600_000)[zero].offset == 10
    assert admin.partition_offsets([zero], "max_timestamp")[zero].offset == 9


def test_records_are_deleted_before_an_offset(
    admin: Admin, system: System, topic: str, create: Callable[..., None]
) -> None:
    create(topic, 2)
    fill(system, topic, 10)
    fill(system, topic, 5, partition=1)
    deleted = admin.delete_records({(topic, 0): 4, (topic, 1): None})
    assert deleted == {TopicPartition(topic, 0): 4, TopicPartition(topic, 1): 5}
    assert admin.topic_offsets(topic, "earliest")[TopicPartition(topic, 0)].offset == 4


# ---- groups ----


def test_a_groups_offsets_are_altered_reset_and_deleted(
    admin: Admin, system: System, topic: str, create: Callable[..., None], unique: Callable[[str], str]
) -> None:
    create(topic, 2)
    fill(system, topic, 10)
    group = unique("group")
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    commit(system, group, {zero: 4, one: 0})
    assert {key: value.offset for key, value in admin.group_offsets(group).items()} == {zero: 4, one: 0}
    assert [(lag.partition, lag.committed, lag.end, lag.lag) for lag in admin.group_lag(group)] == [
        (0, 4, 10, 6),
        (1, 0, 0, 0),
    ]

    admin.alter_group_offsets(group, {(topic, 0): 7})
    assert admin.group_offsets(group, [zero])[zero].offset == 7
    assert admin.reset_group_offsets(group, BASE_MS + 2000, partitions=[zero], dry_run=True) == {zero: 2}
    assert admin.group_offsets(group, [zero])[zero].offset == 7
    assert admin.reset_group_offsets(group, "latest", topics=[topic]) == {zero: 10, one: 0}
    assert admin.reset_group_offsets(group, "earliest") == {zero: 0, one: 0}
    assert admin.group_offsets(group)[zero].offset == 0

    admin.delete_group_offsets(group, [one])
    assert set(admin.group_offsets(group)) == {zero}
    with pytest.raises(ConfigurationError, match="cannot be below 0"):
        admin.alter_group_offsets(group, {(topic, 0): -1})


def test_groups_are_listed_described_and_deleted(
    admin: Admin, system: System, topic: str, create: Callable[..., None], unique: Callable[[str], str]
) -> None:
    create(topic)
    group = unique("group")
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": system.bootstrap, "group.id": group, "client.id": "reader", "enable.auto.commit": False}
    )
    consumer.subscribe([topic])
    while not consumer.assignment():
        consumer.poll(0.1)
    (description,) = admin.describe_groups([group])
    assert (description.state, description.type, description.assignor) == ("Stable", "Classic", "range")
    (member,) = description.members
    assert (member.client_id, member.assignment) == ("reader", (TopicPartition(topic, 0),))
    assert [(lag.committed, lag.lag) for lag in admin.group_lag(group)] == [(None, None)]
    with pytest.raises(GroupNotEmpty, match="stop its consumers first"):
        admin.delete_groups([group])
    assert group in [listing.group for listing in admin.list_groups(states=["stable"])]
    assert group not in [listing.group for listing in admin.list_groups(states=["Empty"])]
    with pytest.raises(ConfigurationError, match="'Busy' is no state of a group"):
        admin.list_groups(states=["Busy"])
    consumer.close()
    admin.delete_groups([group])
    assert group not in [listing.group for listing in admin.list_groups()]


# ---- the cluster ----


def test_the_cluster_and_its_directories_are_described(
    admin: Admin, system: System, topic: str, create: Callable[..., None]
) -> None:
    create(topic)
    fill(system, topic, 10)
    cluster = admin.describe_cluster()
    assert [(broker.id, broker.port) for broker in cluster.brokers] == [(NODE_ID, system.port)]
    assert cluster.cluster_id
    (directory,) = admin.describe_log_dirs(topics=[topic])
    assert (directory.broker, directory.path, directory.error) == (NODE_ID, str(system.data), None)
    (replica,) = directory.replicas
    assert (replica.topic, replica.partition, replica.offset_lag) == (topic, 0, 0)
    assert replica.size_bytes > 100
    with pytest.raises(ConfigurationError, match="there is no broker 999"):
        admin.describe_log_dirs(brokers=[999])


def test_the_asyncio_twin_does_not_block_the_loop(system: System, topic: str) -> None:
    async def scenario() -> None:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        ticking = asyncio.create_task(tick())
        async with AsyncAdmin(system.bootstrap) as admin:
            before = ticks
            await admin.create_topic(topic, partitions=2)
            assert ticks > before + 1
            with pytest.raises(TopicExists):
                await admin.create_topic(topic)
            (directory,) = await admin.describe_log_dirs()
            assert topic in {replica.topic for replica in directory.replicas}
        ticking.cancel()

    asyncio.run(scenario())
