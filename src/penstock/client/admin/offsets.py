"""Offsets: where partitions begin and end, what groups have committed, deleting records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Literal

import confluent_kafka
import confluent_kafka.admin as rdkafka
from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaError

from penstock.client.admin.descriptions import OffsetAndMetadata, OffsetInfo, PartitionLag
from penstock.client.admin.groups import describe_groups
from penstock.client.admin.session import Session, by_name
from penstock.client.admin.topics import describe_topics
from penstock.client.errors import ConfigurationError, PenstockError, UnknownGroup, raise_failures
from penstock.client.partitions import PartitionLike, TopicPartition
from penstock.client.rdkafka import from_kafka, from_rdkafka, to_rdkafka
from penstock.client.times import to_timestamp_ms
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)

At = Literal["earliest", "latest", "max_timestamp"] | int | datetime
Offsets = dict[TopicPartition, int]


async def partition_offsets(
    session: Session, partitions: Iterable[PartitionLike], at: At = "latest", *, read_committed: bool = False
) -> dict[TopicPartition, OffsetInfo]:
    """Offsets of partitions: the earliest, the latest (one behind the last record), or the first at or after a time.

    A time is a datetime or milliseconds since 1970. If no record is that young, the offset is the latest. With
    `read_committed`, the latest offset is where the first open transaction begins.
    """
    specification = _specification(at)
    wanted = dict.fromkeys(to_rdkafka(partitions), specification)
    if not wanted:
        return {}
    level = IsolationLevel.READ_COMMITTED if read_committed else IsolationLevel.READ_UNCOMMITTED
    found = await session.each(
        lambda: session.client.list_offsets(wanted, isolation_level=level, request_timeout=session.timeout),
        lambda one: f"look up offsets of partition {one.partition} of topic {one.topic!r}",
    )
    offsets = {from_rdkafka(one): _info(result) for one, result in found.items()}
    too_late = [partition for partition, info in offsets.items() if info.offset < 0]
    if too_late and at != "latest":
        offsets |= await partition_offsets(session, too_late, "latest", read_committed=read_committed)
    return offsets


async def topic_offsets(
    session: Session, topic: str, at: At = "latest", *, read_committed: bool = False
) -> dict[TopicPartition, OffsetInfo]:
    """`partition_offsets` of all partitions of a topic."""
    partitions = await _partitions_of(session, [topic])
    return await partition_offsets(session, partitions, at, read_committed=read_committed)


async def group_offsets(
    session: Session, group: str, partitions: Iterable[PartitionLike] | None = None
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What a group has committed: everything, or for the given partitions. Those it never committed are left out."""
    wanted = None if partitions is None else to_rdkafka(partitions)
    if wanted == []:
        return {}
    doing = f"list the offsets of group {group!r}"
    found = await session.each(
        lambda: session.client.list_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, wanted)], request_timeout=session.timeout
        ),
        doing,
    )
    offsets = found[group].topic_partitions
    _raise_partition_errors(offsets, doing)
    return {
        from_rdkafka(one): OffsetAndMetadata(one.offset, one.metadata or None, one.leader_epoch)
        for one in sorted(offsets)
        if one.offset >= 0
    }


async def alter_group_offsets(
    session: Session, group: str, offsets: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int]
) -> None:
    """Set what a group has committed. It must have no members."""
    if not offsets:
        return
    for partition, offset in offsets.items():
        if offset < 0:
            raise ConfigurationError(f"the offset for {tuple(partition)} is {offset}: it cannot be below 0")
    wanted = [confluent_kafka.TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
    doing = f"alter the offsets of group {group!r}"
    found = await session.each(
        lambda: session.client.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(group, wanted)], request_timeout=session.timeout
        ),
        doing,
    )
    _raise_partition_errors(found[group].topic_partitions, doing)


async def reset_group_offsets(
    session: Session,
    group: str,
    to: At,
    *,
    topics: Iterable[str] | None = None,
    partitions: Iterable[PartitionLike] | None = None,
    dry_run: bool = False,
) -> Offsets:
    """Move a group to the earliest or latest offsets or to a time, in all it ever committed or in what is named.

    Returns the new offsets; with `dry_run`, only says which they would be.
    """
    if partitions is not None:
        wanted: list[PartitionLike] = list(partitions)
    elif topics is not None:
        wanted = list(await _partitions_of(session, by_name(topics, "topics")))
    else:
        wanted = list(await group_offsets(session, group))
    found = await partition_offsets(session, wanted, to)
    offsets: Offsets = {partition: info.offset for partition, info in sorted(found.items())}
    if not dry_run:
        await alter_group_offsets(session, group, offsets)
    return offsets


async def delete_group_offsets(session: Session, group: str, partitions: Iterable[PartitionLike]) -> None:
    """Forget what a group has committed for partitions of topics that none of its members reads."""
    doing = f"delete offsets of group {group!r}"
    by_topic: dict[str, list[OffsetDeleteRequestPartition]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(OffsetDeleteRequestPartition(partition_index=partition))
    topics = [OffsetDeleteRequestTopic(name=name, partitions=chosen) for name, chosen in by_topic.items()]
    (description,) = await describe_groups(session, [group])
    if description.coordinator is None:
        raise UnknownGroup(f"cannot {doing}: its coordinator is not known yet; try again")
    coordinator = description.coordinator
    request = OffsetDeleteRequest(group_id=group, topics=topics)
    response = await session.ask(coordinator.host, coordinator.port, request, doing)
    if response.error_code:
        raise from_kafka(KafkaError(response.error_code), doing)
    errors: dict[TopicPartition, PenstockError] = {
        TopicPartition(topic.name, one.partition_index): from_kafka(
            KafkaError(one.error_code), f"{doing} for partition {one.partition_index} of topic {topic.name!r}"
        )
        for topic in response.topics
        for one in topic.partitions
        if one.error_code
    }
    raise_failures(errors)


async def group_lag(session: Session, group: str) -> list[PartitionLag]:
    """How far a group is behind: in each partition that it has committed or that a member is assigned."""
    committed = await group_offsets(session, group)
    (description,) = await describe_groups(session, [group])
    assigned = {partition for member in description.members for partition in member.assignment}
    ends = await partition_offsets(session, sorted(assigned | committed.keys()), "latest")
    return [_lag(partition, committed.get(partition), info.offset) for partition, info in sorted(ends.items())]


async def delete_records(
    session: Session, before: Mapping[TopicPartition, int | None] | Mapping[tuple[str, int], int | None]
) -> Offsets:
    """Delete all records before an offset; None deletes all there are. Returns the new first offset of each."""
    if not before:
        return {}
    wanted = [
        confluent_kafka.TopicPartition(topic, number, confluent_kafka.OFFSET_END if offset is None else offset)
        for (topic, number), offset in before.items()
    ]
    found = await session.each(
        lambda: session.client.delete_records(
            wanted, request_timeout=session.timeout, operation_timeout=session.timeout
        ),
        lambda one: f"delete records of partition {one.partition} of topic {one.topic!r}",
    )
    return {from_rdkafka(one): result.low_watermark for one, result in found.items()}


async def _partitions_of(session: Session, topics: list[str]) -> list[TopicPartition]:
    return [
        TopicPartition(topic.name, partition.partition)
        for topic in await describe_topics(session, topics)
        for partition in topic.partitions
    ]


def _specification(at: At) -> Any:
    if at == "earliest":
        return rdkafka.OffsetSpec.earliest()
    if at == "latest":
        return rdkafka.OffsetSpec.latest()
    if at == "max_timestamp":
        return rdkafka.OffsetSpec.max_timestamp()
    if isinstance(at, str):
        raise ConfigurationError(f"{at!r} is no position: use earliest, latest, max_timestamp or a time")
    return rdkafka.OffsetSpec.for_timestamp(to_timestamp_ms(at))


def _info(result: Any) -> OffsetInfo:
    return OffsetInfo(result.offset, result.timestamp if result.timestamp >= 0 else None, result.leader_epoch)


def _lag(partition: TopicPartition, committed: OffsetAndMetadata | None, end: int) -> PartitionLag:
    if committed is None:
        return PartitionLag(*partition, None, end, None)
    return PartitionLag(*partition, committed.offset, end, max(end - committed.offset, 0))


def _raise_partition_errors(partitions: Iterable[Any], doing: str) -> None:
    raise_failures(
        {
            from_rdkafka(one): from_kafka(one.error, f"{doing} for partition {one.partition} of topic {one.topic!r}")
            for one in partitions
            if one.error is not None
        }
    )
