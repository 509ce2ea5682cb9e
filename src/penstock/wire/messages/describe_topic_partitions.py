"""DescribeTopicPartitions (75): topics and partitions page by page, for clusters too large for one Metadata answer."""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import BOOL, INT16, INT32, STRING, UUID, ZERO_UUID, array, struct_of


@struct
class TopicRequest:
    name: str = field(STRING, default="")


@struct
class Cursor:
    topic_name: str = field(STRING, default="")
    partition_index: int = field(INT32, default=0)


@message(versions="0", flexible="0+")
class DescribeTopicPartitionsRequest:
    topics: list[TopicRequest] = field(array(TopicRequest), factory=list)
    response_partition_limit: int = field(INT32, default=2000)
    cursor: Cursor | None = field(struct_of(Cursor), nullable="0+", default=None)


@struct
class DescribeTopicPartitionsResponsePartition:
    error_code: int = field(INT16, default=0)
    partition_index: int = field(INT32, default=0)
    leader_id: int = field(INT32, default=0)
    leader_epoch: int = field(INT32, default=-1, ignorable=True)
    replica_nodes: list[int] = field(array(INT32), factory=list)
    isr_nodes: list[int] = field(array(INT32), factory=list)
    eligible_leader_replicas: list[int] | None = field(array(INT32), nullable="0+", default=None)
    last_known_elr: list[int] | None = field(array(INT32), nullable="0+", default=None)
    offline_replicas: list[int] = field(array(INT32), factory=list, ignorable=True)


@struct
class DescribeTopicPartitionsResponseTopic:
    error_code: int = field(INT16, default=0)
    name: str | None = field(STRING, nullable="0+", default=None)
    topic_id: bytes = field(UUID, default=ZERO_UUID, ignorable=True)
    is_internal: bool = field(BOOL, default=False, ignorable=True)
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(
        array(DescribeTopicPartitionsResponsePartition),
        factory=list,
    )
    topic_authorized_operations: int = field(INT32, default=-2147483648)


@message(versions="0", flexible="0+")
class DescribeTopicPartitionsResponse:
    throttle_time_ms: int = field(INT32, default=0, ignorable=True)
    topics: list[DescribeTopicPartitionsResponseTopic] = field(
        array(DescribeTopicPartitionsResponseTopic),
        factory=list,
    )
    next_cursor: Cursor | None = field(struct_of(Cursor), nullable="0+", default=None)
