# What native modules share of the record kernel. The reader of single records is here as a whole, so that each loop over
# records has it in its own code, without a call.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef class Batch:
    cdef readonly Py_ssize_t position
    cdef public int64_t base_offset
    cdef readonly Py_ssize_t size           # the whole batch in bytes, header included
    cdef readonly int leader_epoch
    cdef readonly int magic
    cdef readonly uint32_t crc
    cdef readonly int attributes
    cdef readonly int last_offset_delta
    cdef readonly int64_t base_timestamp
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t producer_id
    cdef readonly int producer_epoch
    cdef readonly int base_sequence
    cdef readonly int count
    # Set for a batch that was checked and may be appended: the writable bytes it lies in, the broker's time if it is
    # dated by that, and, when it turns out to be in the log already, that it is a duplicate.
    cdef public object data
    cdef public int64_t log_append_time
    cdef public bint is_duplicate

cdef class PlainBatches:
    cdef Py_ssize_t _bytes_max
    cdef int64_t _before_max_ms, _after_max_ms
    cdef bint _require_keys

    cpdef Batch check(self, object records, int64_t now_ms)

cpdef int stamp(object buffer, Batch batch, int64_t base_offset, int32_t leader_epoch) except -1

cdef enum Fault:
    FINE = 0
    ENDS_EARLY = 1
    BAD_VARINT = 2
    BAD_LENGTH = 3
    BAD_HEADERS = 4
    NOT_FILLED = 5

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


cdef enum:
    # The last shift of a number of 32 and of 64 bits: 5 and 10 bytes. Java's reader throws at longer ones.
    _SHIFT_MAX_32 = 28
    _SHIFT_MAX_64 = 63


cdef inline int number(const uint8_t *data, Py_ssize_t end, Py_ssize_t *position, int shift_max,
                       int64_t *value) noexcept nogil:
    """Read a zigzag number."""
    cdef uint64_t bits = 0
    cdef int shift = 0
    cdef uint8_t byte
    cdef Py_ssize_t at = position[0]
    if at < end and data[at] < 0x80:  # nearly all there are
        bits = data[at]
        position[0] = at + 1
        value[0] = <int64_t>((bits >> 1) ^ (0 - (bits & 1)))
        return FINE
    while True:
        if at >= end:
            return ENDS_EARLY
        if shift > shift_max:
            return BAD_VARINT
        byte = data[at]
        at += 1
        bits |= (<uint64_t>(byte & 0x7F)) << shift
        if not byte & 0x80:
            break
        shift += 7
    position[0] = at
    value[0] = <int64_t>((bits >> 1) ^ (0 - (bits & 1)))
    return FINE


cdef inline int field_bytes(const uint8_t *data, Py_ssize_t end, Py_ssize_t *position, bint nullable,
                            Py_ssize_t *start, Py_ssize_t *size) noexcept nogil:
    cdef int64_t length = 0
    cdef int fault = number(data, end, position, _SHIFT_MAX_32, &length)
    if fault:
        return fault
    if length < 0:
        if length != -1 or not nullable:
            return BAD_LENGTH
        start[0] = position[0]
        size[0] = -1
        return FINE
    if length > end - position[0]:
        return BAD_LENGTH
    start[0] = position[0]
    size[0] = <Py_ssize_t>length
    position[0] += <Py_ssize_t>length
    return FINE


cdef inline int skip_headers(const uint8_t *data, Py_ssize_t end, Py_ssize_t *position, int64_t count) noexcept nogil:
    cdef Py_ssize_t start = 0, size = 0
    while count > 0:
        if field_bytes(data, end, position, False, &start, &size):
            return BAD_HEADERS
        if field_bytes(data, end, position, True, &start, &size):
            return BAD_HEADERS
        count -= 1
    return FINE


cdef inline int parse_record(const uint8_t *data, Py_ssize_t limit, Py_ssize_t position, Record *record) noexcept nogil:
    cdef int64_t length = 0
    cdef int fault = number(data, limit, &position, _SHIFT_MAX_32, &length)
    if fault:
        return fault
    if length < 0 or length > limit - position:
        return BAD_LENGTH if length < 0 else ENDS_EARLY
    cdef Py_ssize_t end = position + <Py_ssize_t>length
    if position >= end:
        return BAD_LENGTH
    position += 1  # attributes: unused
    fault = number(data, end, &position, _SHIFT_MAX_64, &record.timestamp_delta)
    record.rest = position
    if not fault:
        fault = number(data, end, &position, _SHIFT_MAX_32, &record.offset_delta)
    if not fault:
        fault = field_bytes(data, end, &position, True, &record.key, &record.key_size)
    if not fault:
        fault = field_bytes(data, end, &position, True, &record.value, &record.value_size)
    if not fault:
        fault = number(data, end, &position, _SHIFT_MAX_32, &record.header_count)
    if fault:
        return BAD_LENGTH if fault == ENDS_EARLY else fault
    record.headers = position
    if record.header_count < 0 or record.header_count > end - position:
        return BAD_HEADERS
    fault = skip_headers(data, end, &position, record.header_count)
    if fault:
        return fault
    if position != end:
        return NOT_FILLED
    record.end = end
    return FINE


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
