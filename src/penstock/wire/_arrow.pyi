from typing import Any

Buffer = Any  # anything with the buffer protocol

class Block:
    def __len__(self) -> int: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

Binary = tuple[int, Block | None, Block, Block]

class Columns:
    count: int
    def __init__(self, with_headers: bool = False) -> None: ...
    @property
    def size(self) -> int: ...
    def add(
        self,
        payload: Buffer,
        count: int,
        base_offset: int,
        base_timestamp: int,
        append_time: int,
        start_offset: int,
        end_offset: int,
    ) -> None: ...
    def take(
        self,
    ) -> tuple[
        int, Binary, Binary, Block, Block, Block, tuple[int, Block | None, Block, int, Binary, Binary] | None
    ]: ...

def next_offset(records: Buffer) -> int: ...

class Payload:
    content: Block
    count: int
    first_timestamp: int
    max_timestamp: int

class Encoder:
    partition_count: int
    def __init__(self, partition_count: int, bytes_max: int) -> None: ...
    def add(self, keys: Any, values: Any, headers: Any, partitions: Any, start: int, timestamps: Any = None) -> int: ...
    def take(self, number: int) -> Payload | None: ...

def partitions_of(keys: Any, count: int, partition_count: int, spread: int) -> Block: ...
