"""AlterPartitionReassignments (45), versions 0-1: move partitions to other brokers, or stop doing so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.wire.errors import ApiError
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call


async def handle(
    broker: Broker, request: AlterPartitionReassignmentsRequest, call: Call
) -> AlterPartitionReassignmentsResponse:
    may_change_count = request.allow_replication_factor_change
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=may_change_count,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[
                    await _reassign(broker, topic.name, wanted, may_change_count=may_change_count)
                    for wanted in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


async def _reassign(
    broker: Broker, name: str, wanted: ReassignablePartition, *, may_change_count: bool
) -> ReassignablePartitionResponse:
    index = wanted.partition_index
    try:
        await broker.controller.reassign(name, index, wanted.replicas, may_change_count=may_change_count)
    except ApiError as error:
        return ReassignablePartitionResponse(partition_index=index, error_code=error.code, error_message=error.message)
    return ReassignablePartitionResponse(partition_index=index)
