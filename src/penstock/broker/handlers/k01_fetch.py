"""Fetch (1), versions 4-18: read record batches.

A fetch that starts inside a batch gets the whole batch; the first batch is given whole even if it is larger than the
limits. Consumers read up to the high watermark, with read_committed up to the last stable offset.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.fetching import Fetch
from penstock.wire.errors import ApiError
from penstock.wire.isolation import READ_COMMITTED
from penstock.wire.messages.fetch import FetchRequest, FetchResponse

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call

_TOPIC_ID_VERSION = 13


def handle(broker: Broker, request: FetchRequest, call: Call) -> Any:
    uses_topic_ids = call.version >= _TOPIC_ID_VERSION
    try:
        plan = broker.fetch_sessions.plan(request, uses_topic_ids=uses_topic_ids, now=broker.clock.monotonic())
    except ApiError as error:
        return FetchResponse(error_code=error.code)
    return Fetch(
        broker,
        plan,
        bytes_min=request.min_bytes,
        bytes_max=min(request.max_bytes, broker.config.fetch_max_bytes),
        wait_ms=request.max_wait_ms,
        is_committed_only=request.isolation_level == READ_COMMITTED,
    ).run()
