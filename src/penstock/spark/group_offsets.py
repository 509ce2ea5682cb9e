"""Telling a consumer group how far a query is: so every tool shows its lag."""

from __future__ import annotations

from penstock.client.cluster import Cluster, check
from penstock.spark.ranges import Offsets
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

_BY_NAME_VERSION = 9


def commit_offsets(cluster: Cluster, group: str, offsets: Offsets) -> None:
    """Commit offsets to a group that has no members."""
    if not offsets:
        return
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for partition, offset in offsets.items():
        topic = topics.setdefault(partition.topic, OffsetCommitRequestTopic(name=partition.topic))
        topic.partitions.append(
            OffsetCommitRequestPartition(partition_index=partition.partition, committed_offset=offset)
        )
    request = OffsetCommitRequest(group_id=group, topics=list(topics.values()))

    def attempt() -> None:
        response = cluster.coordinator(group).call(request, _BY_NAME_VERSION)
        for result_topic in response.topics:
            for result in result_topic.partitions:
                check(result.error_code, f"commit offsets to group {group}")

    cluster.retrying(f"commit offsets to group {group}", attempt)
