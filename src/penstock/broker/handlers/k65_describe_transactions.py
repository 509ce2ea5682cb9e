"""DescribeTransactions (65), version 0: what the coordinator knows of transactional ids."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.txn.shard import TxnShard
from penstock.txn.transaction import Transaction
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call


def handle(broker: Broker, request: DescribeTransactionsRequest, call: Call) -> DescribeTransactionsResponse:
    return DescribeTransactionsResponse(
        transaction_states=[_describe(broker, transactional_id) for transactional_id in request.transactional_ids]
    )


def _describe(broker: Broker, transactional_id: str) -> TransactionState:
    try:
        return _described(*broker.transactions.find(transactional_id))
    except ApiError as error:
        code = error.code
        if code == ErrorCode.INVALID_PRODUCER_ID_MAPPING:
            code = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        return TransactionState(code, transactional_id)


def _described(shard: TxnShard, txn: Transaction) -> TransactionState:
    topics: dict[str, TopicData] = {}
    for topic, index in sorted(shard.partitions_of(txn)):
        topics.setdefault(topic, TopicData(topic)).partitions.append(index)
    return TransactionState(
        transactional_id=txn.transactional_id,
        transaction_state=txn.state.label,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_start_time_ms=txn.start_ms,
        producer_id=txn.producer_id,
        producer_epoch=txn.epoch,
        topics=list(topics.values()),
    )
