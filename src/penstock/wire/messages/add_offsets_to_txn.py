"""AddOffsetsToTxn (25): a transaction is about to commit offsets of a group.

2 adds PRODUCER_FENCED, 3 is flexible, 4 adds TRANSACTION_ABORTABLE. Clients with transaction version 2 do not send it.
"""

from __future__ import annotations

from penstock.wire.schema import field, message
from penstock.wire.types import INT16, INT32, INT64, STRING


@message(versions="0-4", flexible="3+")
class AddOffsetsToTxnRequest:
    transactional_id: str = field(STRING, default="")
    producer_id: int = field(INT64, default=0)
    producer_epoch: int = field(INT16, default=0)
    group_id: str = field(STRING, default="")


@message(versions="0-4", flexible="3+")
class AddOffsetsToTxnResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
