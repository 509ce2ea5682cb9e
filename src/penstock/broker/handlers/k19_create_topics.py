"""CreateTopics (19), versions 0-7."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from penstock.broker.config_answers import topic_entries
from penstock.config.topic import TopicConfig
from penstock.controller.topics import NewTopic
from penstock.metadata.image import Topic
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call


async def handle(broker: Broker, request: CreateTopicsRequest, call: Call) -> CreateTopicsResponse:
    counts = Counter(topic.name for topic in request.topics)
    repeated = {name for name, count in counts.items() if count > 1}
    wishes = [_wish(topic) for topic in request.topics if topic.name not in repeated]
    results = await broker.controller.create_topics(wishes, is_dry_run=request.validate_only)
    given = {wish.name: wish.configs for wish in wishes}
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(
                name=name, error_code=ErrorCode.INVALID_REQUEST, error_message="Duplicate topic name.", configs=[]
            )
            if name in repeated
            else _result(broker, name, results[name], given[name])
            for name in counts
        ]
    )


def _wish(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(assignment.partition_index, assignment.broker_ids) for assignment in topic.assignments],
        {config.name: config.value for config in topic.configs},
    )


def _result(
    broker: Broker, name: str, outcome: tuple[Topic, TopicConfig] | ApiError, overrides: object
) -> CreatableTopicResult:
    if isinstance(outcome, ApiError):
        return CreatableTopicResult(name=name, error_code=outcome.code, error_message=outcome.message, configs=[])
    topic, _ = outcome
    assert isinstance(overrides, dict)
    return CreatableTopicResult(
        name=name,
        topic_id=topic.topic_id,
        num_partitions=len(topic.partitions),
        replication_factor=len(topic.partitions[0].replicas),
        configs=[
            CreatableTopicConfigs(
                name=entry.key.name,
                value=entry.value,
                read_only=False,
                config_source=entry.source,
                is_sensitive=entry.key.is_sensitive,
            )
            for entry in topic_entries(broker.settings, overrides)
        ],
    )
