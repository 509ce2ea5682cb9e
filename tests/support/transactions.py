"""A transactional producer frame by frame, for tests that say exactly what is sent when."""

from __future__ import annotations

import time
from typing import Any

from penstock.client.connection import Connection
from penstock.wire.batch import batches_in, decode_records, encode_batch
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from penstock.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from penstock.wire.record import Record

GROUPS, TRANSACTIONS = 0, 1
WAIT_S = 30.0

# What a coordinator says that is not ready; whoever asks again gets an answer.
NOT_READY = (
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)


class Txn:
    """One transactional id on one connection. `version` is the transaction version: 2, or the older rules (1)."""

    def __init__(
        self, connection: Connection, transactional_id: str, *, version: int = 2, timeout_ms: int = 60_000
    ) -> None:
        self.connection = connection
        self.id = transactional_id
        self.version = version
        self.timeout_ms = timeout_ms
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def call(self, request: Any, version: int | None = None) -> Any:
        return self.connection.call(request, version)

    # ---- the id ----

    def init(self, expected: tuple[int, int] = (-1, -1), *, version: int = 5) -> ErrorCode:
        """Claim the id once."""
        response = self.call(InitProducerIdRequest(self.id, self.timeout_ms, *expected), version)
        code = ErrorCode(response.error_code)
        if not code:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self.sequences.clear()
        return code

    def claim(self) -> Txn:
        """Claim the id, as often as it takes: the topic may have to be made, an open transaction to be ended."""
        find_coordinator(self.connection, self.id, TRANSACTIONS)
        code = wait_out(self.init, *NOT_READY, ErrorCode.CONCURRENT_TRANSACTIONS)
        assert not code, code.name
        return self

    # ---- writing ----

    def add(self, topic: str, *partitions: int, version: int = 3) -> list[ErrorCode]:
        """AddPartitionsToTxn as a client sends it."""
        topics = [AddPartitionsToTxnTopic(topic, list(partitions))]
        request = AddPartitionsToTxnRequest([], self.id, self.producer_id, self.epoch, topics)
        response = self.call(request, version)
        return _codes(response.results_by_topic_v3_and_below)

    def add_as_broker(self, topic: str, *partitions: int, verify: bool, version: int = 5) -> list[ErrorCode]:
        """AddPartitionsToTxn as brokers send it."""
        wanted = AddPartitionsToTxnTransaction(
            self.id, self.producer_id, self.epoch, verify, [AddPartitionsToTxnTopic(topic, list(partitions))]
        )
        response = self.call(AddPartitionsToTxnRequest([wanted]), version)
        assert response.error_code == 0
        (answered,) = response.results_by_transaction
        return _codes(answered.topic_results)

    def produce(
        self,
        topic: str,
        *values: str,
        partition: int = 0,
        version: int | None = None,
        sequence: int | None = None,
        epoch: int | None = None,
        transactional: bool = True,
    ) -> ErrorCode:
        """Write records, with the next sequence number if none is given."""
        if version is None:
            version = 12 if self.version >= 2 else 11
        first = self.sequences.get((topic, partition), 0) if sequence is None else sequence
        batch = encode_batch(
            [Record(n, int(time.time() * 1000), None, value.encode()) for n, value in enumerate(values)],
            is_transactional=transactional,
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=first,
        )
        data = TopicProduceData(topic, partition_data=[PartitionProduceData(partition, memoryview(batch))])
        response = self.call(ProduceRequest(self.id if transactional else None, -1, 30_000, [data]), version)
        code = ErrorCode(response.responses[0].partition_responses[0].error_code)
        if not code and sequence is None:
            self.sequences[topic, partition] = first + len(values)
        return code

    def write(self, topic: str, *values: str, partition: int = 0) -> None:
        """Write records as a client of this version does, and wait out the end of the last transaction."""
        if self.version < 2:
            codes = wait_out(lambda: self.add(topic, partition)[0], ErrorCode.CONCURRENT_TRANSACTIONS)
            assert not codes, codes.name
        retriable = (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS)
        code = wait_out(lambda: self.produce(topic, *values, partition=partition), *retriable)
        assert not code, code.name

    def add_offsets(self, group: str, version: int = 4) -> ErrorCode:
        request = AddOffsetsToTxnRequest(self.id, self.producer_id, self.epoch, group)
        return ErrorCode(self.call(request, version).error_code)

    def commit_offset(self, group: str, topic: str, offset: int, version: int | None = None, **more: Any) -> ErrorCode:
        if version is None:
            version = 5 if self.version >= 2 else 4
        wanted = TxnOffsetCommitRequestTopic(topic, [TxnOffsetCommitRequestPartition(0, offset)])
        request = TxnOffsetCommitRequest(self.id, group, self.producer_id, self.epoch, topics=[wanted], **more)
        response = self.call(request, version)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    # ---- ending ----

    def end(self, *, commit: bool, version: int | None = None, epoch: int | None = None) -> ErrorCode:
        """EndTxn once."""
        if version is None:
            version = 5 if self.version >= 2 else 4
        request = EndTxnRequest(self.id, self.producer_id, self.epoch if epoch is None else epoch, commit)
        response = self.call(request, version)
        code = ErrorCode(response.error_code)
        if not code and version >= 5:
            if (response.producer_id, response.producer_epoch) != (self.producer_id, self.epoch):
                self.sequences.clear()
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
        return code

    def commit(self) -> None:
        code = wait_out(lambda: self.end(commit=True), ErrorCode.CONCURRENT_TRANSACTIONS)
        assert not code, code.name

    def abort(self) -> None:
        code = wait_out(lambda: self.end(commit=False), ErrorCode.CONCURRENT_TRANSACTIONS)
        assert not code, code.name

    # ---- looking ----

    def describe(self) -> Any:
        (state,) = self.call(DescribeTransactionsRequest([self.id])).transaction_states
        return state

    def wait_for_state(self, *states: str) -> Any:
        """Wait until the transaction is in one of these states."""
        return wait_until(self.describe, lambda found: found.transaction_state in states)


def _codes(results: Any) -> list[ErrorCode]:
    """The outcome for each partition of one topic, in their order."""
    (topic,) = results
    codes = {result.partition_index: ErrorCode(result.partition_error_code) for result in topic.results_by_partition}
    return [codes[index] for index in sorted(codes)]


def wait_out(call: Any, *codes: ErrorCode) -> Any:
    """Call again for as long as the answer is one of these."""
    return wait_until(call, lambda code: code not in codes)


def wait_until(call: Any, is_good: Any) -> Any:
    """Call until the answer is good."""
    deadline = time.monotonic() + WAIT_S
    while True:
        found = call()
        if is_good(found):
            return found
        assert time.monotonic() < deadline, f"still {found!r} after {WAIT_S} s"
        time.sleep(0.02)


def find_coordinator(connection: Connection, key: str, key_type: int) -> None:
    """Ask for the coordinator until there is one."""

    def code() -> ErrorCode:
        response = connection.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]))
        return ErrorCode(response.coordinators[0].error_code)

    assert not wait_out(code, *NOT_READY)


def create_topic(connection: Connection, name: str, partitions: int = 1, **config: str) -> None:
    configs = [CreatableTopicConfig(key.replace("_", "."), value) for key, value in config.items()]
    response = connection.call(CreateTopicsRequest([CreatableTopic(name, partitions, 1, configs=configs)], 30_000))
    assert response.topics[0].error_code == 0
    wanted = [MetadataRequestTopic(name=name)]

    def is_led(found: Any) -> bool:
        (topic,) = found.topics
        return len(topic.partitions) == partitions and all(p.leader_id >= 0 for p in topic.partitions)

    wait_until(lambda: connection.call(MetadataRequest(wanted, False), 9), is_led)
    for index in range(partitions):  # the metadata may be there before the log
        asked = ListOffsetsTopic(name, [ListOffsetsPartition(index, timestamp=-1)])
        request = ListOffsetsRequest(-1, 0, [asked])
        wait_until(
            lambda request=request: connection.call(request, 7).topics[0].partitions[0].error_code,
            lambda code: code == 0,
        )


def read(connection: Connection, topic: str, partition: int = 0, *, committed: bool = True) -> list[str]:
    """What a consumer sees of a partition that it reads from the start."""
    seen: list[str] = []
    offset = 0
    while True:
        wanted = FetchTopic(
            topic, partitions=[FetchPartition(partition, fetch_offset=offset, partition_max_bytes=1 << 20)]
        )
        request = FetchRequest(max_wait_ms=0, min_bytes=0, isolation_level=int(committed), topics=[wanted])
        (answered,) = connection.call(request, 12).responses
        (data,) = answered.partitions
        assert data.error_code == 0
        found = bytes(data.records or b"")
        aborted = {(entry.producer_id, entry.first_offset) for entry in data.aborted_transactions or []}
        before = offset
        hidden: set[int] = set()
        for batch in batches_in(found):
            hidden |= {pid for pid, first in aborted if first <= batch.base_offset}
            offset = max(offset, batch.next_offset)
            if batch.is_control:
                if decode_records(found, batch)[0].key[3:4] == b"\x00":  # an abort: what follows is another one
                    hidden.discard(batch.producer_id)
                    aborted = {
                        entry for entry in aborted if entry[0] != batch.producer_id or entry[1] > batch.base_offset
                    }
            elif not (committed and batch.is_transactional and batch.producer_id in hidden):
                seen += [(record.value or b"").decode() for record in decode_records(found, batch)]
        if offset == before:
            return seen


def latest(connection: Connection, topic: str, partition: int = 0, *, committed: bool = True) -> int:
    """The end of a partition as ListOffsets tells it."""
    wanted = ListOffsetsTopic(topic, [ListOffsetsPartition(partition, timestamp=-1)])
    response = connection.call(ListOffsetsRequest(-1, int(committed), [wanted]), 7)
    (found,) = response.topics[0].partitions
    assert found.error_code == 0
    return int(found.offset)


def wait_until_stable(connection: Connection, topic: str, partition: int = 0) -> None:
    """Wait until no transaction is open in a partition."""

    def is_stable(_: object) -> bool:
        return latest(connection, topic, partition) == latest(connection, topic, partition, committed=False)

    wait_until(lambda: None, is_stable)


def producers_of(connection: Connection, topic: str, partition: int = 0) -> dict[int, Any]:
    response = connection.call(DescribeProducersRequest([TopicRequest(topic, [partition])]))
    (found,) = response.topics[0].partitions
    assert found.error_code == 0
    return {producer.producer_id: producer for producer in found.active_producers}


def committed_offset(connection: Connection, group: str, topic: str, *, stable: bool = False) -> tuple[ErrorCode, int]:
    """A group's offset of partition 0."""
    wanted = OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics(topic, partition_indexes=[0])])
    response = connection.call(OffsetFetchRequest(groups=[wanted], require_stable=stable), 9)
    (found,) = response.groups
    if found.error_code:
        return ErrorCode(found.error_code), -1
    (partition,) = found.topics[0].partitions
    return ErrorCode(partition.error_code), partition.committed_offset
