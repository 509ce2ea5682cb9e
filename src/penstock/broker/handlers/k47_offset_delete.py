"""OffsetDelete (47), version 0: delete the committed offsets of topics that the group does not read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.coordination.appends import settled
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call


async def handle(broker: Broker, request: OffsetDeleteRequest, call: Call) -> OffsetDeleteResponse:
    wanted = [(topic.name, p.partition_index) for topic in request.topics for p in topic.partitions]
    known = [where for where in wanted if broker.image.partition(*where) is not None]
    try:
        results, future = broker.groups.commits.delete(request.group_id, known)
    except ApiError as error:
        return OffsetDeleteResponse(error_code=error.code)
    if code := await settled(future):
        return OffsetDeleteResponse(error_code=code)
    response = OffsetDeleteResponse()
    for topic in request.topics:
        answered = OffsetDeleteResponseTopic(topic.name)
        for partition in topic.partitions:
            code = results.get((topic.name, partition.partition_index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            answered.partitions.append(OffsetDeleteResponsePartition(partition.partition_index, code))
        response.topics.append(answered)
    return response
