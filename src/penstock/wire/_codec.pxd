# cython: language_level=3
# What other native modules share of the message codec.

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "_endian.h":
    uint16_t load16(const uint8_t *p) nogil
    uint32_t load32(const uint8_t *p) nogil
    uint64_t load64(const uint8_t *p) nogil
    void store16(uint8_t *p, uint16_t v) nogil
    void store32(uint8_t *p, uint32_t v) nogil
    void store64(uint8_t *p, uint64_t v) nogil

cdef class Writer:
    cdef uint8_t *_data
    cdef Py_ssize_t _size
    cdef Py_ssize_t _capacity
    cdef Py_ssize_t _total
    cdef list _parts
    cdef bint _is_strict

    cdef uint8_t *reserve(self, Py_ssize_t size) except NULL
    cdef int varint(self, uint32_t value) except -1
    cdef int length(self, Py_ssize_t size, bint compact, int width) except -1
    cdef int raw(self, const void *data, Py_ssize_t size) except -1
    cdef int text(self, object value, bint compact) except -1
    cdef int blob(self, object value, bint compact) except -1
    cdef int records(self, object value, bint compact) except -1
    cdef int uuid(self, object value) except -1
    cdef int flush_part(self) except -1
    cdef bytes contents(self)
    cdef object frame(self)

cdef class Cursor:
    cdef Py_buffer _buffer
    cdef object _owner
    cdef const uint8_t *_data
    cdef Py_ssize_t _position
    cdef Py_ssize_t _end
    cdef Py_ssize_t _elements_left

    cdef const uint8_t *take(self, Py_ssize_t size) except NULL
    cdef uint32_t varint(self) except? 0xFFFFFFFF
    cdef Py_ssize_t length(self, bint compact, int width) except -2
    cdef object text(self, bint compact, bint nullable)
    cdef object blob(self, bint compact, bint nullable, bint view)
    cdef int skip_tagged(self) except -1

cdef class RequestCursor(Cursor):
    cdef readonly int api_key
    cdef readonly int api_version
    cdef readonly int route             # both in one number
    cdef readonly int correlation_id
    cdef readonly object client_id
    cdef Py_ssize_t _body

cdef class OneProduce:
    cdef readonly object transactional_id
    cdef readonly int acks
    cdef readonly int timeout_ms
    cdef readonly object topic          # a name, or an id from version 13 on
    cdef readonly int index
    cdef readonly object records

cpdef OneProduce read_one_produce(RequestCursor c, int version)
cpdef bytes encode_one_produced(RequestCursor cursor, OneProduce request, int64_t base_offset, int64_t log_append_time,
                                int64_t log_start_offset)
