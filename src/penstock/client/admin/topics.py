"""Topics: create, delete, list, describe, add partitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import confluent_kafka.admin as rdkafka
from confluent_kafka import TopicCollection

from penstock.client.admin.descriptions import NewTopic, PartitionDescription, TopicDescription
from penstock.client.admin.session import Session, by_name
from penstock.client.errors import ConfigurationError

# Kafka prints the ids of topics in the URL-safe alphabet; librdkafka does not.
_URL_SAFE = str.maketrans("+/", "-_")


async def create_topics(session: Session, topics: Iterable[NewTopic | str], *, validate_only: bool = False) -> None:
    """Create topics. With `validate_only` the broker only says whether it could.

    What None leaves open is decided by the broker's own defaults.
    """
    wanted = [_new_topic(NewTopic(topic) if isinstance(topic, str) else topic) for topic in topics]
    if not wanted:
        return
    await session.each(
        lambda: session.client.create_topics(
            wanted, validate_only=validate_only, request_timeout=session.timeout, operation_timeout=session.timeout
        ),
        lambda name: f"create topic {name!r}",
    )


async def create_topic(
    session: Session,
    name: str,
    *,
    partitions: int | None = None,
    replication_factor: int | None = None,
    config: dict[str, str] | None = None,
    assignment: Sequence[Sequence[int]] | None = None,
    validate_only: bool = False,
) -> None:
    """Create one topic."""
    topic = NewTopic(name, partitions, replication_factor, config or {}, assignment)
    await create_topics(session, [topic], validate_only=validate_only)


async def delete_topics(session: Session, names: Iterable[str]) -> None:
    """Delete topics, with all their records."""
    wanted = by_name(names, "names")
    if not wanted:
        return
    await session.each(
        lambda: session.client.delete_topics(
            wanted, request_timeout=session.timeout, operation_timeout=session.timeout
        ),
        lambda name: f"delete topic {name!r}",
    )


async def list_topics(session: Session, *, internal: bool = False) -> list[str]:
    """The names of all topics, sorted; with `internal` also those that brokers keep for themselves."""
    metadata = await session.blocking(lambda: session.client.list_topics(timeout=session.timeout), "list the topics")
    names = sorted(metadata.topics)
    if internal or not any(name.startswith("__") for name in names):
        return names
    return [topic.name for topic in await describe_topics(session, names) if not topic.is_internal]


async def describe_topics(session: Session, names: Iterable[str] | None = None) -> list[TopicDescription]:
    """Topics with their partitions, leaders and replicas; without names, all that are not internal."""
    wanted = await list_topics(session) if names is None else by_name(names, "names")
    if not wanted:
        return []
    found = await session.each(
        lambda: session.client.describe_topics(TopicCollection(wanted), request_timeout=session.timeout),
        lambda name: f"describe topic {name!r}",
    )
    return [_description(found[name]) for name in wanted]


async def add_partitions(
    session: Session,
    topic: str,
    total: int,
    *,
    assignment: Sequence[Sequence[int]] | None = None,
    validate_only: bool = False,
) -> None:
    """Bring a topic to `total` partitions. Keys then go to other partitions than before.

    `assignment` has the brokers of each partition that is new.
    """
    options = {} if assignment is None else {"replica_assignment": [list(brokers) for brokers in assignment]}
    await session.each(
        lambda: session.client.create_partitions(
            [rdkafka.NewPartitions(topic, total, **options)],
            validate_only=validate_only,
            request_timeout=session.timeout,
            operation_timeout=session.timeout,
        ),
        lambda name: f"bring topic {name!r} to {total} partitions",
    )


def _new_topic(topic: NewTopic) -> rdkafka.NewTopic:
    config = {key: str(value) for key, value in topic.config.items()}
    if topic.assignment is None:
        partitions = -1 if topic.partitions is None else topic.partitions
        replicas = -1 if topic.replication_factor is None else topic.replication_factor
        if partitions == 0 or partitions < -1:
            raise ConfigurationError(f"cannot create topic {topic.name!r}: it needs at least 1 partition")
        return rdkafka.NewTopic(topic.name, partitions, replicas, config=config)
    if topic.partitions is not None or topic.replication_factor is not None:
        raise ConfigurationError(f"cannot create topic {topic.name!r}: give either an assignment or the two counts")
    brokers = [list(replicas) for replicas in topic.assignment]
    return rdkafka.NewTopic(topic.name, len(brokers), replica_assignment=brokers, config=config)


def _description(topic: Any) -> TopicDescription:
    partitions = [
        PartitionDescription(
            partition=partition.id,
            leader=partition.leader.id if partition.leader is not None and partition.leader.id >= 0 else None,
            replicas=tuple(node.id for node in partition.replicas),
            in_sync=tuple(node.id for node in partition.isr),
        )
        for partition in topic.partitions
    ]
    topic_id = str(topic.topic_id).translate(_URL_SAFE)
    return TopicDescription(topic.name, topic_id, topic.is_internal, tuple(partitions))
