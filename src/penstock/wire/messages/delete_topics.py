"""DeleteTopics (20).

0 is kept for old clients (Kafka 4 starts at 1). 4 is flexible, 5 explains errors, 6 deletes by id.
"""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import INT16, INT32, STRING, UUID, ZERO_UUID, array


@struct
class DeleteTopicState:
    name: str | None = field(STRING, "6+", nullable="6+", default=None)
    topic_id: bytes = field(UUID, "6+", default=ZERO_UUID)


@message(versions="0-6", flexible="4+")
class DeleteTopicsRequest:
    topics: list[DeleteTopicState] = field(array(DeleteTopicState), "6+", factory=list)
    topic_names: list[str] = field(array(STRING), "0-5", factory=list, ignorable=True)
    timeout_ms: int = field(INT32, default=0)


@struct
class DeletableTopicResult:
    name: str | None = field(STRING, nullable="6+", default=None)
    topic_id: bytes = field(UUID, "6+", default=ZERO_UUID, ignorable=True)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, "5+", nullable="5+", default=None, ignorable=True)


@message(versions="0-6", flexible="4+")
class DeleteTopicsResponse:
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    responses: list[DeletableTopicResult] = field(array(DeletableTopicResult), factory=list)
