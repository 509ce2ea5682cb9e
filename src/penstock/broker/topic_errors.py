"""The state of a partition as metadata answers show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.metadata.image import PartitionState
from penstock.wire.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


def error_of_partition(broker: Broker, topic: str, index: int, state: PartitionState) -> ErrorCode:
    """What clients are told of a partition that cannot be used."""
    if not state.has_leader or state.leader in broker.offline_replicas(topic, index, state):
        return ErrorCode.LEADER_NOT_AVAILABLE
    return ErrorCode.NONE
