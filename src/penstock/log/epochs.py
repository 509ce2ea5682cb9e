"""Which leader wrote which part of a log: the basis for truncation that never loses committed data (KIP-101)."""

from __future__ import annotations

import logging
from bisect import bisect_right
from typing import NamedTuple

from penstock.log.checkpoints import CorruptCheckpoint, read_lines, write_lines
from penstock.log.storage import Storage

logger = logging.getLogger(__name__)


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


def _read_entries(storage: Storage, path: str) -> list[EpochEntry]:
    """The entries in a file. A damaged one is no reason not to start: what it said is only needed between replicas."""
    try:
        return [EpochEntry(int(epoch), int(start)) for epoch, start in read_lines(storage, path)]
    except (CorruptCheckpoint, ValueError) as error:
        logger.warning("forgetting the leader epochs in %s, which is damaged: %s", path, error)
        return []


class LeaderEpochs:
    """The leader epochs of a log, each with the offset of its first record; both ascend strictly.

    Kept in `leader-epoch-checkpoint`. A new epoch is known at once, but written down only when its first record is
    about to be: `flush` before that record makes sure that the file never misses an epoch that the log has.
    """

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self.path = path
        self._entries = _read_entries(storage, path)
        self.latest = self._entries[-1].epoch if self._entries else -1
        self.is_dirty = False

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> None:
        """Note that `epoch` starts at `start_offset`. Entries that contradict it are dropped: the newer wins."""
        if epoch == self.latest and start_offset >= self._entries[-1].start_offset:
            return
        kept = [entry for entry in self._entries if entry.epoch < epoch and entry.start_offset < start_offset]
        self._set([*kept, EpochEntry(epoch, start_offset)])

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """(largest known epoch not above `epoch`, the offset where it ends); (-1, -1) if nothing is known of it."""
        if epoch < 0:
            return -1, -1
        if epoch == self.latest:
            return epoch, log_end_offset
        following = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        if following == len(self._entries):
            return -1, -1
        if following == 0:
            # All we have is newer: the asker's records end where ours begin.
            return epoch, self._entries[0].start_offset
        return self._entries[following - 1].epoch, self._entries[following].start_offset

    def epoch_at(self, offset: int) -> int:
        """The epoch that wrote `offset`; -1 if unknown."""
        following = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[following - 1].epoch if following else -1

    def truncate_from_end(self, end_offset: int) -> None:
        """Forget epochs that start at or above the new end of the log."""
        if self._entries and self._entries[-1].start_offset >= end_offset:
            self._set([entry for entry in self._entries if entry.start_offset < end_offset])

    def truncate_from_start(self, start_offset: int) -> None:
        """Forget epochs that end before the new start of the log; the one that spans it begins there from now on."""
        following = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if following == 0 or (following == 1 and self._entries[0].start_offset == start_offset):
            return
        spanning = EpochEntry(self._entries[following - 1].epoch, start_offset)
        self._set([spanning, *self._entries[following:]])

    def clear(self) -> None:
        self._set([])

    def flush(self) -> None:
        """Write the file, durably."""
        write_lines(self._storage, self.path, (f"{entry.epoch} {entry.start_offset}" for entry in self._entries))
        self.is_dirty = False

    def _set(self, entries: list[EpochEntry]) -> None:
        self._entries = entries
        self.latest = entries[-1].epoch if entries else -1
        self.is_dirty = True
