"""DeleteGroups (42): delete groups without members, with their offsets. 2 is flexible."""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import INT16, INT32, STRING, array


@message(versions="0-2", flexible="2+")
class DeleteGroupsRequest:
    groups_names: list[str] = field(array(STRING), factory=list)


@struct
class DeletableGroupResult:
    group_id: str = field(STRING, default="")
    error_code: int = field(INT16, default=0)


@message(versions="0-2", flexible="2+")
class DeleteGroupsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    results: list[DeletableGroupResult] = field(array(DeletableGroupResult), factory=list)
