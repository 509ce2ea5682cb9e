"""ListPartitionReassignments (46), version 0: which partitions are on their way to other brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.controller.reassignment import under_way
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call


def handle(
    broker: Broker, request: ListPartitionReassignmentsRequest, call: Call
) -> ListPartitionReassignmentsResponse:
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = {(topic.name, index) for topic in request.topics for index in topic.partition_indexes}
    topics: dict[str, OngoingTopicReassignment] = {}
    for topic, index, state in under_way(broker.image):
        if wanted is None or (topic.name, index) in wanted:
            entry = OngoingPartitionReassignment(
                partition_index=index,
                replicas=list(state.replicas),
                adding_replicas=list(state.adding_replicas),
                removing_replicas=list(state.removing_replicas),
            )
            topics.setdefault(topic.name, OngoingTopicReassignment(name=topic.name)).partitions.append(entry)
    return ListPartitionReassignmentsResponse(topics=list(topics.values()))
