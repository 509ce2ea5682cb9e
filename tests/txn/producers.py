"""A transactional producer inside the process of the broker, and readers of what it wrote."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from penstock.clock import Clock
from penstock.log.storage import Storage
from penstock.txn.coordinator import TransactionCoordinator
from penstock.wire.batch import batches_in, decode_records, encode_batch
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
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
from tests.group.brokers import Host
from tests.group.brokers import host as group_host

TRANSACTIONS = 1
SMALL = {
    "transaction_state_log_num_partitions": "2",
    "log_index_size_max_bytes": "4096",
}


@asynccontextmanager
async def host(
    data: Path, clock: Clock | None = None, storage: Storage | None = None, **settings: str
) -> AsyncIterator[Host]:
    """A broker with both coordinators, on what is in a directory."""
    async with group_host(data, clock, storage, **(SMALL | settings)) as running:
        response = await running.call(FindCoordinatorRequest(key_type=TRANSACTIONS, coordinator_keys=["id"]))
        assert response.coordinators[0].error_code == 0
        await loaded(running)
        yield running


def coordinator(running: Host) -> TransactionCoordinator:
    return running.broker.transactions


async def loaded(running: Host) -> None:
    shards = coordinator(running).shards
    await asyncio.gather(*shards.loading)
    assert all(shard.is_loaded for shard in shards)


async def until(condition: Any, timeout_s: float = 20.0) -> None:
    """Let the loop run until something is so."""
    deadline = asyncio.get_running_loop().time() + timeout_s
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, "it never became so"
        await asyncio.sleep(0.005)


class Producer:
    """One transactional id."""

    def __init__(
        self, running: Host, transactional_id: str = "id", *, version: int = 2, timeout_ms: int = 60_000
    ) -> None:
        self.running = running
        self.id = transactional_id
        self.version = version
        self.timeout_ms = timeout_ms
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    async def claim(self) -> ErrorCode:
        response = await self.running.call(InitProducerIdRequest(self.id, self.timeout_ms))
        if not response.error_code:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self.sequences.clear()
        return ErrorCode(response.error_code)

    async def produce(self, topic: str, value: str, partition: int = 0) -> ErrorCode:
        sequence = self.sequences.get((topic, partition), 0)
        batch = encode_batch(
            [Record(0, self.running.broker.clock.time_ms(), None, value.encode())],
            is_transactional=True,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
        )
        data = TopicProduceData(topic, partition_data=[PartitionProduceData(partition, memoryview(batch))])
        response = await self.running.call(ProduceRequest(self.id, -1, 5_000, [data]), 12)
        code = ErrorCode(response.responses[0].partition_responses[0].error_code)
        if not code:
            self.sequences[topic, partition] = sequence + 1
        return code

    async def commit_offset(self, group: str, topic: str, offset: int) -> ErrorCode:
        wanted = TxnOffsetCommitRequestTopic(topic, [TxnOffsetCommitRequestPartition(0, offset)])
        request = TxnOffsetCommitRequest(self.id, group, self.producer_id, self.epoch, topics=[wanted])
        response = await self.running.call(request)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    async def end(self, *, commit: bool) -> ErrorCode:
        version = 5 if self.version >= 2 else 4
        response = await self.running.call(EndTxnRequest(self.id, self.producer_id, self.epoch, commit), version)
        if not response.error_code and version >= 5:
            self.producer_id, self.epoch = response.producer_id, response.producer_epoch
            self.sequences.clear()
        return ErrorCode(response.error_code)


def read(running: Host, topic: str, partition: int = 0) -> list[str]:
    """What a reader of committed records sees."""
    log = running.broker.replicas.find(topic, partition).log
    upper_bound = log.last_stable_offset
    found = log.read(log.start_offset, 1 << 20, upper_bound)
    if found is None:
        return []
    hidden = {
        (txn.producer_id, txn.first_offset, txn.last_offset) for txn in log.aborted_transactions(0, found, upper_bound)
    }
    content = found.read()
    return [
        (record.value or b"").decode()
        for batch in batches_in(content)
        if not batch.is_control
        and not any(pid == batch.producer_id and first <= batch.base_offset < last for pid, first, last in hidden)
        for record in decode_records(content, batch)
    ]


def is_stable(running: Host, topic: str, partition: int = 0) -> bool:
    log = running.broker.replicas.find(topic, partition).log
    return log.last_stable_offset == log.end_offset


async def committed(running: Host, group: str, topic: str, *, stable: bool = True) -> tuple[ErrorCode, int]:
    wanted = OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics(topic, partition_indexes=[0])])
    response = await running.call(OffsetFetchRequest(groups=[wanted], require_stable=stable), 9)
    (found,) = response.groups
    assert found.error_code == 0
    (partition,) = found.topics[0].partitions
    return ErrorCode(partition.error_code), partition.committed_offset
