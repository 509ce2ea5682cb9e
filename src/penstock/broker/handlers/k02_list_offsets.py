"""ListOffsets (2), versions 1-11: offsets by timestamp, and the special positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.replica.partition import Partition
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.isolation import READ_COMMITTED
from penstock.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

# The version from which on each special position may be asked for.
_SPECIAL_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}

_CONSUMER = -1


def handle(broker: Broker, request: ListOffsetsRequest, call: Call) -> ListOffsetsResponse:
    response = ListOffsetsResponse()
    for topic in request.topics:
        answered = ListOffsetsTopicResponse(name=topic.name)
        for wanted in topic.partitions:
            try:
                result = _find_offset(broker.replicas.find(topic.name, wanted.partition_index), wanted, request, call)
            except ApiError as error:
                result = ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=error.code)
            answered.partitions.append(result)
        response.topics.append(answered)
    return response


def _find_offset(
    partition: Partition, wanted: ListOffsetsPartition, request: ListOffsetsRequest, call: Call
) -> ListOffsetsPartitionResponse:
    partition.check_leader()
    partition.check_epoch(wanted.current_leader_epoch)
    log = partition.log
    timestamp, offset, epoch = -1, -1, -1
    upper_bound = log.end_offset
    if request.replica_id == _CONSUMER:
        upper_bound = partition.upper_bound(is_committed_only=request.isolation_level == READ_COMMITTED)
    if call.version < _SPECIAL_SINCE.get(wanted.timestamp, 0):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    if wanted.timestamp == LATEST:
        offset, epoch = upper_bound, log.epochs.latest
    elif wanted.timestamp in (EARLIEST, EARLIEST_LOCAL):
        offset, epoch = log.start_offset, log.epochs.epoch_at(log.start_offset)
    elif wanted.timestamp == MAX_TIMESTAMP or wanted.timestamp >= 0:
        found = (
            log.offset_of_max_timestamp()
            if wanted.timestamp == MAX_TIMESTAMP
            else log.offset_for_timestamp(wanted.timestamp)
        )
        if found is not None and found.offset < upper_bound:
            timestamp, offset, epoch = found
    elif wanted.timestamp not in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):  # nothing is tiered here
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index, timestamp=timestamp, offset=offset, leader_epoch=epoch
    )
