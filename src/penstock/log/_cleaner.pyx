# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""The loops of compaction: which record is the last of its key, and which records stay. And that of scrubbing.

`OffsetMap` remembers the last offset of every key. `Sieve` lets those records through that are not overtaken. Both walk
whole buffers of batches on raw pointers without the interpreter's lock, so the event loop is not held up. Batches that
need more than that (compressed, transactional, control batches) are handed to the caller one by one.

The format of batches and records is described in `wire/_kernel.pyx`.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from penstock.wire._codec cimport load16, load32, load64, store16, store32, store64
from penstock.wire._kernel cimport Record, parse_record, put_varint, varint_size

import os

from penstock.wire.errors import CorruptBatch

cdef extern from "_crc32c.h":
    bint has_crc32c_instruction()
    void crc32c_prepare()
    uint32_t crc32c_any(const uint8_t *data, size_t size, bint has_instruction) nogil

cdef extern from *:
    """
    #if defined(__GNUC__)
    #define PREFETCH(p) __builtin_prefetch(p)
    #else
    #define PREFETCH(p) ((void)(p))
    #endif
    """
    void PREFETCH(const void *p) nogil

cdef bint _has_instruction = has_crc32c_instruction()
crc32c_prepare()

cdef enum:
    _HEADER = 61
    _CRC_AT = 17
    _ATTRIBUTES_AT = 21
    _CODEC = 7
    _LOG_APPEND_TIME = 8
    _TRANSACTIONAL = 16
    _CONTROL = 32
    _DELETE_HORIZON = 64
    _SPECIAL_ATTRIBUTES = _CODEC | _TRANSACTIONAL | _CONTROL
    _FIRST_ROOM = 1024
    _ENTRY_BYTES = 24
    _SLOT_BYTES = 8
    _BLOCK = 64                # records that are looked up together, so that their memory arrives while others are read
    _GROWTH_BYTES_MAX = 16     # of a record that gets another timestamp delta: its length and the delta

cdef enum Reason:
    # Why a loop over batches ended.
    _GO_ON = 0
    _MORE = 1                  # all whole batches of the buffer are done
    _SPECIAL = 2               # the next batch is one that the caller must look at
    _FULL = 3                  # the map has no room for another key
    # What went wrong.
    _NO_MEMORY = -1
    _MALFORMED = -2
    _CORRUPT = -3

MORE = _MORE
SPECIAL = _SPECIAL
FULL = _FULL


# ---- what a key is known by ----

cdef struct Hash:
    uint64_t high
    uint64_t low


cdef inline uint64_t rotated(uint64_t x, int bits) noexcept nogil:
    return (x << bits) | (x >> (64 - bits))


cdef inline void sip_round(uint64_t *v) noexcept nogil:
    v[0] += v[1]
    v[1] = rotated(v[1], 13) ^ v[0]
    v[0] = rotated(v[0], 32)
    v[2] += v[3]
    v[3] = rotated(v[3], 16) ^ v[2]
    v[0] += v[3]
    v[3] = rotated(v[3], 21) ^ v[0]
    v[2] += v[1]
    v[1] = rotated(v[1], 17) ^ v[2]
    v[2] = rotated(v[2], 32)


cdef Hash sip_hash(const uint64_t *secret, const uint8_t *data, Py_ssize_t size) noexcept nogil:
    """SipHash-2-4 with 128 bits. With a secret, nobody can make up keys that collide."""
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef Hash result
    cdef Py_ssize_t left = size
    cdef int i
    v[0] = secret[0] ^ <uint64_t>0x736f6d6570736575
    v[1] = secret[1] ^ <uint64_t>0x646f72616e646f6d ^ 0xee
    v[2] = secret[0] ^ <uint64_t>0x6c7967656e657261
    v[3] = secret[1] ^ <uint64_t>0x7465646279746573
    while left >= 8:
        memcpy(&word, data, 8)
        v[3] ^= word
        sip_round(v)
        sip_round(v)
        v[0] ^= word
        data += 8
        left -= 8
    word = <uint64_t>size << 56
    for i in range(<int>left):
        word |= <uint64_t>data[i] << (8 * i)
    v[3] ^= word
    sip_round(v)
    sip_round(v)
    v[0] ^= word
    v[2] ^= 0xee
    for i in range(4):
        sip_round(v)
    result.high = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xdd
    for i in range(4):
        sip_round(v)
    result.low = v[0] ^ v[1] ^ v[2] ^ v[3]
    return result


def sip_hash_128(bytes secret not None, bytes data not None):
    """SipHash-2-4-128 as bytes, to compare it with the published values."""
    cdef uint64_t words[2]
    cdef Hash found
    if len(secret) != 16:
        raise ValueError("the secret must have 16 bytes")
    memcpy(words, <const char *>secret, 16)
    found = sip_hash(words, <const uint8_t *><const char *>data, len(data))
    return PyBytes_FromStringAndSize(<const char *>&found, 16)


def portable_crc32c(bytes data not None):
    """CRC-32C as it is computed on processors without an instruction for it, to compare it with the library's."""
    return crc32c_any(<const uint8_t *><const char *>data, len(data), False)


cdef struct Entry:
    Hash hash
    int64_t offset

cdef struct Slot:
    uint32_t tag               # part of the hash, so that most other keys are told apart right here
    uint32_t number            # of the entry, counted from 1; 0: empty


cdef struct Candidate:
    Hash hash
    int64_t offset
    int64_t timestamp_delta
    bint has_key
    bint has_value


cdef class OffsetMap:
    """The last offset of every key, in at most `memory_bytes`. Keys are known by a 128-bit hash of their bytes.

    A list of entries in the order in which they came, and a hash table of their numbers. Both grow as they fill, so a
    log with few keys needs little memory; `load_factor` says how full the table may be.

    All batches up to `latest_offset` are in the map.
    """

    cdef Entry *_entries
    cdef Slot *_slots
    cdef Py_ssize_t _room
    cdef uint64_t _slot_count
    cdef double _load_factor
    cdef uint64_t _secret[2]
    cdef readonly Py_ssize_t size
    cdef readonly Py_ssize_t size_max
    cdef public int64_t latest_offset

    def __cinit__(self, int64_t memory_bytes, double load_factor=0.9):
        cdef bytes secret = os.urandom(16)
        memcpy(self._secret, <const char *>secret, 16)
        self._load_factor = min(max(load_factor, 0.01), 0.99)
        self.size_max = <Py_ssize_t>(memory_bytes / (_ENTRY_BYTES + _SLOT_BYTES / self._load_factor))
        self.size_max = min(self.size_max, 0x7FFFFFFF)
        if self.size_max < 1:
            raise ValueError(f"{memory_bytes} bytes are too few for a single key")
        self.latest_offset = -1
        if self._grow(min(_FIRST_ROOM, self.size_max)) < 0:
            raise MemoryError

    def __dealloc__(self):
        free(self._entries)
        free(self._slots)

    def __len__(self):
        return self.size

    @property
    def is_full(self):
        return self.size >= self.size_max

    def put(self, bytes key not None, int64_t offset):
        """Note an offset of a key; False if there is no room for another key."""
        cdef int result = self._put(sip_hash(self._secret, <const uint8_t *><const char *>key, len(key)), offset)
        if result < 0:
            raise MemoryError
        return result == 0

    def get(self, bytes key not None):
        """The last offset of a key; -1 if it is not here."""
        return self._get(sip_hash(self._secret, <const uint8_t *><const char *>key, len(key)))

    cdef int _grow(self, Py_ssize_t room) noexcept nogil:
        cdef Entry *entries = <Entry *>realloc(self._entries, <size_t>room * sizeof(Entry))
        cdef Py_ssize_t number
        if entries == NULL:
            return -1
        self._entries = entries
        free(self._slots)
        self._slot_count = <uint64_t>(room / self._load_factor) + 1
        self._slots = <Slot *>calloc(self._slot_count, sizeof(Slot))
        if self._slots == NULL:
            return -1
        self._room = room
        for number in range(self.size):
            self._link(self._entries[number].hash, <uint32_t>number + 1)
        return 0

    cdef inline uint64_t _home(self, Hash hash) noexcept nogil:
        return ((hash.high >> 32) * self._slot_count) >> 32

    cdef void _link(self, Hash hash, uint32_t number) noexcept nogil:
        cdef uint64_t at = self._home(hash)
        while self._slots[at].number != 0:
            at = at + 1 if at + 1 < self._slot_count else 0
        self._slots[at].tag = <uint32_t>hash.high
        self._slots[at].number = number

    cdef Entry *_find(self, Hash hash) noexcept nogil:
        cdef uint64_t at = self._home(hash)
        cdef Entry *entry
        while self._slots[at].number != 0:
            if self._slots[at].tag == <uint32_t>hash.high:
                entry = &self._entries[self._slots[at].number - 1]
                if entry.hash.high == hash.high and entry.hash.low == hash.low:
                    return entry
            at = at + 1 if at + 1 < self._slot_count else 0
        return NULL

    cdef int64_t _get(self, Hash hash) noexcept nogil:
        cdef Entry *entry = self._find(hash)
        return entry.offset if entry != NULL else -1

    cdef int _put(self, Hash hash, int64_t offset) noexcept nogil:
        """_GO_ON, _FULL or _NO_MEMORY."""
        cdef Entry *entry = self._find(hash)
        if entry != NULL:
            entry.offset = offset
            return 0
        if self.size == self.size_max:
            return _FULL
        if self.size == self._room and self._grow(min(2 * self._room, self.size_max)) < 0:
            return _NO_MEMORY
        self._entries[self.size].hash = hash
        self._entries[self.size].offset = offset
        self.size += 1
        self._link(hash, <uint32_t>self.size)
        return 0

    cdef int _put_records(self, const uint8_t *data, Py_ssize_t size, int32_t count, int64_t base_offset,
                          int64_t first_offset) noexcept nogil:
        """_GO_ON, _FULL, _NO_MEMORY or _MALFORMED."""
        cdef Candidate block[_BLOCK]
        cdef Py_ssize_t position = 0
        cdef int32_t index, done = 0, taken
        cdef int result
        while done < count:
            taken = min(count - done, <int32_t>_BLOCK)
            if self._read_block(data, size, &position, taken, base_offset, block):
                return _MALFORMED
            for index in range(taken):
                if block[index].has_key and block[index].offset >= first_offset:
                    result = self._put(block[index].hash, block[index].offset)
                    if result:
                        return result
            done += taken
        return _GO_ON

    cdef int _read_block(self, const uint8_t *data, Py_ssize_t size, Py_ssize_t *position, int32_t count,
                         int64_t base_offset, Candidate *block) noexcept nogil:
        """Read some records and hash their keys, and have the processor fetch what looking them up will need."""
        cdef Record record
        cdef int32_t index
        cdef Slot *slot
        for index in range(count):
            if parse_record(data, size, position[0], &record):
                return _MALFORMED
            position[0] = record.end
            block[index].offset = base_offset + record.offset_delta
            block[index].timestamp_delta = record.timestamp_delta
            block[index].has_key = record.key_size >= 0
            block[index].has_value = record.value_size >= 0
            if record.key_size >= 0:
                block[index].hash = sip_hash(self._secret, data + record.key, record.key_size)
                PREFETCH(&self._slots[self._home(block[index].hash)])
        for index in range(count):
            if block[index].has_key:
                slot = &self._slots[self._home(block[index].hash)]
                if slot.number != 0:
                    PREFETCH(&self._entries[slot.number - 1])
        return _GO_ON

    def add_records(self, object payload, int32_t count, int64_t base_offset, int64_t first_offset):
        """Note the keys of one batch's records, decompressed. False if there was no room for all of them."""
        cdef Py_buffer view
        cdef int result
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            with nogil:
                result = self._put_records(<const uint8_t *>view.buf, view.len, count, base_offset, first_offset)
        finally:
            PyBuffer_Release(&view)
        raise_for(result, f"at offset {base_offset}")
        return result == _GO_ON

    def add_batches(self, object buffer, Py_ssize_t position, Py_ssize_t end, int64_t first_offset):
        """Note the keys of the plain batches from `position` on, and move `latest_offset` behind them.

        Returns (position, MORE | SPECIAL | FULL): how far it came, and why not farther. Raises CorruptBatch.
        """
        cdef Py_buffer view
        cdef int result
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            end = min(end, view.len)
            with nogil:
                result = self._put_batches(<const uint8_t *>view.buf, &position, end, first_offset)
        finally:
            PyBuffer_Release(&view)
        raise_for(result, f"at {position}")
        return position, result

    cdef int _put_batches(self, const uint8_t *data, Py_ssize_t *position, Py_ssize_t end,
                          int64_t first_offset) noexcept nogil:
        cdef const uint8_t *p
        cdef int64_t size = 0, last_offset
        cdef int result
        while True:
            p = data + position[0]
            result = next_batch(p, end - position[0], &size)
            if result == _GO_ON:
                result = self._put_records(p + _HEADER, size - _HEADER, <int32_t>load32(p + 57), <int64_t>load64(p),
                                           first_offset)
            if result != _GO_ON:
                return result
            last_offset = <int64_t>load64(p) + <int32_t>load32(p + 23)
            if last_offset >= first_offset:
                self.latest_offset = last_offset
            position[0] += <Py_ssize_t>size


cdef int next_batch(const uint8_t *p, Py_ssize_t left, int64_t *size) noexcept nogil:
    """_GO_ON if the batch at `p` is whole, good and plain; else _MORE, _SPECIAL or _CORRUPT."""
    if left < _HEADER:
        return _MORE
    size[0] = <int64_t><int32_t>load32(p + 8) + 12
    if size[0] < _HEADER or <int8_t>p[16] != 2:
        return _CORRUPT
    if size[0] > left:
        return _MORE
    if crc32c_any(p + _ATTRIBUTES_AT, <size_t>size[0] - _ATTRIBUTES_AT, _has_instruction) != load32(p + _CRC_AT):
        return _CORRUPT
    return _SPECIAL if load16(p + _ATTRIBUTES_AT) & _SPECIAL_ATTRIBUTES else _GO_ON


def first_damaged(object buffer, Py_ssize_t position, Py_ssize_t end):
    """Check the batches from `position` on. Returns (position, whether the batch there is damaged): if it is not, the
    buffer ends before that batch does."""
    cdef Py_buffer view
    cdef int64_t size = 0
    cdef int result
    PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
    try:
        end = min(end, view.len)
        with nogil:
            while True:
                result = next_batch(<const uint8_t *>view.buf + position, end - position, &size)
                if result != _GO_ON and result != _SPECIAL:
                    break
                position += <Py_ssize_t>size
    finally:
        PyBuffer_Release(&view)
    return position, result == _CORRUPT


cdef int raise_for(int result, str where) except -1:
    if result == _NO_MEMORY:
        raise MemoryError
    if result == _MALFORMED:
        raise CorruptBatch(f"the records of the batch {where} are malformed")
    if result == _CORRUPT:
        raise CorruptBatch(f"the record batch {where} fails its checksum")
    return 0


# ---- what stays ----

cdef struct Verdict:
    int32_t kept               # how many records stay
    bint has_tombstones        # and whether there are deletions among them that the map covers
    int64_t max_timestamp      # of those that stay; -1 if none has one


cdef struct Bytes:
    uint8_t *data
    Py_ssize_t size
    Py_ssize_t room


cdef uint8_t *reserve(Bytes *bytes, Py_ssize_t size) noexcept nogil:
    """Room for `size` more bytes at the end, not counted yet; NULL if there is none."""
    cdef uint8_t *data
    cdef Py_ssize_t room
    if bytes.size + size > bytes.room:
        room = max(2 * bytes.room, bytes.size + size)
        data = <uint8_t *>realloc(bytes.data, <size_t>room)
        if data == NULL:
            return NULL
        bytes.data = data
        bytes.room = room
    return bytes.data + bytes.size


cdef bytes contents(Bytes *content):
    return PyBytes_FromStringAndSize(<const char *>content.data, content.size)


cdef class Sieve:
    """Lets through what compaction keeps, as the content of a new segment with its indexes (Kafka's Cleaner).

    A record stays if no later record of the map has its key. A deletion (a record without a value) stays until its
    batch's delete horizon, which is set when it is met for the first time: bit 6 of the attributes, and the time itself
    in place of the base timestamp (KIP-534). A batch that is emptied goes, unless it is one of `empty_kept`: the last
    offsets of batches that remember a producer's sequence number or where the log ended.

    Offsets, producer fields and leader epochs stay as they are. So do the bytes of a batch of which everything stays.
    """

    cdef OffsetMap _map
    cdef int64_t _now_ms
    cdef int64_t _horizon_ms
    cdef bytes _empty_kept_bytes
    cdef const int64_t *_empty_kept
    cdef Py_ssize_t _empty_kept_count
    cdef uint8_t *_keeps           # one flag per record of the batch at hand
    cdef Py_ssize_t _keeps_room
    cdef Bytes _out
    # The segment that results.
    cdef int64_t _base_offset
    cdef Py_ssize_t _index_interval_bytes
    cdef Py_ssize_t _index_entries_max
    cdef Py_ssize_t _index_entries
    cdef Py_ssize_t _last_entry_at
    cdef int64_t _last_time_entry
    cdef Bytes _offsets
    cdef Bytes _times
    cdef readonly Py_ssize_t size
    cdef readonly int64_t max_timestamp
    cdef readonly int64_t offset_of_max_timestamp
    cdef readonly int64_t records_read
    cdef readonly int64_t records_kept

    def __cinit__(self, OffsetMap map not None, *, int64_t base_offset, int64_t now_ms, int64_t delete_retention_ms,
                  bytes empty_kept not None, Py_ssize_t index_interval_bytes, Py_ssize_t index_bytes_max):
        """`empty_kept` are offsets in the machine's order of bytes, 8 each, ascending."""
        self._map = map
        self._now_ms = now_ms
        self._horizon_ms = now_ms + delete_retention_ms
        self._empty_kept_bytes = empty_kept
        self._empty_kept = <const int64_t *><const char *>self._empty_kept_bytes
        self._empty_kept_count = len(empty_kept) // 8
        self._base_offset = base_offset
        self._index_interval_bytes = index_interval_bytes
        self._index_entries_max = index_bytes_max // 12
        self._last_time_entry = -1
        self.max_timestamp = -1
        self.offset_of_max_timestamp = base_offset

    def __dealloc__(self):
        free(self._keeps)
        free(self._out.data)
        free(self._offsets.data)
        free(self._times.data)

    # ---- the result ----

    def take(self):
        """The bytes that came through since the last call."""
        cdef bytes taken = contents(&self._out)
        self._out.size = 0
        return taken

    def finish(self):
        """The offset index and the time index of the whole segment; the latter ends with the newest record."""
        if self._add_time_entry():
            raise MemoryError
        return contents(&self._offsets), contents(&self._times)

    # ---- one buffer of batches ----

    def sift(self, object buffer, Py_ssize_t position, Py_ssize_t end):
        """Let the plain batches from `position` on pass. Returns (position, MORE | SPECIAL). Raises CorruptBatch."""
        cdef Py_buffer view
        cdef int result
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            end = min(end, view.len)
            with nogil:
                result = self._sift(<const uint8_t *>view.buf, &position, end)
        finally:
            PyBuffer_Release(&view)
        raise_for(result, f"at {position}")
        return position, result

    cdef int _sift(self, const uint8_t *data, Py_ssize_t *position, Py_ssize_t end) noexcept nogil:
        cdef int64_t size = 0
        cdef int result
        while True:
            result = next_batch(data + position[0], end - position[0], &size)
            if result == _GO_ON:
                result = self._sift_batch(data + position[0], <Py_ssize_t>size)
            if result != _GO_ON:
                return result
            position[0] += <Py_ssize_t>size

    cdef int _sift_batch(self, const uint8_t *p, Py_ssize_t size) noexcept nogil:
        cdef Verdict verdict
        cdef int32_t count = <int32_t>load32(p + 57)
        cdef uint16_t attributes = load16(p + _ATTRIBUTES_AT)
        cdef bint has_horizon = attributes & _DELETE_HORIZON != 0
        cdef int64_t last_offset = <int64_t>load64(p) + <int32_t>load32(p + 23)
        cdef int result = self._judge(p + _HEADER, size - _HEADER, p, &verdict)
        cdef uint8_t *out
        cdef bint sets_horizon
        if result:
            return result
        if verdict.kept == 0:
            return self._pass_empty(p, last_offset) if self._is_kept_empty(last_offset) else _GO_ON
        sets_horizon = verdict.has_tombstones and not has_horizon
        if verdict.kept == count and not sets_horizon:
            return self._pass_whole(p, size, last_offset)
        out = reserve(&self._out, size + <Py_ssize_t>count * _GROWTH_BYTES_MAX)
        if out == NULL:
            return _NO_MEMORY
        memcpy(out, p, _HEADER)
        size = _HEADER + self._copy_kept(out + _HEADER, p + _HEADER, size - _HEADER, count, <int64_t>load64(p + 27),
                                         sets_horizon)
        if sets_horizon:
            store16(out + _ATTRIBUTES_AT, attributes | _DELETE_HORIZON)
            store64(out + 27, <uint64_t>self._horizon_ms)
        if not attributes & _LOG_APPEND_TIME:
            store64(out + 35, <uint64_t>verdict.max_timestamp)
        store32(out + 57, <uint32_t>verdict.kept)
        seal(out, size)
        return self._passed(out, size, last_offset)

    cdef int _judge(self, const uint8_t *data, Py_ssize_t size, const uint8_t *header,
                    Verdict *verdict) noexcept nogil:
        """Decide about each record of a batch. `header` is the batch's."""
        cdef Candidate block[_BLOCK]
        cdef Py_ssize_t position = 0
        cdef int32_t index, taken, done = 0, count = <int32_t>load32(header + 57)
        cdef int64_t base_offset = <int64_t>load64(header), base_timestamp = <int64_t>load64(header + 27)
        cdef bint are_deletions_over = (load16(header + _ATTRIBUTES_AT) & _DELETE_HORIZON != 0
                                        and base_timestamp <= self._now_ms)
        cdef uint8_t *keeps
        cdef bint keep
        if count < 0 or count > size:
            return _MALFORMED
        if count > self._keeps_room:
            keeps = <uint8_t *>realloc(self._keeps, <size_t>count)
            if keeps == NULL:
                return _NO_MEMORY
            self._keeps = keeps
            self._keeps_room = count
        verdict.kept = 0
        verdict.has_tombstones = False
        verdict.max_timestamp = -1
        while done < count:
            taken = min(count - done, <int32_t>_BLOCK)
            if self._map._read_block(data, size, &position, taken, base_offset, block):
                return _MALFORMED
            for index in range(taken):
                keep = self._is_kept(&block[index], are_deletions_over)
                self._keeps[done + index] = keep
                if keep:
                    verdict.kept += 1
                    verdict.max_timestamp = max(verdict.max_timestamp, base_timestamp + block[index].timestamp_delta)
                    if not block[index].has_value and block[index].offset <= self._map.latest_offset:
                        verdict.has_tombstones = True
            done += taken
        self.records_read += count
        self.records_kept += verdict.kept
        return _GO_ON

    cdef inline bint _is_kept(self, const Candidate *record, bint are_deletions_over) noexcept nogil:
        if record.offset > self._map.latest_offset:
            return True  # the map does not know what comes behind it
        if not record.has_key:
            return False  # nothing could ever overtake it
        if self._map._get(record.hash) > record.offset:
            return False
        return record.has_value or not are_deletions_over

    cdef Py_ssize_t _copy_kept(self, uint8_t *out, const uint8_t *data, Py_ssize_t size, int32_t count,
                               int64_t base_timestamp, bint sets_horizon) noexcept nogil:
        """Copy the records that stay; returns their size. A new base timestamp changes all timestamp deltas."""
        cdef Record record
        cdef Py_ssize_t position = 0
        cdef uint8_t *p = out
        cdef int64_t delta
        cdef int32_t index
        for index in range(count):
            parse_record(data, size, position, &record)
            if self._keeps[index]:
                if sets_horizon:
                    delta = base_timestamp + record.timestamp_delta - self._horizon_ms
                    p = put_varint(p, 1 + varint_size(delta) + record.end - record.rest)
                    p[0] = 0  # attributes: unused
                    p = put_varint(p + 1, delta)
                    memcpy(p, data + record.rest, record.end - record.rest)
                    p += record.end - record.rest
                else:
                    memcpy(p, data + position, record.end - position)
                    p += record.end - position
            position = record.end
        return p - out

    # ---- single batches, for the caller who looked at them ----

    def sift_records(self, object header, object payload, *, bint sets_horizon=False, bint keeps_all=False):
        """Decide about the records of one batch, decompressed.

        Returns None if all stay and the batch can pass as it is; else (records that stay, base timestamp, largest
        timestamp, whether the delete horizon is set, their bytes). `keeps_all` is for control records, `sets_horizon`
        for those whose transaction has left nothing else behind.
        """
        cdef Py_buffer head, view
        cdef Verdict verdict
        cdef const uint8_t *p
        cdef int result
        cdef int32_t count
        cdef bint has_horizon
        cdef int64_t base_timestamp
        cdef bytearray out
        PyObject_GetBuffer(header, &head, PyBUF_SIMPLE)
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            if head.len < _HEADER:
                raise CorruptBatch("a batch ends within its header")
            p = <const uint8_t *>head.buf
            count = <int32_t>load32(p + 57)
            base_timestamp = <int64_t>load64(p + 27)
            has_horizon = load16(p + _ATTRIBUTES_AT) & _DELETE_HORIZON != 0
            with nogil:
                result = self._judge(<const uint8_t *>view.buf, view.len, p, &verdict)
            raise_for(result, f"at offset {<int64_t>load64(p)}")
            if keeps_all:
                memset(self._keeps, 1, count)
                self.records_kept += count - verdict.kept
                verdict.kept = count
            else:
                sets_horizon = verdict.has_tombstones
            sets_horizon = sets_horizon and not has_horizon and verdict.kept > 0
            if verdict.kept == count and not sets_horizon:
                return None if count else (0, base_timestamp, -1, False, b"")
            out = bytearray(view.len + <Py_ssize_t>count * _GROWTH_BYTES_MAX)
            del out[self._copy_kept(<uint8_t *><char *>out, <const uint8_t *>view.buf, view.len, count, base_timestamp,
                                    sets_horizon):]
        finally:
            PyBuffer_Release(&view)
            PyBuffer_Release(&head)
        return (verdict.kept, self._horizon_ms if sets_horizon else base_timestamp, verdict.max_timestamp,
                sets_horizon, out)

    def is_kept_empty(self, int64_t last_offset):
        """Whether the batch that ends with this offset stays even without records."""
        return self._is_kept_empty(last_offset)

    def pass_batch(self, object batch):
        """Let a whole batch pass as it is."""
        cdef Py_buffer view
        cdef const uint8_t *p
        cdef int result
        PyObject_GetBuffer(batch, &view, PyBUF_SIMPLE)
        try:
            if view.len < _HEADER:
                raise CorruptBatch("a batch ends within its header")
            p = <const uint8_t *>view.buf
            result = self._pass_whole(p, view.len, <int64_t>load64(p) + <int32_t>load32(p + 23))
        finally:
            PyBuffer_Release(&view)
        raise_for(result, "")

    def pass_empty(self, object header):
        """Let only the header of a batch pass: a batch without records."""
        cdef Py_buffer view
        cdef const uint8_t *p
        cdef int result
        PyObject_GetBuffer(header, &view, PyBUF_SIMPLE)
        try:
            if view.len < _HEADER:
                raise CorruptBatch("a batch ends within its header")
            p = <const uint8_t *>view.buf
            result = self._pass_empty(p, <int64_t>load64(p) + <int32_t>load32(p + 23))
        finally:
            PyBuffer_Release(&view)
        raise_for(result, "")

    def count_dropped(self, int32_t count):
        """Note that a batch of so many records was dropped without looking at them."""
        self.records_read += count

    # ---- the output ----

    cdef bint _is_kept_empty(self, int64_t last_offset) noexcept nogil:
        cdef Py_ssize_t low = 0, high = self._empty_kept_count, middle
        while low < high:
            middle = (low + high) // 2
            if self._empty_kept[middle] < last_offset:
                low = middle + 1
            else:
                high = middle
        return low < self._empty_kept_count and self._empty_kept[low] == last_offset

    cdef int _pass_whole(self, const uint8_t *p, Py_ssize_t size, int64_t last_offset) noexcept nogil:
        cdef uint8_t *out = reserve(&self._out, size)
        if out == NULL:
            return _NO_MEMORY
        memcpy(out, p, size)
        return self._passed(out, size, last_offset)

    cdef int _pass_empty(self, const uint8_t *p, int64_t last_offset) noexcept nogil:
        cdef uint8_t *out = reserve(&self._out, _HEADER)
        if out == NULL:
            return _NO_MEMORY
        memcpy(out, p, _HEADER)
        store32(out + 8, _HEADER - 12)
        store16(out + _ATTRIBUTES_AT, load16(p + _ATTRIBUTES_AT) & (_LOG_APPEND_TIME | _TRANSACTIONAL | _CONTROL))
        store64(out + 27, <uint64_t><int64_t>-1)
        store32(out + 57, 0)
        seal(out, _HEADER)
        return self._passed(out, _HEADER, last_offset)

    cdef int _passed(self, const uint8_t *p, Py_ssize_t size, int64_t last_offset) noexcept nogil:
        """A batch stands at the end of the output: index it."""
        cdef int64_t max_timestamp = <int64_t>load64(p + 35)
        cdef Py_ssize_t position = self.size
        self.size += size
        self._out.size += size
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.offset_of_max_timestamp = last_offset
        if position - self._last_entry_at > self._index_interval_bytes and self._index_entries < self._index_entries_max:
            return self._add_index_entry(last_offset, position)
        return _GO_ON

    cdef int _add_index_entry(self, int64_t last_offset, Py_ssize_t position) noexcept nogil:
        cdef uint8_t *p = reserve(&self._offsets, 8)
        if p == NULL:
            return _NO_MEMORY
        store32(p, <uint32_t>(last_offset - self._base_offset))
        store32(p + 4, <uint32_t>position)
        self._offsets.size += 8
        self._last_entry_at = position
        self._index_entries += 1
        return self._add_time_entry()

    cdef int _add_time_entry(self) noexcept nogil:
        cdef uint8_t *p
        if self.max_timestamp <= self._last_time_entry:
            return _GO_ON
        p = reserve(&self._times, 12)
        if p == NULL:
            return _NO_MEMORY
        store64(p, <uint64_t>self.max_timestamp)
        store32(p + 8, <uint32_t>(self.offset_of_max_timestamp - self._base_offset))
        self._times.size += 12
        self._last_time_entry = self.max_timestamp
        return _GO_ON


cdef void seal(uint8_t *p, Py_ssize_t size) noexcept nogil:
    """Write the length and the checksum of a batch."""
    store32(p + 8, <uint32_t>(size - 12))
    store32(p + _CRC_AT, crc32c_any(p + _ATTRIBUTES_AT, size - _ATTRIBUTES_AT, _has_instruction))
