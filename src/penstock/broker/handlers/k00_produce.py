"""Produce (0), versions 3-13: append record batches.

Partitions are appended to in the order of the request, before the next request of the connection is looked at. What
acks asks for is waited for afterwards. acks=0 has no answer; an error then closes the connection, so that the producer
looks for the leader again. Internal topics are only for the broker to write to.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.log.validation import RecordsRejected, check_client_batch, check_plain_batch
from penstock.replica.partition import ALL_REPLICAS, Partition
from penstock.wire._codec import RequestCursor, encode_one_produced, read_one_produce
from penstock.wire._kernel import Batch
from penstock.wire.compression import Codec
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.connection import Connection
    from penstock.broker.dispatch import Call

_TOPIC_ID_VERSION = 13
_ZSTD_VERSION = 7
_VALID_ACKS = (-1, 0, 1)

Waiting = list[tuple[asyncio.Future[bool], PartitionProduceResponse]]


def handle_frame(broker: Broker, cursor: RequestCursor, connection: Connection) -> Any:
    """The short way for what most requests are: one partition, and nothing to complain about.

    Returns the encoded response, or a future of a ProduceResponse; None if the request must go the long way, which then
    also finds the right words for what is wrong.
    """
    request = read_one_produce(cursor, cursor.api_version)
    if request is None or request.acks == 0:
        return cursor.rewind()
    partition = broker.replicas.get(request.topic, request.index)
    if partition is None or partition.is_internal:
        return cursor.rewind()
    acks = request.acks
    log = partition.log
    batch = check_plain_batch(request.records, log.rules, broker.clock.time_ms())
    if batch is None or batch.attributes or (acks != 1 and acks != ALL_REPLICAS):
        return cursor.rewind()
    try:
        partition.append(batch, acks)
    except ApiError:
        return cursor.rewind()
    future = partition.acknowledgement(batch, acks, request.timeout_ms)
    if future is None:
        return encode_one_produced(cursor, request, batch.base_offset, batch.log_append_time, log.start_offset)
    result = PartitionProduceResponse(
        index=request.index,
        base_offset=batch.base_offset,
        log_append_time_ms=batch.log_append_time,
        log_start_offset=log.start_offset,
    )
    answered = TopicProduceResponse(partition_responses=[result])
    if isinstance(request.topic, bytes):
        answered.topic_id = request.topic
    else:
        answered.name = request.topic
    return _acknowledge(ProduceResponse(responses=[answered]), [(future, result)])


def handle(broker: Broker, request: ProduceRequest, call: Call) -> Any:
    for topic in request.topic_data:
        key = _topic_key(topic, call)
        for data in topic.partition_data:
            partition = broker.replicas.get(key, data.index)
            if partition is not None and data.records is not None and partition.log.rules.is_costly(data.records):
                return _handle_in_steps(broker, request, call)
    response = ProduceResponse()
    waiting: Waiting = []
    for topic in request.topic_data:
        key = _topic_key(topic, call)
        answered = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
        for data in topic.partition_data:
            result = PartitionProduceResponse(index=data.index, base_offset=-1)
            answered.partition_responses.append(result)
            try:
                partition = _find(broker, request, key, data.index)
                result.log_start_offset = partition.log.start_offset
                batch = _check(partition, data.records, request, call, broker.clock.time_ms())
                _append(partition, batch, request, result, waiting)
            except ApiError as error:
                _refuse(result, error)
        response.responses.append(answered)
    return _answer(request, response, waiting, call)


def _handle_in_steps(broker: Broker, request: ProduceRequest, call: Call) -> Any:
    """The same with checks in a thread, for batches that take long to unfold. Later requests wait their turn.

    The order is kept and the records are copied before this returns: then the next request is looked at, and the
    frame's memory is used again.
    """
    order = ExitStack()
    order.enter_context(call.connection.in_order())
    owned = [[_own(data.records) for data in topic.partition_data] for topic in request.topic_data]
    return _append_in_steps(broker, request, call, order, owned)


async def _append_in_steps(
    broker: Broker, request: ProduceRequest, call: Call, order: ExitStack, owned: list[list[memoryview | None]]
) -> Any:
    response = ProduceResponse()
    waiting: Waiting = []
    with order:
        for topic, contents in zip(request.topic_data, owned, strict=True):
            key = _topic_key(topic, call)
            answered = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
            for data, records in zip(topic.partition_data, contents, strict=True):
                result = PartitionProduceResponse(index=data.index, base_offset=-1)
                answered.partition_responses.append(result)
                try:
                    partition = _find(broker, request, key, data.index)
                    result.log_start_offset = partition.log.start_offset
                    check = partial(_check, partition, records, request, call, broker.clock.time_ms())
                    _append(partition, await broker.background.run(check), request, result, waiting)
                except ApiError as error:
                    _refuse(result, error)
            response.responses.append(answered)
    answer = _answer(request, response, waiting, call)
    return await answer if asyncio.iscoroutine(answer) else answer


def _own(records: memoryview | None) -> memoryview | None:
    """A copy: the frame's memory is used again as soon as the handler returns."""
    return None if records is None else memoryview(bytearray(records))


def _topic_key(topic: TopicProduceData, call: Call) -> str | bytes:
    return topic.topic_id if call.version >= _TOPIC_ID_VERSION else topic.name


def _find(broker: Broker, request: ProduceRequest, topic: str | bytes, index: int) -> Partition:
    if request.acks not in _VALID_ACKS:
        raise ApiError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks must be -1, 0 or 1, not {request.acks}")
    partition = broker.replicas.find(topic, index)
    if partition.is_internal:
        raise ApiError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"{partition.topic} is the brokers' own topic: clients cannot write to it",
        )
    return partition


def _check(partition: Partition, records: memoryview | None, request: ProduceRequest, call: Call, now_ms: int) -> Batch:
    if records is None:
        raise ApiError(ErrorCode.INVALID_RECORD, "a produce request must hold exactly one record batch per partition")
    batch = check_client_batch(records, partition.log.rules, now_ms)
    if batch.is_transactional and request.transactional_id is None:
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if batch.is_transactional:
        raise ApiError(ErrorCode.INVALID_TXN_STATE, "this broker does not serve transactions")
    if batch.codec == Codec.ZSTD and call.version < _ZSTD_VERSION:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs version {_ZSTD_VERSION} of Produce; the client used {call.version}",
        )
    return batch


def _append(
    partition: Partition, batch: Batch, request: ProduceRequest, result: PartitionProduceResponse, waiting: Waiting
) -> None:
    partition.append(batch, request.acks)
    result.base_offset = batch.base_offset
    result.log_append_time_ms = batch.log_append_time
    if request.acks != 0:
        future = partition.acknowledgement(batch, request.acks, request.timeout_ms)
        if future is not None:
            waiting.append((future, result))


def _refuse(result: PartitionProduceResponse, error: ApiError) -> None:
    result.error_code = error.code
    result.error_message = error.message
    result.base_offset = -1
    if isinstance(error, RecordsRejected):
        result.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in error.record_errors
        ]


def _answer(request: ProduceRequest, response: ProduceResponse, waiting: Waiting, call: Call) -> Any:
    if request.acks == 0:
        if any(result.error_code for topic in response.responses for result in topic.partition_responses):
            call.connection.close_because("a produce request with acks=0 failed")
        return None
    return _acknowledge(response, waiting) if waiting else response


async def _acknowledge(response: ProduceResponse, waiting: Waiting) -> ProduceResponse:
    for future, result in waiting:
        try:
            if not await future:
                _refuse(result, ApiError(ErrorCode.REQUEST_TIMED_OUT, "the write was not acknowledged in time"))
        except ApiError as error:
            _refuse(result, error)
    return response
