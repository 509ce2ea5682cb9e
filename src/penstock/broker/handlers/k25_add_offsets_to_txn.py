"""AddOffsetsToTxn (25), versions 0-4: a transaction is about to commit offsets of a group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.internal_topics import offsets_topic
from penstock.coordination.appends import settled
from penstock.group.coordinator import OFFSETS_TOPIC
from penstock.txn.transaction import Identity, TopicPartition
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call

_TELLS_FENCED = 2


async def handle(broker: Broker, request: AddOffsetsToTxnRequest, call: Call) -> AddOffsetsToTxnResponse:
    try:
        code = await _add(broker, request)
    except ApiError as error:
        code = error.code
    if code == ErrorCode.PRODUCER_FENCED and call.version < _TELLS_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return AddOffsetsToTxnResponse(error_code=code)


async def _add(broker: Broker, request: AddOffsetsToTxnRequest) -> ErrorCode:
    await offsets_topic(broker)
    partition = TopicPartition(OFFSETS_TOPIC, broker.groups.shards.partition_of(request.group_id))
    who = Identity(request.producer_id, request.producer_epoch)
    return await settled(broker.transactions.add_partitions(request.transactional_id, who, frozenset({partition}), 0))
