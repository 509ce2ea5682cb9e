"""The protocol itself, frame by frame, against both systems.

What real Kafka answers is what these tests expect. Where Penstock means to differ, the test says so and docs/gaps.md
too.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock.client.connection import Connection, ConnectionLost
from penstock.wire import _kernel
from penstock.wire.api import APIS, ApiKey
from penstock.wire.batch import Batch, batches_in, decode_records, encode_batch
from penstock.wire.compression import Codec
from penstock.wire.errors import ErrorCode
from penstock.wire.messages import create_topics as create_messages
from penstock.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.describe_cluster import DescribeClusterRequest
from penstock.wire.messages.describe_topic_partitions import DescribeTopicPartitionsRequest, TopicRequest
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, PartitionData
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from penstock.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from penstock.wire.record import Record
from penstock.wire.types import ZERO_UUID
from tests.support.groups import wait_for_coordinator
from tests.support.systems import System

NOW = int(time.time() * 1000)


class Client:
    """A connection with the calls these tests make often."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.connection = system.connect()

    def call(self, request: Any, version: int | None = None) -> Any:
        return self.connection.call(request, version)

    def create(self, name: str, partitions: int = 1, **config: str) -> bytes:
        """Create a topic and wait until it can be used; returns its id."""
        configs = [CreatableTopicConfig(name=k.replace("_", "."), value=v) for k, v in config.items()]
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=configs)
        (result,) = self.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000)).topics
        assert result.error_code == 0, result
        deadline = time.monotonic() + 10
        while True:  # Kafka acknowledges a topic before its partitions are there
            (described,) = self.call(MetadataRequest(topics=[MetadataRequestTopic(name=name)])).topics
            offsets = [self.list_offset(name, -1, index=index)[0] for index in range(partitions)]
            if len(described.partitions) == partitions and not any(offsets):
                topic_id: bytes = result.topic_id
                return topic_id
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def produce(
        self, topic: str, records: Any, index: int = 0, acks: int = 1, version: int = 9
    ) -> PartitionProduceResponse:
        data = PartitionProduceData(index=index, records=records)
        request = ProduceRequest(
            acks=acks, timeout_ms=5_000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
        )
        result: PartitionProduceResponse = self.call(request, version).responses[0].partition_responses[0]
        return result

    def fetch(self, topic: str, offset: int, version: int = 12, index: int = 0, **options: Any) -> PartitionData:
        request = fetch_request(topic, offset, index, **options)
        result: PartitionData = self.call(request, version).responses[0].partitions[0]
        return result

    def list_offset(
        self, topic: str, timestamp: int, version: int | None = None, index: int = 0
    ) -> tuple[int, int, int]:
        """(error, timestamp, offset)"""
        wanted = ListOffsetsPartition(partition_index=index, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
        (result,) = self.call(request, version).topics[0].partitions
        return result.error_code, result.timestamp, result.offset


def fetch_request(
    topic: str, offset: int, index: int = 0, partition_max: int = 1 << 20, **options: Any
) -> FetchRequest:
    partition = FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=partition_max)
    settings: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "session_epoch": -1, **options}
    return FetchRequest(topics=[FetchTopic(topic=topic, partitions=[partition])], **settings)


def batch_of(count: int = 1, size: int = 10, **options: Any) -> bytearray:
    return encode_batch([Record(n, NOW + n, b"key%d" % n, b"v" * size) for n in range(count)], **options)


def bent(payload: bytes | None = None, **header: Any) -> bytearray:
    """A batch of one record, with a right checksum, whose header says something else."""
    fields: dict[str, Any] = {
        "base_offset": 0,
        "last_offset_delta": 0,
        "count": 1,
        "attributes": 0,
        "base_timestamp": NOW,
        "max_timestamp": NOW,
    }
    if payload is None:
        payload = _kernel.encode_records([(0, NOW, b"k", b"v", ())], 0, NOW)
    return _kernel.build_batch(payload, **{**fields, **header})


def flipped(data: bytearray, position: int) -> bytearray:
    data[position] ^= 1
    return data


def with_magic(magic: int) -> bytearray:
    data = batch_of()
    data[16] = magic
    return data


# ---- produce ----


REFUSED = {
    "nothing": (b"", ErrorCode.INVALID_RECORD),
    "too short for a header": (b"abc", ErrorCode.INVALID_RECORD),
    "torn": (batch_of(3)[:-4], ErrorCode.INVALID_RECORD),
    "wrong checksum": (flipped(batch_of(), 20), ErrorCode.CORRUPT_MESSAGE),
    "flipped bit in a value": (flipped(batch_of(), 70), ErrorCode.CORRUPT_MESSAGE),
    "format 1": (with_magic(1), ErrorCode.INVALID_RECORD),
    "format 9": (with_magic(9), ErrorCode.CORRUPT_MESSAGE),
    "two batches": (batch_of() + batch_of(), ErrorCode.INVALID_RECORD),
    "base offset not 0": (bent(base_offset=5), ErrorCode.INVALID_RECORD),
    "more records declared": (bent(count=2, last_offset_delta=1), ErrorCode.INVALID_RECORD),
    "no records declared": (bent(count=0), ErrorCode.INVALID_RECORD),
    "negative count": (bent(count=-1), ErrorCode.INVALID_RECORD),
    "offset range too large": (bent(last_offset_delta=3), ErrorCode.INVALID_RECORD),
    "negative offset range": (bent(last_offset_delta=-1), ErrorCode.INVALID_RECORD),
    "fewer records declared": (
        bent(_kernel.encode_records([(0, NOW, b"k", b"v", ()), (1, NOW, b"k", b"v", ())], 0, NOW)),
        ErrorCode.INVALID_RECORD,
    ),
    "control batch": (bent(attributes=32), ErrorCode.INVALID_RECORD),
    "transactional without an id": (bent(attributes=16), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
    "producer without sequence": (
        bent(producer_id=5, producer_epoch=0, base_sequence=-1),
        ErrorCode.INVALID_RECORD,
    ),
    "larger than the limit": (batch_of(1, 1_100_000), ErrorCode.MESSAGE_TOO_LARGE),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_batch_is_refused_and_leaves_no_trace(client: Client, topic: str, case: str) -> None:
    data, expected = REFUSED[case]
    client.create(topic)
    client.produce(topic, batch_of())
    assert client.produce(topic, data).error_code == expected
    assert client.list_offset(topic, -1) == (0, -1, 1)
    assert client.produce(topic, batch_of()).base_offset == 1


def test_the_record_at_fault_is_named(client: Client, topic: str) -> None:
    client.create(topic, cleanup_policy="compact")
    records = [Record(0, NOW, b"k", b""), Record(1, NOW, None, b"x"), Record(2, NOW, None, b"x")]
    result = client.produce(topic, encode_batch(records))
    assert result.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in result.record_errors] == [1, 2]
    assert all("without key" in (error.batch_index_error_message or "") for error in result.record_errors)
    late = encode_batch([Record(0, NOW, b"k", b""), Record(1, NOW + 7_200_000, b"k", b"")])
    result = client.produce(topic, late)
    assert result.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in result.record_errors] == [1]


def test_every_version_of_produce_is_served(client: Client, topic: str) -> None:
    topic_id = client.create(topic)
    versions = range(APIS[ApiKey.PRODUCE].low, APIS[ApiKey.PRODUCE].high + 1)
    for number, version in enumerate(versions):
        data = PartitionProduceData(index=0, records=batch_of())
        named = TopicProduceData(name=topic, topic_id=topic_id, partition_data=[data])
        response = client.call(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[named]), version)
        result = response.responses[0].partition_responses[0]
        assert (result.error_code, result.base_offset) == (0, number), version


@pytest.mark.parametrize(
    ("acks", "name", "index", "expected"),
    [
        (2, None, 0, ErrorCode.INVALID_REQUIRED_ACKS),
        (1, "missing", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (1, None, 7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_produce_names_what_is_wrong(
    client: Client, topic: str, acks: int, name: str | None, index: int, expected: ErrorCode
) -> None:
    client.create(topic)
    assert client.produce(name or topic, batch_of(), index=index, acks=acks).error_code == expected


def test_an_unknown_topic_id_is_told_from_an_unknown_name(client: Client) -> None:
    data = PartitionProduceData(index=0, records=batch_of())
    request = ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[TopicProduceData(topic_id=b"x" * 16, partition_data=[data])]
    )
    result = client.call(request, 13).responses[0].partition_responses[0]
    assert result.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_one_request_can_have_good_and_bad_partitions(client: Client, topic: str) -> None:
    client.create(topic, 3)
    parts = [
        PartitionProduceData(index=0, records=batch_of(2)),
        PartitionProduceData(index=1, records=flipped(batch_of(), 20)),
        PartitionProduceData(index=9, records=batch_of()),
        PartitionProduceData(index=2, records=batch_of(4, codec=Codec.LZ4)),
    ]
    request = ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=parts)])
    results = {p.index: p.error_code for p in client.call(request, 12).responses[0].partition_responses}
    assert results == {
        0: ErrorCode.NONE,
        1: ErrorCode.CORRUPT_MESSAGE,
        9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        2: ErrorCode.NONE,
    }
    assert [client.list_offset(topic, -1, index=index)[2] for index in range(3)] == [2, 0, 4]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_clients_cannot_write_to_the_brokers_own_topics(system: System, client: Client, codec: Codec) -> None:
    wait_for_coordinator(system)
    ends = [client.list_offset("__consumer_offsets", -1, index=index) for index in range(3)]
    for index in range(3):
        result = client.produce("__consumer_offsets", batch_of(codec=codec), index=index)
        assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert [client.list_offset("__consumer_offsets", -1, index=index) for index in range(3)] == ends


def test_zstd_needs_a_version_that_allows_it(client: Client, topic: str) -> None:
    client.create(topic)
    data = batch_of(codec=Codec.ZSTD)
    assert client.produce(topic, data, version=6).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert client.produce(topic, data, version=7).error_code == 0


def test_acks_0_has_no_answer_and_the_next_request_has_its_own(client: Client, topic: str) -> None:
    client.create(topic)
    data = PartitionProduceData(index=0, records=batch_of())
    request = ProduceRequest(acks=0, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])
    client.connection.send(request, 9)
    assert client.list_offset(topic, -1) == (0, -1, 1)


def test_an_error_with_acks_0_closes_the_connection(client: Client, topic: str) -> None:
    data = PartitionProduceData(index=0, records=batch_of())
    request = ProduceRequest(
        acks=0, timeout_ms=1000, topic_data=[TopicProduceData(name="missing", partition_data=[data])]
    )
    client.connection.send(request, 9)
    with pytest.raises((ConnectionLost, OSError)):
        client.call(MetadataRequest(topics=[]))


def test_a_batch_that_says_the_broker_dated_it_is_corrected(client: Client, topic: str) -> None:
    client.create(topic)
    assert client.produce(topic, bent(attributes=8, max_timestamp=NOW + 77)).error_code == 0
    (stored,) = _batches(client.fetch(topic, 0))
    assert not stored.is_log_append_time


# ---- idempotence ----


def numbered(count: int, producer_id: int, epoch: int, sequence: int) -> bytearray:
    return batch_of(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def test_duplicates_of_the_last_five_batches_get_their_first_answer(client: Client, topic: str) -> None:
    client.create(topic)
    for sequence in range(7):
        assert client.produce(topic, numbered(1, 77, 0, sequence)).base_offset == sequence
    for sequence in range(2, 7):
        again = client.produce(topic, numbered(1, 77, 0, sequence))
        assert (again.error_code, again.base_offset) == (0, sequence)
    too_old = client.produce(topic, numbered(1, 77, 0, 1))
    assert too_old.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert client.list_offset(topic, -1) == (0, -1, 7)


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([(1, 0, 0), (1, 0, 5)], ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),  # a gap
        ([(3, 0, 0), (1, 0, 0)], ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),  # part of an earlier batch
        ([(1, 0, 0), (1, 1, 3)], ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),  # a new epoch that does not begin at 0
        ([(1, 1, 0), (1, 0, 1)], ErrorCode.INVALID_PRODUCER_EPOCH),  # an old epoch
        ([(1, 0, 7)], ErrorCode.NONE),  # an unknown producer may begin anywhere
        ([(1, 0, 0), (1, 1, 0)], ErrorCode.NONE),
        ([(1, 0, 2**31 - 1), (1, 0, 0)], ErrorCode.NONE),  # sequence numbers wrap
    ],
)
def test_sequence_numbers_are_checked(
    client: Client, topic: str, steps: list[tuple[int, int, int]], expected: ErrorCode
) -> None:
    client.create(topic)
    results = [client.produce(topic, numbered(count, 88, epoch, sequence)) for count, epoch, sequence in steps]
    assert all(result.error_code == 0 for result in results[:-1])
    assert results[-1].error_code == expected


def test_every_producer_gets_an_id_of_its_own(client: Client) -> None:
    def next_id() -> int:
        deadline = time.monotonic() + 10
        while True:
            response = client.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000))
            if response.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:  # Kafka fetches its first block
                assert response.error_code == 0
                assert response.producer_epoch == 0
                producer_id: int = response.producer_id
                return producer_id
            assert time.monotonic() < deadline

    ids = [next_id() for _ in range(20)]
    assert len(set(ids)) == 20


# ---- fetch ----


def _batches(data: PartitionData) -> list[Batch]:
    records = data.records
    assert isinstance(records, memoryview)
    return list(batches_in(bytes(records)))


def _values(data: PartitionData) -> list[bytes | None]:
    content = bytes(data.records)  # type: ignore[arg-type]
    return [record.value for batch in batches_in(content) for record in decode_records(content, batch)]


def test_a_fetch_inside_a_batch_gets_the_whole_batch(client: Client, topic: str) -> None:
    client.create(topic)
    client.produce(topic, batch_of(10))
    client.produce(topic, batch_of(10))
    for offset in (0, 5, 9):
        assert [batch.base_offset for batch in _batches(client.fetch(topic, offset))] == [0, 10]
    assert [batch.base_offset for batch in _batches(client.fetch(topic, 10))] == [10]


def test_the_first_batch_comes_whole_however_small_the_limits_are(client: Client, topic: str) -> None:
    client.create(topic)
    data = batch_of(5, 500)
    client.produce(topic, data)
    client.produce(topic, data)
    for limits in ({"partition_max": 1}, {"max_bytes": 1}, {"partition_max": 0}):
        found = client.fetch(topic, 0, **limits)
        assert len(found.records) == len(data)  # type: ignore[arg-type]


def test_limits_hold_for_all_that_follows(client: Client, topic: str) -> None:
    client.create(topic)
    data = batch_of(1, 1000)
    for _ in range(20):
        client.produce(topic, data)
    found = client.fetch(topic, 0, partition_max=3 * len(data))
    assert len(found.records) <= 3 * len(data)  # type: ignore[arg-type]
    assert [batch.base_offset for batch in _batches(found)] == [0, 1, 2]


def test_the_total_limit_is_shared_by_partitions_in_order(client: Client, topic: str) -> None:
    client.create(topic, 3)
    data = batch_of(1, 1000)
    for index in range(3):
        for _ in range(5):
            client.produce(topic, data, index=index)
    parts = [FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1 << 20) for n in (2, 0, 1)]
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=6 * len(data),
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, partitions=parts)],
    )
    answered = client.call(request, 12).responses[0].partitions
    assert [part.partition_index for part in answered] == [2, 0, 1]
    sizes = [len(part.records) for part in answered]
    assert sizes[0] == 5 * len(data)
    assert 0 < sizes[1] <= len(data)
    assert sizes[2] == 0


@pytest.mark.parametrize(
    ("offset", "epoch", "expected"),
    [
        (-1, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (11, -1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (10, -1, ErrorCode.NONE),
        (0, 0, ErrorCode.NONE),
        (0, 5, ErrorCode.UNKNOWN_LEADER_EPOCH),
    ],
)
def test_fetch_names_what_is_wrong(client: Client, topic: str, offset: int, epoch: int, expected: ErrorCode) -> None:
    client.create(topic)
    client.produce(topic, batch_of(10))
    request = fetch_request(topic, offset)
    request.topics[0].partitions[0].current_leader_epoch = epoch
    found = client.call(request, 12).responses[0].partitions[0]
    assert found.error_code == expected
    if expected == ErrorCode.NONE:
        assert (found.high_watermark, found.log_start_offset) == (10, 0)


def test_every_version_of_fetch_is_served(client: Client, topic: str) -> None:
    topic_id = client.create(topic)
    client.produce(topic, batch_of(3))
    for version in range(APIS[ApiKey.FETCH].low, APIS[ApiKey.FETCH].high + 1):
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            session_epoch=-1,
            topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[partition])],
        )
        response = client.call(request, version)
        assert len(_values(response.responses[0].partitions[0])) == 3, version


def test_unknown_topics_and_ids(client: Client) -> None:
    assert client.fetch("missing", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
    topics = [FetchTopic(topic_id=b"y" * 16, partitions=[partition])]
    request = FetchRequest(max_wait_ms=0, min_bytes=1, session_epoch=-1, topics=topics)
    assert client.call(request, 13).responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_an_empty_fetch_waits_until_its_time_is_up(client: Client, topic: str) -> None:
    client.create(topic)
    started = time.monotonic()
    found = client.fetch(topic, 0, max_wait_ms=300)
    assert 0.28 <= time.monotonic() - started < 5
    assert not found.records


def test_a_waiting_fetch_is_answered_when_data_arrives(system: System, client: Client, topic: str) -> None:
    client.create(topic)
    started = time.monotonic()
    client.connection.send(fetch_request(topic, 0, max_wait_ms=20_000), 12)
    with system.connect() as other:
        writer = Client.__new__(Client)
        writer.system, writer.connection = system, other
        writer.produce(topic, batch_of(2))
    response = client.connection.receive(APIS[ApiKey.FETCH], 12)
    assert time.monotonic() - started < 10
    assert len(_values(response.responses[0].partitions[0])) == 2


def test_a_fetch_waits_for_its_minimum(system: System, client: Client, topic: str) -> None:
    client.create(topic)
    data = batch_of(1, 100)
    client.connection.send(fetch_request(topic, 0, max_wait_ms=20_000, min_bytes=3 * len(data)), 12)
    with system.connect() as other:
        writer = Client.__new__(Client)
        writer.system, writer.connection = system, other
        for _ in range(3):
            writer.produce(topic, data)
    response = client.connection.receive(APIS[ApiKey.FETCH], 12)
    assert len(_values(response.responses[0].partitions[0])) == 3


def test_requests_of_a_connection_are_answered_in_order(client: Client, topic: str) -> None:
    client.create(topic)
    connection = client.connection
    fetch = connection.send(fetch_request(topic, 0, max_wait_ms=200), 12)
    listed = connection.send(MetadataRequest(topics=[]), 9)
    assert int.from_bytes(connection.receive_frame()[:4], "big") == fetch
    assert int.from_bytes(connection.receive_frame()[:4], "big") == listed


def test_incremental_sessions(client: Client, topic: str) -> None:
    client.create(topic, 3)
    client.produce(topic, batch_of(2), index=1)
    parts = [FetchPartition(partition=n, fetch_offset=0, partition_max_bytes=1 << 20) for n in range(3)]
    topics = [FetchTopic(topic=topic, partitions=parts)]

    def fetch(epoch: int, session: int = 0, **options: Any) -> Any:
        request = FetchRequest(max_wait_ms=0, min_bytes=1, session_id=session, session_epoch=epoch, **options)
        return client.call(request, 12)

    def listed(response: Any) -> list[int]:
        return [p.partition_index for t in response.responses for p in t.partitions]

    first = fetch(0, topics=topics)
    assert first.session_id != 0
    assert listed(first) == [0, 1, 2]
    session = first.session_id
    again = fetch(1, session)
    assert listed(again) == [1]  # it was not told to go on: partition 1 has data again
    moved = FetchPartition(partition=1, fetch_offset=2, partition_max_bytes=1 << 20)
    assert listed(fetch(2, session, topics=[FetchTopic(topic=topic, partitions=[moved])])) == []
    client.produce(topic, batch_of(1), index=2)
    assert listed(fetch(3, session)) == [2]
    forgotten = [ForgottenTopic(topic=topic, partitions=[2])]
    assert listed(fetch(4, session, forgotten_topics_data=forgotten)) == []
    assert fetch(9, session).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert fetch(1, session + 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    closed = fetch(-1, session, topics=topics)
    assert closed.session_id == 0
    assert fetch(5, session).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


# ---- offsets ----


@pytest.mark.parametrize("codec", list(Codec))
def test_offsets_by_timestamp(client: Client, topic: str, codec: Codec) -> None:
    client.create(topic)
    for batch in range(5):
        records = [Record(n, NOW + batch * 100 + n * 10, b"k", b"v" * 50) for n in range(5)]
        client.produce(topic, encode_batch(records, codec=codec))
    for wanted, expected in (
        (NOW, (0, NOW, 0)),
        (NOW + 1, (0, NOW + 10, 1)),
        (NOW + 140, (0, NOW + 140, 9)),
        (NOW + 141, (0, NOW + 200, 10)),
        (NOW + 440, (0, NOW + 440, 24)),
        (NOW + 441, (0, -1, -1)),
        (0, (0, NOW, 0)),
    ):
        assert client.list_offset(topic, wanted) == expected
    assert client.list_offset(topic, -3) == (0, NOW + 440, 24)


def test_special_positions(client: Client, topic: str) -> None:
    client.create(topic)
    client.produce(topic, batch_of(4))
    assert client.list_offset(topic, -1) == (0, -1, 4)
    assert client.list_offset(topic, -2) == (0, -1, 0)
    assert client.list_offset(topic, -4) == (0, -1, 0)
    assert client.list_offset(topic, -5) == (0, -1, -1)
    assert client.list_offset(topic, -3, version=6)[0] == ErrorCode.UNSUPPORTED_VERSION
    assert client.list_offset("missing", -1)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_largest_timestamp_is_found_wherever_it_is(client: Client, topic: str) -> None:
    client.create(topic)
    for offset, timestamp in enumerate((NOW, NOW + 900, NOW + 100, NOW + 900)):
        client.produce(topic, encode_batch([Record(0, timestamp, b"k", b"%d" % offset)]))
    assert client.list_offset(topic, -3) == (0, NOW + 900, 1)


def test_where_a_leader_epoch_ended(client: Client, topic: str) -> None:
    client.create(topic)
    client.produce(topic, batch_of(4))

    def ask(epoch: int, current: int = -1) -> tuple[int, int, int]:
        wanted = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
        topics = [OffsetForLeaderTopic(topic=topic, partitions=[wanted])]
        (result,) = client.call(OffsetForLeaderEpochRequest(replica_id=-1, topics=topics)).topics[0].partitions
        return result.error_code, result.leader_epoch, result.end_offset

    assert ask(0) == (0, 0, 4)
    assert ask(3) == (0, -1, -1)
    assert ask(0, current=9)[0] == ErrorCode.UNKNOWN_LEADER_EPOCH


# ---- metadata ----


def test_metadata_of_all_none_and_missing_topics(client: Client, topic: str) -> None:
    topic_id = client.create(topic, 2)
    for version in range(APIS[ApiKey.METADATA].low, APIS[ApiKey.METADATA].high + 1):
        everything = client.call(MetadataRequest(topics=None if version else []), version)
        assert topic in [described.name for described in everything.topics], version
        if version:
            assert client.call(MetadataRequest(topics=[]), version).topics == []
        (found,) = client.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), version).topics
        assert [partition.partition_index for partition in found.partitions] == [0, 1]
        if version >= 10:
            assert found.topic_id == topic_id
    missing = MetadataRequestTopic(name="missing")
    (answer,) = client.call(MetadataRequest(topics=[missing], allow_auto_topic_creation=False)).topics
    assert (answer.error_code, answer.name) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "missing")
    (answer,) = client.call(MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=b"z" * 16)])).topics
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    (answer,) = client.call(MetadataRequest(topics=[MetadataRequestTopic(name=None, topic_id=topic_id)])).topics
    assert answer.name == topic


def test_a_topic_is_unknown_in_the_answer_that_creates_it_and_known_soon(client: Client, topic: str) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
    (answer,) = client.call(request).topics
    assert (answer.error_code, answer.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    deadline = time.monotonic() + 10
    while answer.error_code:
        assert time.monotonic() < deadline
        (answer,) = client.call(request).topics
    assert len(answer.partitions) == 1


def test_a_bad_name_is_not_created(client: Client) -> None:
    (answer,) = client.call(MetadataRequest(topics=[MetadataRequestTopic(name="a b")])).topics
    assert answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_partitions_page_by_page(client: Client, unique: Callable[[str], str]) -> None:
    first, second = unique("page-a"), unique("page-b")
    client.create(first, 3)
    client.create(second, 3)
    wanted = [TopicRequest(name=second), TopicRequest(name=first), TopicRequest(name="zz-missing")]
    seen: list[tuple[str, int]] = []
    errors: list[tuple[str, int]] = []
    cursor = None
    for _ in range(5):
        page = client.call(DescribeTopicPartitionsRequest(topics=wanted, response_partition_limit=2, cursor=cursor))
        for described in page.topics:
            seen += [(described.name, partition.partition_index) for partition in described.partitions]
            if described.error_code:
                errors.append((described.name, described.error_code))
        cursor = page.next_cursor
        if cursor is None:
            break
    assert cursor is None
    assert seen == [(name, index) for name in (first, second) for index in range(3)]
    assert set(errors) == {("zz-missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)}


# ---- topics ----


CREATE_REFUSED = {
    "": ErrorCode.INVALID_TOPIC_EXCEPTION,
    ".": ErrorCode.INVALID_TOPIC_EXCEPTION,
    "a b": ErrorCode.INVALID_TOPIC_EXCEPTION,
    "x" * 250: ErrorCode.INVALID_TOPIC_EXCEPTION,
}


def _create(
    client: Client, *topics: CreatableTopic, version: int = 7, dry: bool = False
) -> list[tuple[int, str | None]]:
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, validate_only=dry)
    return [(result.error_code, result.error_message) for result in client.call(request, version).topics]


@pytest.mark.parametrize("name", CREATE_REFUSED)
def test_names_that_are_no_topics(client: Client, name: str) -> None:
    ((code, message),) = _create(client, CreatableTopic(name=name, num_partitions=1, replication_factor=1))
    assert code == CREATE_REFUSED[name]
    assert (message or "").startswith("Topic name is invalid: ")


@pytest.mark.parametrize(
    ("wish", "code", "message"),
    [
        ({"num_partitions": 0}, ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid"),
        ({"replication_factor": 0}, ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0"),
        (
            {"replication_factor": 3},
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Unable to replicate the partition 3 time(s)",
        ),
        ({"configs": [("nope", "1")]}, ErrorCode.INVALID_CONFIG, "Unknown topic config name: nope"),
        (
            {"configs": [("retention.ms", "x")]},
            ErrorCode.INVALID_CONFIG,
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        (
            {"configs": [("cleanup.policy", "burn")]},
            ErrorCode.INVALID_CONFIG,
            "Invalid value burn for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            {"configs": [("min.compaction.lag.ms", "9"), ("max.compaction.lag.ms", "5")]},
            ErrorCode.INVALID_CONFIG,
            "conflict topic config setting min.compaction.lag.ms (9) > max.compaction.lag.ms (5)",
        ),
        ({"assignments": [(1, [1])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive"),
        ({"assignments": [(0, [9])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes broker 9, but no such broker"),
        ({"assignments": [(0, [1, 1])]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT, "includes the broker 1 more than once"),
    ],
)
def test_wishes_that_cannot_be(client: Client, topic: str, wish: dict[str, Any], code: ErrorCode, message: str) -> None:
    wanted = CreatableTopic(
        name=topic,
        num_partitions=wish.get("num_partitions", -1),
        replication_factor=wish.get("replication_factor", -1),
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in wish.get("configs", [])],
        assignments=[
            create_messages.CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in wish.get("assignments", [])
        ],
    )
    ((found, text),) = _create(client, wanted)
    assert found == code
    assert message in (text or "")


def test_a_dry_run_creates_nothing(client: Client, topic: str) -> None:
    wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
    for _ in range(2):
        assert _create(client, wanted, dry=True) == [(0, None)]
    (answer,) = client.call(
        MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    ).topics
    assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_names_that_metrics_could_not_tell_apart_collide(client: Client, unique: Callable[[str], str]) -> None:
    name = unique("with.dots")
    client.create(name)
    ((code, message),) = _create(
        client, CreatableTopic(name=name.replace(".", "_"), num_partitions=1, replication_factor=1)
    )
    assert code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert "collides with existing topic" in (message or "")


def test_the_same_topic_twice_in_a_request(client: Client, topic: str) -> None:
    wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1)
    assert _create(client, wanted, wanted) == [(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")]


def test_an_id_counts_more_than_a_name(client: Client, topic: str) -> None:
    topic_id = client.create(topic, 2)
    wanted = MetadataRequestTopic(name="", topic_id=topic_id)  # as Java's consumer asks
    (found,) = client.call(MetadataRequest(topics=[wanted], allow_auto_topic_creation=False)).topics
    assert (found.error_code, found.name, len(found.partitions)) == (0, topic, 2)


def test_what_may_be_done_is_told_to_those_who_ask(client: Client, topic: str) -> None:
    client.create(topic)
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)],
        include_topic_authorized_operations=True,
        include_cluster_authorized_operations=True,
    )
    answer = client.call(request, 10)
    (found,) = answer.topics
    assert (found.topic_authorized_operations, answer.cluster_authorized_operations) == (3576, 8096)
    (found,) = client.call(MetadataRequest(topics=[MetadataRequestTopic(name=topic)])).topics
    assert found.topic_authorized_operations == -(1 << 31)
    cluster = client.call(DescribeClusterRequest(include_cluster_authorized_operations=True))
    assert cluster.cluster_authorized_operations == 8096


def test_topics_are_deleted_by_name_and_by_id(client: Client, unique: Callable[[str], str]) -> None:
    by_name, by_id = unique("by-name"), unique("by-id")
    client.create(by_name)
    topic_id = client.create(by_id)
    states = [
        DeleteTopicState(name=by_name),
        DeleteTopicState(name=None, topic_id=topic_id),
        DeleteTopicState(name="missing"),
        DeleteTopicState(name=None, topic_id=b"q" * 16),
    ]
    results = client.call(DeleteTopicsRequest(topics=states, timeout_ms=10_000)).responses
    outcome = {(result.name, result.topic_id): result.error_code for result in results}
    assert outcome.pop(("missing", ZERO_UUID)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert outcome.pop((None, b"q" * 16)) == ErrorCode.UNKNOWN_TOPIC_ID
    assert {name for name, _ in outcome} == {by_name, by_id}
    assert set(outcome.values()) == {0}


# ---- versions and frames ----


def test_versions_and_features_are_announced(client: Client) -> None:
    response = client.call(ApiVersionsRequest(client_software_name="test", client_software_version="1.0"))
    announced = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
    assert announced[ApiKey.PRODUCE] == (0, 13)  # librdkafka wants to see the 0
    assert announced[ApiKey.FETCH] == (4, 18)
    assert announced[ApiKey.METADATA] == (0, 13)
    finalized = {feature.name: feature.max_version_level for feature in response.finalized_features}
    assert finalized["metadata.version"] == 30
    assert finalized["group.version"] == 1


@pytest.mark.parametrize("name", ["", "bad name", "-x"])
def test_a_client_must_say_properly_who_it_is(client: Client, name: str) -> None:
    response = client.call(ApiVersionsRequest(client_software_name=name, client_software_version="1"))
    assert response.error_code == ErrorCode.INVALID_REQUEST


def _frame(key: int, version: int, body: bytes = bytes(20)) -> bytes:
    content = struct.pack(">hhi", key, version, 99) + b"\x00\x01x" + body
    return struct.pack(">i", len(content)) + content


@pytest.mark.parametrize("version", [99, -1])
def test_an_unknown_version_of_api_versions_is_answered_in_version_0(system: System, version: int) -> None:
    with system.connect() as connection:
        connection.send_bytes(_frame(ApiKey.API_VERSIONS, version))
        frame = connection.receive_frame()
    response: ApiVersionsResponse
    response, end = APIS[ApiKey.API_VERSIONS].response_codec(0).read(frame, 4)
    assert end == len(frame)
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [(entry.api_key, entry.max_version) for entry in response.api_keys] == [(ApiKey.API_VERSIONS, 4)]


@pytest.mark.parametrize(
    "data",
    [
        _frame(ApiKey.METADATA, 99),
        _frame(ApiKey.PRODUCE, 2),
        _frame(ApiKey.FETCH, 3),
        _frame(999, 0),
        _frame(-1, 0),
        struct.pack(">i", -5),
        struct.pack(">i", 200 * 1024 * 1024),
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["version", "old produce", "old fetch", "api", "negative api", "negative", "huge", "empty", "short", "http"],
)
def test_what_cannot_be_understood_closes_the_connection(system: System, data: bytes) -> None:
    with system.connect(timeout_s=10.0) as connection:
        connection.send_bytes(data)
        with pytest.raises((ConnectionLost, ConnectionResetError)):
            connection.receive_frame()
    with system.connect() as connection:
        assert connection.call(MetadataRequest(topics=[])).brokers


def test_pipelined_produces_keep_their_order(system: System, client: Client, topic: str) -> None:
    client.create(topic)
    connection: Connection = client.connection
    for number in range(50):
        records = encode_batch([Record(0, NOW, None, b"%d" % number)])
        data = PartitionProduceData(index=0, records=memoryview(records))
        connection.send(
            ProduceRequest(acks=1, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]), 9
        )
    offsets = [
        connection.receive(APIS[ApiKey.PRODUCE], 9).responses[0].partition_responses[0].base_offset for _ in range(50)
    ]
    assert offsets == list(range(50))
    assert _values(client.fetch(topic, 0)) == [b"%d" % number for number in range(50)]
