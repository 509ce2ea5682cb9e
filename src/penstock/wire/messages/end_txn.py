"""EndTxn (26): commit or abort a transaction.

2 adds PRODUCER_FENCED, 3 is flexible, 4 adds TRANSACTION_ABORTABLE, 5 gives the producer a new epoch with every end
(transaction version 2).
"""

from __future__ import annotations

from penstock.wire.schema import field, message
from penstock.wire.types import BOOL, INT16, INT32, INT64, STRING


@message(versions="0-5", flexible="3+")
class EndTxnRequest:
    transactional_id: str = field(STRING, default="")
    producer_id: int = field(INT64, default=0)
    producer_epoch: int = field(INT16, default=0)
    committed: bool = field(BOOL, default=False)


@message(versions="0-5", flexible="3+")
class EndTxnResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    producer_id: int = field(INT64, "5+", default=-1, ignorable=True)
    producer_epoch: int = field(INT16, "5+", default=-1, ignorable=True)
