# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""Records, and the two loops over them that iteration runs for each batch.

They are here because reading a record must cost little beside what librdkafka's own binding spends on making a message
of it, and a frozen dataclass written in Python costs as much as that again.
"""

cimport cython

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE, Message

cdef object _topic = Message.topic
cdef object _partition = Message.partition
cdef object _offset = Message.offset
cdef object _timestamp = Message.timestamp
cdef object _key = Message.key
cdef object _value = Message.value
cdef object _headers = Message.headers
cdef object _error = Message.error
cdef int _append_time = TIMESTAMP_LOG_APPEND_TIME
cdef int _no_time = TIMESTAMP_NOT_AVAILABLE


@cython.freelist(512)
@cython.dataclasses.dataclass(frozen=True)
cdef class Record:
    """A record as a consumer reads it."""

    topic: str
    partition: int = 0
    offset: int = 0
    timestamp: object = None
    key: object = None
    value: object = None
    headers: tuple = ()
    is_append_time: bool = False

    __class_getitem__ = classmethod(lambda cls, parameters: cls)

    def with_contents(self, key, value):
        """The same record with another key and value."""
        cdef Record made = Record.__new__(Record)
        made.topic = self.topic
        made.partition = self.partition
        made.offset = self.offset
        made.timestamp = self.timestamp
        made.key = key
        made.value = value
        made.headers = self.headers
        made.is_append_time = self.is_append_time
        return made


def records_of(list messages, list errors):
    """Records of librdkafka's messages, in order. Messages that are errors go to `errors` instead."""
    cdef list made = []
    cdef Record record
    cdef tuple timestamp
    cdef object headers
    cdef str topic = None
    cdef str found
    cdef int kind
    for message in messages:
        if _error(message) is not None:
            errors.append(message)
            continue
        record = Record.__new__(Record)
        found = _topic(message)
        if topic is None or found != topic:
            topic = found
        record.topic = topic
        record.partition = _partition(message)
        record.offset = _offset(message)
        timestamp = _timestamp(message)
        kind = timestamp[0]
        record.is_append_time = kind == _append_time
        if kind != _no_time:
            record.timestamp = timestamp[1]
        record.key = _key(message)
        record.value = _value(message)
        headers = _headers(message)
        record.headers = () if headers is None else tuple(headers)
        made.append(record)
    return made


def positions_of(list records, Py_ssize_t start, Py_ssize_t stop):
    """Where to go on behind the records from `start` up to `stop`: an offset for each (topic, partition)."""
    cdef dict positions = {}
    cdef Record record, last = None
    cdef Py_ssize_t index
    for index in range(start, stop):
        record = records[index]
        if last is not None and (record.partition != last.partition or record.topic is not last.topic):
            positions[last.topic, last.partition] = last.offset + 1
        last = record
    if last is not None:
        positions[last.topic, last.partition] = last.offset + 1
    return positions
