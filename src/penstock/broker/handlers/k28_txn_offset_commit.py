"""TxnOffsetCommit (28), versions 0-5: note how far a group has read, as part of a transaction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.admission import Rules, admit
from penstock.coordination.appends import settled
from penstock.group.commits import TxnProducer
from penstock.group.coordinator import OFFSETS_TOPIC
from penstock.group.offsets import Committed
from penstock.txn.transaction import Identity, TopicPartition
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call

_TELLS_LOADING = 2
_TELLS_ABORTABLE = 4
_ADDS_OFFSETS = 5


async def handle(broker: Broker, request: TxnOffsetCommitRequest, call: Call) -> TxnOffsetCommitResponse:
    response = TxnOffsetCommitResponse()
    offsets: list[tuple[str, int, Committed]] = []
    accepted: list[TxnOffsetCommitResponsePartition] = []
    now_ms = broker.clock.time_ms()
    for wanted in request.topics:
        answered = TxnOffsetCommitResponseTopic(wanted.name)
        response.topics.append(answered)
        for partition in wanted.partitions:
            result = TxnOffsetCommitResponsePartition(partition.partition_index)
            answered.partitions.append(result)
            metadata = partition.committed_metadata or ""
            if broker.image.partition(wanted.name, partition.partition_index) is None:
                result.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(metadata) > broker.config.offset_metadata_max_bytes:
                result.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                epoch = partition.committed_leader_epoch
                committed = Committed(partition.committed_offset, epoch, metadata, now_ms)
                offsets.append((wanted.name, partition.partition_index, committed))
                accepted.append(result)
    if offsets:
        code = await _commit(broker, request, offsets, call.version)
        for result in accepted:
            result.error_code = code
    return response


async def _commit(
    broker: Broker, request: TxnOffsetCommitRequest, offsets: list[tuple[str, int, Committed]], version: int
) -> ErrorCode:
    try:
        code = await _try_to_commit(broker, request, offsets, version)
    except ApiError as error:
        code = error.code
    if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _TELLS_LOADING:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return code


async def _try_to_commit(
    broker: Broker, request: TxnOffsetCommitRequest, offsets: list[tuple[str, int, Committed]], version: int
) -> ErrorCode:
    group_id = request.group_id
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID)
    member = (group_id, request.member_id, request.group_instance_id, request.generation_id, version)
    broker.groups.commits.check_in_transaction(*member)
    who = Identity(request.producer_id, request.producer_epoch)
    where = TopicPartition(OFFSETS_TOPIC, broker.groups.shards.partition_of(group_id))
    rules = Rules(adds=version >= _ADDS_OFFSETS, knows_abortable=version >= _TELLS_ABORTABLE)
    refused, future = admit(broker, rules, request.transactional_id, who, frozenset({where}))
    if refused:
        raise refused[where]
    if future is not None:
        code = await settled(future)
        if code:
            return code
    shard = broker.groups.commits.check_in_transaction(*member)  # it may have changed meanwhile
    return await settled(broker.groups.commits.commit(shard, group_id, offsets, TxnProducer(*who)))
