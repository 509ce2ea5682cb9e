"""LeaveGroup (13): leave a group. 3 lets several members leave at once, 4 is flexible, 5 carries their reasons."""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import INT16, INT32, STRING, array


@struct
class MemberIdentity:
    member_id: str = field(STRING, "3+", default="")
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None)
    reason: str | None = field(STRING, "5+", nullable="5+", default=None, ignorable=True)


@message(versions="0-5", flexible="4+")
class LeaveGroupRequest:
    group_id: str = field(STRING, default="")
    member_id: str = field(STRING, "0-2", default="")
    members: list[MemberIdentity] = field(array(MemberIdentity), "3+", factory=list)


@struct
class MemberResponse:
    member_id: str = field(STRING, "3+", default="")
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None)
    error_code: int = field(INT16, "3+", default=0)


@message(versions="0-5", flexible="4+")
class LeaveGroupResponse:
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    error_code: int = field(INT16, default=0)
    members: list[MemberResponse] = field(array(MemberResponse), "3+", factory=list)
