"""WriteTxnMarkers (27), versions 1-2: the ends of transactions, from a coordinator or from an administrator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.coordination.appends import settled
from penstock.txn.markers import Marker
from penstock.txn.transaction import TopicPartition
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call


async def handle(broker: Broker, request: WriteTxnMarkersRequest, call: Call) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(markers=[await _write(broker, wanted) for wanted in request.markers])


async def _write(broker: Broker, wanted: WritableTxnMarker) -> WritableTxnMarkerResult:
    marker = Marker(
        wanted.producer_id,
        wanted.producer_epoch,
        wanted.transaction_result,
        wanted.coordinator_epoch,
        wanted.transaction_version,
    )
    answered = WritableTxnMarkerResult(wanted.producer_id)
    for topic in wanted.topics:
        codes = [await _write_one(broker, TopicPartition(topic.name, at), marker) for at in topic.partition_indexes]
        results = [
            WritableTxnMarkerPartitionResult(index, code)
            for index, code in zip(topic.partition_indexes, codes, strict=True)
        ]
        answered.topics.append(WritableTxnMarkerTopicResult(topic.name, results))
    return answered


async def _write_one(broker: Broker, where: TopicPartition, marker: Marker) -> ErrorCode:
    try:
        return await settled(broker.markers.write(where, marker))
    except ApiError as error:
        return error.code
