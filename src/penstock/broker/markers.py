"""Writes the ends of transactions into the partitions of this broker."""

from __future__ import annotations

from penstock.clock import Clock
from penstock.coordination.appends import Committing, when_good
from penstock.coordination.shards import Shards
from penstock.group.coordinator import OFFSETS_TOPIC
from penstock.group.shard import Shard
from penstock.log.producer_state import Origin
from penstock.log.validation import own_batch
from penstock.replica.partition import ALL_REPLICAS
from penstock.replica.replicas import Replicas
from penstock.txn.markers import Marker
from penstock.txn.transaction import VERSION_2, TopicPartition
from penstock.wire.batch import encode_batch
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.record import EndTxnMarker, encode_end_txn_marker

# A marker that is appended stays; see TransactionCoordinator.
_FOR_EVER_MS = 2**31


class LocalMarkers:
    """A MarkerWriter for the partitions that this broker leads.

    The partitions of committed offsets are told to their group coordinator too. One that is not loaded yet would miss
    the marker, so it takes none.
    """

    def __init__(self, replicas: Replicas, groups: Shards[Shard], clock: Clock) -> None:
        self._replicas = replicas
        self._groups = groups
        self._clock = clock

    def write(self, where: TopicPartition, marker: Marker) -> Committing:
        partition = self._replicas.find(where.topic, where.partition)
        partition.check_leader()
        shard = self._group_shard(where)
        record = encode_end_txn_marker(EndTxnMarker(marker.is_commit, marker.coordinator_epoch), self._clock.time_ms())
        encoded = encode_batch(
            [record],
            is_transactional=True,
            is_control=True,
            producer_id=marker.producer_id,
            producer_epoch=marker.epoch,
        )
        origin = Origin.NEW_EPOCH_MARKER if marker.version >= VERSION_2 else Origin.COORDINATOR
        batch = partition.append(own_batch(encoded), ALL_REPLICAS, origin)
        future = partition.acknowledgement(batch, ALL_REPLICAS, _FOR_EVER_MS)
        if shard is not None:
            offsets = shard
            when_good(future, lambda: offsets.end_transaction(marker.producer_id, is_commit=marker.is_commit))
        return future

    def _group_shard(self, where: TopicPartition) -> Shard | None:
        if where.topic != OFFSETS_TOPIC:
            return None
        shard = self._groups.get(where.partition)
        if shard is None:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{where.topic}-{where.partition} is being loaded")
        return shard
