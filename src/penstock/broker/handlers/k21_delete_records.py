"""DeleteRecords (21), versions 0-2: move the start of logs forward. Offset -1 means: up to the high watermark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.wire.errors import ApiError
from penstock.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call


def handle(broker: Broker, request: DeleteRecordsRequest, call: Call) -> DeleteRecordsResponse:
    response = DeleteRecordsResponse()
    for topic in request.topics:
        answered = DeleteRecordsTopicResult(name=topic.name)
        for wanted in topic.partitions:
            result = DeleteRecordsPartitionResult(partition_index=wanted.partition_index, low_watermark=-1)
            try:
                partition = broker.replicas.find(topic.name, wanted.partition_index)
                result.low_watermark = partition.delete_records(wanted.offset)
            except ApiError as error:
                result.error_code = error.code
            answered.partitions.append(result)
        response.topics.append(answered)
    return response
