from penstock.log.epochs import LeaderEpochs
from penstock.log.producer_state import Origin, ProducerState
from penstock.log.segment import Segment
from penstock.log.storage import Buffer
from penstock.log.turn import Turn
from penstock.log.validation import BatchRules
from penstock.wire._kernel import Batch

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

class LogEnd:
    _active: Segment
    epochs: LeaderEpochs
    producers: ProducerState
    rules: BatchRules
    start_offset: int
    end_offset: int
    high_watermark: int
    recovery_point: int
    flush_messages: int
    is_synced_by_count: bool
    is_synced_before_use: bool
    needs_flush: bool
    is_waiting: bool
    def append(
        self, batch: Batch, leader_epoch: int, origin: Origin = Origin.CLIENT, turn: Turn | None = None
    ) -> Batch: ...
    def advance_high_watermark(self, offset: int) -> None: ...
