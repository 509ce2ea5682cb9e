# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True, nonecheck=True
"""What a leader looks at and changes for every single batch: the native part of `Partition`, which says what it means."""

from libc.stdint cimport int64_t

from penstock.log._tail cimport LogEnd
from penstock.wire._kernel cimport Batch

from penstock.log.producer_state import CLIENT

cdef enum:
    _ALL_REPLICAS = -1

ALL_REPLICAS = _ALL_REPLICAS  # acks=all


cdef class Leading:
    """The native part of a partition."""

    cpdef Batch append(self, Batch batch, int acks, object origin=CLIENT, object turn=None):
        """Append a batch as leader. Returns it with the offsets that it has in the log.

        Given a turn, it is written when that ends at the latest.
        """
        cdef LogEnd log = self.log
        if not self.is_leader:
            self.check_leader()
        if acks == _ALL_REPLICAS:
            self._check_in_sync()
        log.append(batch, self.leader_epoch, origin, turn)
        if log.needs_flush:
            self._commits.request()
        self._advance()
        return batch

    cpdef int _advance(self) except -1:
        """Move the high watermark as far as the in-sync replicas allow, and tell those who wait for it."""
        cdef LogEnd log = self.log
        cdef int64_t offset = log.recovery_point if log.is_synced_before_use else log.end_offset
        if not self._is_alone:
            offset = self._in_sync_offset(offset)
        if offset > log.high_watermark:
            log.advance_high_watermark(offset)
            if self._committed.waiting:
                self._committed.reached(log.high_watermark)
            for watcher in self._watchers:
                watcher.wake()
        return 0
