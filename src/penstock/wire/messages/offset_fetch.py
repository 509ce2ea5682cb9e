"""OffsetFetch (9): how far a group has read.

2 carries an error for the whole and can ask for all topics (null), 5 adds leader epochs, 6 is flexible, 7 can wait for
transactions to end, 8 asks for several groups at once, 9 names the member, so that a stale one is told, 10 names topics
by id.
"""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import BOOL, INT16, INT32, INT64, STRING, UUID, ZERO_UUID, array


@struct
class OffsetFetchRequestTopic:
    name: str = field(STRING, "1-7", default="")
    partition_indexes: list[int] = field(array(INT32), "1-7", factory=list)


@struct
class OffsetFetchRequestTopics:
    name: str = field(STRING, "8-9", default="", ignorable=True)
    topic_id: bytes = field(UUID, "10+", default=ZERO_UUID, ignorable=True)
    partition_indexes: list[int] = field(array(INT32), "8+", factory=list)


@struct
class OffsetFetchRequestGroup:
    group_id: str = field(STRING, "8+", default="")
    member_id: str | None = field(STRING, "9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = field(INT32, "9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = field(
        array(OffsetFetchRequestTopics), "8+", nullable="8+", factory=list
    )


@message(versions="1-10", flexible="6+")
class OffsetFetchRequest:
    group_id: str = field(STRING, "1-7", default="")
    topics: list[OffsetFetchRequestTopic] | None = field(
        array(OffsetFetchRequestTopic), "1-7", nullable="2-7", factory=list
    )
    groups: list[OffsetFetchRequestGroup] = field(array(OffsetFetchRequestGroup), "8+", factory=list)
    require_stable: bool = field(BOOL, "7+", default=False)


@struct
class OffsetFetchResponsePartition:
    partition_index: int = field(INT32, "1-7", default=0)
    committed_offset: int = field(INT64, "1-7", default=0)
    committed_leader_epoch: int = field(INT32, "5-7", default=-1, ignorable=True)
    metadata: str | None = field(STRING, "1-7", nullable="0-7", default=None)
    error_code: int = field(INT16, "1-7", default=0)


@struct
class OffsetFetchResponseTopic:
    name: str = field(STRING, "1-7", default="")
    partitions: list[OffsetFetchResponsePartition] = field(array(OffsetFetchResponsePartition), "1-7", factory=list)


@struct
class OffsetFetchResponsePartitions:
    partition_index: int = field(INT32, "8+", default=0)
    committed_offset: int = field(INT64, "8+", default=0)
    committed_leader_epoch: int = field(INT32, "8+", default=-1, ignorable=True)
    metadata: str | None = field(STRING, "8+", nullable="8+", default=None)
    error_code: int = field(INT16, "8+", default=0)


@struct
class OffsetFetchResponseTopics:
    name: str = field(STRING, "8-9", default="", ignorable=True)
    topic_id: bytes = field(UUID, "10+", default=ZERO_UUID, ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = field(array(OffsetFetchResponsePartitions), "8+", factory=list)


@struct
class OffsetFetchResponseGroup:
    group_id: str = field(STRING, "8+", default="")
    topics: list[OffsetFetchResponseTopics] = field(array(OffsetFetchResponseTopics), "8+", factory=list)
    error_code: int = field(INT16, "8+", default=0)


@message(versions="1-10", flexible="6+")
class OffsetFetchResponse:
    throttle_time_ms: int = field(INT32, "3+", default=0, ignorable=True)
    topics: list[OffsetFetchResponseTopic] = field(array(OffsetFetchResponseTopic), "1-7", factory=list)
    error_code: int = field(INT16, "2-7", default=0, ignorable=True)
    groups: list[OffsetFetchResponseGroup] = field(array(OffsetFetchResponseGroup), "8+", factory=list)
