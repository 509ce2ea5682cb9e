"""DeleteGroups (42), versions 0-2: delete groups without members, with their offsets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.coordination.appends import settled
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call


async def handle(broker: Broker, request: DeleteGroupsRequest, call: Call) -> DeleteGroupsResponse:
    results = [DeletableGroupResult(name, await _delete(broker, name)) for name in dict.fromkeys(request.groups_names)]
    return DeleteGroupsResponse(results=results)


async def _delete(broker: Broker, group_id: str) -> ErrorCode:
    try:
        future = broker.groups.delete_group(group_id)
    except ApiError as error:
        return error.code
    return await settled(future)
