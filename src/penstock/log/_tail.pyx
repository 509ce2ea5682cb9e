# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""The end of a segment, where batches are added: what is looked at and changed for every single one."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE, PyByteArray_Resize
from libc.stdint cimport int64_t
from libc.string cimport memcpy

cdef enum:
    # So much may wait to be written.
    _UNWRITTEN_BYTES_MAX = 131072

UNWRITTEN_BYTES_MAX = _UNWRITTEN_BYTES_MAX


cdef class Tail:
    """The part of a segment that is native. All of it belongs to the segment, which also says what it means."""

    cdef public int64_t size
    cdef public bytearray _unwritten
    cdef public int64_t _bytes_since_index
    cdef public int64_t _index_interval_bytes
    cdef public int64_t _max_timestamp
    cdef public int64_t _offset_of_max_timestamp
    # Up to these, a batch is added without a closer look.
    cdef public int64_t _bytes_max
    cdef public int64_t _offset_max
    cdef public int64_t _timestamp_max

    def __cinit__(self, *args, **kwargs):
        self._unwritten = bytearray()

    def keep(self, object data, int64_t last_offset, int64_t max_timestamp):
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
