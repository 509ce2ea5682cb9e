"""OffsetDelete (47): delete the committed offsets of topics that the group no longer reads."""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import INT16, INT32, STRING, array


@struct
class OffsetDeleteRequestPartition:
    partition_index: int = field(INT32, default=0)


@struct
class OffsetDeleteRequestTopic:
    name: str = field(STRING, default="")
    partitions: list[OffsetDeleteRequestPartition] = field(array(OffsetDeleteRequestPartition), factory=list)


@message(versions="0")
class OffsetDeleteRequest:
    group_id: str = field(STRING, default="")
    topics: list[OffsetDeleteRequestTopic] = field(array(OffsetDeleteRequestTopic), factory=list)


@struct
class OffsetDeleteResponsePartition:
    partition_index: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)


@struct
class OffsetDeleteResponseTopic:
    name: str = field(STRING, default="")
    partitions: list[OffsetDeleteResponsePartition] = field(array(OffsetDeleteResponsePartition), factory=list)


@message(versions="0")
class OffsetDeleteResponse:
    error_code: int = field(INT16, default=0)
    throttle_time_ms: int = field(INT32, default=0, ignorable=True)
    topics: list[OffsetDeleteResponseTopic] = field(array(OffsetDeleteResponseTopic), factory=list)
