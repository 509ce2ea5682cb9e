# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True
"""Records, and the two loops over them that iteration runs for each batch.

They are here because reading a record must cost little beside what librdkafka's own binding spends on making a message
of it, and a frozen dataclass written in Python costs as much as that again.
"""

cimport cython

from dataclasses import dataclass

from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, TIMESTAMP_NOT_AVAILABLE, Message

cdef object message_topic = Message.topic
cdef object message_partition = Message.partition
cdef object message_offset = Message.offset
cdef object message_timestamp = Message.timestamp
cdef object message_key = Message.key
cdef object message_value = Message.value
cdef object message_headers = Message.headers
cdef object message_error = Message.error
cdef int APPEND_TIME = TIMESTAMP_LOG_APPEND_TIME
cdef int NO_TIME = TIMESTAMP_NOT_AVAILABLE


@dataclass(frozen=True)
class _Shape:
    """What a record looks like to `dataclasses.replace` and its kin."""

    topic: str
    partition: int = 0
    offset: int = 0
    timestamp: object = None
    key: object = None
    value: object = None
    headers: tuple = ()
    is_append_time: bool = False


@cython.freelist(512)
cdef class Record:
    """A record as a consumer reads it.

    What few programs look at (time and headers) stays in librdkafka's message until somebody asks.
    """

    cdef readonly str topic
    cdef readonly int partition
    cdef readonly long long offset
    cdef readonly object key
    cdef readonly object value
    cdef object _timestamp
    cdef tuple _headers
    cdef bint _is_append_time
    cdef object _message

    __dataclass_fields__ = _Shape.__dataclass_fields__
    __match_args__ = _Shape.__match_args__
    __class_getitem__ = classmethod(lambda cls, parameters: cls)

    def __init__(
        self, topic, partition=0, offset=0, timestamp=None, key=None, value=None, headers=(), is_append_time=False
    ):
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.key = key
        self.value = value
        self._timestamp = timestamp
        self._headers = headers
        self._is_append_time = is_append_time

    @property
    def timestamp(self):
        self._unpack()
        return self._timestamp

    @property
    def headers(self):
        self._unpack()
        return self._headers

    @property
    def is_append_time(self):
        self._unpack()
        return self._is_append_time

    cdef int _unpack(self) except -1:
        cdef tuple timestamp
        if self._message is None:
            return 0
        timestamp = message_timestamp(self._message)
        headers = message_headers(self._message)
        self._is_append_time = timestamp[0] == APPEND_TIME
        self._timestamp = None if timestamp[0] == NO_TIME else timestamp[1]
        self._headers = () if headers is None else tuple(headers)
        self._message = None
        return 0

    def with_contents(self, key, value):
        """The same record with another key and value."""
        cdef Record made = Record.__new__(Record)
        made.topic = self.topic
        made.partition = self.partition
        made.offset = self.offset
        made.key = key
        made.value = value
        made._timestamp = self._timestamp
        made._headers = self._headers
        made._is_append_time = self._is_append_time
        made._message = self._message
        return made

    cdef tuple _fields(self):
        self._unpack()
        return (
            self.topic, self.partition, self.offset, self._timestamp,
            self.key, self.value, self._headers, self._is_append_time,
        )

    def __eq__(self, other):
        return (<Record>self)._fields() == (<Record>other)._fields() if type(other) is Record else NotImplemented

    def __hash__(self):
        return hash(self._fields())

    def __reduce__(self):
        return Record, self._fields()

    def __repr__(self):
        return f"Record({', '.join(f'{name}={field!r}' for name, field in zip(self.__match_args__, self._fields()))})"


def records_of(list messages, list errors):
    """Records of librdkafka's messages, in order. Messages that are errors go to `errors` instead."""
    cdef list made = []
    cdef Record record
    cdef str topic = None
    cdef str found
    for message in messages:
        if message_error(message) is not None:
            errors.append(message)
            continue
        record = Record.__new__(Record)
        found = message_topic(message)
        if topic is None or found != topic:
            topic = found
        record.topic = topic
        record.partition = message_partition(message)
        record.offset = message_offset(message)
        record.key = message_key(message)
        record.value = message_value(message)
        record._message = message
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
