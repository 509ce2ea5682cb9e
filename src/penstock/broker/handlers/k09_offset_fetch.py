"""OffsetFetch (9), versions 1-10: how far groups have read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.group.consumer import ConsumerGroup
from penstock.group.offsets import NO_OFFSET
from penstock.group.shard import Shard
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call

_SEVERAL_GROUPS = 8
_BY_TOPIC_ID = 10


def handle(broker: Broker, request: OffsetFetchRequest, call: Call) -> OffsetFetchResponse:
    if call.version >= _SEVERAL_GROUPS:
        return OffsetFetchResponse(
            groups=[_fetch(broker, group, call.version, request.require_stable) for group in request.groups]
        )
    topics = request.topics
    wanted = OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes) for t in topics],
    )
    return _in_old_form(_fetch(broker, wanted, call.version, request.require_stable), wanted, call.version)


def _fetch(broker: Broker, wanted: OffsetFetchRequestGroup, version: int, is_stable: bool) -> OffsetFetchResponseGroup:
    try:
        shard = broker.groups.shard(wanted.group_id)
        group = shard.groups.get(wanted.group_id)
        if isinstance(group, ConsumerGroup):
            group.check_fetch(wanted.member_id, wanted.member_epoch)
    except ApiError as error:
        return OffsetFetchResponseGroup(group_id=wanted.group_id, error_code=error.code)
    response = OffsetFetchResponseGroup(group_id=wanted.group_id)
    if wanted.topics is None:
        response.topics = _all(broker, shard, wanted.group_id, version, is_stable)
    else:
        response.topics = [_topic(broker, shard, wanted.group_id, topic, version, is_stable) for topic in wanted.topics]
    return response


def _all(broker: Broker, shard: Shard, group_id: str, version: int, is_stable: bool) -> list[OffsetFetchResponseTopics]:
    topics = []
    for name, partitions in shard.offsets.of(group_id).items():
        known = broker.image.topics.get(name)
        if version >= _BY_TOPIC_ID and known is None:
            continue
        topic_id = known.topic_id if known is not None else bytes(16)
        wanted = OffsetFetchRequestTopics(name, topic_id, list(partitions))
        topics.append(_topic(broker, shard, group_id, wanted, version, is_stable))
    return topics


def _topic(
    broker: Broker, shard: Shard, group_id: str, wanted: OffsetFetchRequestTopics, version: int, is_stable: bool
) -> OffsetFetchResponseTopics:
    """`is_stable`: an offset that an open transaction may change is not given, but an error that says so."""
    name = wanted.name
    code = ErrorCode.NONE
    if version >= _BY_TOPIC_ID:
        topic = broker.image.topics_by_id.get(wanted.topic_id)
        name = topic.name if topic is not None else ""
        code = ErrorCode.NONE if topic is not None else ErrorCode.UNKNOWN_TOPIC_ID
    found = shard.offsets.of(group_id).get(name, {})
    answered = OffsetFetchResponseTopics(name=name, topic_id=wanted.topic_id)
    for index in wanted.partition_indexes:
        committed = found.get(index)
        if is_stable and not code and shard.offsets.is_pending(group_id, name, index):
            unstable = ErrorCode.UNSTABLE_OFFSET_COMMIT
            result = OffsetFetchResponsePartitions(index, NO_OFFSET, metadata="", error_code=unstable)
        elif committed is None:
            result = OffsetFetchResponsePartitions(index, NO_OFFSET, metadata="", error_code=code)
        else:
            result = OffsetFetchResponsePartitions(index, committed.offset, committed.leader_epoch, committed.metadata)
        answered.partitions.append(result)
    return answered


def _in_old_form(
    result: OffsetFetchResponseGroup, wanted: OffsetFetchRequestGroup, version: int
) -> OffsetFetchResponse:
    """For clients that ask for one group. Version 1 has no error for the whole: each partition carries it."""
    response = OffsetFetchResponse(error_code=result.error_code)
    for topic in result.topics:
        partitions = [
            OffsetFetchResponsePartition(
                p.partition_index, p.committed_offset, p.committed_leader_epoch, p.metadata, p.error_code
            )
            for p in topic.partitions
        ]
        response.topics.append(OffsetFetchResponseTopic(topic.name, partitions))
    if version < 2 and result.error_code and wanted.topics is not None:
        for refused in wanted.topics:
            partitions = [
                OffsetFetchResponsePartition(index, NO_OFFSET, metadata="", error_code=result.error_code)
                for index in refused.partition_indexes
            ]
            response.topics.append(OffsetFetchResponseTopic(refused.name, partitions))
    return response
