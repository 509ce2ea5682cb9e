from typing import Any

BOOL: int
INT8: int
INT16: int
UINT16: int
INT32: int
UINT32: int
INT64: int
FLOAT64: int
UUID: int
STRING: int
BYTES: int
RECORDS: int
STRUCT: int
ARRAY: int
ELEMENTS_MAX: int
ZERO_UUID: bytes

Buffer = bytes | bytearray | memoryview

class Cursor:
    def __init__(self, buffer: Buffer, position: int = 0) -> None: ...
    @property
    def position(self) -> int: ...
    @property
    def remaining(self) -> int: ...
    def tagged_skip(self) -> None: ...

class RequestCursor(Cursor):
    api_key: int
    api_version: int
    route: int
    correlation_id: int
    client_id: str | None
    def __init__(self, frame: Buffer) -> None: ...
    def rewind(self) -> None: ...

class Step:
    def __init__(
        self,
        *,
        kind: int,
        name: str,
        compact: bool,
        nullable: bool,
        struct: Codec | None = None,
        element: int = -1,
        default: object = None,
        tag: int = -1,
        ignorable: bool = True,
    ) -> None: ...

class Codec:
    def __init__(
        self,
        struct_type: type,
        *,
        flexible: bool,
        present: tuple[Step, ...],
        absent: tuple[Step, ...],
        tagged: tuple[Step, ...],
    ) -> None: ...
    def read(self, buffer: Buffer, position: int = 0) -> tuple[Any, int]: ...
    def read_request(self, cursor: RequestCursor, header_flexible: bool) -> Any: ...
    def encode(self, message: Any) -> bytes: ...
    def encode_request(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        header_flexible: bool,
        message: Any,
    ) -> Any: ...
    def encode_response(self, correlation_id: int, header_flexible: bool, message: Any) -> Any: ...

class OneProduce:
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topic: str | bytes
    index: int
    records: memoryview

def read_one_produce(cursor: RequestCursor, version: int) -> OneProduce | None: ...
def encode_one_produced(
    cursor: RequestCursor, request: OneProduce, base_offset: int, log_append_time: int, log_start_offset: int
) -> bytes: ...

class FrameBuffer:
    pending_bytes: int
    problem: str | None
    def __init__(self, shared: memoryview, size_max: int) -> None: ...
    def writable(self, sizehint: int = -1) -> memoryview: ...
    def received(self, count: int) -> list[memoryview]: ...
    def discard(self) -> None: ...
