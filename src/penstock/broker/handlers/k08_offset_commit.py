"""OffsetCommit (8), versions 2-10: note how far a group has read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.coordination.appends import after
from penstock.group.offsets import Committed
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call

_BY_TOPIC_ID = 10


def handle(broker: Broker, request: OffsetCommitRequest, call: Call) -> Any:
    response = OffsetCommitResponse()
    offsets: list[tuple[str, int, Committed]] = []
    accepted: list[OffsetCommitResponsePartition] = []
    now_ms = broker.clock.time_ms()
    expire_ms = now_ms + request.retention_time_ms if request.retention_time_ms >= 0 else -1
    metadata_max = broker.config.offset_metadata_max_bytes
    for wanted in request.topics:
        topic = broker.image.topics_by_id.get(wanted.topic_id) if call.version >= _BY_TOPIC_ID else None
        name = topic.name if topic is not None else wanted.name
        answered = OffsetCommitResponseTopic(name=wanted.name, topic_id=wanted.topic_id)
        response.topics.append(answered)
        for partition in wanted.partitions:
            result = OffsetCommitResponsePartition(partition.partition_index)
            answered.partitions.append(result)
            metadata = partition.committed_metadata or ""
            if (error := _unknown(broker, wanted, name, partition.partition_index, call.version)) is not None:
                result.error_code = error
            elif len(metadata) > metadata_max:
                result.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                committed = Committed(
                    partition.committed_offset, partition.committed_leader_epoch, metadata, now_ms, expire_ms
                )
                offsets.append((name, partition.partition_index, committed))
                accepted.append(result)

    def refused(code: ErrorCode) -> OffsetCommitResponse:
        for result in accepted:
            result.error_code = code
        return response

    try:
        shard = broker.groups.commits.check(
            request.group_id,
            request.member_id,
            request.group_instance_id,
            request.generation_id_or_member_epoch,
            call.version,
        )
        if not offsets:
            return response
        future = broker.groups.commits.commit(shard, request.group_id, offsets)
    except ApiError as error:
        return refused(error.code)
    return after(future, response, refused)


def _unknown(broker: Broker, wanted: OffsetCommitRequestTopic, name: str, index: int, version: int) -> ErrorCode | None:
    if version >= _BY_TOPIC_ID and wanted.topic_id not in broker.image.topics_by_id:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if broker.image.partition(name, index) is None else None
