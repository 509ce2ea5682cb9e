"""OffsetForLeaderEpoch (23), versions 2-4: where a leader epoch ended in our log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.wire.errors import ApiError
from penstock.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call


def handle(broker: Broker, request: OffsetForLeaderEpochRequest, call: Call) -> OffsetForLeaderEpochResponse:
    response = OffsetForLeaderEpochResponse()
    for topic in request.topics:
        answered = OffsetForLeaderTopicResult(topic=topic.topic)
        for wanted in topic.partitions:
            result = EpochEndOffset(partition=wanted.partition)
            try:
                partition = broker.replicas.find(topic.topic, wanted.partition)
                partition.check_leader()
                partition.check_epoch(wanted.current_leader_epoch)
                result.leader_epoch, result.end_offset = partition.end_offset_for_epoch(wanted.leader_epoch)
            except ApiError as error:
                result.error_code = error.code
            answered.partitions.append(result)
        response.topics.append(answered)
    return response
