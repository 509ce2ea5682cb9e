"""Who becomes the leader of a partition. Pure."""

from __future__ import annotations

from typing import Any

from penstock.metadata.image import Image, PartitionState
from penstock.metadata.records import PartitionChangeRecord


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
