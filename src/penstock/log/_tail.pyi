from penstock.log.storage import Buffer

UNWRITTEN_BYTES_MAX: int

class Tail:
    size: int
    _unwritten: bytearray
    _bytes_since_index: int
    _index_interval_bytes: int
    _max_timestamp: int
    _offset_of_max_timestamp: int
    _bytes_max: int
    _offset_max: int
    _timestamp_max: int
    def keep(self, data: Buffer, last_offset: int, max_timestamp: int) -> bool: ...
