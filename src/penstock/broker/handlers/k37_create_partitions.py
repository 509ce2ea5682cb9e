"""CreatePartitions (37), versions 0-3: give topics more partitions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call


async def handle(broker: Broker, request: CreatePartitionsRequest, call: Call) -> CreatePartitionsResponse:
    counts = Counter(topic.name for topic in request.topics)
    results = {
        topic.name: await _add(broker, topic, counts[topic.name], is_dry_run=request.validate_only)
        for topic in {topic.name: topic for topic in request.topics}.values()
    }
    return CreatePartitionsResponse(results=list(results.values()))


async def _add(
    broker: Broker, topic: CreatePartitionsTopic, count: int, *, is_dry_run: bool
) -> CreatePartitionsTopicResult:
    assignments = None
    if topic.assignments is not None:
        assignments = [assignment.broker_ids for assignment in topic.assignments]
    try:
        if count > 1:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        await broker.controller.add_partitions(topic.name, topic.count, assignments, is_dry_run=is_dry_run)
    except ApiError as error:
        return CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
    return CreatePartitionsTopicResult(name=topic.name)
