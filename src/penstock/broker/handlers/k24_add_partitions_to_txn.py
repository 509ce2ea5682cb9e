"""AddPartitionsToTxn (24), versions 0-5: a transaction is about to write to partitions.

All partitions of a transaction are added or none: if one is unknown, the others are not attempted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.coordination.appends import settled
from penstock.txn.transaction import VERSION_2, Identity, TopicPartition
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call

_FROM_BROKERS = 4
_TELLS_FENCED = 2

Codes = dict[TopicPartition, ErrorCode]


async def handle(broker: Broker, request: AddPartitionsToTxnRequest, call: Call) -> AddPartitionsToTxnResponse:
    if call.version >= _FROM_BROKERS:
        results = [
            AddPartitionsToTxnResult(wanted.transactional_id, _by_topic(await _serve(broker, wanted, VERSION_2)))
            for wanted in request.transactions
        ]
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    wanted = AddPartitionsToTxnTransaction(
        request.v3_and_below_transactional_id,
        request.v3_and_below_producer_id,
        request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    codes = await _serve(broker, wanted, 0)
    if call.version < _TELLS_FENCED:
        fenced = ErrorCode.PRODUCER_FENCED
        codes = {at: ErrorCode.INVALID_PRODUCER_EPOCH if code == fenced else code for at, code in codes.items()}
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_by_topic(codes))


async def _serve(broker: Broker, wanted: AddPartitionsToTxnTransaction, client_version: int) -> Codes:
    partitions = frozenset(TopicPartition(topic.name, index) for topic in wanted.topics for index in topic.partitions)
    unknown = {where for where in partitions if broker.image.partition(*where) is None}
    if unknown:
        attempted = ErrorCode.OPERATION_NOT_ATTEMPTED
        return {where: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if where in unknown else attempted for where in partitions}
    who = Identity(wanted.producer_id, wanted.producer_epoch)
    try:
        if wanted.verify_only:
            return broker.transactions.check_partitions(wanted.transactional_id, who, partitions)
        future = broker.transactions.add_partitions(wanted.transactional_id, who, partitions, client_version)
        code = await settled(future)
    except ApiError as error:
        code = error.code
    return dict.fromkeys(partitions, code)


def _by_topic(codes: Codes) -> list[AddPartitionsToTxnTopicResult]:
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for (topic, index), code in sorted(codes.items()):
        answered = topics.setdefault(topic, AddPartitionsToTxnTopicResult(topic))
        answered.results_by_partition.append(AddPartitionsToTxnPartitionResult(index, code))
    return list(topics.values())
