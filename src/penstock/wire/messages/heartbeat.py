"""Heartbeat (12): a member of a classic group is alive. 3 adds static membership, 4 is flexible."""

from __future__ import annotations

from penstock.wire.schema import field, message
from penstock.wire.types import INT16, INT32, STRING


@message(versions="0-4", flexible="4+")
class HeartbeatRequest:
    group_id: str = field(STRING, default="")
    generation_id: int = field(INT32, default=0)
    member_id: str = field(STRING, default="")
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None)


@message(versions="0-4", flexible="4+")
class HeartbeatResponse:
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    error_code: int = field(INT16, default=0)
