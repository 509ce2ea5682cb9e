"""Moving partitions to other brokers. Pure.

One broker is all there can be so far, so what remains of it is to check the wish, and to put replicas in another order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from penstock.controller.topics import check_assignment
from penstock.metadata.image import Image, PartitionState, Topic
from penstock.metadata.records import PartitionChangeRecord
from penstock.wire.errors import ApiError, ErrorCode


def is_under_way(state: PartitionState) -> bool:
    return bool(state.adding_replicas or state.removing_replicas)


def under_way(image: Image) -> Iterator[tuple[Topic, int, PartitionState]]:
    """All partitions that are on their way to other brokers."""
    for topic in image.topics.values():
        for index, state in topic.partitions.items():
            if is_under_way(state):
                yield topic, index, state


def reassign(
    image: Image, name: str, index: int, replicas: Sequence[int] | None, *, may_change_count: bool
) -> list[Any]:
    """The records that bring a partition to these replicas; None ends what is under way.

    The rules and their messages are those of Kafka's ReplicationControlManager.
    """
    topic = image.topics.get(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
    state = topic.partitions.get(index)
    if state is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
    if replicas is None:
        raise ApiError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)
    check_assignment(image, replicas)
    if not may_change_count and len(replicas) != len(state.replicas):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {len(state.replicas)} to {len(replicas)}",
        )
    if set(replicas) != set(state.replicas):  # a broker that is registered and not there: of a cluster that once was
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Partition {name}-{index} cannot move to {list(replicas)}: there is only one broker.",
        )
    if tuple(replicas) == state.replicas:
        return []
    return [PartitionChangeRecord(topic_id=topic.topic_id, partition_id=index, replicas=list(replicas))]
