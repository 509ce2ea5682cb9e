"""ConsumerGroupDescribe (69): the state and members of consumer groups.

1 tells which members still use the classic protocol.
"""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import BOOL, INT8, INT16, INT32, STRING, UUID, ZERO_UUID, array, struct_of


@message(versions="0-1", flexible="0+")
class ConsumerGroupDescribeRequest:
    group_ids: list[str] = field(array(STRING), factory=list)
    include_authorized_operations: bool = field(BOOL, default=False)


@struct
class TopicPartitions:
    topic_id: bytes = field(UUID, default=ZERO_UUID)
    topic_name: str = field(STRING, default="")
    partitions: list[int] = field(array(INT32), factory=list)


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = field(array(TopicPartitions), factory=list)


@struct
class Member:
    member_id: str = field(STRING, default="")
    instance_id: str | None = field(STRING, nullable="0+", default=None)
    rack_id: str | None = field(STRING, nullable="0+", default=None)
    member_epoch: int = field(INT32, default=0)
    client_id: str = field(STRING, default="")
    client_host: str = field(STRING, default="")
    subscribed_topic_names: list[str] = field(array(STRING), factory=list)
    subscribed_topic_regex: str | None = field(STRING, nullable="0+", default=None)
    assignment: Assignment = field(struct_of(Assignment), factory=Assignment)
    target_assignment: Assignment = field(struct_of(Assignment), factory=Assignment)
    member_type: int = field(INT8, "1+", default=-1, ignorable=True)


@struct
class DescribedGroup:
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    group_id: str = field(STRING, default="")
    group_state: str = field(STRING, default="")
    group_epoch: int = field(INT32, default=0)
    assignment_epoch: int = field(INT32, default=0)
    assignor_name: str = field(STRING, default="")
    members: list[Member] = field(array(Member), factory=list)
    authorized_operations: int = field(INT32, default=-2147483648)


@message(versions="0-1", flexible="0+")
class ConsumerGroupDescribeResponse:
    throttle_time_ms: int = field(INT32, default=0)
    groups: list[DescribedGroup] = field(array(DescribedGroup), factory=list)
