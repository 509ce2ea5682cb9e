"""JoinGroup (11): become, or stay, a member of a classic group.

1 adds the rebalance timeout, 4 sends a new member back once to come again with an id, 5 adds static membership, 6 is
flexible, 7 answers with the protocol type, 8 carries the member's reason, 9 tells the leader that it need not compute
an assignment.
"""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import BOOL, BYTES, INT16, INT32, STRING, array


@struct
class JoinGroupRequestProtocol:
    name: str = field(STRING, default="")
    metadata: bytes = field(BYTES, default=b"")


@message(versions="0-9", flexible="6+")
class JoinGroupRequest:
    group_id: str = field(STRING, default="")
    session_timeout_ms: int = field(INT32, default=0)
    rebalance_timeout_ms: int = field(INT32, "1+", default=-1, ignorable=True)
    member_id: str = field(STRING, default="")
    group_instance_id: str | None = field(STRING, "5+", nullable="5+", default=None)
    protocol_type: str = field(STRING, default="")
    protocols: list[JoinGroupRequestProtocol] = field(array(JoinGroupRequestProtocol), factory=list)
    reason: str | None = field(STRING, "8+", nullable="8+", default=None, ignorable=True)


@struct
class JoinGroupResponseMember:
    member_id: str = field(STRING, default="")
    group_instance_id: str | None = field(STRING, "5+", nullable="5+", default=None, ignorable=True)
    metadata: bytes = field(BYTES, default=b"")


@message(versions="0-9", flexible="6+")
class JoinGroupResponse:
    throttle_time_ms: int = field(INT32, "2+", default=0, ignorable=True)
    error_code: int = field(INT16, default=0)
    generation_id: int = field(INT32, default=-1)
    protocol_type: str | None = field(STRING, "7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = field(STRING, nullable="7+", default=None)
    leader: str = field(STRING, default="")
    skip_assignment: bool = field(BOOL, "9+", default=False)
    member_id: str = field(STRING, default="")
    members: list[JoinGroupResponseMember] = field(array(JoinGroupResponseMember), factory=list)
