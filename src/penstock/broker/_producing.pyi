from penstock.log.turn import Turn
from penstock.replica.partition import Partition
from penstock.wire._codec import OneProduce, RequestCursor
from penstock.wire._kernel import Batch

def append_one(
    cursor: RequestCursor, partitions: dict[str | bytes, dict[int, Partition]], now_ms: int, turn: Turn
) -> bytes | tuple[OneProduce, Partition, Batch] | None: ...
