# cython: language_level=3
# What the record kernel shares with the message codec.

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t

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
