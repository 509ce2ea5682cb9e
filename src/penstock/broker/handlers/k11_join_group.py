"""JoinGroup (11), versions 0-9: become, or stay, a member of a classic group."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from penstock.group.classic import Join, Protocol, refused_join
from penstock.wire.errors import ApiError
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call

_KNOWN_ID = 4
_NULL_PROTOCOL = 7
_SKIP_ASSIGNMENT = 9


def handle(broker: Broker, request: JoinGroupRequest, call: Call) -> Any:
    protocols = {offered.name: bytes(offered.metadata) for offered in request.protocols}
    join = Join(
        request.member_id,
        request.group_instance_id,
        call.client_id or "",
        f"/{call.connection.host}",
        request.protocol_type,
        tuple(Protocol(name, metadata) for name, metadata in protocols.items()),
        request.rebalance_timeout_ms if call.version >= 1 else request.session_timeout_ms,
        request.session_timeout_ms,
        needs_known_id=call.version >= _KNOWN_ID and request.group_instance_id is None and not request.member_id,
        can_skip_assignment=call.version >= _SKIP_ASSIGNMENT,
    )
    try:
        result = broker.groups.join(request.group_id, join)
    except ApiError as error:
        result = refused_join(error.code, request.member_id)
    return result if call.version >= _NULL_PROTOCOL else _for_old_clients(result)


async def _for_old_clients(result: JoinGroupResponse | asyncio.Future[JoinGroupResponse]) -> JoinGroupResponse:
    """They do not know that there may be no protocol."""
    response = result if isinstance(result, JoinGroupResponse) else await result
    response.protocol_name = response.protocol_name or ""
    return response
