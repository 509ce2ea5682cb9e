"""Metadata (3), versions 0-13: brokers, topics, partitions and their leaders.

A topic that does not exist is created, if both the client and auto.create.topics.enable allow it. As in Kafka, it is
unknown in this answer, so that who looks whether a topic is gone is told; clients that want it ask again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS, UNKNOWN
from penstock.broker.topic_errors import error_of_partition
from penstock.controller.topics import NewTopic, check_name
from penstock.metadata.image import Image, Topic
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.wire.types import ZERO_UUID

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call

_AUTO_CREATION_SWITCH_VERSION = 4


def handle(broker: Broker, request: MetadataRequest, call: Call) -> Any:
    response = _answer(broker, request, call)
    missing = [topic for topic in response.topics if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    return _create(broker, missing, response) if missing and _may_create(broker, request, call) else response


def _may_create(broker: Broker, request: MetadataRequest, call: Call) -> bool:
    is_allowed = call.version < _AUTO_CREATION_SWITCH_VERSION or request.allow_auto_topic_creation
    return is_allowed and broker.config.auto_create_topics_enable


async def _create(broker: Broker, missing: list[MetadataResponseTopic], response: MetadataResponse) -> MetadataResponse:
    """Create topics before their absence is told, so that they are there when the client asks again."""
    names = dict.fromkeys(topic.name for topic in missing if topic.name is not None)
    results = await broker.controller.create_topics([NewTopic(name) for name in names])
    for topic in missing:
        result = results[topic.name or ""]
        if isinstance(result, ApiError) and result.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            topic.error_code = result.code
    return response


def _answer(broker: Broker, request: MetadataRequest, call: Call) -> MetadataResponse:
    image = broker.image
    wants_all = request.topics is None or (call.version == 0 and not request.topics)
    if wants_all:
        topics = [_describe(broker, topic) for topic in image.topics.values()]
    else:
        topics = [_describe_wanted(broker, image, wanted.name, wanted.topic_id) for wanted in request.topics or ()]
    if request.include_topic_authorized_operations:
        for topic in topics:
            topic.topic_authorized_operations = TOPIC_OPERATIONS
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in broker.nodes(call.connection.listener)
        ],
        cluster_id=broker.cluster_id,
        controller_id=broker.controller_id,
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else UNKNOWN,
    )


def _describe_wanted(broker: Broker, image: Image, name: str | None, topic_id: bytes) -> MetadataResponseTopic:
    if name is None or topic_id != ZERO_UUID:  # Java's consumer sends an empty name with an id
        topic = image.topics_by_id.get(topic_id)
        if topic is None:
            return MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
        return _describe(broker, topic)
    topic = image.topics.get(name)
    if topic is not None:
        return _describe(broker, topic)
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_name(name)
    except ApiError as error:
        code = error.code
    return MetadataResponseTopic(error_code=code, name=name)


def _describe(broker: Broker, topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            MetadataResponsePartition(
                error_code=error_of_partition(broker, topic.name, index, state),
                partition_index=index,
                leader_id=state.leader,
                leader_epoch=state.leader_epoch,
                replica_nodes=list(state.replicas),
                isr_nodes=list(state.isr),
                offline_replicas=broker.offline_replicas(topic.name, index, state),
            )
            for index, state in topic.partitions.items()
        ],
    )
