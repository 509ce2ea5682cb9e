# What other native modules use of the record kernel.

from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef struct Record:
    int64_t timestamp_delta
    Py_ssize_t rest            # where the offset delta begins: from here on, nothing depends on the batch's timestamps
    int64_t offset_delta
    Py_ssize_t key
    Py_ssize_t key_size        # -1: null
    Py_ssize_t value
    Py_ssize_t value_size      # -1: null
    Py_ssize_t headers         # where the header count ends and the first header starts
    int64_t header_count
    Py_ssize_t end

cdef int parse_record(const uint8_t *data, Py_ssize_t limit, Py_ssize_t position, Record *record) noexcept nogil

cdef int field_bytes(const uint8_t *data, Py_ssize_t end, Py_ssize_t *position, bint nullable,
                     Py_ssize_t *start, Py_ssize_t *size) noexcept nogil


cdef inline Py_ssize_t varint_size(int64_t value) noexcept nogil:
    """The bytes of a zigzag number."""
    cdef uint64_t bits = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef Py_ssize_t size = 1
    while bits >= 0x80:
        bits >>= 7
        size += 1
    return size


cdef inline uint8_t *put_varint(uint8_t *p, int64_t value) noexcept nogil:
    """Write a zigzag number; returns where it ends."""
    cdef uint64_t bits = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    while bits >= 0x80:
        p[0] = <uint8_t>(bits & 0x7F) | 0x80
        bits >>= 7
        p += 1
    p[0] = <uint8_t>bits
    return p + 1
