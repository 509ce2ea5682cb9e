"""ListOffsets (2): offsets by timestamp, and the special positions.

-1 latest, -2 earliest, -3 the record with the largest timestamp (from 7), -4 earliest local (8), -5 latest tiered (9),
-6 earliest pending upload (11). 2 adds the isolation level, 4 leader epochs, 6 is flexible, 10 a timeout for tiered
storage.
"""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import INT8, INT16, INT32, INT64, STRING, array


@struct
class ListOffsetsPartition:
    partition_index: int = field(INT32, default=0)
    current_leader_epoch: int = field(INT32, "4+", default=-1, ignorable=True)
    timestamp: int = field(INT64, default=0)


@struct
class ListOffsetsTopic:
    name: str = field(STRING, default="")
    partitions: list[ListOffsetsPartition] = field(array(ListOffsetsPartition), factory=list)


@message(versions="1-11", flexible="6+")
class ListOffsetsRequest:
    replica_id: int = field(INT32, default=0)
    isolation_level: int = field(INT8, "2+", default=0)
    topics: list[ListOffsetsTopic] = field(array(ListOffsetsTopic), factory=list)
    timeout_ms: int = field(INT32, "10+", default=0, ignorable=True)


@struct
class ListOffsetsPartitionResponse:
    partition_index: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    timestamp: int = field(INT64, default=-1)
    offset: int = field(INT64, default=-1)
    leader_epoch: int = field(INT32, "4+", default=-1)


@struct
class ListOffsetsTopicResponse:
    name: str = field(STRING, default="")
    partitions: list[ListOffsetsPartitionResponse] = field(array(ListOffsetsPartitionResponse), factory=list)


@message(versions="1-11", flexible="6+")
class ListOffsetsResponse:
    throttle_time_ms: int = field(INT32, "2+", default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = field(array(ListOffsetsTopicResponse), factory=list)
