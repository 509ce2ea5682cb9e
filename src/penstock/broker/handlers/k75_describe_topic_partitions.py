"""DescribeTopicPartitions (75), version 0: topics and partitions page by page, in the order of their names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.topic_errors import error_of_partition
from penstock.controller.topics import check_name
from penstock.metadata.image import Topic
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call


def handle(broker: Broker, request: DescribeTopicPartitionsRequest, call: Call) -> DescribeTopicPartitionsResponse:
    image = broker.image
    names = sorted({topic.name for topic in request.topics}) if request.topics else sorted(image.topics)
    start = request.cursor
    if start is not None:
        names = [name for name in names if name >= start.topic_name]
    room = min(request.response_partition_limit, broker.config.max_request_partition_size_limit)
    room = max(room, 1)
    response = DescribeTopicPartitionsResponse()
    for name in names:
        topic = image.topics.get(name)
        if topic is None:
            response.topics.append(_missing(name))
            continue
        first = start.partition_index if start is not None and start.topic_name == name else 0
        if room == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=first)
            break
        indexes = [index for index in sorted(topic.partitions) if index >= first]
        response.topics.append(_describe(broker, topic, indexes[:room]))
        if len(indexes) > room:
            response.next_cursor = Cursor(topic_name=name, partition_index=indexes[room])
            break
        room -= len(indexes)
    return response


def _missing(name: str) -> DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_name(name)
    except ApiError as error:
        code = error.code
    return DescribeTopicPartitionsResponseTopic(error_code=code, name=name)


def _describe(broker: Broker, topic: Topic, indexes: list[int]) -> DescribeTopicPartitionsResponseTopic:
    described = DescribeTopicPartitionsResponseTopic(
        name=topic.name, topic_id=topic.topic_id, is_internal=topic.is_internal
    )
    for index in indexes:
        state = topic.partitions[index]
        described.partitions.append(
            DescribeTopicPartitionsResponsePartition(
                error_code=error_of_partition(broker, topic.name, index, state),
                partition_index=index,
                leader_id=state.leader,
                leader_epoch=state.leader_epoch,
                replica_nodes=list(state.replicas),
                isr_nodes=list(state.isr),
                eligible_leader_replicas=[],
                last_known_elr=[],
                offline_replicas=broker.offline_replicas(topic.name, index, state),
            )
        )
    return described
