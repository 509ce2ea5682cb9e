"""DescribeProducers (61): the producers that partitions remember, and where their transactions began."""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import INT16, INT32, INT64, STRING, array


@struct
class TopicRequest:
    name: str = field(STRING, default="")
    partition_indexes: list[int] = field(array(INT32), factory=list)


@message(versions="0", flexible="0+")
class DescribeProducersRequest:
    topics: list[TopicRequest] = field(array(TopicRequest), factory=list)


@struct
class ProducerState:
    producer_id: int = field(INT64, default=0)
    producer_epoch: int = field(INT32, default=0)
    last_sequence: int = field(INT32, default=-1)
    last_timestamp: int = field(INT64, default=-1)
    coordinator_epoch: int = field(INT32, default=0)
    current_txn_start_offset: int = field(INT64, default=-1)


@struct
class PartitionResponse:
    partition_index: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    active_producers: list[ProducerState] = field(array(ProducerState), factory=list)


@struct
class TopicResponse:
    name: str = field(STRING, default="")
    partitions: list[PartitionResponse] = field(array(PartitionResponse), factory=list)


@message(versions="0", flexible="0+")
class DescribeProducersResponse:
    throttle_time_ms: int = field(INT32, default=0)
    topics: list[TopicResponse] = field(array(TopicResponse), factory=list)
