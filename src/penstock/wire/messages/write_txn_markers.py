"""WriteTxnMarkers (27): the end of transactions, from their coordinator to the partitions they wrote to.

1 is flexible, 2 says by which rules the epoch of a marker is to be checked.
"""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import BOOL, INT8, INT16, INT32, INT64, STRING, array


@struct
class WritableTxnMarkerTopic:
    name: str = field(STRING, default="")
    partition_indexes: list[int] = field(array(INT32), factory=list)


@struct
class WritableTxnMarker:
    producer_id: int = field(INT64, default=0)
    producer_epoch: int = field(INT16, default=0)
    transaction_result: bool = field(BOOL, default=False)
    topics: list[WritableTxnMarkerTopic] = field(array(WritableTxnMarkerTopic), factory=list)
    coordinator_epoch: int = field(INT32, default=0)
    transaction_version: int = field(INT8, "2+", default=0, ignorable=True)


@message(versions="1-2", flexible="1+")
class WriteTxnMarkersRequest:
    markers: list[WritableTxnMarker] = field(array(WritableTxnMarker), factory=list)


@struct
class WritableTxnMarkerPartitionResult:
    partition_index: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)


@struct
class WritableTxnMarkerTopicResult:
    name: str = field(STRING, default="")
    partitions: list[WritableTxnMarkerPartitionResult] = field(array(WritableTxnMarkerPartitionResult), factory=list)


@struct
class WritableTxnMarkerResult:
    producer_id: int = field(INT64, default=0)
    topics: list[WritableTxnMarkerTopicResult] = field(array(WritableTxnMarkerTopicResult), factory=list)


@message(versions="1-2", flexible="1+")
class WriteTxnMarkersResponse:
    markers: list[WritableTxnMarkerResult] = field(array(WritableTxnMarkerResult), factory=list)
