"""Heartbeat (12), versions 0-4: a member of a classic group is alive."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call


def handle(broker: Broker, request: HeartbeatRequest, call: Call) -> HeartbeatResponse:
    try:
        code = broker.groups.heartbeat(
            request.group_id, request.member_id, request.group_instance_id, request.generation_id
        )
    except ApiError as error:
        # A member need not know that its group is being loaded: it will still be a member then.
        code = ErrorCode.NONE if error.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else error.code
    return HeartbeatResponse(error_code=code)
