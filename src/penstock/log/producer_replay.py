"""Producer state from what is on disk: the newest snapshot, then the batches behind it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from penstock.log import names
from penstock.log.producer_state import CorruptSnapshot, ProducerState
from penstock.log.segment import Segment
from penstock.log.storage import Buffer, Storage
from penstock.log.txn_index import AbortedTxn
from penstock.wire._kernel import Batch
from penstock.wire.batch import decode_records
from penstock.wire.record import decode_end_txn_marker

logger = logging.getLogger(__name__)


def replay(producers: ProducerState, batch: Batch, buffer: Buffer) -> AbortedTxn | None:
    """Let the state follow a batch that is in the log; returns the transaction that it aborted, if it did."""
    if batch.producer_id < 0:
        producers.end_offset = batch.next_offset
        return None
    if not batch.is_control:
        producers.appended(batch)
        return None
    records = decode_records(buffer, batch)
    if not records:  # compaction emptied it: its transaction is gone from the log
        producers.end_offset = batch.next_offset
        return None
    return producers.marker_appended(batch, decode_end_txn_marker(records[0]))


def snapshot_offsets(storage: Storage, directory: str) -> list[int]:
    """The offsets at which snapshots exist, ascending."""
    offsets = (names.offset_in_name(name) for name in storage.names(directory) if name.endswith(names.SNAPSHOT))
    return sorted(offset for offset in offsets if offset is not None)


def remove_snapshots_above(storage: Storage, directory: str, offset_max: int) -> None:
    """Remove the snapshots of a part of the log that is gone."""
    for offset in snapshot_offsets(storage, directory):
        if offset > offset_max:
            storage.remove(names.segment_path(directory, offset, names.SNAPSHOT))


def load_snapshot(storage: Storage, directory: str, offset_max: int) -> ProducerState:
    """The newest snapshot not above an offset, or an empty state. Corrupt ones are removed on the way."""
    for offset in reversed(snapshot_offsets(storage, directory)):
        if offset > offset_max:
            continue
        path = names.segment_path(directory, offset, names.SNAPSHOT)
        try:
            return ProducerState.decode(storage.read(path), offset)
        except CorruptSnapshot as error:
            logger.warning("removing producer snapshot %s: %s", path, error)
            storage.remove(path)
    return ProducerState()


def rebuild_producers(storage: Storage, directory: str, segments: Sequence[Segment], end_offset: int) -> ProducerState:
    """The producer state at `end_offset`."""
    producers = load_snapshot(storage, directory, end_offset)
    start_offset = producers.end_offset

    def visit(batch: Batch, buffer: Buffer) -> None:
        if start_offset <= batch.base_offset < end_offset:
            replay(producers, batch, buffer)

    for number, segment in enumerate(segments):
        following_base = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        if following_base > start_offset and segment.base_offset < end_offset:
            segment.scan(visit)
    producers.end_offset = end_offset
    return producers
