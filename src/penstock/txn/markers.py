"""The end of a transaction in the partitions that it wrote to."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from penstock.coordination.appends import Committing
from penstock.txn.transaction import TopicPartition


class Marker(NamedTuple):
    """What a partition is told. `version` is the transaction version by whose rules the epoch is checked."""

    producer_id: int
    epoch: int
    is_commit: bool
    coordinator_epoch: int
    version: int


class MarkerWriter(Protocol):
    """Has markers written, wherever a partition is. Today that is here."""

    def write(self, where: TopicPartition, marker: Marker) -> Committing:
        """Write one marker; it counts when the future is done, None: at once. Raises ApiError."""
        ...
