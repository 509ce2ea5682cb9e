"""DescribeGroups (15), versions 0-6: the state and members of classic groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.operations import GROUP_OPERATIONS
from penstock.group.classic import ClassicGroup, State
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call

_TELLS_MISSING = 6


def handle(broker: Broker, request: DescribeGroupsRequest, call: Call) -> DescribeGroupsResponse:
    response = DescribeGroupsResponse(groups=[_describe(broker, name, call.version) for name in request.groups])
    if request.include_authorized_operations:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return response


def _describe(broker: Broker, group_id: str, version: int) -> DescribedGroup:
    try:
        group = broker.groups.shard(group_id).classic(group_id)
    except ApiError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            return DescribedGroup(group_id=group_id, error_code=error.code)
        is_told = version >= _TELLS_MISSING
        return DescribedGroup(
            group_id=group_id,
            group_state=State.DEAD.value,
            error_code=error.code if is_told else ErrorCode.NONE,
            error_message=error.message if is_told else None,
        )
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if group.state is State.STABLE else "",
        members=_members(group),
    )


def _members(group: ClassicGroup) -> list[DescribedGroupMember]:
    """What a member subscribed to is shown only while it counts."""
    is_stable = group.state is State.STABLE
    return [
        DescribedGroupMember(
            member_id=member.member_id,
            group_instance_id=member.instance_id,
            client_id=member.client_id,
            client_host=member.client_host,
            member_metadata=member.metadata(group.protocol) if is_stable else b"",
            member_assignment=member.assignment,
        )
        for member in group.members.values()
    ]
