# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""The last step of most requests: one small response goes to the socket of its connection, and is gone.

With many connections this is done as often as anything else in the broker, so all that are ready leave in one loop
without the interpreter. Whatever is not that simple is left to the outbox.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE

cdef extern from "<sys/socket.h>" nogil:
    ssize_t send(int fd, const void *data, size_t size, int flags)
    int MSG_NOSIGNAL
    int MSG_DONTWAIT


cdef class Sender:
    """What a connection has ready to be sent."""

    cdef readonly list ready
    cdef public int fd
    cdef public bint is_engaged  # what was sent before is not all gone, or nothing may be sent any more

    def __cinit__(self):
        self.ready = []
        self.fd = -1
        self.is_engaged = False

    def send_ready(self):
        """Send what is ready, in order, whatever it is."""
        raise NotImplementedError


def flush(list senders not None):
    """Send all that these have ready."""
    cdef Sender sender
    cdef object response
    cdef ssize_t sent
    for sender in senders:
        if len(sender.ready) == 1 and not sender.is_engaged:
            response = sender.ready[0]
            if PyBytes_CheckExact(response):
                sent = send(sender.fd, PyBytes_AS_STRING(response), PyBytes_GET_SIZE(response),
                            MSG_NOSIGNAL | MSG_DONTWAIT)
                if sent == PyBytes_GET_SIZE(response):
                    sender.ready.clear()
                    continue
                if sent > 0:
                    sender.ready[0] = response[sent:]
        if sender.ready:
            sender.send_ready()  # which also meets the error again, if there was one
