"""DescribeGroups (15): the state and members of classic groups.

3 adds authorised operations, 4 static members, 5 is flexible, 6 tells groups that do not exist by an error.
"""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import BOOL, BYTES, INT16, INT32, STRING, array


@message(versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    groups: list[str] = field(array(STRING), factory=list)
    include_authorized_operations: bool = field(BOOL, "3+", default=False)


@struct
class DescribedGroupMember:
    member_id: str = field(STRING, default="")
    group_instance_id: str | None = field(STRING, "4+", nullable="4+", default=None, ignorable=True)
    client_id: str = field(STRING, default="")
    client_host: str = field(STRING, default="")
    member_metadata: bytes = field(BYTES, default=b"")
    member_assignment: bytes = field(BYTES, default=b"")


@struct
class DescribedGroup:
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, "6+", nullable="6+", default=None)
    group_id: str = field(STRING, default="")
    group_state: str = field(STRING, default="")
    protocol_type: str = field(STRING, default="")
    protocol_data: str = field(STRING, default="")
    members: list[DescribedGroupMember] = field(array(DescribedGroupMember), factory=list)
    authorized_operations: int = field(INT32, "3+", default=-2147483648)


@message(versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    groups: list[DescribedGroup] = field(array(DescribedGroup), factory=list)
