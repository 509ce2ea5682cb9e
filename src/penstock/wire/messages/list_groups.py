"""ListGroups (16). 3 is flexible, 4 filters by state, 5 by type."""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import INT16, INT32, STRING, array


@message(versions="0-5", flexible="3+")
class ListGroupsRequest:
    states_filter: list[str] = field(array(STRING), "4+", factory=list)
    types_filter: list[str] = field(array(STRING), "5+", factory=list)


@struct
class ListedGroup:
    group_id: str = field(STRING, default="")
    protocol_type: str = field(STRING, default="")
    group_state: str = field(STRING, "4+", default="", ignorable=True)
    group_type: str = field(STRING, "5+", default="", ignorable=True)


@message(versions="0-5", flexible="3+")
class ListGroupsResponse:
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    error_code: int = field(INT16, default=0)
    groups: list[ListedGroup] = field(array(ListedGroup), factory=list)
