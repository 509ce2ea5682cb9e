"""Transactions: list, describe, and end those that hang. librdkafka has none of it: connections of our own do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaError

from penstock.client.admin.cluster import describe_cluster
from penstock.client.admin.descriptions import Node, OpenTransaction, TransactionDescription, TransactionListing
from penstock.client.admin.session import Session, by_name
from penstock.client.admin.topics import describe_topics
from penstock.client.errors import ConfigurationError
from penstock.client.partitions import TopicPartition
from penstock.client.rdkafka import from_kafka
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.list_transactions import ListTransactionsRequest
from penstock.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)

_TRANSACTIONS = 1  # the type of coordinator, as the protocol has it
_NOT_FOUND = "Unknown"
_OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort")

# No transaction may take longer by a broker's defaults (transaction.max.timeout.ms).
HANGING_AFTER_MS = 15 * 60 * 1000


async def list_transactions(
    session: Session,
    *,
    states: Iterable[str] | None = None,
    producer_ids: Iterable[int] | None = None,
    longer_than_ms: int | None = None,
    pattern: str | None = None,
) -> list[TransactionListing]:
    """All transactional ids, or those that are in given states ("Ongoing", "Empty", ...), of given producers, that run
    for longer than a time, or whose whole name matches a regular expression."""
    doing = "list the transactions"
    request = ListTransactionsRequest(
        by_name(states or (), "states"),
        list(producer_ids or ()),
        -1 if longer_than_ms is None else longer_than_ms,
        pattern,
    )
    found = []
    for broker in (await describe_cluster(session)).brokers:
        response = await session.ask(broker.host, broker.port, request, doing)
        _check(response.error_code, doing)
        if response.unknown_state_filters:
            raise ConfigurationError(f"there is no state {response.unknown_state_filters[0]!r} of a transaction")
        found += [
            TransactionListing(one.transactional_id, one.producer_id, one.transaction_state)
            for one in response.transaction_states
        ]
    return sorted(found, key=lambda one: one.transactional_id)


async def describe_transactions(session: Session, ids: Iterable[str]) -> list[TransactionDescription]:
    """What the coordinators know of transactional ids. One that nobody knows has the state Unknown."""
    return [await _describe(session, transactional_id) for transactional_id in by_name(ids, "ids")]


async def _describe(session: Session, transactional_id: str) -> TransactionDescription:
    doing = f"describe transactional id {transactional_id!r}"
    broker = await _coordinator(session, transactional_id, doing)
    response = await session.ask(broker.host, broker.port, DescribeTransactionsRequest([transactional_id]), doing)
    (state,) = response.transaction_states
    if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return TransactionDescription(transactional_id, _NOT_FOUND, broker)
    _check(state.error_code, doing)
    return TransactionDescription(
        transactional_id,
        state.transaction_state,
        broker,
        state.producer_id,
        state.producer_epoch,
        state.transaction_timeout_ms,
        state.transaction_start_time_ms if state.transaction_start_time_ms >= 0 else None,
        tuple(TopicPartition(topic.topic, index) for topic in state.topics for index in sorted(topic.partitions)),
    )


async def _coordinator(session: Session, transactional_id: str, doing: str) -> Node:
    broker = (await describe_cluster(session)).brokers[0]
    request = FindCoordinatorRequest(key_type=_TRANSACTIONS, coordinator_keys=[transactional_id])
    response = await session.ask(broker.host, broker.port, request, doing)
    (found,) = response.coordinators
    _check(found.error_code, doing)
    return Node(found.node_id, found.host, found.port)


async def open_transactions(session: Session, topics: Iterable[str] | None = None) -> list[OpenTransaction]:
    """The transactions that partitions have not seen the end of; of all topics by default."""
    brokers = {broker.id: broker for broker in (await describe_cluster(session)).brokers}
    wanted: dict[int, list[TopicRequest]] = {}
    for topic in await describe_topics(session, topics):
        for partition in topic.partitions:
            if partition.leader is not None:
                wanted.setdefault(partition.leader, []).append(TopicRequest(topic.name, [partition.partition]))
    found = []
    for leader, requests in wanted.items():
        found += await _open_at(session, brokers[leader], requests)
    return sorted(found, key=lambda one: (one.topic, one.partition, one.start_offset))


async def _open_at(session: Session, broker: Node, requests: list[TopicRequest]) -> list[OpenTransaction]:
    doing = "look for open transactions"
    response = await session.ask(broker.host, broker.port, DescribeProducersRequest(requests), doing)
    found = []
    for topic in response.topics:
        for partition in topic.partitions:
            _check(partition.error_code, doing)
            found += [
                OpenTransaction(
                    topic.name,
                    partition.partition_index,
                    producer.producer_id,
                    producer.producer_epoch,
                    max(producer.coordinator_epoch, 0),
                    producer.current_txn_start_offset,
                    producer.last_timestamp,
                )
                for producer in partition.active_producers
                if producer.current_txn_start_offset >= 0
            ]
    return found


async def hanging_transactions(
    session: Session,
    topics: Iterable[str] | None = None,
    *,
    now_ms: int,
    longer_than_ms: int = HANGING_AFTER_MS,
) -> list[OpenTransaction]:
    """Transactions that are open in a partition while no coordinator knows of them: nobody will ever end them.

    Only those are looked at whose last record is older than a time; give one above transaction.max.timeout.ms.
    """
    found = [one for one in await open_transactions(session, topics) if now_ms - one.last_timestamp > longer_than_ms]
    if not found:
        return []
    known = await list_transactions(session, states=_OPEN, producer_ids={one.producer_id for one in found})
    alive = {
        (one.producer_id, partition)
        for one in await describe_transactions(session, [listing.transactional_id for listing in known])
        for partition in one.partitions
    }
    return [one for one in found if (one.producer_id, (one.topic, one.partition)) not in alive]


async def abort_transaction(session: Session, hanging: OpenTransaction) -> None:
    """End a hanging transaction in its partition. One that a coordinator knows is not ended elsewhere by this."""
    doing = f"abort the transaction of producer {hanging.producer_id} in {hanging.topic}-{hanging.partition}"
    brokers = {broker.id: broker for broker in (await describe_cluster(session)).brokers}
    (topic,) = await describe_topics(session, [hanging.topic])
    leaders = {partition.partition: partition.leader for partition in topic.partitions}
    leader = leaders.get(hanging.partition)
    broker = None if leader is None else brokers.get(leader)
    if broker is None:
        raise ConfigurationError(f"cannot {doing}: the partition has no leader")
    marker = WritableTxnMarker(
        hanging.producer_id,
        hanging.producer_epoch,
        False,
        [WritableTxnMarkerTopic(hanging.topic, [hanging.partition])],
        hanging.coordinator_epoch,
    )
    response = await session.ask(broker.host, broker.port, WriteTxnMarkersRequest([marker]), doing)
    _check(response.markers[0].topics[0].partitions[0].error_code, doing)


def _check(error_code: Any, doing: str) -> None:
    if error_code:
        raise from_kafka(KafkaError(error_code), doing)
