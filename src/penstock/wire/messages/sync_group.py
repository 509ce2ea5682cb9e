"""SyncGroup (14): the leader of a classic group hands in the assignment, everyone gets theirs.

3 adds static membership, 4 is flexible, 5 checks the protocol.
"""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import BYTES, INT16, INT32, STRING, array


@struct
class SyncGroupRequestAssignment:
    member_id: str = field(STRING, default="")
    assignment: bytes = field(BYTES, default=b"")


@message(versions="0-5", flexible="4+")
class SyncGroupRequest:
    group_id: str = field(STRING, default="")
    generation_id: int = field(INT32, default=0)
    member_id: str = field(STRING, default="")
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None)
    protocol_type: str | None = field(STRING, "5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = field(STRING, "5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = field(array(SyncGroupRequestAssignment), factory=list)


@message(versions="0-5", flexible="4+")
class SyncGroupResponse:
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    error_code: int = field(INT16, default=0)
    protocol_type: str | None = field(STRING, "5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = field(STRING, "5+", nullable="5+", default=None, ignorable=True)
    assignment: bytes = field(BYTES, default=b"")
