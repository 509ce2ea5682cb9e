# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True, nonecheck=True
"""The end of a log, where batches are added: what is looked at and changed for every single one.

Both classes are the native part of others, `Segment` and `Log`, which also say what all of it means.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from libc.stdint cimport int64_t
from libc.string cimport memcpy

from penstock.wire._kernel cimport Batch, stamp

from penstock.log.producer_state import CLIENT
from penstock.wire.errors import ApiError

cdef enum:
    # So much may wait to be written.
    _UNWRITTEN_BYTES_MAX = 131072

UNWRITTEN_BYTES_MAX = _UNWRITTEN_BYTES_MAX


cdef class Tail:
    """The native part of a segment."""

    def __cinit__(self, *args, **kwargs):
        self._unwritten = bytearray()

    cpdef bint keep(self, object data, int64_t last_offset, int64_t max_timestamp) except -1:
        """Add batches to those that wait to be written, if nothing else is to be done for them; else False."""
        cdef Py_buffer view
        cdef Py_ssize_t waiting = PyByteArray_GET_SIZE(self._unwritten)
        if (self.size == 0 or last_offset > self._offset_max or max_timestamp > self._timestamp_max
                or self._max_timestamp < -1 or self._bytes_since_index > self._index_interval_bytes):
            return False
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        try:
            if self.size + view.len > self._bytes_max or waiting + view.len > _UNWRITTEN_BYTES_MAX:
                return False
            PyByteArray_Resize(self._unwritten, waiting + view.len)
            memcpy(PyByteArray_AS_STRING(self._unwritten) + waiting, view.buf, view.len)
            self.size += view.len
            self._bytes_since_index += view.len
        finally:
            PyBuffer_Release(&view)
        if max_timestamp > self._max_timestamp:
            self._max_timestamp = max_timestamp
            self._offset_of_max_timestamp = last_offset
        return True


cdef class LogEnd:
    """The native part of a log."""

    cpdef Batch append(self, Batch batch, int leader_epoch, object origin=CLIENT, object turn=None):
        """Append a batch as leader: offset and epoch are assigned here. The caller has checked the batch itself.

        Returns the batch, with the offsets that it has in the log. For a duplicate, those of its first time. Given a
        turn, it is in the file when that ends at the latest.
        """
        cdef int64_t base_offset, last_offset
        cdef object marker = None
        if batch.producer_id >= 0:
            marker = self._check_producer(batch, origin)
            if batch.is_duplicate:
                return batch
        base_offset = self.end_offset
        last_offset = base_offset + batch.last_offset_delta
        stamp(batch.data, batch, base_offset, leader_epoch)
        if leader_epoch != <int>self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        if (turn is not None and self.is_waiting and not self.epochs.is_dirty
                and self._active.keep(batch.data, last_offset, batch.max_timestamp)):
            self.end_offset = last_offset + 1
        else:
            try:
                self._write(batch.data, base_offset, last_offset, batch.max_timestamp, turn)
            except ApiError:
                stamp(batch.data, batch, 0, leader_epoch)  # as it came: nobody who looks again may find it amiss
                raise
        if batch.producer_id >= 0:
            self._note_producer(batch, marker)
        if self.end_offset - self.recovery_point >= self.flush_messages:
            self.needs_flush = True
        return batch

    cpdef int advance_high_watermark(self, int64_t offset) except -1:
        """Move the high watermark forward; it never goes back."""
        if offset > self.high_watermark:
            self.high_watermark = min(offset, self.end_offset)
            if self.producers.has_unreplicated_txns:
                self.producers.high_watermark_reached(self.high_watermark)
        return 0
