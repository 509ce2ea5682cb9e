"""Appending to an internal topic, and waiting until that is committed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from penstock.log.producer_state import Origin
from penstock.log.validation import own_batch
from penstock.replica.partition import ALL_REPLICAS, Partition
from penstock.wire.errors import ApiError, ErrorCode

Committing = asyncio.Future[bool] | None  # when what was appended is committed; None: it is

# What a failed append means for those who asked.
_APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def append(partition: Partition, encoded: bytearray, timeout_ms: int) -> tuple[int, Committing]:
    """Append a batch; returns its offset, and the future for when it is committed. Raises ApiError."""
    try:
        batch = partition.append(own_batch(encoded), ALL_REPLICAS, Origin.COORDINATOR)
    except ApiError as error:
        raise ApiError(_APPEND_ERRORS.get(error.code, error.code), error.message) from error
    return batch.base_offset, partition.acknowledgement(batch, ALL_REPLICAS, timeout_ms)


def outcome(done: asyncio.Future[bool]) -> ErrorCode:
    """How it went with records that were appended."""
    if done.cancelled():
        return ErrorCode.NOT_COORDINATOR
    error = done.exception()
    if error is None:
        return ErrorCode.NONE if done.result() else ErrorCode.COORDINATOR_NOT_AVAILABLE
    code = error.code if isinstance(error, ApiError) else ErrorCode.UNKNOWN_SERVER_ERROR
    return _APPEND_ERRORS.get(code, code)


def when_done(future: Committing, action: Callable[[ErrorCode], None]) -> None:
    """Say how it went, when that is known."""
    if future is None:
        action(ErrorCode.NONE)
    else:
        future.add_done_callback(lambda done: action(outcome(done)))


def when_good(future: Committing, action: Callable[[], None]) -> None:
    """Act when records are committed; not at all if they cannot be."""
    when_done(future, lambda code: None if code else action())


async def settled(future: Committing) -> ErrorCode:
    """How it went with records that were appended, when that is known."""
    if future is None:
        return ErrorCode.NONE
    await asyncio.wait([future])
    return outcome(future)


def after(future: Committing, response: Any, refused: Callable[[ErrorCode], Any]) -> Any | asyncio.Future[Any]:
    """The response when the future is done, or another if it fails."""
    if future is None:
        return response
    answer = asyncio.get_running_loop().create_future()

    def done(future: asyncio.Future[bool]) -> None:
        if not answer.done():
            code = outcome(future)
            answer.set_result(refused(code) if code else response)

    future.add_done_callback(done)
    return answer
