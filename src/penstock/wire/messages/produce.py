"""Produce (0): write record batches.

Versions 3 to 8 differ in the answer: 5 adds the log start offset, 8 the errors of single records. 9 is flexible, 10
adds the current leader, 12 lets the write itself add its partition to a transaction, 13 names topics by id. ApiVersions
announces 0 as the lowest: librdkafka takes a lowest version above 0 to mean that the old formats, and with them some
codecs, are gone; requests below 3 are still refused.
"""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import INT16, INT32, INT64, RECORDS, STRING, UUID, ZERO_UUID, array, struct_of


@struct
class PartitionProduceData:
    index: int = field(INT32, default=0)
    records: memoryview | None = field(RECORDS, nullable="0+", default=None)


@struct
class TopicProduceData:
    name: str = field(STRING, "3-12", default="", ignorable=True)
    topic_id: bytes = field(UUID, "13+", default=ZERO_UUID, ignorable=True)
    partition_data: list[PartitionProduceData] = field(array(PartitionProduceData), factory=list)


@message(versions="3-13", flexible="9+")
class ProduceRequest:
    transactional_id: str | None = field(STRING, nullable="3+", default=None)
    acks: int = field(INT16, default=0)
    timeout_ms: int = field(INT32, default=0)
    topic_data: list[TopicProduceData] = field(array(TopicProduceData), factory=list)


@struct
class BatchIndexAndErrorMessage:
    batch_index: int = field(INT32, "8+", default=0)
    batch_index_error_message: str | None = field(STRING, "8+", nullable="8+", default=None)


@struct
class LeaderIdAndEpoch:
    leader_id: int = field(INT32, "10+", default=-1)
    leader_epoch: int = field(INT32, "10+", default=-1)


@struct
class PartitionProduceResponse:
    index: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    base_offset: int = field(INT64, default=0)
    log_append_time_ms: int = field(INT64, default=-1, ignorable=True)
    log_start_offset: int = field(INT64, "5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field(
        array(BatchIndexAndErrorMessage),
        "8+",
        factory=list,
        ignorable=True,
    )
    error_message: str | None = field(STRING, "8+", nullable="8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch | None = field(struct_of(LeaderIdAndEpoch), "10+", default=None, tag=0)


@struct
class TopicProduceResponse:
    name: str = field(STRING, "3-12", default="", ignorable=True)
    topic_id: bytes = field(UUID, "13+", default=ZERO_UUID, ignorable=True)
    partition_responses: list[PartitionProduceResponse] = field(array(PartitionProduceResponse), factory=list)


@struct
class NodeEndpoint:
    node_id: int = field(INT32, "10+", default=0)
    host: str = field(STRING, "10+", default="")
    port: int = field(INT32, "10+", default=0)
    rack: str | None = field(STRING, "10+", nullable="10+", default=None)


@message(versions="3-13", flexible="9+")
class ProduceResponse:
    responses: list[TopicProduceResponse] = field(array(TopicProduceResponse), factory=list)
    throttle_time_ms: int = field(INT32, default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "10+", factory=list, tag=0)
