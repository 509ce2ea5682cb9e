"""FindCoordinator (10): the broker that looks after a group or a transactional id.

1 tells groups from transactions, 3 is flexible, 4 asks for several at once, 5 goes with the newer transaction protocol,
6 adds share groups.
"""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import INT8, INT16, INT32, STRING, array


@message(versions="0-6", flexible="3+")
class FindCoordinatorRequest:
    key: str = field(STRING, "0-3", default="")
    key_type: int = field(INT8, "1+", default=0)
    coordinator_keys: list[str] = field(array(STRING), "4+", factory=list)


@struct
class Coordinator:
    key: str = field(STRING, "4+", default="")
    node_id: int = field(INT32, "4+", default=0)
    host: str = field(STRING, "4+", default="")
    port: int = field(INT32, "4+", default=0)
    error_code: int = field(INT16, "4+", default=0)
    error_message: str | None = field(STRING, "4+", nullable="4+", default=None, ignorable=True)


@message(versions="0-6", flexible="3+")
class FindCoordinatorResponse:
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    error_code: int = field(INT16, "0-3", default=0)
    error_message: str | None = field(STRING, "1-3", nullable="1-3", default=None, ignorable=True)
    node_id: int = field(INT32, "0-3", default=0)
    host: str = field(STRING, "0-3", default="")
    port: int = field(INT32, "0-3", default=0)
    coordinators: list[Coordinator] = field(array(Coordinator), "4+", factory=list)
