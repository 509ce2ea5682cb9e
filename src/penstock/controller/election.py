"""Who becomes the leader of a partition. Pure."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from penstock.metadata.image import Image, PartitionState
from penstock.metadata.records import PartitionChangeRecord
from penstock.wire.errors import ApiError, ErrorCode


class Election(IntEnum):
    """What somebody may ask for, with the code the protocol uses for it."""

    PREFERRED = 0  # the first replica shall lead, if it is in sync
    UNCLEAN = 1  # a partition without a leader shall have one, even if it lost records


def may_lead(state: PartitionState, broker_id: int) -> bool:
    """Whether a broker has everything that was committed: it is in sync, or was when it left as one of the last."""
    return broker_id in state.isr or broker_id in state.eligible_leader_replicas


def on_registration(image: Image, broker_id: int, *, was_clean: bool) -> list[Any]:
    """What changes when a broker starts, or starts again.

    It leads the partitions that have no leader and that it may lead. After a crash the partitions it leads already get
    a new leader epoch: what was not synced may be lost, and consumers that have seen it must be able to tell.
    """
    records: list[Any] = []
    for topic in image.topics.values():
        for index, state in topic.partitions.items():
            is_new_leader = not state.has_leader and may_lead(state, broker_id)
            if is_new_leader or (state.leader == broker_id and not was_clean):
                change = PartitionChangeRecord(topic_id=topic.topic_id, partition_id=index, leader=broker_id)
                if broker_id not in state.isr:
                    change.isr = [broker_id]
                    change.eligible_leader_replicas = []
                records.append(change)
    return records


def _is_active(image: Image, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and broker.is_active


def elect(image: Image, name: str, index: int, kind: Election) -> list[Any]:
    """The records that give a partition the leader that is asked for (Kafka: ReplicationControlManager.electLeader)."""
    topic = image.topics.get(name)
    if topic is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    state = topic.partitions.get(index)
    if state is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    if state.leader == state.replicas[0] if kind is Election.PREFERRED else state.has_leader:
        raise ApiError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    active = [broker_id for broker_id in state.replicas if _is_active(image, broker_id)]
    change = PartitionChangeRecord(topic_id=topic.topic_id, partition_id=index)
    if kind is Election.PREFERRED:
        if state.replicas[0] not in active or state.replicas[0] not in state.isr:
            raise ApiError(
                ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available for topic partition."
            )
        change.leader = state.replicas[0]
        return [change]
    if not active:
        raise ApiError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "Eligible topic partition leaders are not available.")
    change.leader = next((broker_id for broker_id in active if may_lead(state, broker_id)), active[0])
    if change.leader not in state.isr:
        change.isr = [change.leader]
        change.eligible_leader_replicas = []
    return [change]
