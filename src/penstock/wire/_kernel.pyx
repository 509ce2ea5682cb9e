# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""The record kernel: the few loops that must walk records one by one.

Record batch, format 2 (all integers big-endian; the CRC covers everything from `attributes` on):

     0  base_offset           int64
     8  batch_length          int32   bytes that follow this field
    12  leader_epoch          int32
    16  magic                 int8    2
    17  crc                   uint32  CRC-32C
    21  attributes            int16   bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control, 6 delete horizon
    23  last_offset_delta     int32
    27  base_timestamp        int64
    35  max_timestamp         int64
    43  producer_id           int64
    51  producer_epoch        int16
    53  base_sequence         int32
    57  count                 int32
    61  records               compressed as a whole, if at all

Record (varints are zigzag): length, attributes int8, timestamp_delta, offset_delta, key length, key, value length,
value, header count, and per header key length, key, value length, value. Length -1 means null.

Loops work on raw pointers; the long ones release the GIL.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from penstock.wire._codec cimport Writer, load16, load32, load64, store16, store32, store64

from penstock.wire.errors import CorruptBatch, InvalidRecords

cdef extern from "_crc32c.h":
    bint has_crc32c_instruction()
    uint32_t crc32c_short(const uint8_t *data, size_t size, uint32_t before) nogil

cdef bint _has_crc32c_instruction = has_crc32c_instruction()

cdef enum:
    # Up to here the plain instruction is as fast as a call of the library.
    _SHORT_BYTES = 2048
    _HEADER = 61
    _ATTRIBUTES_AT = 21
    # Below this many bytes, letting other threads run costs more than it gives.
    _RELEASE_GIL_BYTES = 131072
    # How many single-record errors one answer lists.
    _RECORD_ERRORS_MAX = 100

HEADER_BYTES = _HEADER
LOG_OVERHEAD_BYTES = 12
NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1


@cython.freelist(8)
@cython.no_gc  # it holds nothing that could hold it
cdef class Batch:
    """The header of one record batch, read from a buffer. A snapshot: it does not follow later changes."""

    @property
    def last_offset(self):
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self):
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self):
        return self.attributes & 7

    @property
    def is_log_append_time(self):
        return self.attributes & 8 != 0

    @property
    def is_transactional(self):
        return self.attributes & 16 != 0

    @property
    def is_control(self):
        return self.attributes & 32 != 0

    @property
    def has_producer_id(self):
        return self.producer_id >= 0

    @property
    def last_sequence(self):
        """Sequence numbers wrap from 2^31 - 1 to 0."""
        if self.base_sequence < 0:
            return -1
        return (<int64_t>self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    def __repr__(self):
        return (f"Batch(offsets {self.base_offset}..{self.last_offset}, {self.count} records, {self.size} bytes, "
                f"leader epoch {self.leader_epoch}, producer {self.producer_id})")


cdef object _library_crc32c = None


def crc32c(object data, uint32_t before=0):
    """The CRC-32C of any bytes, and of those in front of them whose CRC-32C is `before`."""
    global _library_crc32c
    if _library_crc32c is None:
        from crc32c import crc32c as library_crc32c  # here, because importing it takes a tenth of a broker's start

        _library_crc32c = library_crc32c
    return _library_crc32c(data, before)


cdef uint32_t checksum(object buffer, const uint8_t *data, Py_ssize_t position, Py_ssize_t size) except? 0:
    """The CRC-32C of a batch: of all that follows its checksum. `data` is where `buffer` begins."""
    if _has_crc32c_instruction and size <= _SHORT_BYTES:
        return crc32c_short(data + position + _ATTRIBUTES_AT, size - _ATTRIBUTES_AT, 0)
    return crc32c(memoryview(buffer)[position + _ATTRIBUTES_AT:position + size])


cdef Batch read_header(const uint8_t *p, Py_ssize_t position):
    cdef Batch batch = Batch.__new__(Batch)
    batch.log_append_time = -1
    batch.position = position
    batch.base_offset = <int64_t>load64(p)
    batch.size = <Py_ssize_t><int32_t>load32(p + 8) + 12
    batch.leader_epoch = <int32_t>load32(p + 12)
    batch.magic = <int8_t>p[16]
    batch.crc = load32(p + 17)
    batch.attributes = <int16_t>load16(p + 21)
    batch.last_offset_delta = <int32_t>load32(p + 23)
    batch.base_timestamp = <int64_t>load64(p + 27)
    batch.max_timestamp = <int64_t>load64(p + 35)
    batch.producer_id = <int64_t>load64(p + 43)
    batch.producer_epoch = <int16_t>load16(p + 51)
    batch.base_sequence = <int32_t>load32(p + 53)
    batch.count = <int32_t>load32(p + 57)
    return batch


def parse_header(object buffer, Py_ssize_t position=0):
    """The batch header at `position`. Checks nothing but that the header is there whole."""
    cdef Py_buffer view
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if position < 0 or view.len - position < _HEADER:
            raise CorruptBatch(f"record batch at {position} ends within its header")
        return read_header(<const uint8_t *>view.buf + position, position)
    finally:
        PyBuffer_Release(&view)


def verify(object buffer, Py_ssize_t position=0):
    """The batch at `position`, after its size, format and CRC proved right. Raises CorruptBatch."""
    cdef Py_buffer view
    cdef Batch batch
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        if position < 0 or view.len - position < _HEADER:
            raise CorruptBatch(f"record batch at {position} ends within its header")
        batch = read_header(<const uint8_t *>view.buf + position, position)
        if batch.magic != 2:
            raise CorruptBatch(f"record batch at {position} has format {batch.magic}; only format 2 is supported")
        if batch.size < _HEADER or batch.size > view.len - position:
            raise CorruptBatch(f"record batch at {position} claims {batch.size} bytes of {view.len - position}")
        if checksum(buffer, <const uint8_t *>view.buf, position, batch.size) != batch.crc:
            raise CorruptBatch(f"record batch at {position} fails its checksum")
    finally:
        PyBuffer_Release(&view)
    return batch


@cython.nonecheck(True)
cpdef int stamp(object buffer, Batch batch, int64_t base_offset, int32_t leader_epoch) except -1:
    """Write what the leader assigns into a batch: neither field is covered by the CRC."""
    cdef Py_buffer view
    cdef uint8_t *p
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        if view.len - batch.position < _HEADER:
            raise CorruptBatch(f"record batch at {batch.position} is not within its buffer")
        p = <uint8_t *>view.buf + batch.position
        batch.base_offset = base_offset
        batch.leader_epoch = leader_epoch
        store64(p, <uint64_t>base_offset)
        store32(p + 12, <uint32_t>leader_epoch)
    finally:
        PyBuffer_Release(&view)
    return 0


def stamp_timestamp(object buffer, Batch batch not None, bint log_append_time, int64_t max_timestamp):
    """Set the timestamp type and the largest timestamp of a batch, and with them its CRC."""
    cdef Py_buffer view
    cdef uint8_t *p
    PyObject_GetBuffer(buffer, &view, PyBUF_WRITABLE)
    try:
        if batch.size < _HEADER or view.len - batch.position < batch.size:
            raise CorruptBatch(f"record batch at {batch.position} is not within its buffer")
        p = <uint8_t *>view.buf + batch.position
        batch.attributes = (batch.attributes & ~8) | (8 if log_append_time else 0)
        batch.max_timestamp = max_timestamp
        store16(p + 21, <uint16_t>batch.attributes)
        store64(p + 35, <uint64_t>max_timestamp)
        batch.crc = checksum(buffer, <const uint8_t *>view.buf, batch.position, batch.size)
        store32(p + 17, batch.crc)
    finally:
        PyBuffer_Release(&view)


def seek(object buffer, int64_t offset, Py_ssize_t position=0):
    """Find the first batch whose last offset is at least `offset`.

    Returns (position, size, base offset) of the batch. Size 0 means that the buffer ended first; the position is then
    that of the first batch whose header is not in the buffer, and may lie behind the buffer's end.
    """
    cdef Py_buffer view
    cdef const uint8_t *p
    cdef int64_t base, length
    if position < 0:
        raise ValueError(f"position {position} is before the buffer")
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        while position + _HEADER <= view.len:
            p = <const uint8_t *>view.buf + position
            base = <int64_t>load64(p)
            length = <int64_t><int32_t>load32(p + 8) + 12
            if length < _HEADER:
                raise CorruptBatch(f"record batch at {position} claims {length} bytes")
            if base + <int32_t>load32(p + 23) >= offset:
                return position, length, base
            position += length
        return position, 0, -1
    finally:
        PyBuffer_Release(&view)


# ---- single records ----

cdef tuple _FAULTS = (
    "",
    "the records end before the declared count",
    "a variable-length integer is too long",
    "a length is negative or reaches past the record",
    "the headers are malformed",
    "the record's fields do not fill its declared length",
)


cdef struct Rules:
    int64_t base_timestamp
    int64_t earliest
    int64_t latest
    bint check_timestamps
    bint require_keys

cdef struct Summary:
    int64_t max_timestamp
    Py_ssize_t position
    int32_t index
    int32_t bad_count
    int32_t bad_index[_RECORD_ERRORS_MAX]
    int64_t bad_timestamp[_RECORD_ERRORS_MAX]
    bint bad_is_key[_RECORD_ERRORS_MAX]


cdef int walk(const uint8_t *data, Py_ssize_t end, int32_t count, const Rules *rules, Summary *summary) noexcept nogil:
    cdef Record record
    cdef int fault
    cdef int64_t timestamp
    cdef bint keyless, out_of_time
    summary.max_timestamp = -1
    summary.bad_count = 0
    summary.position = 0
    summary.index = 0
    while summary.index < count:
        fault = parse_record(data, end, summary.position, &record)
        if fault:
            return fault
        if record.offset_delta != summary.index:
            return -1
        timestamp = rules.base_timestamp + record.timestamp_delta
        keyless = rules.require_keys and record.key_size < 0
        out_of_time = rules.check_timestamps and timestamp != -1 and (
            timestamp < rules.earliest or timestamp > rules.latest)
        if (keyless or out_of_time) and summary.bad_count < _RECORD_ERRORS_MAX:
            summary.bad_index[summary.bad_count] = summary.index
            summary.bad_timestamp[summary.bad_count] = timestamp
            summary.bad_is_key[summary.bad_count] = keyless
            summary.bad_count += 1
        if timestamp > summary.max_timestamp:
            summary.max_timestamp = timestamp
        summary.position = record.end
        summary.index += 1
    return FINE


def check_records(object payload, int32_t count, int64_t base_timestamp, bint check_timestamps=False,
                  int64_t earliest=0, int64_t latest=0, bint require_keys=False):
    """Walk the records of a decompressed batch: structure, count, consecutive offsets; and the caller's rules.

    Returns (largest timestamp, bad records), each bad record being (index, timestamp, whether its key is missing).
    Raises InvalidRecords when the bytes are not `count` well-formed records.
    """
    cdef Py_buffer view
    cdef Rules rules
    cdef Summary summary
    cdef int fault, i
    rules.base_timestamp = base_timestamp
    rules.earliest = earliest
    rules.latest = latest
    rules.check_timestamps = check_timestamps
    rules.require_keys = require_keys
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        if view.len >= _RELEASE_GIL_BYTES:
            with nogil:
                fault = walk(<const uint8_t *>view.buf, view.len, count, &rules, &summary)
        else:
            fault = walk(<const uint8_t *>view.buf, view.len, count, &rules, &summary)
        if fault < 0:
            raise InvalidRecords(f"record {summary.index} of the batch has the wrong offset delta")
        if fault:
            raise InvalidRecords(f"record {summary.index} of {count} is malformed: {_FAULTS[fault]}")
        if summary.position != view.len:
            raise InvalidRecords(f"{view.len - summary.position} bytes follow the {count} declared records")
    finally:
        PyBuffer_Release(&view)
    if summary.bad_count == 0:
        return summary.max_timestamp, ()
    return summary.max_timestamp, [
        (summary.bad_index[i], summary.bad_timestamp[i], summary.bad_is_key[i] != 0) for i in range(summary.bad_count)
    ]


cdef class PlainBatches:
    """The quick check of uncompressed batches from clients, for one topic's settings."""

    def __init__(self, Py_ssize_t bytes_max, int64_t before_max_ms, int64_t after_max_ms, bint require_keys):
        self._bytes_max = bytes_max
        self._before_max_ms = before_max_ms
        self._after_max_ms = after_max_ms
        self._require_keys = require_keys

    cpdef Batch check(self, object records, int64_t now_ms):
        """The batch that `records` consist of, if a client may write it just as it is; None if there is any doubt.

        One pass for what nearly all uncompressed batches are. Whoever gets None must find out the reason the long way.
        """
        cdef Py_buffer view
        cdef Batch batch
        cdef Rules rules
        cdef Summary summary
        PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
        try:
            if view.len < _HEADER or view.len > self._bytes_max:
                return None
            batch = read_header(<const uint8_t *>view.buf, 0)
            if (batch.size != view.len or batch.magic != 2 or batch.base_offset != 0 or batch.attributes & 0x2F
                    or batch.count <= 0 or batch.count != batch.last_offset_delta + 1
                    or (batch.producer_id >= 0 and batch.base_sequence < 0)):
                return None
            rules.base_timestamp = batch.base_timestamp
            rules.earliest = now_ms - self._before_max_ms
            rules.latest = now_ms + self._after_max_ms
            rules.check_timestamps = True
            rules.require_keys = self._require_keys
            if (walk(<const uint8_t *>view.buf + _HEADER, view.len - _HEADER, batch.count, &rules, &summary)
                    or summary.bad_count or summary.position != view.len - _HEADER
                    or summary.max_timestamp != batch.max_timestamp
                    or checksum(records, <const uint8_t *>view.buf, 0, view.len) != batch.crc):
                return None
        finally:
            PyBuffer_Release(&view)
        batch.data = records
        return batch


def decode_records(object payload, int32_t count, int64_t base_offset, int64_t base_timestamp, object append_time,
                   object make):
    """The records of a decompressed batch, each as make(offset, timestamp, key, value, headers)."""
    cdef Py_buffer view
    cdef Record record
    cdef Py_ssize_t position = 0
    cdef int32_t index
    cdef int fault
    cdef const uint8_t *data
    cdef list records = []
    cdef object timestamp
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        data = <const uint8_t *>view.buf
        for index in range(count):
            fault = parse_record(data, view.len, position, &record)
            if fault:
                raise InvalidRecords(f"record {index} of {count} is malformed: {_FAULTS[fault]}")
            timestamp = append_time if append_time is not None else base_timestamp + record.timestamp_delta
            records.append(make(
                base_offset + record.offset_delta,
                timestamp,
                slice_bytes(data, record.key, record.key_size),
                slice_bytes(data, record.value, record.value_size),
                decode_headers(data, &record),
            ))
            position = record.end
    finally:
        PyBuffer_Release(&view)
    return records


cdef object slice_bytes(const uint8_t *data, Py_ssize_t start, Py_ssize_t size):
    if size < 0:
        return None
    return PyBytes_FromStringAndSize(<const char *>(data + start), size)


cdef tuple decode_headers(const uint8_t *data, Record *record):
    if record.header_count == 0:
        return ()
    cdef list headers = []
    cdef Py_ssize_t position = record.headers
    cdef Py_ssize_t key = 0, key_size = 0, value = 0, value_size = 0
    cdef int64_t i
    for i in range(record.header_count):
        field_bytes(data, record.end, &position, False, &key, &key_size)
        field_bytes(data, record.end, &position, True, &value, &value_size)
        # As Java does it: nobody checked that a header's key is UTF-8 when it was written.
        name = PyUnicode_DecodeUTF8(<const char *>(data + key), key_size, "replace")
        headers.append((name, slice_bytes(data, value, value_size)))
    return tuple(headers)


# ---- encoding ----

cdef int put_varlong(Writer out, int64_t value) except -1:
    put_varint(out.reserve(varint_size(value)), value)
    return 0


cdef int put_blob(Writer out, object value) except -1:
    cdef Py_buffer view
    if value is None:
        return put_varlong(out, -1)
    PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
    try:
        put_varlong(out, view.len)
        out.raw(view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return 0


cdef int put_text(Writer out, str value) except -1:
    cdef Py_ssize_t size
    cdef const char *data = PyUnicode_AsUTF8AndSize(value, &size)
    put_varlong(out, size)
    return out.raw(data, size)


def encode_records(object records, int64_t base_offset, int64_t base_timestamp):
    """Records, each (offset, timestamp, key, value, headers), as the uncompressed payload of a batch."""
    cdef Writer out = Writer()
    cdef Writer body = Writer()
    for offset, timestamp, key, value, headers in records:
        body._size = 0
        body.reserve(1)[0] = 0
        put_varlong(body, <int64_t>timestamp - base_timestamp)
        put_varlong(body, <int64_t>offset - base_offset)
        put_blob(body, key)
        put_blob(body, value)
        put_varlong(body, len(headers))
        for name, content in headers:
            put_text(body, name)
            put_blob(body, content)
        put_varlong(out, body._size)
        out.raw(body._data, body._size)
    return out.contents()


def batch_header(object payload, *, int64_t base_offset, int32_t last_offset_delta, int32_t count, int attributes,
                 int64_t base_timestamp, int64_t max_timestamp, int32_t leader_epoch=-1, int64_t producer_id=-1,
                 int producer_epoch=-1, int32_t base_sequence=-1):
    """The header that makes a batch of a payload that is compressed already, as the codec in `attributes` says."""
    cdef bytearray header = PyByteArray_FromStringAndSize(NULL, _HEADER)
    cdef uint8_t *p = <uint8_t *>PyByteArray_AS_STRING(header)
    store64(p, <uint64_t>base_offset)
    store32(p + 8, <uint32_t>(_HEADER + len(payload) - 12))
    store32(p + 12, <uint32_t>leader_epoch)
    p[16] = 2
    store16(p + 21, <uint16_t>attributes)
    store32(p + 23, <uint32_t>last_offset_delta)
    store64(p + 27, <uint64_t>base_timestamp)
    store64(p + 35, <uint64_t>max_timestamp)
    store64(p + 43, <uint64_t>producer_id)
    store16(p + 51, <uint16_t>producer_epoch)
    store32(p + 53, <uint32_t>base_sequence)
    store32(p + 57, <uint32_t>count)
    store32(p + 17, checksum_of_two(header, payload))
    return header


cdef uint32_t checksum_of_two(bytearray header, object payload) except? 0:
    """The CRC-32C of a batch whose header and payload lie apart."""
    cdef Py_buffer view
    if not _has_crc32c_instruction or len(payload) > _SHORT_BYTES:
        return crc32c(payload, crc32c(memoryview(header)[_ATTRIBUTES_AT:]))
    PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
    try:
        return crc32c_short(
            <const uint8_t *>view.buf, view.len,
            crc32c_short(<const uint8_t *>PyByteArray_AS_STRING(header) + _ATTRIBUTES_AT, _HEADER - _ATTRIBUTES_AT, 0),
        )
    finally:
        PyBuffer_Release(&view)


def build_batch(object payload, **fields):
    """A whole batch around a payload: what `batch_header` makes, and the payload."""
    cdef bytearray batch = batch_header(payload, **fields)
    batch += payload
    return batch


# ---- scanning a segment file ----

cdef class SegmentScan:
    """What a scan over a segment's bytes found: how far it is valid, and the index entries that belong to it."""

    cdef readonly Py_ssize_t valid_bytes
    cdef readonly int64_t next_offset
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t offset_of_max_timestamp
    cdef readonly bytes offset_index
    cdef readonly bytes time_index
    cdef readonly str problem               # why the scan ended early; None if it did not


def scan_segment(object buffer, int64_t segment_base_offset, int index_interval_bytes, object visit=None):
    """Check every batch of a segment and build its index entries, in Kafka's rhythm and format.

    `visit` is called with each batch that has a producer id or starts a leader epoch.
    Stops at the first batch that is torn, corrupt, or out of order: `valid_bytes` says where.
    """
    cdef Py_buffer view
    cdef SegmentScan scan = SegmentScan.__new__(SegmentScan)
    cdef Writer offsets = Writer()
    cdef Writer times = Writer()
    cdef Py_ssize_t position = 0, last_entry = 0
    cdef int64_t last_time_entry = -1, last_offset = segment_base_offset - 1
    cdef int leader_epoch = -1
    cdef Batch batch
    cdef uint8_t *p
    scan.next_offset = segment_base_offset
    scan.max_timestamp = -1
    scan.offset_of_max_timestamp = segment_base_offset
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    cdef Py_ssize_t size = view.len
    PyBuffer_Release(&view)
    while position < size:
        try:
            batch = verify(buffer, position)
        except CorruptBatch as error:
            scan.problem = str(error)
            break
        if batch.base_offset <= last_offset or batch.last_offset_delta < 0:
            scan.problem = f"record batch at {position} starts at offset {batch.base_offset}, after {last_offset}"
            break
        if batch.base_offset - segment_base_offset > 0x7FFFFFFF - batch.last_offset_delta:
            scan.problem = f"the offsets of the batch at {position} are too far from the segment's base for its index"
            break
        last_offset = batch.base_offset + batch.last_offset_delta
        if batch.max_timestamp > scan.max_timestamp:
            scan.max_timestamp = batch.max_timestamp
            scan.offset_of_max_timestamp = last_offset
        if position - last_entry > index_interval_bytes:
            p = offsets.reserve(8)
            store32(p, <uint32_t>(last_offset - segment_base_offset))
            store32(p + 4, <uint32_t>position)
            if scan.max_timestamp > last_time_entry:
                p = times.reserve(12)
                store64(p, <uint64_t>scan.max_timestamp)
                store32(p + 8, <uint32_t>(scan.offset_of_max_timestamp - segment_base_offset))
                last_time_entry = scan.max_timestamp
            last_entry = position
        if visit is not None and (batch.producer_id >= 0 or batch.leader_epoch > leader_epoch):
            leader_epoch = max(leader_epoch, batch.leader_epoch)
            visit(batch)
        position += batch.size
    scan.valid_bytes = position
    scan.next_offset = last_offset + 1
    scan.offset_index = offsets.contents()
    scan.time_index = times.contents()
    return scan
