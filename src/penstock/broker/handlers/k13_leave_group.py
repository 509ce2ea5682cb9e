"""LeaveGroup (13), versions 0-5: members go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.wire.errors import ApiError
from penstock.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call

_SEVERAL = 3


def handle(broker: Broker, request: LeaveGroupRequest, call: Call) -> LeaveGroupResponse:
    if call.version >= _SEVERAL:
        members = [(member.member_id, member.group_instance_id) for member in request.members]
    else:
        members = [(request.member_id, None)]
    try:
        codes = broker.groups.leave(request.group_id, members)
    except ApiError as error:
        return LeaveGroupResponse(error_code=error.code)
    if call.version < _SEVERAL:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(
        members=[MemberResponse(*member, code) for member, code in zip(members, codes, strict=True)]
    )
