"""AlterPartitionReassignments (45): move partitions to other brokers. 1 can insist on the number of replicas."""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import BOOL, INT16, INT32, STRING, array


@struct
class ReassignablePartition:
    partition_index: int = field(INT32, default=0)
    replicas: list[int] | None = field(array(INT32), nullable="0+", default=None)


@struct
class ReassignableTopic:
    name: str = field(STRING, default="")
    partitions: list[ReassignablePartition] = field(array(ReassignablePartition), factory=list)


@message(versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest:
    timeout_ms: int = field(INT32, default=60_000)
    allow_replication_factor_change: bool = field(BOOL, "1+", default=True)
    topics: list[ReassignableTopic] = field(array(ReassignableTopic), factory=list)


@struct
class ReassignablePartitionResponse:
    partition_index: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)


@struct
class ReassignableTopicResponse:
    name: str = field(STRING, default="")
    partitions: list[ReassignablePartitionResponse] = field(array(ReassignablePartitionResponse), factory=list)


@message(versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    allow_replication_factor_change: bool = field(BOOL, "1+", default=True, ignorable=True)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    responses: list[ReassignableTopicResponse] = field(array(ReassignableTopicResponse), factory=list)
