"""OffsetForLeaderEpoch (23): where an epoch ended in the leader's log; the base of truncation.

3 tells followers from consumers, 4 is flexible.
"""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import INT16, INT32, INT64, STRING, array


@struct
class OffsetForLeaderPartition:
    partition: int = field(INT32, default=0)
    current_leader_epoch: int = field(INT32, default=-1, ignorable=True)
    leader_epoch: int = field(INT32, default=0)


@struct
class OffsetForLeaderTopic:
    topic: str = field(STRING, default="")
    partitions: list[OffsetForLeaderPartition] = field(array(OffsetForLeaderPartition), factory=list)


@message(versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest:
    replica_id: int = field(INT32, "3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = field(array(OffsetForLeaderTopic), factory=list)


@struct
class EpochEndOffset:
    error_code: int = field(INT16, default=0)
    partition: int = field(INT32, default=0)
    leader_epoch: int = field(INT32, default=-1, ignorable=True)
    end_offset: int = field(INT64, default=-1)


@struct
class OffsetForLeaderTopicResult:
    topic: str = field(STRING, default="")
    partitions: list[EpochEndOffset] = field(array(EpochEndOffset), factory=list)


@message(versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse:
    throttle_time_ms: int = field(INT32, default=0, ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = field(array(OffsetForLeaderTopicResult), factory=list)
