"""DeleteTopics (20), versions 0-6: by name, from 6 on also by id."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from penstock.wire.types import ZERO_UUID

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call

_BY_ID_VERSION = 6
_DISABLED_SINCE_VERSION = 3

Wanted = tuple[str | None, bytes]


async def handle(broker: Broker, request: DeleteTopicsRequest, call: Call) -> DeleteTopicsResponse:
    wanted: list[Wanted]
    if call.version >= _BY_ID_VERSION:
        wanted = [(topic.name, topic.topic_id) for topic in request.topics]
    else:
        wanted = [(name, ZERO_UUID) for name in request.topic_names]
    counts = Counter(wanted)
    return DeleteTopicsResponse(
        responses=[await _delete(broker, call, name, topic_id, count) for (name, topic_id), count in counts.items()]
    )


async def _delete(broker: Broker, call: Call, name: str | None, topic_id: bytes, count: int) -> DeletableTopicResult:
    try:
        if count > 1:
            what = "name" if name is not None else "id"
            raise ApiError(ErrorCode.INVALID_REQUEST, f"Duplicate topic {what}.")
        if name is not None and topic_id != ZERO_UUID:
            raise ApiError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
        if not broker.config.delete_topic_enable:
            code = (
                ErrorCode.TOPIC_DELETION_DISABLED
                if call.version >= _DISABLED_SINCE_VERSION
                else ErrorCode.INVALID_REQUEST
            )
            raise ApiError(code, "delete.topic.enable is false")
        topic = await broker.controller.delete_topic(name, topic_id)
        return DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)
    except ApiError as error:
        return DeletableTopicResult(name=name, topic_id=topic_id, error_code=error.code, error_message=error.message)
