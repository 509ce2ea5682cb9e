# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, embedsignature=True
"""The message codec: runs the plans that `schema.py` compiles.

A plan is a flat list of field steps for one struct in one version. Reading walks the plan over a `Cursor`; writing
walks it over a `Writer`. All bounds are checked here, before any byte is touched: a hostile length can never reach
past the frame, and the number of array elements one request may unfold is limited.
"""

cimport cython
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_CheckBuffer, PyObject_GetBuffer
from cpython.bytearray cimport PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromObject
from cpython.mem cimport PyMem_Free, PyMem_Malloc, PyMem_Realloc
from cpython.sequence cimport PySequence_GetSlice
from cpython.object cimport PyObject, PyObject_SetAttr, PyTypeObject
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from mmap import mmap

from penstock.wire.errors import DecodeError, EncodeError

# What a step reads or writes. `schema.py` refers to these by the same names.
cdef enum:
    _BOOL = 0
    _INT8 = 1
    _INT16 = 2
    _UINT16 = 3
    _INT32 = 4
    _UINT32 = 5
    _INT64 = 6
    _FLOAT64 = 7
    _UUID = 8
    _STRING = 9
    _BYTES = 10
    _RECORDS = 11
    _STRUCT = 12
    _ARRAY = 13

BOOL, INT8, INT16, UINT16, INT32, UINT32, INT64, FLOAT64, UUID, STRING, BYTES, RECORDS, STRUCT, ARRAY = range(14)

# An array element costs a hundred bytes and more in Python but may cost only two on the wire. This bounds what one
# frame can unfold into; it is far above what any client sends.
ELEMENTS_MAX = 250_000

cdef enum:
    # Frames of this size get a memory map of their own.
    _MAPPED_FRAME_BYTES = 4194304

cdef object _empty_tuple = ()
ZERO_UUID = bytes(16)


cdef class Cursor:
    """A reading position in one frame. Owns a reference to the frame's buffer, so slices of it stay valid."""

    def __cinit__(self, object buffer, Py_ssize_t position=0):
        PyObject_GetBuffer(buffer, &self._buffer, PyBUF_SIMPLE)
        self._owner = buffer if type(buffer) is memoryview else PyMemoryView_FromObject(buffer)
        self._data = <const uint8_t *>self._buffer.buf
        self._end = self._buffer.len
        self._elements_left = ELEMENTS_MAX
        if position < 0 or position > self._end:
            raise DecodeError(f"position {position} is outside a buffer of {self._end} bytes")
        self._position = position

    def __dealloc__(self):
        if self._data is not NULL:
            PyBuffer_Release(&self._buffer)

    @property
    def position(self):
        return self._position

    @property
    def remaining(self):
        return self._end - self._position

    cdef inline const uint8_t *take(self, Py_ssize_t size) except NULL:
        if size > self._end - self._position:
            raise DecodeError(f"message ends early: {size} bytes wanted, {self._end - self._position} left")
        cdef const uint8_t *p = self._data + self._position
        self._position += size
        return p

    cdef inline uint32_t varint(self) except? 0xFFFFFFFF:
        cdef uint64_t value = 0
        cdef int shift = 0
        cdef uint8_t byte
        while shift < 35:
            byte = self.take(1)[0]
            value |= (<uint64_t>(byte & 0x7F)) << shift
            if not byte & 0x80:
                if value > 0xFFFFFFFFu:
                    break
                return <uint32_t>value
            shift += 7
        raise DecodeError("varint is longer than 32 bits")

    cdef Py_ssize_t length(self, bint compact, int width) except -2:
        """A length prefix: -1 means null. Never more than what is left in the frame."""
        cdef Py_ssize_t size
        if compact:
            size = <Py_ssize_t>self.varint() - 1
        elif width == 2:
            size = <int16_t>load16(self.take(2))
        else:
            size = <int32_t>load32(self.take(4))
        if size < -1:
            raise DecodeError(f"negative length {size}")
        if size > self._end - self._position:
            raise DecodeError(f"length {size} is more than the {self._end - self._position} bytes left")
        return size

    cdef object text(self, bint compact, bint nullable):
        cdef Py_ssize_t size = self.length(compact, 2)
        if size < 0:
            if nullable:
                return None
            raise DecodeError("null string where a value is required")
        cdef const uint8_t *p = self._data + self._position
        self._position += size
        try:
            return PyUnicode_DecodeUTF8(<const char *>p, size, NULL)
        except UnicodeDecodeError as error:
            raise DecodeError(f"string is not UTF-8: {error.reason}") from None

    cdef object blob(self, bint compact, bint nullable, bint view):
        cdef Py_ssize_t size = self.length(compact, 4)
        if size < 0:
            if nullable:
                return None
            raise DecodeError("null bytes where a value is required")
        cdef Py_ssize_t start = self._position
        self._position += size
        if view:
            return PySequence_GetSlice(self._owner, start, start + size)
        return PyBytes_FromStringAndSize(<const char *>(self._data + start), size)

    cdef int skip_tagged(self) except -1:
        cdef uint32_t count = self.varint()
        cdef int64_t tag, last_tag = -1
        while count:
            tag = self.varint()
            if tag <= last_tag:
                raise DecodeError(f"tagged field {tag} is out of order")
            last_tag = tag
            self.take(<Py_ssize_t>self.varint())
            count -= 1
        return 0

    def tagged_skip(self):
        """Skip a tagged-field section nobody here knows a field of."""
        self.skip_tagged()


cdef class RequestCursor(Cursor):
    """A cursor over a request frame that has read the header's fixed part and the client id.

    Whether tagged fields follow depends on the API, so the caller passes it on to `Codec.read_request`.
    """

    def __init__(self, object frame):
        cdef const uint8_t *p = self.take(8)
        self.api_key = <int16_t>load16(p)
        self.api_version = <int16_t>load16(p + 2)
        self.route = self.api_key << 16 | self.api_version
        self.correlation_id = <int32_t>load32(p + 4)
        self.client_id = self.text(False, True)
        self._body = self._position

    def rewind(self):
        """Go back to where the body begins."""
        self._position = self._body


cdef class Writer:
    """Collects a message's bytes. Record data that lies elsewhere is not copied: it becomes a part of its own."""

    def __cinit__(self):
        self._capacity = 256
        self._data = <uint8_t *>PyMem_Malloc(self._capacity)
        if self._data is NULL:
            raise MemoryError
        self._parts = None

    def __dealloc__(self):
        PyMem_Free(self._data)

    cdef uint8_t *reserve(self, Py_ssize_t size) except NULL:
        cdef Py_ssize_t wanted = self._size + size
        cdef uint8_t *grown
        if wanted > self._capacity:
            while self._capacity < wanted:
                self._capacity *= 2
            grown = <uint8_t *>PyMem_Realloc(self._data, self._capacity)
            if grown is NULL:
                raise MemoryError
            self._data = grown
        cdef uint8_t *p = self._data + self._size
        self._size = wanted
        return p

    cdef int varint(self, uint32_t value) except -1:
        cdef uint8_t *p
        while value >= 0x80:
            p = self.reserve(1)
            p[0] = <uint8_t>(value & 0x7F) | 0x80
            value >>= 7
        p = self.reserve(1)
        p[0] = <uint8_t>value
        return 0

    cdef int length(self, Py_ssize_t size, bint compact, int width) except -1:
        if compact:
            return self.varint(<uint32_t>(size + 1))
        if width == 2:
            if size > 32767:
                raise EncodeError(f"string of {size} bytes is longer than the 32767 this version can carry")
            store16(self.reserve(2), <uint16_t>size)
        else:
            store32(self.reserve(4), <uint32_t>size)
        return 0

    cdef int raw(self, const void *data, Py_ssize_t size) except -1:
        memcpy(self.reserve(size), data, size)
        return 0

    cdef int text(self, object value, bint compact) except -1:
        cdef Py_ssize_t size
        cdef const char *data
        if value is None:
            return self.length(-1, compact, 2)
        data = PyUnicode_AsUTF8AndSize(value, &size)
        self.length(size, compact, 2)
        return self.raw(data, size)

    cdef int blob(self, object value, bint compact) except -1:
        cdef Py_buffer view
        if value is None:
            return self.length(-1, compact, 4)
        PyObject_GetBuffer(value, &view, PyBUF_SIMPLE)
        try:
            self.length(view.len, compact, 4)
            self.raw(view.buf, view.len)
        finally:
            PyBuffer_Release(&view)
        return 0

    cdef int records(self, object value, bint compact) except -1:
        if value is None or PyObject_CheckBuffer(value):
            return self.blob(value, compact)
        cdef Py_ssize_t size = len(value)
        self.length(size, compact, 4)
        if size:
            self.flush_part()
            self._parts.append(value)
            self._total += size
        return 0

    cdef int uuid(self, object value) except -1:
        if type(value) is not bytes or len(<bytes>value) != 16:
            raise EncodeError(f"a UUID is 16 bytes, not {value!r}")
        return self.raw(<const char *><bytes>value, 16)

    cdef int flush_part(self) except -1:
        if self._parts is None:
            self._parts = []
        self._parts.append(PyBytes_FromStringAndSize(<const char *>self._data, self._size))
        self._total += self._size
        self._size = 0
        return 0

    cdef bytes contents(self):
        if self._parts is not None:
            raise EncodeError("a message whose records lie elsewhere cannot be turned into bytes")
        return PyBytes_FromStringAndSize(<const char *>self._data, self._size)

    cdef object frame(self):
        """All of it, with its size filled in where it begins: bytes, or a list of parts."""
        cdef bytes head
        if self._parts is None:
            store32(self._data, <uint32_t>(self._size - 4))
            return self.contents()
        if self._size:
            self.flush_part()
        # The first part was made here and nobody else has seen it yet, so its size prefix may be filled in place.
        head = self._parts[0]
        store32(<uint8_t *><char *>head, <uint32_t>(self._total - 4))
        return self._parts


cdef class Step:
    """One field of a plan: what it is, which attribute it fills, and what stands for it where it is absent."""

    cdef int kind
    cdef bint compact
    cdef bint nullable
    cdef object name
    cdef Codec struct          # for STRUCT, and for ARRAY of structs
    cdef int element           # for ARRAY of primitives: the element's kind
    cdef object default        # for absent and tagged fields; a list or struct default is made anew each time
    cdef int tag
    cdef bint ignorable

    def __init__(self, *, int kind, str name, bint compact, bint nullable, Codec struct=None, int element=-1,
                 object default=None, int tag=-1, bint ignorable=True):
        self.kind = kind
        self.name = name
        self.compact = compact
        self.nullable = nullable
        self.struct = struct
        self.element = element
        self.default = default
        self.tag = tag
        self.ignorable = ignorable

    cdef object fresh_default(self):
        if type(self.default) is list:
            return []
        if self.kind == _STRUCT and self.default is not None:
            return type(self.default)()
        return self.default

    cdef object read(self, Cursor c):
        if self.kind == _ARRAY:
            return self.read_array(c)
        if self.kind == _STRUCT:
            if self.nullable:
                if <int8_t>c.take(1)[0] < 0:
                    return None
            return self.struct.read_struct(c)
        return read_primitive(c, self.kind, self.compact, self.nullable)

    cdef object read_array(self, Cursor c):
        cdef Py_ssize_t count = c.length(self.compact, 4)
        cdef Py_ssize_t i
        cdef object item
        if count < 0:
            if self.nullable:
                return None
            raise DecodeError(f"null array where {self.name} is required")
        c._elements_left -= count
        if c._elements_left < 0:
            raise DecodeError(f"more than {ELEMENTS_MAX} array elements in one message")
        cdef list items = [None] * count
        for i in range(count):
            if self.struct is not None:
                items[i] = self.struct.read_struct(c)
            else:
                items[i] = read_primitive(c, self.element, self.compact, False)
        return items

    cdef int write(self, Writer w, object value) except -1:
        cdef object item
        if self.kind == _ARRAY:
            if value is None:
                self.check_nullable()
                return w.length(-1, self.compact, 4)
            w.length(len(value), self.compact, 4)
            if self.struct is not None:
                for item in value:
                    self.struct.write_struct(w, item)
            else:
                for item in value:
                    if item is None:
                        raise EncodeError(f"an element of {self.name} must not be null")
                    write_primitive(w, self.element, self.compact, item)
            return 0
        if self.kind == _STRUCT:
            if self.nullable:
                if value is None:
                    w.reserve(1)[0] = 0xFF
                    return 0
                w.reserve(1)[0] = 1
            self.struct.write_struct(w, value)
            return 0
        if value is None:
            self.check_nullable()
        return write_primitive(w, self.kind, self.compact, value)

    cdef int check_nullable(self) except -1:
        if not self.nullable:
            raise EncodeError(f"{self.name} must not be null in this version")
        return 0


cdef object read_primitive(Cursor c, int kind, bint compact, bint nullable):
    cdef const uint8_t *p
    cdef uint64_t bits
    cdef double number
    if kind == _INT32:
        return <int32_t>load32(c.take(4))
    if kind == _INT64:
        return <int64_t>load64(c.take(8))
    if kind == _INT16:
        return <int16_t>load16(c.take(2))
    if kind == _STRING:
        return c.text(compact, nullable)
    if kind == _BOOL:
        return c.take(1)[0] != 0
    if kind == _INT8:
        return <int8_t>c.take(1)[0]
    if kind == _UUID:
        p = c.take(16)
        return PyBytes_FromStringAndSize(<const char *>p, 16)
    if kind == _RECORDS:
        return c.blob(compact, nullable, True)
    if kind == _BYTES:
        return c.blob(compact, nullable, False)
    if kind == _UINT16:
        return load16(c.take(2))
    if kind == _UINT32:
        return load32(c.take(4))
    bits = load64(c.take(8))
    memcpy(&number, &bits, 8)
    return number


cdef int write_primitive(Writer w, int kind, bint compact, object value) except -1:
    cdef uint64_t bits
    cdef double number
    if kind == _INT32:
        store32(w.reserve(4), <uint32_t><int32_t>value)
    elif kind == _INT64:
        store64(w.reserve(8), <uint64_t><int64_t>value)
    elif kind == _INT16:
        store16(w.reserve(2), <uint16_t><int16_t>value)
    elif kind == _STRING:
        w.text(value, compact)
    elif kind == _BOOL:
        w.reserve(1)[0] = 1 if value else 0
    elif kind == _INT8:
        w.reserve(1)[0] = <uint8_t><int8_t>value
    elif kind == _UUID:
        w.uuid(value)
    elif kind == _RECORDS:
        w.records(value, compact)
    elif kind == _BYTES:
        w.blob(value, compact)
    elif kind == _UINT16:
        store16(w.reserve(2), <uint16_t>value)
    elif kind == _UINT32:
        store32(w.reserve(4), <uint32_t>value)
    else:
        number = value
        memcpy(&bits, &number, 8)
        store64(w.reserve(8), bits)
    return 0


cdef class Codec:
    """Reads and writes one struct in one version."""

    cdef object _type
    cdef bint _flexible
    cdef tuple _present        # fields on the wire, in order
    cdef tuple _absent         # fields this version does not know: set to their default when read
    cdef tuple _tagged         # tagged fields of this version, by ascending tag
    cdef dict _by_tag

    def __init__(self, type struct_type, *, bint flexible, tuple present, tuple absent, tuple tagged):
        cdef Step step
        self._type = struct_type
        self._flexible = flexible
        self._present = present
        self._absent = absent
        self._tagged = tagged
        self._by_tag = {step.tag: step for step in tagged}

    cdef object read_struct(self, Cursor c):
        cdef PyTypeObject *struct_type = <PyTypeObject *>self._type
        cdef object message = struct_type.tp_new(self._type, <PyObject *>_empty_tuple, NULL)
        cdef Step step
        for step in self._present:
            PyObject_SetAttr(message, step.name, step.read(c))
        for step in self._absent:
            PyObject_SetAttr(message, step.name, step.fresh_default())
        if self._flexible:
            self.read_tagged(c, message)
        return message

    cdef int read_tagged(self, Cursor c, object message) except -1:
        cdef Step step
        cdef Py_ssize_t size, end, frame_end
        cdef uint32_t tag
        cdef int64_t last_tag = -1
        for step in self._tagged:
            PyObject_SetAttr(message, step.name, step.fresh_default())
        cdef uint32_t count = c.varint()
        while count:
            count -= 1
            tag = c.varint()
            size = <Py_ssize_t>c.varint()
            if <int64_t>tag <= last_tag:
                raise DecodeError(f"tagged field {tag} is out of order")
            last_tag = tag
            if size > c._end - c._position:
                raise DecodeError(f"tagged field {tag} of {size} bytes is longer than the message")
            end = c._position + size
            step = self._by_tag.get(tag)
            if step is not None:
                frame_end = c._end
                c._end = end
                try:
                    PyObject_SetAttr(message, step.name, step.read(c))
                finally:
                    c._end = frame_end
                if c._position != end:
                    raise DecodeError(f"tagged field {tag} does not fill its {size} bytes")
            c._position = end
        return 0

    cdef int write_struct(self, Writer w, object message) except -1:
        cdef Step step
        for step in self._present:
            step.write(w, getattr(message, step.name))
        if w._is_strict:
            for step in self._absent:
                if not step.ignorable and getattr(message, step.name) != step.default:
                    raise EncodeError(f"{type(message).__name__}.{step.name} cannot be sent in this version of the API")
        if self._flexible:
            self.write_tagged(w, message)
        return 0

    cdef int write_tagged(self, Writer w, object message) except -1:
        cdef Step step
        cdef Writer inner
        cdef object value
        cdef list filled = None
        for step in self._tagged:
            value = getattr(message, step.name)
            if value != step.default:
                if filled is None:
                    filled = []
                filled.append((step, value))
        if filled is None:
            return w.varint(0)
        w.varint(<uint32_t>len(filled))
        for step, value in filled:
            inner = Writer()
            inner._is_strict = w._is_strict
            step.write(inner, value)
            if inner._parts is not None:
                raise EncodeError(f"the tagged field {step.name} cannot hold a file slice")
            w.varint(step.tag)
            w.varint(<uint32_t>inner._size)
            w.raw(inner._data, inner._size)
        return 0

    def read(self, object buffer, Py_ssize_t position=0):
        """The message that starts at `position`, and the position behind it."""
        cdef Cursor c = Cursor(buffer, position)
        return self.read_struct(c), c._position

    def read_request(self, RequestCursor cursor not None, bint header_flexible):
        """The body of a request whose header `cursor` has read."""
        if header_flexible:
            cursor.skip_tagged()
        return self.read_struct(cursor)

    def encode(self, object message):
        """The message as bytes."""
        cdef Writer w = Writer()
        self.write_struct(w, message)
        return w.contents()

    def encode_request(self, int api_key, int api_version, int correlation_id, object client_id, bint header_flexible,
                       object message):
        """A whole request frame, size prefix included: bytes, or a list of bytes and what lies elsewhere, in order.

        What this version cannot say and the other side may not ignore is an error. (A response simply leaves out what
        an older version has no field for.)
        """
        cdef Writer w = Writer()
        w._is_strict = True
        cdef uint8_t *p = w.reserve(12)
        store16(p + 4, <uint16_t>api_key)
        store16(p + 6, <uint16_t>api_version)
        store32(p + 8, <uint32_t>correlation_id)
        w.text(client_id, False)
        if header_flexible:
            w.varint(0)
        self.write_struct(w, message)
        return w.frame()

    def encode_response(self, int correlation_id, bint header_flexible, object message):
        """A whole response frame, size prefix included: bytes, or a list of bytes and file slices in order."""
        cdef Writer w = Writer()
        store32(w.reserve(8) + 4, <uint32_t>correlation_id)
        if header_flexible:
            w.varint(0)
        self.write_struct(w, message)
        return w.frame()


# ---- the hot path: a produce request for one partition ----

@cython.freelist(8)
@cython.no_gc  # it holds nothing that could hold it
cdef class OneProduce:
    """A produce request for a single partition: what most requests of most producers are."""


@cython.nonecheck(True)
cpdef OneProduce read_one_produce(RequestCursor c, int version):
    """The body of a produce request, if it is for one partition; else None, and the cursor is where it was."""
    cdef Py_ssize_t start = c._position
    cdef bint flexible = version >= 9
    cdef OneProduce request = OneProduce.__new__(OneProduce)
    if flexible:
        c.skip_tagged()
    request.transactional_id = c.text(flexible, True)
    request.acks = <int16_t>load16(c.take(2))
    request.timeout_ms = <int32_t>load32(c.take(4))
    if c.length(flexible, 4) == 1:
        request.topic = read_primitive(c, _UUID, flexible, False) if version >= 13 else c.text(flexible, False)
        if c.length(flexible, 4) == 1:
            request.index = <int32_t>load32(c.take(4))
            request.records = c.blob(flexible, True, True)
            if flexible:
                c.skip_tagged()
                c.skip_tagged()
                c.skip_tagged()
            if c._position == c._end and request.records is not None:
                return request
    c._position = start
    return None


cdef Writer _produced = Writer()  # used again for each response of the short way: nothing interrupts it


@cython.nonecheck(True)
cpdef bytes encode_one_produced(RequestCursor cursor, OneProduce request, int64_t base_offset, int64_t log_append_time,
                                int64_t log_start_offset):
    """The whole response frame to a produce request for one partition that was appended."""
    cdef int version = cursor.api_version
    cdef bint flexible = version >= 9
    cdef Writer w = _produced
    w._size = 0
    store32(w.reserve(8) + 4, <uint32_t>cursor.correlation_id)
    if flexible:
        w.varint(0)
    w.length(1, flexible, 4)
    if version >= 13:
        w.uuid(request.topic)
    else:
        w.text(request.topic, flexible)
    w.length(1, flexible, 4)
    store32(w.reserve(4), <uint32_t>request.index)
    store16(w.reserve(2), 0)
    store64(w.reserve(8), <uint64_t>base_offset)
    store64(w.reserve(8), <uint64_t>log_append_time)
    if version >= 5:
        store64(w.reserve(8), <uint64_t>log_start_offset)
    if version >= 8:
        w.length(0, flexible, 4)
        w.length(-1, flexible, 2)
    if flexible:
        w.varint(0)
        w.varint(0)
    store32(w.reserve(4), 0)
    if flexible:
        w.varint(0)
    store32(w._data, <uint32_t>(w._size - 4))
    return w.contents()


# ---- framing ----

cdef class FrameBuffer:
    """Cuts a byte stream into frames, with at most one copy of every byte.

    Reads go into a buffer that all connections of an event loop share; frames that arrive whole are handed out as views
    of it and are valid until the next read. A frame that arrives in pieces gets memory of its own, of its exact size,
    into which the rest is read directly. So an idle connection holds no buffer at all.

    `writable` and `received` are called in turn, as an asyncio BufferedProtocol is. `size_max` is the hard limit:
    nothing is allocated for a frame that claims more. Such a frame ends the stream: `problem` says why, and no frame
    comes out any more.
    """

    cdef object _shared
    cdef Py_ssize_t _size_max
    cdef bytes _prefix                  # the first bytes of a size that arrived torn
    cdef object _body                   # the frame that is arriving in pieces
    cdef Py_ssize_t _body_filled
    cdef readonly Py_ssize_t pending_bytes  # the memory held for it
    cdef readonly str problem

    def __init__(self, object shared, Py_ssize_t size_max):
        self._shared = shared
        self._size_max = size_max
        self._prefix = b""
        self._body = None

    def writable(self, Py_ssize_t sizehint=-1):
        """Where the next bytes from the socket go."""
        if self._body is not None:
            return self._body[self._body_filled:]
        if self._prefix:
            self._shared[:len(self._prefix)] = self._prefix
            return self._shared[len(self._prefix):]
        return self._shared

    def received(self, Py_ssize_t count):
        """Take note of `count` bytes written to `writable()`; returns the frames they complete, without their size."""
        cdef list frames
        if self.problem is not None:
            return []
        if self._body is not None:
            self._body_filled += count
            if self._body_filled < self.pending_bytes:
                return []
            frames = [self._body]
            self._body = None
            self.pending_bytes = 0
            return frames
        cdef Py_ssize_t end = len(self._prefix) + count
        cdef Py_ssize_t position = 0
        cdef int64_t size
        cdef Py_buffer view
        self._prefix = b""
        frames = []
        PyObject_GetBuffer(self._shared, &view, PyBUF_SIMPLE)
        try:
            while end - position >= 4:
                size = <int32_t>load32(<const uint8_t *>view.buf + position)
                if size < 0 or size > self._size_max:
                    self.problem = f"frame of {size} bytes; the limit is {self._size_max}"
                    return frames
                if size > end - position - 4:
                    self._begin_body(size, self._shared[position + 4:end])
                    return frames
                frames.append(self._shared[position + 4:position + 4 + size])
                position += 4 + size
        finally:
            PyBuffer_Release(&view)
        if position < end:
            self._prefix = bytes(self._shared[position:end])
        return frames

    def discard(self):
        """Forget a frame that will never be complete: its sender is gone."""
        self._body = None
        self._prefix = b""
        self.pending_bytes = 0

    cdef int _begin_body(self, Py_ssize_t size, object beginning) except -1:
        # Pages are taken from the system only as the bytes arrive (nothing is zeroed before), and those of a large frame
        # are given back at once: they never become holes in the heap.
        if size >= _MAPPED_FRAME_BYTES:
            self._body = memoryview(mmap(-1, size))
        else:
            self._body = memoryview(PyByteArray_FromStringAndSize(NULL, size))
        self._body_filled = len(beginning)
        self._body[:self._body_filled] = beginning
        self.pending_bytes = size
        return 0
