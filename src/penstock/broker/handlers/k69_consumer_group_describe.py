"""ConsumerGroupDescribe (69), versions 0-1: the state and members of consumer groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.operations import GROUP_OPERATIONS
from penstock.group.assignors import Assigned
from penstock.group.consumer import NOTHING, ConsumerGroup, ConsumerMember
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call

_CLASSIC, _CONSUMER = 0, 1


def handle(broker: Broker, request: ConsumerGroupDescribeRequest, call: Call) -> ConsumerGroupDescribeResponse:
    response = ConsumerGroupDescribeResponse(groups=[_describe(broker, name) for name in request.group_ids])
    if request.include_authorized_operations:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = GROUP_OPERATIONS
    return response


def _describe(broker: Broker, group_id: str) -> DescribedGroup:
    if not group_id:
        return DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID)
    try:
        group = broker.groups.shard(group_id).consumer(group_id)
    except ApiError as error:
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(next(iter(broker.config.group_consumer_assignors), "uniform")),
        members=[_member(broker, group, member) for member in group.members.values()],
    )


def _member(broker: Broker, group: ConsumerGroup, member: ConsumerMember) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.regex,
        assignment=_named(broker, member.progress.assigned),
        target_assignment=_named(broker, group.target.get(member.member_id, NOTHING)),
        member_type=_CONSUMER if member.classic is None else _CLASSIC,
    )


def _named(broker: Broker, assigned: Assigned) -> Assignment:
    topics = broker.image.topics_by_id
    return Assignment(
        [
            TopicPartitions(topic_id, topics[topic_id].name, sorted(partitions))
            for topic_id, partitions in assigned.items()
            if topic_id in topics
        ]
    )
