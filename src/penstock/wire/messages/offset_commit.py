"""OffsetCommit (8): note how far a group has read.

5 leaves the retention time to the broker, 6 adds leader epochs, 7 static membership, 8 is flexible, 9 is used by the
consumer protocol (the generation is then the member's epoch), 10 names topics by id.
"""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import INT16, INT32, INT64, STRING, UUID, ZERO_UUID, array


@struct
class OffsetCommitRequestPartition:
    partition_index: int = field(INT32, default=0)
    committed_offset: int = field(INT64, default=0)
    committed_leader_epoch: int = field(INT32, "6+", default=-1, ignorable=True)
    committed_metadata: str | None = field(STRING, nullable="0+", default=None)


@struct
class OffsetCommitRequestTopic:
    name: str = field(STRING, "2-9", default="", ignorable=True)
    topic_id: bytes = field(UUID, "10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitRequestPartition] = field(array(OffsetCommitRequestPartition), factory=list)


@message(versions="2-10", flexible="8+")
class OffsetCommitRequest:
    group_id: str = field(STRING, default="")
    generation_id_or_member_epoch: int = field(INT32, default=-1, ignorable=True)
    member_id: str = field(STRING, default="", ignorable=True)
    group_instance_id: str | None = field(STRING, "7+", nullable="7+", default=None)
    retention_time_ms: int = field(INT64, "2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = field(array(OffsetCommitRequestTopic), factory=list)


@struct
class OffsetCommitResponsePartition:
    partition_index: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)


@struct
class OffsetCommitResponseTopic:
    name: str = field(STRING, "2-9", default="", ignorable=True)
    topic_id: bytes = field(UUID, "10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetCommitResponsePartition] = field(array(OffsetCommitResponsePartition), factory=list)


@message(versions="2-10", flexible="8+")
class OffsetCommitResponse:
    throttle_time_ms: int = field(INT32, "3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = field(array(OffsetCommitResponseTopic), factory=list)
