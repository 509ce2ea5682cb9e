# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""Record batches into Arrow columns and back, with no Python object per record.

`Columns` takes the records of one batch after the other and lays them out as Arrow wants them: a block of offsets and a
block of bytes for keys and for values, plain arrays of numbers, and a list of structs for headers. The blocks are handed
over as they are (`pyarrow.py_buffer` looks at them through the buffer protocol): nothing is copied twice. Arrow itself
is not needed here.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_FillInfo, PyBuffer_Release, PyObject_GetBuffer
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from penstock.wire._codec cimport load32, load64
from penstock.wire._kernel cimport FINE, Record, field_bytes, parse_record, put_varint, varint_size

from penstock.wire.errors import CorruptBatch, InvalidRecords

cdef enum:
    _HEADER = 61
    _ARROW_BYTES_MAX = 0x7FFFFFFF  # Arrow's offsets into binary columns have 32 bits


cdef inline void set_bit(uint8_t *bitmap, Py_ssize_t index) noexcept nogil:
    bitmap[index >> 3] = bitmap[index >> 3] | <uint8_t>(1 << (index & 7))


cdef bint grow(uint8_t **data, Py_ssize_t *capacity, Py_ssize_t needed) noexcept nogil:
    """Make memory large enough, and twice as large as it was; whether there is so much.

    Where there is none yet, the capacity says how much it should be at least.
    """
    cdef Py_ssize_t wanted = max(needed, capacity[0] if data[0] == NULL else capacity[0] * 2, 64)
    cdef uint8_t *found = <uint8_t *>realloc(data[0], wanted)
    if found == NULL:
        return False
    data[0] = found
    capacity[0] = wanted
    return True


cdef class Block:
    """Memory that grows at its end. Who looks at it through the buffer protocol keeps it alive."""

    cdef uint8_t *data
    cdef Py_ssize_t size
    cdef Py_ssize_t _capacity
    cdef Py_ssize_t _views

    def __dealloc__(self):
        free(self.data)

    def __len__(self):
        return self.size

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.data, self.size, True, flags)
        self._views += 1

    def __releasebuffer__(self, Py_buffer *view):
        self._views -= 1

    cdef int reserve(self, Py_ssize_t more) except -1:
        """Have room for so many more bytes."""
        cdef Py_ssize_t needed = self.size + more
        if needed <= self._capacity and self.data != NULL:
            return 0
        if self._views:
            raise BufferError("memory that somebody looks at cannot grow")
        if not grow(&self.data, &self._capacity, needed):
            raise MemoryError
        return 0


cdef Block _block_like(Block before):
    """An empty one, with the room that the one before came to need: growing is copying."""
    cdef Block made = Block()
    if before is not None:
        made.reserve(before._capacity)
    return made


cdef inline void copy(uint8_t *to, const uint8_t *data, Py_ssize_t size) noexcept nogil:
    """memcpy, without the call for what many keys are: 8 to 16 bytes."""
    cdef uint64_t first, last
    if 8 <= size <= 16:
        memcpy(&first, data, 8)
        memcpy(&last, data + size - 8, 8)
        memcpy(to, &first, 8)
        memcpy(to + size - 8, &last, 8)
    else:
        memcpy(to, data, size)


cdef struct Cells:
    # Where cells of a column of byte strings are being written.
    int32_t *end           # of the next cell, in `content`
    uint8_t *content
    Py_ssize_t size
    uint8_t *validity
    int64_t nulls


cdef inline void put_bytes(Cells *cells, Py_ssize_t row, const uint8_t *data, Py_ssize_t size) noexcept nogil:
    """There must be room. Size -1 is null."""
    if size < 0:
        cells.nulls += 1
    else:
        set_bit(cells.validity, row)
        copy(cells.content + cells.size, data, size)
        cells.size += size
    cells.end[0] = <int32_t>cells.size
    cells.end += 1


cdef class _Bytes:
    """A column of byte strings that may be null."""

    cdef Block ends      # int32: where each ends in `content`; a leading 0
    cdef Block content
    cdef Block validity  # a bit per row
    cdef int64_t nulls

    cdef int begin(self, _Bytes before) except -1:
        """`before` is what the last ones were written to, if any were."""
        self.ends = _block_like(before.ends if before is not None else None)
        self.content = _block_like(before.content if before is not None else None)
        self.validity = Block()
        self.ends.reserve(4)
        (<int32_t *>self.ends.data)[0] = 0
        self.ends.size = 4
        return 0

    cdef int reserve(self, Py_ssize_t rows, Py_ssize_t row_count, Py_ssize_t content_bytes) except -1:
        cdef Py_ssize_t bitmap_bytes = (row_count + rows + 7) // 8
        self.ends.reserve(4 * rows)
        self.content.reserve(content_bytes)
        if bitmap_bytes > self.validity.size:
            self.validity.reserve(bitmap_bytes - self.validity.size)
            memset(self.validity.data + self.validity.size, 0, bitmap_bytes - self.validity.size)
            self.validity.size = bitmap_bytes
        return 0

    cdef Cells open(self) noexcept nogil:
        """Write behind what is there; `close` when done."""
        cdef Cells cells
        cells.end = <int32_t *>(self.ends.data + self.ends.size)
        cells.content = self.content.data
        cells.size = self.content.size
        cells.validity = self.validity.data
        cells.nulls = self.nulls
        return cells

    cdef void close(self, const Cells *cells) noexcept nogil:
        self.ends.size = <uint8_t *>cells.end - self.ends.data
        self.content.size = cells.size
        self.nulls = cells.nulls

    cdef tuple buffers(self):
        return self.nulls, (self.validity if self.nulls else None), self.ends, self.content


cdef _Bytes _bytes_like(_Bytes before):
    cdef _Bytes made = _Bytes()
    made.begin(before)
    return made


cdef class Columns:
    """Collects records as Arrow columns: `add` batches, `take` what has come together, and begin again."""

    cdef readonly Py_ssize_t count
    cdef bint _with_headers
    cdef _Bytes _keys, _values, _header_names, _header_values
    cdef Block _offsets, _timestamps, _types, _header_ends, _header_validity
    cdef int64_t _header_nulls
    cdef Py_ssize_t _header_count

    def __init__(self, bint with_headers=False):
        self._with_headers = with_headers
        self._begin()

    cdef int _begin(self) except -1:
        self.count = 0
        self._keys = _bytes_like(self._keys)
        self._values = _bytes_like(self._values)
        self._offsets = _block_like(self._offsets)
        self._timestamps = _block_like(self._timestamps)
        self._types = _block_like(self._types)
        if self._with_headers:
            self._header_names = _bytes_like(self._header_names)
            self._header_values = _bytes_like(self._header_values)
            self._header_ends = _block_like(self._header_ends)
            self._header_ends.reserve(4)
            (<int32_t *>self._header_ends.data)[0] = 0
            self._header_ends.size = 4
            self._header_validity = Block()
            self._header_nulls = 0
            self._header_count = 0
        return 0

    @property
    def size(self):
        """The bytes of keys and values so far."""
        return self._keys.content.size + self._values.content.size

    def add(self, object payload, int32_t count, int64_t base_offset, int64_t base_timestamp, int64_t append_time,
            int64_t start_offset, int64_t end_offset):
        """Add the records of a decompressed batch whose offsets are from `start_offset` on and below `end_offset`.

        `append_time` is the broker's time if it dated the batch, else -1.
        """
        cdef Py_buffer view
        cdef int fault
        cdef Py_ssize_t bytes_max
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            bytes_max = view.len
            if count < 0 or count > bytes_max:
                raise InvalidRecords(f"{count} records cannot be in {bytes_max} bytes")
            if self.size + bytes_max > _ARROW_BYTES_MAX:
                raise OverflowError("too many bytes for one Arrow batch; take what is there first")
            self._reserve(count, bytes_max)
            with nogil:
                fault = self._walk(<const uint8_t *>view.buf, bytes_max, count, base_offset, base_timestamp,
                                   append_time, start_offset, end_offset)
        finally:
            PyBuffer_Release(&view)
        if fault:
            raise InvalidRecords(f"the batch at offset {base_offset} holds malformed records")

    cdef int _reserve(self, Py_ssize_t rows, Py_ssize_t bytes_max) except -1:
        cdef Py_ssize_t headers_max, bitmap_bytes
        self._keys.reserve(rows, self.count, bytes_max)
        self._values.reserve(rows, self.count, bytes_max)
        self._offsets.reserve(8 * rows)
        self._timestamps.reserve(8 * rows)
        self._types.reserve(4 * rows)
        if self._with_headers:
            headers_max = bytes_max // 2  # each has two lengths, of a byte at least
            self._header_names.reserve(headers_max, self._header_count, bytes_max)
            self._header_values.reserve(headers_max, self._header_count, bytes_max)
            self._header_ends.reserve(4 * rows)
            bitmap_bytes = (self.count + rows + 7) // 8
            if bitmap_bytes > self._header_validity.size:
                self._header_validity.reserve(bitmap_bytes - self._header_validity.size)
                memset(self._header_validity.data + self._header_validity.size, 0,
                       bitmap_bytes - self._header_validity.size)
                self._header_validity.size = bitmap_bytes
        return 0

    cdef int _walk(self, const uint8_t *data, Py_ssize_t end, int32_t count, int64_t base_offset,
                   int64_t base_timestamp, int64_t append_time, int64_t start_offset,
                   int64_t end_offset) noexcept nogil:
        cdef Record record
        cdef Cells keys = self._keys.open(), values = self._values.open()
        cdef int64_t *offsets = <int64_t *>(self._offsets.data + self._offsets.size)
        cdef int64_t *timestamps = <int64_t *>(self._timestamps.data + self._timestamps.size)
        cdef int32_t *types = <int32_t *>(self._types.data + self._types.size)
        cdef Py_ssize_t position = 0, row = 0, first = self.count
        cdef int64_t offset
        cdef int32_t index, kind = 1 if append_time >= 0 else 0
        cdef int fault = FINE
        for index in range(count):
            fault = parse_record(data, end, position, &record)
            if fault:
                break
            position = record.end
            offset = base_offset + record.offset_delta
            if offset < start_offset or offset >= end_offset:
                continue
            put_bytes(&keys, first + row, data + record.key, record.key_size)
            put_bytes(&values, first + row, data + record.value, record.value_size)
            offsets[row] = offset
            timestamps[row] = (append_time if append_time >= 0 else base_timestamp + record.timestamp_delta) * 1000
            types[row] = kind
            if self._with_headers:
                self._add_headers(data, &record, first + row)
            row += 1
        self._keys.close(&keys)
        self._values.close(&values)
        self._offsets.size += 8 * row
        self._timestamps.size += 8 * row
        self._types.size += 4 * row
        self.count += row
        return fault

    cdef void _add_headers(self, const uint8_t *data, Record *record, Py_ssize_t row) noexcept nogil:
        """`parse_record` has looked at all of them already."""
        cdef Cells names = self._header_names.open(), values = self._header_values.open()
        cdef Py_ssize_t position = record.headers
        cdef Py_ssize_t start = 0, size = 0
        cdef int64_t i
        if record.header_count == 0:
            self._header_nulls += 1
        else:
            set_bit(self._header_validity.data, row)
        for i in range(record.header_count):
            field_bytes(data, record.end, &position, False, &start, &size)
            put_bytes(&names, self._header_count, data + start, size)
            field_bytes(data, record.end, &position, True, &start, &size)
            put_bytes(&values, self._header_count, data + start, size)
            self._header_count += 1
        self._header_names.close(&names)
        self._header_values.close(&values)
        (<int32_t *>(self._header_ends.data + self._header_ends.size))[0] = <int32_t>self._header_count
        self._header_ends.size += 4

    def take(self):
        """(rows, keys, values, offsets, timestamps in us, timestamp types, headers), and begin anew.

        Keys and values are (nulls, validity, ends, content); headers None, or (nulls, validity, ends, count, names,
        values).
        """
        headers = None
        if self._with_headers:
            headers = (
                self._header_nulls, self._header_validity if self._header_nulls else None, self._header_ends,
                self._header_count, self._header_names.buffers(), self._header_values.buffers(),
            )
        taken = (self.count, self._keys.buffers(), self._values.buffers(), self._offsets, self._timestamps,
                 self._types, headers)
        self._begin()
        return taken


def next_offset(object records):
    """The offset behind the last whole batch of fetched records; -1 if there is no whole batch."""
    cdef Py_buffer view
    cdef const uint8_t *p
    cdef Py_ssize_t position = 0
    cdef int64_t length, found = -1
    PyObject_GetBuffer(records, &view, PyBUF_SIMPLE)
    try:
        while position + _HEADER <= view.len:
            p = <const uint8_t *>view.buf + position
            length = <int64_t><int32_t>load32(p + 8) + 12
            if length < _HEADER:
                raise CorruptBatch(f"record batch at {position} claims {length} bytes")
            if position + length > view.len:
                break
            found = <int64_t>load64(p) + <int32_t>load32(p + 23) + 1
            position += length
    finally:
        PyBuffer_Release(&view)
    return found


# ---- from columns to records ----

cdef struct BytesColumn:
    const int32_t *ends       # NULL: the column is missing, all of it null
    const uint8_t *content
    const uint8_t *validity   # NULL: no nulls
    Py_ssize_t offset         # where the rows begin in the blocks


cdef inline bint is_null(const BytesColumn *column, Py_ssize_t row) noexcept nogil:
    cdef Py_ssize_t at = column.offset + row
    return column.ends == NULL or (column.validity != NULL and not column.validity[at >> 3] & (1 << (at & 7)))


cdef inline Py_ssize_t cell_size(const BytesColumn *column, Py_ssize_t row) noexcept nogil:
    """The bytes of a cell; -1 for null."""
    if is_null(column, row):
        return -1
    return column.ends[column.offset + row + 1] - column.ends[column.offset + row]


cdef inline Py_ssize_t blob_size(Py_ssize_t size) noexcept nogil:
    return varint_size(size) + (size if size > 0 else 0)


cdef inline uint8_t *put_cell(uint8_t *p, const BytesColumn *column, Py_ssize_t row) noexcept nogil:
    cdef Py_ssize_t size = cell_size(column, row)
    p = put_varint(p, size)
    if size > 0:
        memcpy(p, column.content + column.ends[column.offset + row], size)
        p += size
    return p


cdef inline const uint8_t *_address(object buffer) except? NULL:
    """Where a pyarrow buffer lies; the caller keeps it alive."""
    if buffer is None:
        return NULL
    return <const uint8_t *><size_t>buffer.address


cdef int _load(object array, BytesColumn *column) except -1:
    """A column of an Arrow array of binary or string; None: a column of nulls."""
    column.ends = NULL
    column.content = NULL
    column.validity = NULL
    column.offset = 0
    if array is None:
        return 0
    buffers = array.buffers()
    column.validity = _address(buffers[0])
    column.ends = <const int32_t *>_address(buffers[1])
    column.content = _address(buffers[2])
    column.offset = array.offset
    return 0


cdef struct Draft:
    # The records of a batch that is being put together.
    uint8_t *data
    Py_ssize_t size
    Py_ssize_t capacity
    int32_t count
    int64_t first_timestamp
    int64_t max_timestamp


cdef class Payload:
    """The records of one batch, as they lie in it uncompressed."""

    cdef readonly Block content
    cdef readonly int32_t count
    cdef readonly int64_t first_timestamp
    cdef readonly int64_t max_timestamp


cdef struct Rows:
    # Columns of rows that become records, as Arrow lays them out. What is missing is NULL.
    BytesColumn key
    BytesColumn value
    const int32_t *partition
    const int64_t *timestamp
    const int32_t *header_ends
    const uint8_t *header_validity
    Py_ssize_t header_offset
    BytesColumn header_name
    BytesColumn header_value


cdef enum Outcome:
    ADDED = 0
    IS_FULL = 1
    NO_PARTITION = 2
    NO_MEMORY = 3


cdef class Encoder:
    """Puts rows of Arrow columns into record batches, one under way for each partition."""

    cdef Draft *_drafts
    cdef readonly Py_ssize_t partition_count
    cdef Py_ssize_t _bytes_max

    def __cinit__(self, Py_ssize_t partition_count, Py_ssize_t bytes_max):
        """A batch is full at `bytes_max`; a larger record has one for itself."""
        self._drafts = <Draft *>calloc(partition_count if partition_count else 1, sizeof(Draft))
        if self._drafts == NULL:
            raise MemoryError
        self.partition_count = partition_count
        self._bytes_max = bytes_max

    def __dealloc__(self):
        cdef Py_ssize_t number
        if self._drafts != NULL:
            for number in range(self.partition_count):
                free(self._drafts[number].data)
            free(self._drafts)

    def add(self, object keys, object values, object headers, object partitions, Py_ssize_t start, object timestamps=None):
        """Add rows from `start` on. Returns the row to go on with, whose partition's batch is full; or the count.

        Keys, values and partitions are Arrow arrays (keys may be None), headers None or (ends, names, values, offset,
        validity) of a list of structs. Timestamps are an Arrow array of int64, in ms and without nulls; without it,
        all records have their batch's. Other threads go on meanwhile.
        """
        cdef Rows rows
        cdef Py_ssize_t row = start, count = len(values)
        cdef Outcome outcome = ADDED
        memset(&rows, 0, sizeof(Rows))
        _load(keys, &rows.key)
        _load(values, &rows.value)
        if timestamps is not None:
            rows.timestamp = <const int64_t *>_address(timestamps.buffers()[1]) + <Py_ssize_t>timestamps.offset
        rows.partition = <const int32_t *>_address(partitions.buffers()[1]) + <Py_ssize_t>partitions.offset
        if headers is not None:
            ends, names, contents, rows.header_offset, validity = headers
            rows.header_ends = <const int32_t *>_address(ends)
            rows.header_validity = _address(validity)
            _load(names, &rows.header_name)
            _load(contents, &rows.header_value)
        with nogil:
            while row < count:
                outcome = self._add(&rows, row)
                if outcome != ADDED:
                    break
                row += 1
        if outcome == NO_PARTITION:
            raise ValueError(f"there is no partition {rows.partition[row]}: the topic has {self.partition_count}")
        if outcome == NO_MEMORY:
            raise MemoryError
        return row

    cdef Outcome _add(self, const Rows *rows, Py_ssize_t row) noexcept nogil:
        """Add one row, unless its batch is full."""
        cdef Py_ssize_t number = rows.partition[row], first = 0, last = 0, at, i, body, size
        cdef int64_t delta = 0
        cdef Draft *draft
        cdef uint8_t *p
        if number < 0 or number >= self.partition_count:
            return NO_PARTITION
        draft = &self._drafts[number]
        if rows.header_ends != NULL:
            at = rows.header_offset + row
            if rows.header_validity == NULL or rows.header_validity[at >> 3] & (1 << (at & 7)):
                first, last = rows.header_ends[at], rows.header_ends[at + 1]
        if rows.timestamp != NULL:
            if draft.count == 0:
                draft.first_timestamp = draft.max_timestamp = rows.timestamp[row]
            delta = rows.timestamp[row] - draft.first_timestamp
        body = 1 + varint_size(delta) + varint_size(draft.count) + varint_size(last - first)
        body += blob_size(cell_size(&rows.key, row)) + blob_size(cell_size(&rows.value, row))
        for i in range(first, last):
            body += blob_size(cell_size(&rows.header_name, i)) + blob_size(cell_size(&rows.header_value, i))
        size = varint_size(body) + body
        if draft.count and draft.size + size > self._bytes_max:
            return IS_FULL
        if not _reserve(draft, size):
            return NO_MEMORY
        p = put_varint(draft.data + draft.size, body)
        p[0] = 0  # attributes
        p = put_varint(p + 1, delta)
        p = put_varint(p, draft.count)
        p = put_cell(p, &rows.key, row)
        p = put_cell(p, &rows.value, row)
        p = put_varint(p, last - first)
        for i in range(first, last):
            p = put_cell(p, &rows.header_name, i)
            p = put_cell(p, &rows.header_value, i)
        if rows.timestamp != NULL and rows.timestamp[row] > draft.max_timestamp:
            draft.max_timestamp = rows.timestamp[row]
        draft.size += size
        draft.count += 1
        return ADDED

    def take(self, Py_ssize_t number):
        """The batch of a partition as far as it is put together, None if it is empty; and begin anew."""
        if not 0 <= number < self.partition_count:
            raise IndexError(number)
        cdef Draft *draft = &self._drafts[number]
        cdef Payload taken
        if draft.count == 0:
            return None
        taken = Payload()
        taken.content = _block_of(draft.data, draft.size, draft.capacity)
        taken.count = draft.count
        taken.first_timestamp = draft.first_timestamp
        taken.max_timestamp = draft.max_timestamp
        draft.data = NULL  # its capacity stays: the next one will need as much, and growing is copying
        draft.size = 0
        draft.count = 0
        return taken


cdef inline bint _reserve(Draft *draft, Py_ssize_t more) noexcept nogil:
    """Have room for so many more bytes; whether there is."""
    cdef Py_ssize_t needed = draft.size + more
    return (needed <= draft.capacity and draft.data != NULL) or grow(&draft.data, &draft.capacity, needed)


cdef Block _block_of(uint8_t *data, Py_ssize_t size, Py_ssize_t capacity):
    """A block of memory that is there already, and is its own from now on."""
    cdef Block made = Block()
    made.data = data
    made.size = size
    made._capacity = capacity
    return made


cdef uint32_t murmur2(const uint8_t *data, Py_ssize_t size) noexcept nogil:
    """As org.apache.kafka.common.utils.Utils.murmur2 computes it."""
    cdef uint32_t m = <uint32_t>0x5BD1E995U
    cdef uint32_t h = <uint32_t>0x9747B28CU ^ <uint32_t>size
    cdef uint32_t k
    cdef Py_ssize_t i, whole = size // 4
    for i in range(whole):
        memcpy(&k, data + 4 * i, 4)
        k = (k * m)
        k ^= k >> 24
        k = k * m
        h = h * m
        h ^= k
    data += 4 * whole
    if size % 4 == 3:
        h ^= <uint32_t>data[2] << 16
    if size % 4 >= 2:
        h ^= <uint32_t>data[1] << 8
    if size % 4 >= 1:
        h ^= data[0]
        h = h * m
    h ^= h >> 13
    h = h * m
    h ^= h >> 15
    return h


def partitions_of(object keys, Py_ssize_t count, int32_t partition_count, Py_ssize_t spread):
    """The partition of each row as the Java client chooses it, as a block of int32.

    Rows without a key go to one partition after the other, beginning with `spread`.
    """
    cdef BytesColumn column
    cdef Block block = Block()
    cdef Py_ssize_t row, size
    cdef uint32_t code
    cdef int32_t *out
    _load(keys, &column)
    block.reserve(4 * count if count else 4)
    out = <int32_t *>block.data
    with nogil:
        for row in range(count):
            size = cell_size(&column, row)
            if size < 0:
                out[row] = <int32_t>(spread % partition_count)
                spread += 1
            else:
                code = murmur2(column.content + column.ends[column.offset + row], size) & 0x7FFFFFFF
                out[row] = <int32_t>(code % <uint32_t>partition_count)
    block.size = 4 * count
    return block
