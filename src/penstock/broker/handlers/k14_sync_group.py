"""SyncGroup (14), versions 0-5: the leader of a classic group hands in the assignment, everyone gets theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call

_NAMES_PROTOCOL = 5


def handle(broker: Broker, request: SyncGroupRequest, call: Call) -> Any:
    if call.version >= _NAMES_PROTOCOL and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    try:
        return broker.groups.sync(
            request.group_id,
            member_id=request.member_id,
            instance_id=request.group_instance_id,
            generation=request.generation_id,
            protocol_type=request.protocol_type,
            protocol=request.protocol_name,
            assignments={given.member_id: bytes(given.assignment) for given in request.assignments},
        )
    except ApiError as error:
        code = error.code
        if code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            code = ErrorCode.REBALANCE_IN_PROGRESS  # the generation may be gone when it is loaded
        return SyncGroupResponse(error_code=code)
