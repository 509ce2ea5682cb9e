"""What a log remembers of its producers: enough to recognise a batch that was sent twice, or out of order.

Per producer id: the epoch, the last five batches with their sequence numbers and offsets, and where its open
transaction began. Rebuilt after a restart from the newest snapshot and the part of the log behind it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from penstock.log.txn_index import AbortedTxn
from penstock.wire._kernel import Batch, crc32c
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.record import EndTxnMarker

# A Java or librdkafka producer has at most five unanswered requests; any of them may be sent again.
BATCHES_KEPT = 5

# Beyond this many producers the one that has been here longest is forgotten, as if it had expired: its next batch is
# taken with whatever sequence number it has. The limit keeps a client that makes up producer ids from filling memory.
PRODUCERS_MAX = 50_000

_SEQUENCE_MAX = 0x7FFFFFFF
_EPOCH_MAX = 0x7FFF
_HEADER = struct.Struct(">hII")  # version, CRC-32C of all that follows it, number of entries
_CRC_COVERS_FROM = 6
_ENTRY = struct.Struct(">qhiqiqiq")
_VERSION = 1


class Origin(Enum):
    """Who appends: it decides how much is checked."""

    CLIENT = "client"  # full check of epoch and sequence
    COORDINATOR = "coordinator"  # offsets committed in a transaction: epoch only, no sequence numbers
    NEW_EPOCH_MARKER = "marker"  # the end of a transaction of version 2: its epoch must be above all that wrote
    REPLICATION = "replication"  # checked by the leader already


CLIENT = Origin.CLIENT  # for every append: looking up a member of an enumeration takes a tenth of a microsecond


class CorruptSnapshot(Exception):
    """A producer snapshot that cannot be read. The state is rebuilt from an older one or from the log."""


class AppendedBatch(NamedTuple):
    """One of a producer's last batches."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


@dataclass(slots=True)
class Producer:
    """The state of one producer id in one log."""

    producer_id: int
    epoch: int = -1
    coordinator_epoch: int = -1
    last_timestamp: int = -1
    txn_first_offset: int = -1  # -1: no open transaction
    batches: list[AppendedBatch] = field(default_factory=list)

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    def find_duplicate(self, batch: Batch) -> AppendedBatch | None:
        if batch.producer_epoch != self.epoch:
            return None
        first, last = batch.base_sequence, batch.last_sequence
        for appended in self.batches:
            if appended.first_sequence == first and appended.last_sequence == last:
                return appended
        return None

    def is_next(self, sequence: int) -> bool:
        last = self.last_sequence
        return sequence == last + 1 or (sequence == 0 and last == _SEQUENCE_MAX)


class ProducerState:
    """All producers of one log, and the transactions that are open or not fully replicated.

    `end_offset` is the offset up to which the log is reflected here.
    """

    def __init__(self) -> None:
        self.producers: dict[int, Producer] = {}
        self.end_offset = 0
        self._open_txns: dict[int, int] = {}  # first offset -> producer id
        self._unreplicated_txns: dict[int, int] = {}  # first offset -> offset of the end marker
        self.has_unreplicated_txns = False

    # ---- before the append: questions ----

    def find_duplicate(self, batch: Batch) -> AppendedBatch | None:
        """The earlier append of the same batch, if it is one of its producer's last five."""
        producer = self.producers.get(batch.producer_id)
        return producer.find_duplicate(batch) if producer is not None else None

    def check(self, batch: Batch, origin: Origin) -> None:
        """Refuse a data batch whose epoch or sequence number does not fit."""
        producer = self.producers.get(batch.producer_id)
        if producer is None:
            return  # never seen, or forgotten with the records it wrote: any sequence number will do
        self._check_epoch(producer, batch)
        if origin is CLIENT:
            self._check_sequence(producer, batch)
        if producer.txn_first_offset >= 0 and not batch.is_transactional:
            raise ApiError(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {batch.producer_id} has an open transaction but sent a batch outside of it",
            )

    def _check_epoch(self, producer: Producer, batch: Batch) -> None:
        if batch.producer_epoch < producer.epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {batch.producer_epoch} of producer {batch.producer_id} is older than {producer.epoch}",
            )

    def _check_sequence(self, producer: Producer, batch: Batch) -> None:
        if batch.producer_epoch != producer.epoch:
            if batch.base_sequence != 0 and producer.epoch != -1:
                raise ApiError(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {batch.producer_id} begins epoch {batch.producer_epoch} with sequence number "
                    f"{batch.base_sequence} instead of 0",
                )
        elif not producer.is_next(batch.base_sequence):
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {batch.producer_id} sent sequence number {batch.base_sequence} after "
                f"{producer.last_sequence}",
            )

    def is_in_transaction(self, batch: Batch) -> bool:
        """Whether its producer has a transaction open here already, in the same epoch."""
        producer = self.producers.get(batch.producer_id)
        return producer is not None and producer.txn_first_offset >= 0 and producer.epoch == batch.producer_epoch

    def check_first(self, batch: Batch) -> None:
        """Refuse a batch with which a producer of transaction version 2 cannot begin here: something is missing."""
        producer = self.producers.get(batch.producer_id)
        if producer is not None:
            self._check_epoch(producer, batch)
        if (producer is None or not producer.batches) and batch.base_sequence != 0:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {batch.producer_id} begins with sequence number {batch.base_sequence} instead of 0",
            )

    def check_marker(self, batch: Batch, marker: EndTxnMarker, origin: Origin = Origin.COORDINATOR) -> None:
        """Refuse a transaction marker of an old producer epoch or of an old coordinator."""
        producer = self.producers.get(batch.producer_id)
        if producer is None:
            return
        if batch.producer_epoch < producer.epoch or (
            origin is Origin.NEW_EPOCH_MARKER and self._is_late_marker(producer, batch)
        ):
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"marker with epoch {batch.producer_epoch} of producer {batch.producer_id} does not end what epoch "
                f"{producer.epoch} wrote",
            )
        if marker.coordinator_epoch < producer.coordinator_epoch:
            raise ApiError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"marker of coordinator epoch {marker.coordinator_epoch} for producer {batch.producer_id} is older "
                f"than {producer.coordinator_epoch}",
            )

    def _is_late_marker(self, producer: Producer, batch: Batch) -> bool:
        """Whether a marker that was sent again would end the next transaction, which has its epoch."""
        is_same = batch.producer_epoch == producer.epoch and batch.producer_epoch < _EPOCH_MAX
        return is_same and producer.txn_first_offset >= 0

    # ---- after the append: changes ----

    def appended(self, batch: Batch) -> None:
        """Take note of a data batch that is in the log now."""
        producer = self._producer(batch.producer_id)
        if producer.epoch != batch.producer_epoch:
            producer.batches.clear()
            producer.epoch = batch.producer_epoch
        last_offset = batch.last_offset
        batches = producer.batches
        if len(batches) == BATCHES_KEPT:
            del batches[0]
        batches.append(
            AppendedBatch(batch.base_sequence, batch.last_sequence, batch.base_offset, last_offset, batch.max_timestamp)
        )
        producer.last_timestamp = batch.max_timestamp
        if producer.txn_first_offset < 0 and batch.is_transactional:
            producer.txn_first_offset = batch.base_offset
            self._open_txns[batch.base_offset] = batch.producer_id
        self.end_offset = last_offset + 1

    def marker_appended(self, batch: Batch, marker: EndTxnMarker) -> AbortedTxn | None:
        """Take note of a transaction marker that is in the log now; returns what the transaction index must learn."""
        producer = self._producer(batch.producer_id)
        first_offset = producer.txn_first_offset
        if producer.epoch != batch.producer_epoch:
            producer.batches.clear()
            producer.epoch = batch.producer_epoch
        producer.coordinator_epoch = marker.coordinator_epoch
        producer.last_timestamp = batch.max_timestamp
        producer.txn_first_offset = -1
        self.end_offset = batch.last_offset + 1
        if first_offset < 0:
            return None  # an empty transaction leaves nothing to hide
        del self._open_txns[first_offset]
        self._unreplicated_txns[first_offset] = batch.base_offset
        self.has_unreplicated_txns = True
        if marker.is_commit:
            return None
        last_stable_offset = min(self._open_txns, default=batch.base_offset + 1)
        return AbortedTxn(batch.producer_id, first_offset, batch.base_offset, last_stable_offset)

    def _producer(self, producer_id: int) -> Producer:
        producer = self.producers.get(producer_id)
        if producer is None:
            if len(self.producers) >= PRODUCERS_MAX:
                self._forget_one()
            producer = self.producers[producer_id] = Producer(producer_id)
        return producer

    def _forget_one(self) -> None:
        for producer in self.producers.values():
            if producer.txn_first_offset < 0:
                del self.producers[producer.producer_id]
                return

    def high_watermark_reached(self, high_watermark: int) -> None:
        """Transactions whose end marker is replicated no longer hold back readers."""
        self._unreplicated_txns = {
            first: last for first, last in self._unreplicated_txns.items() if last >= high_watermark
        }
        self.has_unreplicated_txns = bool(self._unreplicated_txns)

    @property
    def first_unstable_offset(self) -> int | None:
        """Where the first transaction begins that is open, or whose end is not replicated yet."""
        if not self._open_txns and not self._unreplicated_txns:
            return None
        return min([*self._open_txns, *self._unreplicated_txns])

    def remove_expired(self, now_ms: int, expiration_ms: int) -> None:
        expired = [
            producer.producer_id
            for producer in self.producers.values()
            if producer.txn_first_offset < 0 and now_ms - producer.last_timestamp >= expiration_ms
        ]
        for producer_id in expired:
            del self.producers[producer_id]

    # ---- snapshots ----

    def encode(self) -> bytes:
        """A snapshot in Kafka's format: of each producer its last batch only."""
        body = b"".join(_encode_producer(producer) for producer in self.producers.values())
        content = bytearray(_HEADER.pack(_VERSION, 0, len(self.producers)) + body)
        _HEADER.pack_into(content, 0, _VERSION, crc32c(memoryview(content)[_CRC_COVERS_FROM:]), len(self.producers))
        return bytes(content)

    @classmethod
    def decode(cls, content: bytes, end_offset: int) -> ProducerState:
        """Read a snapshot that was taken at `end_offset`."""
        if len(content) < _HEADER.size:
            raise CorruptSnapshot(f"{len(content)} bytes are too few")
        version, crc, count = _HEADER.unpack_from(content)
        if version != _VERSION:
            raise CorruptSnapshot(f"version {version} is unknown")
        if crc != crc32c(memoryview(content)[_CRC_COVERS_FROM:]):
            raise CorruptSnapshot("the checksum is wrong")
        if len(content) != _HEADER.size + count * _ENTRY.size:
            raise CorruptSnapshot(f"{len(content)} bytes do not hold {count} entries")
        state = cls()
        state.end_offset = end_offset
        for fields in _ENTRY.iter_unpack(content[_HEADER.size :]):
            producer = _decode_producer(*fields)
            state.producers[producer.producer_id] = producer
            if producer.txn_first_offset >= 0:
                state._open_txns[producer.txn_first_offset] = producer.producer_id
        return state


def _encode_producer(producer: Producer) -> bytes:
    last = producer.batches[-1] if producer.batches else None
    return _ENTRY.pack(
        producer.producer_id,
        producer.epoch,
        last.last_sequence if last else -1,
        last.last_offset if last else -1,
        last.last_offset - last.first_offset if last else 0,
        producer.last_timestamp,
        producer.coordinator_epoch,
        producer.txn_first_offset,
    )


def _decode_producer(
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    txn_first_offset: int,
) -> Producer:
    batches = []
    if last_offset >= 0:
        first_sequence = (last_sequence - offset_delta) & _SEQUENCE_MAX if last_sequence >= 0 else -1
        batches.append(AppendedBatch(first_sequence, last_sequence, last_offset - offset_delta, last_offset, timestamp))
    return Producer(producer_id, epoch, coordinator_epoch, timestamp, txn_first_offset, batches)
