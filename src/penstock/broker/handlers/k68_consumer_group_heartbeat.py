"""ConsumerGroupHeartbeat (68), versions 0-1: everything a member of a consumer group says and hears."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.coordination.appends import after
from penstock.group.assignors import Assigned
from penstock.group.consumer import LEAVE, LEAVE_FOR_A_WHILE
from penstock.group.heartbeat import Heartbeat
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from penstock.wire.types import random_uuid, uuid_text

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call

_MEMBER_CHOOSES_ID = 1


def handle(broker: Broker, request: ConsumerGroupHeartbeatRequest, call: Call) -> Any:
    try:
        _check(request, call.version, broker.config.group_consumer_assignors)
        member_id = request.member_id or uuid_text(random_uuid())
        beat = Heartbeat(
            member_id,
            request.member_epoch,
            request.instance_id,
            request.rack_id,
            request.rebalance_timeout_ms,
            None if request.subscribed_topic_names is None else frozenset(request.subscribed_topic_names),
            request.subscribed_topic_regex,
            request.server_assignor,
            None if request.topic_partitions is None else _assigned(request.topic_partitions),
            call.client_id or "",
            f"/{call.connection.host}",
        )
        member, is_told, future = broker.groups.beat(request.group_id, beat)
    except ApiError as error:
        return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
    if member is None:
        response = ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=request.member_epoch)
    else:
        response = ConsumerGroupHeartbeatResponse(
            member_id=member.member_id,
            member_epoch=member.epoch,
            heartbeat_interval_ms=broker.groups.settings(request.group_id).consumer_heartbeat_interval_ms,
        )
        if is_told:
            response.assignment = Assignment(
                [TopicPartitions(topic_id, sorted(p)) for topic_id, p in member.progress.assigned.items()]
            )
    return after(future, response, lambda code: ConsumerGroupHeartbeatResponse(error_code=code))


def _assigned(partitions: list[TopicPartitions]) -> Assigned:
    return {owned.topic_id: frozenset(owned.partitions) for owned in partitions}


def _check(request: ConsumerGroupHeartbeatRequest, version: int, assignors: tuple[str, ...]) -> None:
    """Refuse what contradicts itself, in Kafka's words."""
    problem = None
    if not request.group_id.strip():
        problem = "GroupId can't be empty."
    elif request.instance_id is not None and not request.instance_id.strip():
        problem = "InstanceId can't be empty."
    elif request.rack_id is not None and not request.rack_id.strip():
        problem = "RackId can't be empty."
    elif not request.member_id.strip() and (version >= _MEMBER_CHOOSES_ID or request.member_epoch != 0):
        problem = "MemberId can't be empty."
    elif request.member_epoch == 0:
        problem = _problem_of_joining(request)
    elif request.member_epoch == LEAVE_FOR_A_WHILE:
        problem = "InstanceId can't be null." if request.instance_id is None else None
    elif request.member_epoch < LEAVE:
        problem = "MemberEpoch is invalid."
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_REQUEST, problem)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _problem_of_joining(request: ConsumerGroupHeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms == -1:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.topic_partitions is None or request.topic_partitions:
        return "TopicPartitions must be empty when (re-)joining."
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return None
