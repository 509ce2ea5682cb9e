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

from penstock.broker._producing import append_one
from penstock.broker.admission import Rules, admit
from penstock.coordination.appends import settled
from penstock.log.validation import RecordsRejected, check_client_batch
from penstock.replica.partition import Partition
from penstock.txn.transaction import Identity, TopicPartition
from penstock.wire._codec import RequestCursor, encode_one_produced
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
_TELLS_ABORTABLE = 11
_ADDS_PARTITIONS = 12
_VALID_ACKS = (-1, 0, 1)

_COORDINATOR_TROUBLE = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)

Waiting = list[tuple[asyncio.Future[bool], PartitionProduceResponse]]


def handle_frame(broker: Broker, cursor: RequestCursor, connection: Connection) -> Any:
    """The short way for what most requests are: one partition, and nothing to complain about.

    Returns the encoded response, or a future of a ProduceResponse; None if the request must go the long way, which then
    also finds the right words for what is wrong.
    """
    appended = append_one(cursor, broker.replicas.by_key, broker.clock.time_ms(), broker.turn)
    if appended is None:
        return cursor.rewind()
    if isinstance(appended, bytes):
        return appended
    request, partition, batch = appended
    log = partition.log
    future = partition.acknowledgement(batch, request.acks, request.timeout_ms)
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
    response, parts = _parts(broker, request, call)
    for part in parts:
        try:
            part.check(request, call, broker.clock.time_ms())
        except ApiError as error:
            _refuse(part.result, error)
    future = _admit(broker, request, parts, call)
    if future is not None:
        return _append_when_admitted(request, response, parts, call, future)
    return _answer(request, response, _append(request, parts), call)


def _append_when_admitted(
    request: ProduceRequest, response: ProduceResponse, parts: list[Part], call: Call, future: asyncio.Future[bool]
) -> Any:
    """The same when the coordinator must first save that the partitions are in the transaction.

    The order is kept and the records are copied before this returns: then the next request is looked at, and the
    frame's memory is used again.
    """
    order = ExitStack()
    order.enter_context(call.connection.in_order())
    for part in parts:
        if part.batch is not None:
            part.batch.data = memoryview(bytearray(part.batch.data))

    async def append() -> Any:
        with order:
            await _wait_for_admission(parts, future)
            waiting = _append(request, parts)
        answer = _answer(request, response, waiting, call)
        return await answer if asyncio.iscoroutine(answer) else answer

    return append()


def _handle_in_steps(broker: Broker, request: ProduceRequest, call: Call) -> Any:
    """The same with checks in a thread, for batches that take long to unfold. Later requests wait their turn."""
    order = ExitStack()
    order.enter_context(call.connection.in_order())
    response, parts = _parts(broker, request, call)
    for part in parts:
        part.records = _own(part.records)

    async def append() -> Any:
        with order:
            for part in parts:
                try:
                    await broker.background.run(partial(part.check, request, call, broker.clock.time_ms()))
                except ApiError as error:
                    _refuse(part.result, error)
            future = _admit(broker, request, parts, call)
            if future is not None:
                await _wait_for_admission(parts, future)
            waiting = _append(request, parts)
        answer = _answer(request, response, waiting, call)
        return await answer if asyncio.iscoroutine(answer) else answer

    return append()


def _parts(broker: Broker, request: ProduceRequest, call: Call) -> tuple[ProduceResponse, list[Part]]:
    """The response to be filled, and the partitions that can be appended to."""
    response = ProduceResponse()
    parts = []
    for topic in request.topic_data:
        key = _topic_key(topic, call)
        answered = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id)
        for data in topic.partition_data:
            result = PartitionProduceResponse(index=data.index, base_offset=-1)
            answered.partition_responses.append(result)
            try:
                partition = _find(broker, request, key, data.index)
            except ApiError as error:
                _refuse(result, error)
            else:
                result.log_start_offset = partition.log.start_offset
                parts.append(Part(partition, data.records, result))
        response.responses.append(answered)
    return response, parts


class Part:
    """What a request has for one partition; the batch, once it is checked and not refused."""

    __slots__ = ("batch", "partition", "records", "result")

    def __init__(self, partition: Partition, records: memoryview | None, result: PartitionProduceResponse) -> None:
        self.partition = partition
        self.records = records
        self.result = result
        self.batch: Batch | None = None

    def check(self, request: ProduceRequest, call: Call, now_ms: int) -> None:
        self.batch = _check(self.partition, self.records, request, call, now_ms)

    def refuse(self, error: ApiError) -> None:
        self.batch = None
        _refuse(self.result, error)


def _admit(broker: Broker, request: ProduceRequest, parts: list[Part], call: Call) -> asyncio.Future[bool] | None:
    """See to it that what is written transactionally belongs to an open transaction. Returns what to wait for."""
    if request.transactional_id is None:
        return None
    asking: dict[TopicPartition, list[Part]] = {}
    who: Identity | None = None
    for part in parts:
        batch = part.batch
        if batch is None or not batch.is_transactional or part.partition.log.producers.is_in_transaction(batch):
            continue
        if who is not None and who.producer_id != batch.producer_id:
            part.refuse(ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "a request is of one transactional producer"))
            continue
        who = Identity(batch.producer_id, batch.producer_epoch)
        asking.setdefault(TopicPartition(part.partition.topic, part.partition.index), []).append(part)
    if who is None:
        return None
    rules = Rules(adds=call.version >= _ADDS_PARTITIONS, knows_abortable=call.version >= _TELLS_ABORTABLE)
    if rules.adds:
        _check_first(asking)
    if not asking:
        return None
    refused, future = admit(broker, rules, request.transactional_id, who, frozenset(asking))
    for where, error in refused.items():
        for part in asking[where]:
            part.refuse(_retriable(error, rules))
    return future


def _check_first(asking: dict[TopicPartition, list[Part]]) -> None:
    """Leave out partitions that a producer cannot begin with: they must not become part of the transaction."""
    for where, parts in list(asking.items()):
        first = parts[0]
        try:
            if first.batch is not None:
                first.partition.log.producers.check_first(first.batch)
        except ApiError as error:
            for part in parts:
                part.refuse(error)
            del asking[where]


def _retriable(error: ApiError, rules: Rules) -> ApiError:
    """Old producers know of no trouble with coordinators: they are told something after which they try again."""
    if error.code in _COORDINATOR_TROUBLE or (error.code == ErrorCode.CONCURRENT_TRANSACTIONS and not rules.adds):
        return ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, f"the transaction cannot be verified now: {error}")
    return error


async def _wait_for_admission(parts: list[Part], future: asyncio.Future[bool]) -> None:
    code = await settled(future)
    if code:
        for part in parts:
            if part.batch is not None and part.batch.is_transactional:
                part.refuse(ApiError(ErrorCode.NOT_ENOUGH_REPLICAS, "the transaction cannot be saved now"))


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
    if batch.codec == Codec.ZSTD and call.version < _ZSTD_VERSION:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"zstd needs version {_ZSTD_VERSION} of Produce; the client used {call.version}",
        )
    return batch


def _append(request: ProduceRequest, parts: list[Part]) -> Waiting:
    """Append what is not refused, in the order of the request. Returns what the answer has to wait for."""
    waiting: Waiting = []
    for part in parts:
        batch = part.batch
        if batch is None:
            continue
        try:
            part.partition.append(batch, request.acks)
        except ApiError as error:
            _refuse(part.result, error)
            continue
        part.result.base_offset = batch.base_offset
        part.result.log_append_time_ms = batch.log_append_time
        if request.acks != 0:
            future = part.partition.acknowledgement(batch, request.acks, request.timeout_ms)
            if future is not None:
                waiting.append((future, part.result))
    return waiting


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
