"""Real clients of a broker that misbehaves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

import penstock.testing
from penstock import Admin, Consumer, Producer
from penstock.client.connection import Connection, ConnectionLost
from penstock.client.errors import DeliveryFailed, RequestFailed, TopicExists
from penstock.testing import RunningBroker
from penstock.wire.api import APIS
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

TOPICS = [
    "refused",
    "too-large",
    "dropped-True",
    "dropped-False",
    "twice",
    "slow",
    "released",
    "read-on",
    "moving",
    "aiokafka",
]


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with penstock.testing.broker() as running, Admin(running.bootstrap) as admin:
        admin.create_topics(TOPICS)
        yield running


@pytest.fixture(autouse=True)
def _without_faults(broker: RunningBroker) -> Iterator[None]:
    yield
    broker.faults.clear()


def _read(broker: RunningBroker, topic: str) -> list[bytes]:
    config = {"fetch.wait.max.ms": 20}
    with Consumer(broker.bootstrap, stop_at_end=True, auto_offset_reset="earliest", config=config) as consumer:
        consumer.assign([(topic, 0)])
        return [record.value for record in consumer]


def test_a_producer_retries_what_was_refused_and_writes_it_once(broker: RunningBroker) -> None:
    with Producer(broker.bootstrap) as producer:
        producer.send_and_wait("refused", b"0", timeout=10)
        with broker.faults.error(api="Produce", code="NOT_LEADER_OR_FOLLOWER", times=2) as fault:
            producer.send_and_wait("refused", b"1", timeout=10)
        assert fault.hits == 2
    assert _read(broker, "refused") == [b"0", b"1"]


def test_a_refused_record_is_not_written(broker: RunningBroker) -> None:
    with Producer(broker.bootstrap, idempotence=False) as producer:
        producer.send_and_wait("too-large", b"0", timeout=10)
        with (
            broker.faults.error(api="Produce", code=ErrorCode.MESSAGE_TOO_LARGE, times=1),
            pytest.raises(DeliveryFailed, match="MSG_SIZE_TOO_LARGE"),
        ):
            producer.send_and_wait("too-large", b"1", timeout=10)
        producer.send_and_wait("too-large", b"2", timeout=10)
    assert _read(broker, "too-large") == [b"0", b"2"]


@pytest.mark.parametrize("is_handled", [False, True])
def test_an_idempotent_producer_writes_once_although_answers_are_lost(broker: RunningBroker, is_handled: bool) -> None:
    topic = f"dropped-{is_handled}"
    with Producer(broker.bootstrap) as producer:
        producer.send_and_wait(topic, b"0", timeout=10)
        with broker.faults.drop(api="Produce", times=2, is_handled=is_handled) as fault:
            producer.send_and_wait(topic, b"1", timeout=20)
        assert fault.hits == 2
    assert _read(broker, topic) == [b"0", b"1"]


def test_a_producer_that_is_not_idempotent_writes_twice_if_its_answer_is_lost(broker: RunningBroker) -> None:
    with Producer(broker.bootstrap, idempotence=False) as producer:
        producer.send_and_wait("twice", b"0", timeout=10)
        with broker.faults.drop(api="Produce", times=1, is_handled=True):
            producer.send_and_wait("twice", b"1", timeout=20)
    assert _read(broker, "twice") == [b"0", b"1", b"1"]


def test_a_slow_broker_is_waited_for(broker: RunningBroker) -> None:
    with Producer(broker.bootstrap) as producer:
        producer.send_and_wait("slow", b"0", timeout=10)
        with broker.faults.delay(api="Produce", seconds=0.3):
            begin = time.monotonic()
            producer.send_and_wait("slow", b"1", timeout=10)
            assert time.monotonic() - begin >= 0.3


def test_the_end_of_a_delay_releases_what_it_holds_back(broker: RunningBroker) -> None:
    with Producer(broker.bootstrap) as producer:
        producer.send_and_wait("released", b"0", timeout=10)
        with broker.faults.delay(api="Produce", seconds=3600) as fault:
            delivery = producer.send("released", b"1")
            fault.wait_for_hit()
            assert not delivery.is_done()
        assert delivery.result(10).offset == 1


def test_a_consumer_reads_on_through_errors_and_lost_connections(broker: RunningBroker) -> None:
    with Producer(broker.bootstrap) as producer:
        for number in range(100):
            producer.send("read-on", b"%d" % number)
    with (
        broker.faults.error(api="Fetch", code="NOT_LEADER_OR_FOLLOWER", times=1) as refused,
        broker.faults.drop(api="Fetch", times=1) as dropped,
    ):
        assert _read(broker, "read-on") == [b"%d" % number for number in range(100)]
    assert refused.hits == dropped.hits == 1


def test_a_group_gets_over_a_coordinator_that_moves(broker: RunningBroker) -> None:
    with Producer(broker.bootstrap) as producer:
        producer.send_and_wait("moving", b"0", timeout=10)
    options = {"group": "moving", "topics": ["moving"], "auto_offset_reset": "earliest", "stop_at_end": True}
    with (
        broker.faults.error(api="JoinGroup", code="NOT_COORDINATOR", times=1) as fault,
        Consumer(broker.bootstrap, **options) as consumer,  # type: ignore[arg-type]
    ):
        assert [record.value for record in consumer] == [b"0"]
    assert fault.hits == 1


def test_a_refused_topic_is_not_created(broker: RunningBroker) -> None:
    with Admin(broker.bootstrap, timeout=10) as admin:
        with (
            broker.faults.error(api="CreateTopics", code="TOPIC_ALREADY_EXISTS"),
            pytest.raises(TopicExists, match="as a test asked for"),
        ):
            admin.create_topic("never")
        assert "never" not in admin.list_topics()
        with (
            broker.faults.error(api="DeleteGroups", code="NON_EMPTY_GROUP"),
            pytest.raises(RequestFailed, match="NON_EMPTY_GROUP"),
        ):
            admin.delete_groups(["some"])


def test_an_error_is_at_all_levels_of_a_response(broker: RunningBroker) -> None:
    with Connection("127.0.0.1", broker.port) as connection:
        topic = OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(partition_index=3)])
        with broker.faults.error(api="OffsetCommit", code="REBALANCE_IN_PROGRESS"):
            committed = connection.call(OffsetCommitRequest(group_id="g", topics=[topic]), 8)
        (answered,) = committed.topics
        assert (answered.name, answered.partitions[0].partition_index) == ("t", 3)
        assert answered.partitions[0].error_code == ErrorCode.REBALANCE_IN_PROGRESS
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("levels", partitions=2)
        with broker.faults.error(api="Metadata", code="LEADER_NOT_AVAILABLE"):
            found = connection.call(MetadataRequest(topics=[MetadataRequestTopic(name="levels")]), 12)
        assert len(found.brokers) == 1
        codes = [found.topics[0].error_code, *(one.error_code for one in found.topics[0].partitions)]
        assert codes == [ErrorCode.LEADER_NOT_AVAILABLE] * 3


def test_every_api_can_be_refused(broker: RunningBroker) -> None:
    """A response must be encodable, whatever the version."""
    for api in APIS.values():
        if api.name == "ApiVersions":
            continue
        for version in range(api.low, api.high + 1):
            with Connection("127.0.0.1", broker.port) as connection:
                request = api.request_type()
                if api.name == "Produce":
                    request.acks = 1
                with broker.faults.error(api=api.name, code="UNKNOWN_SERVER_ERROR"):
                    connection.call(request, version)


def test_a_dropped_request_closes_its_connection(broker: RunningBroker) -> None:
    with (
        broker.faults.drop(api="Metadata", times=1),
        Connection("127.0.0.1", broker.port) as connection,
        pytest.raises((ConnectionLost, ConnectionResetError)),
    ):
        connection.call(MetadataRequest(), 12)
    with Connection("127.0.0.1", broker.port) as connection:
        assert connection.call(MetadataRequest(), 12).brokers


def test_mistakes_are_told_at_once(broker: RunningBroker) -> None:
    with pytest.raises(ValueError, match=r"no API 'Fech'; there are .*Fetch"):
        broker.faults.drop(api="Fech")
    with pytest.raises(ValueError, match="no error code"):
        broker.faults.error(api="Fetch", code="BROKEN")
    with pytest.raises(ValueError, match="times is 0"):
        broker.faults.drop(api="Fetch", times=0)


def test_other_clients_get_over_faults_too(broker: RunningBroker) -> None:
    async def produce_and_read() -> list[bytes]:
        producer = AIOKafkaProducer(bootstrap_servers=broker.bootstrap, enable_idempotence=True)
        await producer.start()
        await producer.send_and_wait("aiokafka", b"0")
        with broker.faults.drop(api="Produce", times=1, is_handled=True) as dropped:
            await producer.send_and_wait("aiokafka", b"1")
        await producer.stop()
        consumer = AIOKafkaConsumer("aiokafka", bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest")
        with broker.faults.error(api="Fetch", code="NOT_LEADER_OR_FOLLOWER", times=1) as refused:
            await consumer.start()
            read = [(await consumer.getone()).value for _ in range(2)]
        await consumer.stop()
        assert dropped.hits == refused.hits == 1
        return read

    assert asyncio.run(asyncio.wait_for(produce_and_read(), 30)) == [b"0", b"1"]
