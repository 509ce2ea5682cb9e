"""FindCoordinator (10), versions 0-6: the broker that looks after a group or a transactional id.

The topic that they live in is made when the first of them is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.internal_topics import offsets_topic, transaction_topic
from penstock.coordination.hashing import partition_of
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call

_SEVERAL = 4
_TOPICS = {0: offsets_topic, 1: transaction_topic}
_NOBODY = -1


async def handle(broker: Broker, request: FindCoordinatorRequest, call: Call) -> FindCoordinatorResponse:
    if call.version >= _SEVERAL:
        found = [await _find(broker, request.key_type, key, call) for key in request.coordinator_keys]
        return FindCoordinatorResponse(coordinators=found)
    one = await _find(broker, request.key_type, request.key, call)
    return FindCoordinatorResponse(
        error_code=one.error_code,
        error_message=one.error_message or "NONE",  # as Kafka has it
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )


async def _find(broker: Broker, key_type: int, key: str, call: Call) -> Coordinator:
    try:
        node_id, host, port = await _node(broker, key_type, key, call.connection.listener)
    except ApiError as error:
        return Coordinator(key, _NOBODY, "", _NOBODY, error.code, error.message)
    return Coordinator(key, node_id, host, port, error_message="")


async def _node(broker: Broker, key_type: int, key: str, listener: str) -> tuple[int, str, int]:
    find_topic = _TOPICS.get(key_type)
    if find_topic is None:  # there is no coordinator for share groups here
        raise ApiError(ErrorCode.INVALID_REQUEST, f"coordinator key type {key_type} is not supported")
    topic = await find_topic(broker)
    state = topic.partitions.get(partition_of(key, len(topic.partitions)))
    for node_id, host, port, _ in broker.nodes(listener):
        if state is not None and node_id == state.leader:
            return node_id, host, port
    raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
