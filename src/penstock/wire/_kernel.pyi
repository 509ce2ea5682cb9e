from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

Buffer = Any  # anything with the buffer protocol: bytes, bytearray, memoryview, mmap

T = TypeVar("T")

HEADER_BYTES: int
LOG_OVERHEAD_BYTES: int
NO_TIMESTAMP: int
NO_PRODUCER_ID: int

class Batch:
    position: int
    base_offset: int
    size: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int
    data: Any
    log_append_time: int
    is_duplicate: bool
    @property
    def last_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    @property
    def codec(self) -> int: ...
    @property
    def is_log_append_time(self) -> bool: ...
    @property
    def is_transactional(self) -> bool: ...
    @property
    def is_control(self) -> bool: ...
    @property
    def has_producer_id(self) -> bool: ...
    @property
    def last_sequence(self) -> int: ...

def parse_header(buffer: Buffer, position: int = 0) -> Batch: ...
def verify(buffer: Buffer, position: int = 0) -> Batch: ...
def stamp(buffer: Buffer, batch: Batch, base_offset: int, leader_epoch: int) -> None: ...
def crc32c(data: Buffer, before: int = 0) -> int: ...
def stamp_timestamp(buffer: Buffer, batch: Batch, log_append_time: bool, max_timestamp: int) -> None: ...
def seek(buffer: Buffer, offset: int, position: int = 0) -> tuple[int, int, int]: ...
def check_records(
    payload: Buffer,
    count: int,
    base_timestamp: int,
    check_timestamps: bool = False,
    earliest: int = 0,
    latest: int = 0,
    require_keys: bool = False,
) -> tuple[int, Sequence[tuple[int, int, bool]]]: ...

class PlainBatches:
    def __init__(self, bytes_max: int, before_max_ms: int, after_max_ms: int, require_keys: bool) -> None: ...
    def check(self, records: Buffer, now_ms: int) -> Batch | None: ...

def decode_records(
    payload: Buffer,
    count: int,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    make: Callable[[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]], T],
) -> list[T]: ...
def encode_records(records: Iterable[tuple[Any, ...]], base_offset: int, base_timestamp: int) -> bytes: ...
def batch_header(
    payload: Buffer,
    *,
    base_offset: int,
    last_offset_delta: int,
    count: int,
    attributes: int,
    base_timestamp: int,
    max_timestamp: int,
    leader_epoch: int = -1,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
) -> bytearray: ...
def build_batch(payload: Buffer, **fields: int) -> bytearray: ...

class SegmentScan:
    valid_bytes: int
    next_offset: int
    max_timestamp: int
    offset_of_max_timestamp: int
    offset_index: bytes
    time_index: bytes
    problem: str | None

def scan_segment(
    buffer: Buffer,
    segment_base_offset: int,
    index_interval_bytes: int,
    visit: Callable[[Batch], None] | None = None,
) -> SegmentScan: ...
