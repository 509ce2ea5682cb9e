"""CreatePartitions (37). 2 is flexible, 3 can refuse by quota."""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import BOOL, INT16, INT32, STRING, array


@struct
class CreatePartitionsAssignment:
    broker_ids: list[int] = field(array(INT32), factory=list)


@struct
class CreatePartitionsTopic:
    name: str = field(STRING, default="")
    count: int = field(INT32, default=0)
    assignments: list[CreatePartitionsAssignment] | None = field(
        array(CreatePartitionsAssignment),
        nullable="0+",
        factory=list,
    )


@message(versions="0-3", flexible="2+")
class CreatePartitionsRequest:
    topics: list[CreatePartitionsTopic] = field(array(CreatePartitionsTopic), factory=list)
    timeout_ms: int = field(INT32, default=0)
    validate_only: bool = field(BOOL, default=False)


@struct
class CreatePartitionsTopicResult:
    name: str = field(STRING, default="")
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)


@message(versions="0-3", flexible="2+")
class CreatePartitionsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    results: list[CreatePartitionsTopicResult] = field(array(CreatePartitionsTopicResult), factory=list)
