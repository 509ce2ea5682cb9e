"""DeleteRecords (21): move the start of a log forward. 2 is flexible."""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import INT16, INT32, INT64, STRING, array


@struct
class DeleteRecordsPartition:
    partition_index: int = field(INT32, default=0)
    offset: int = field(INT64, default=0)


@struct
class DeleteRecordsTopic:
    name: str = field(STRING, default="")
    partitions: list[DeleteRecordsPartition] = field(array(DeleteRecordsPartition), factory=list)


@message(versions="0-2", flexible="2+")
class DeleteRecordsRequest:
    topics: list[DeleteRecordsTopic] = field(array(DeleteRecordsTopic), factory=list)
    timeout_ms: int = field(INT32, default=0)


@struct
class DeleteRecordsPartitionResult:
    partition_index: int = field(INT32, default=0)
    low_watermark: int = field(INT64, default=0)
    error_code: int = field(INT16, default=0)


@struct
class DeleteRecordsTopicResult:
    name: str = field(STRING, default="")
    partitions: list[DeleteRecordsPartitionResult] = field(array(DeleteRecordsPartitionResult), factory=list)


@message(versions="0-2", flexible="2+")
class DeleteRecordsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    topics: list[DeleteRecordsTopicResult] = field(array(DeleteRecordsTopicResult), factory=list)
