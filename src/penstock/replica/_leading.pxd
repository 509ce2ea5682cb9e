# What other native modules share of a partition.

from penstock.log._tail cimport LogEnd
from penstock.wire._kernel cimport Batch


cdef class Leading:
    cdef public LogEnd log
    cdef public bint is_internal
    cdef public bint is_leader
    cdef public int leader_epoch
    cdef public bint _is_alone      # no other replica is in sync
    cdef public object _committed   # those who wait for the high watermark
    cdef public object _commits
    cdef public set _watchers

    cpdef Batch append(self, Batch batch, int acks, object origin=*, object turn=*)
    cpdef int _advance(self) except -1
