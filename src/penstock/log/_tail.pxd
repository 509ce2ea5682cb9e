# What other native modules share of a log's end.

from libc.stdint cimport int64_t

from penstock.wire._kernel cimport Batch


cdef class Tail:
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

    cpdef bint keep(self, object data, int64_t last_offset, int64_t max_timestamp) except -1


cdef class LogEnd:
    cdef public Tail _active
    cdef public object epochs
    cdef public object producers
    cdef public object rules
    cdef public int64_t start_offset
    cdef public int64_t end_offset
    cdef public int64_t high_watermark
    cdef public int64_t recovery_point
    cdef public int64_t flush_messages
    cdef public bint is_synced_by_count     # flush.messages is set
    cdef public bint is_synced_before_use   # it is 1
    cdef public bint needs_flush            # a segment was completed, or flush.messages reached
    cdef public bint is_waiting             # for the end of the turn, to be written

    cpdef Batch append(self, Batch batch, int leader_epoch, object origin=*, object turn=*)
    cpdef int advance_high_watermark(self, int64_t offset) except -1
