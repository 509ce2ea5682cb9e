"""The cluster itself: its brokers and their data directories."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import KafkaError

from penstock.client.admin.descriptions import ClusterDescription, LogDirDescription, Node, ReplicaSize
from penstock.client.admin.groups import node
from penstock.client.admin.session import Session, by_name
from penstock.client.admin.topics import describe_topics
from penstock.client.errors import ConfigurationError
from penstock.client.rdkafka import from_kafka
from penstock.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest


async def describe_cluster(session: Session) -> ClusterDescription:
    """The cluster's id, its brokers, and the one to which requests for the controller go."""
    found = await session.one(session.client.describe_cluster, doing="describe the cluster")
    brokers = sorted((one for one in map(node, found.nodes) if one is not None), key=lambda one: one.id)
    return ClusterDescription(found.cluster_id, node(found.controller), tuple(brokers))


async def describe_log_dirs(
    session: Session, *, brokers: Iterable[int] | None = None, topics: Iterable[str] | None = None
) -> list[LogDirDescription]:
    """The data directories of brokers and the sizes of the replicas in them; of all brokers and topics by default."""
    request = DescribeLogDirsRequest(topics=None)
    if topics is not None:
        request = DescribeLogDirsRequest(topics=await _all_partitions(session, by_name(topics, "topics")))
    cluster = await describe_cluster(session)
    by_id = {broker.id: broker for broker in cluster.brokers}
    wanted = list(by_id) if brokers is None else list(brokers)
    unknown = [broker for broker in wanted if broker not in by_id]
    if unknown:
        raise ConfigurationError(f"there is no broker {unknown[0]}; the cluster has {sorted(by_id)}")
    return [one for broker in wanted for one in await _log_dirs_of(session, by_id[broker], request)]


async def _all_partitions(session: Session, topics: list[str]) -> list[DescribableLogDirTopic]:
    return [
        DescribableLogDirTopic(topic=topic.name, partitions=[one.partition for one in topic.partitions])
        for topic in await describe_topics(session, topics)
    ]


async def _log_dirs_of(session: Session, broker: Node, request: DescribeLogDirsRequest) -> list[LogDirDescription]:
    doing = f"describe the data directories of broker {broker.id}"
    response = await session.ask(broker.host, broker.port, request, doing)
    if response.error_code:
        raise from_kafka(KafkaError(response.error_code), doing)
    return [_log_dir(broker.id, result) for result in response.results]


def _log_dir(broker: int, result: Any) -> LogDirDescription:
    replicas = [
        ReplicaSize(topic.name, one.partition_index, one.partition_size, one.offset_lag, one.is_future_key)
        for topic in result.topics
        for one in topic.partitions
    ]
    return LogDirDescription(
        broker=broker,
        path=result.log_dir,
        error=KafkaError(result.error_code).str() if result.error_code else None,
        total_bytes=result.total_bytes if result.total_bytes >= 0 else None,
        usable_bytes=result.usable_bytes if result.usable_bytes >= 0 else None,
        replicas=tuple(sorted(replicas, key=lambda one: (one.topic, one.partition))),
    )
