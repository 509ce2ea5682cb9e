"""Creating, enlarging and deleting topics: from a wish and the image to records. Pure.

The rules and their messages are Kafka's (ReplicationControlManager).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.config.broker import BrokerConfig
from penstock.config.definition import InvalidConfig
from penstock.config.topic import TopicConfig, topic_config
from penstock.controller.placement import Candidate, place_replicas
from penstock.metadata.image import Image, PartitionState, ResourceType, Topic, metric_name, partition_record
from penstock.metadata.records import ConfigRecord, RemoveTopicRecord, TopicRecord
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.types import ZERO_UUID

NAME_LENGTH_MAX = 249
PARTITIONS_PER_REQUEST_MAX = 10_000

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


@dataclass(frozen=True)
class NewTopic:
    """A topic somebody wants. -1 partitions or replicas stands for the broker's default."""

    name: str
    partition_count: int = -1
    replication_factor: int = -1
    assignments: Sequence[tuple[int, Sequence[int]]] = ()  # (partition, broker ids), instead of the two counts
    configs: Mapping[str, str | None] = field(default_factory=dict)


def check_name(name: str) -> None:
    """Refuse names that are no topic's."""
    problem = None
    if not name:
        problem = "the empty string is not allowed"
    elif name in (".", ".."):
        problem = f"'{name}' is not allowed"
    elif len(name) > NAME_LENGTH_MAX:
        problem = f"the length of '{name}' is longer than the max allowed length {NAME_LENGTH_MAX}"
    elif not _LEGAL_NAME.fullmatch(name):
        problem = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if problem is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def check_is_new(image: Image, name: str) -> None:
    """Refuse a name that is taken, or that a metric could not tell from one that is ('a.b' and 'a_b')."""
    if name in image.topics:
        raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
    other = image.topics_by_metric_name.get(metric_name(name))
    if other is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}")


def create_topic(
    image: Image, wish: NewTopic, config: BrokerConfig, defaults: TopicConfig, *, topic_id: bytes, start: int
) -> tuple[Topic, TopicConfig, list[Any]]:
    """The new topic, its settings, and the records that make it. Raises ApiError."""
    check_name(wish.name)
    check_is_new(image, wish.name)
    try:
        settings = topic_config(defaults, wish.configs)
    except InvalidConfig as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
    replicas = _assigned(image, wish) if wish.assignments else _placed(image, wish, config, start)
    partitions = {index: _new_partition(image, ids) for index, ids in enumerate(replicas)}
    topic = Topic(wish.name, topic_id, partitions)
    records: list[Any] = [TopicRecord(name=wish.name, topic_id=topic_id)]
    records += [
        ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=wish.name, name=name, value=value)
        for name, value in wish.configs.items()
    ]
    records += [partition_record(topic_id, index, state) for index, state in partitions.items()]
    return topic, settings, records


def add_partitions(
    image: Image, name: str, count: int, assignments: Sequence[Sequence[int]] | None, *, start: int
) -> list[Any]:
    """The records that bring a topic to `count` partitions."""
    topic = image.topics.get(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
    current = len(topic.partitions)
    if count == current:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
    if count < current:
        raise ApiError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {name} currently has {current} partition(s); {count} would not be an increase.",
        )
    added = count - current
    _check_partition_count(added)
    if assignments is not None and len(assignments) != added:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {added} additional partition(s), but only {len(assignments)} assignment(s) "
            "were specified.",
        )
    if assignments is not None:
        factor = len(topic.partitions[0].replicas)
        for ids in assignments:
            check_assignment(image, ids)
            if len(ids) != factor:
                raise ApiError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"The manual partition assignment includes a partition with {len(ids)} replica(s), but this is not "
                    f"consistent with previous partitions, which have {factor} replica(s).",
                )
        replicas = [list(ids) for ids in assignments]
    else:
        factor = len(topic.partitions[0].replicas)
        replicas = place_replicas(_candidates(image), added, factor, start=start, first_partition=current)
    return [
        partition_record(topic.topic_id, current + number, _new_partition(image, ids))
        for number, ids in enumerate(replicas)
    ]


def delete_topic(image: Image, name: str | None, topic_id: bytes) -> tuple[Topic, list[Any]]:
    """The topic with this name or id, and the record that removes it."""
    if name is not None:
        topic = image.topics.get(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    else:
        topic = image.topics_by_id.get(topic_id)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
    return topic, [RemoveTopicRecord(topic_id=topic.topic_id)]


def _placed(image: Image, wish: NewTopic, config: BrokerConfig, start: int) -> list[list[int]]:
    if wish.replication_factor < -1 or wish.replication_factor == 0:
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if wish.partition_count < -1 or wish.partition_count == 0:
        raise ApiError(ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value.")
    count = config.num_partitions if wish.partition_count == -1 else wish.partition_count
    factor = config.default_replication_factor if wish.replication_factor == -1 else wish.replication_factor
    _check_partition_count(count)
    return place_replicas(_candidates(image), count, factor, start=start)


def _check_partition_count(count: int) -> None:
    if count > PARTITIONS_PER_REQUEST_MAX:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION,
            f"Excessively large number of partitions per request: {count} is more than {PARTITIONS_PER_REQUEST_MAX}.",
        )


def _assigned(image: Image, wish: NewTopic) -> list[list[int]]:
    if wish.replication_factor != -1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        )
    if wish.partition_count != -1:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    by_partition: dict[int, list[int]] = {}
    for index, ids in wish.assignments:
        if index in by_partition:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {index}",
            )
        check_assignment(image, ids)
        by_partition[index] = list(ids)
    _check_partition_count(len(by_partition))
    if sorted(by_partition) != list(range(len(by_partition))):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions should be a consecutive 0-based integer sequence"
        )
    if len({len(ids) for ids in by_partition.values()}) > 1:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "The manual partition assignment includes partitions with different numbers of replicas.",
        )
    return [by_partition[index] for index in range(len(by_partition))]


def check_assignment(image: Image, ids: Sequence[int]) -> None:
    """Refuse replicas that cannot be a partition's."""
    if not ids:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "The manual partition assignment includes an empty replica list."
        )
    for broker_id in ids:
        if broker_id not in image.brokers:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes broker {broker_id}, but no such broker is registered.",
            )
        if list(ids).count(broker_id) > 1:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes the broker {broker_id} more than once.",
            )


def _candidates(image: Image) -> list[Candidate]:
    return [Candidate(broker.broker_id, broker.rack) for broker in image.brokers.values() if broker.is_active]


def _new_partition(image: Image, replicas: Sequence[int]) -> PartitionState:
    alive = [broker_id for broker_id in replicas if image.brokers[broker_id].is_active]
    if not alive:
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"All brokers specified in the manual partition assignment {list(replicas)} are fenced or in controlled "
            "shutdown.",
        )
    return PartitionState(
        replicas=tuple(replicas),
        isr=tuple(alive),
        leader=alive[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=tuple(_directory_of(image, broker_id) for broker_id in replicas),
    )


def _directory_of(image: Image, broker_id: int) -> bytes:
    """A broker with one data directory leaves no choice; else it chooses when it makes the log."""
    directories = image.brokers[broker_id].directories
    return directories[0] if len(directories) == 1 else ZERO_UUID
