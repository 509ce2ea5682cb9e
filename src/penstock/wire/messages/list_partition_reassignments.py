"""ListPartitionReassignments (46): which partitions are on their way to other brokers."""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import INT16, INT32, STRING, array


@struct
class ListPartitionReassignmentsTopics:
    name: str = field(STRING, default="")
    partition_indexes: list[int] = field(array(INT32), factory=list)


@message(versions="0", flexible="0+")
class ListPartitionReassignmentsRequest:
    timeout_ms: int = field(INT32, default=60_000)
    topics: list[ListPartitionReassignmentsTopics] | None = field(
        array(ListPartitionReassignmentsTopics), nullable="0+", default=None
    )


@struct
class OngoingPartitionReassignment:
    partition_index: int = field(INT32, default=0)
    replicas: list[int] = field(array(INT32), factory=list)
    adding_replicas: list[int] = field(array(INT32), factory=list)
    removing_replicas: list[int] = field(array(INT32), factory=list)


@struct
class OngoingTopicReassignment:
    name: str = field(STRING, default="")
    partitions: list[OngoingPartitionReassignment] = field(array(OngoingPartitionReassignment), factory=list)


@message(versions="0", flexible="0+")
class ListPartitionReassignmentsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    topics: list[OngoingTopicReassignment] = field(array(OngoingTopicReassignment), factory=list)
