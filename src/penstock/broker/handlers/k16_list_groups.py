"""ListGroups (16), versions 0-5: the groups that this broker coordinates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.group.classic import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from penstock.group.shard import Group
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call


def handle(broker: Broker, request: ListGroupsRequest, call: Call) -> ListGroupsResponse:
    shards = broker.groups.shards
    if not all(shard.is_loaded for shard in shards):
        return ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    states = {state.lower() for state in request.states_filter}
    types = {group_type.lower() for group_type in request.types_filter}
    listed = [_listed(group) for shard in shards for group in shard.groups.values()]
    return ListGroupsResponse(
        groups=[
            group
            for group in listed
            if (not states or group.group_state.lower() in states) and (not types or group.group_type in types)
        ]
    )


def _listed(group: Group) -> ListedGroup:
    if isinstance(group, ClassicGroup):
        return ListedGroup(group.group_id, group.protocol_type or "", group.state.value, "classic")
    return ListedGroup(group.group_id, CONSUMER_PROTOCOL_TYPE, group.state, "consumer")
