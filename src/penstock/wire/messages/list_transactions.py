"""ListTransactions (66): the transactional ids that a coordinator looks after.

1 can ask for those that run for long, 2 for those whose id matches a regular expression.
"""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import INT16, INT32, INT64, STRING, array


@message(versions="0-2", flexible="0+")
class ListTransactionsRequest:
    state_filters: list[str] = field(array(STRING), factory=list)
    producer_id_filters: list[int] = field(array(INT64), factory=list)
    duration_filter: int = field(INT64, "1+", default=-1)
    transactional_id_pattern: str | None = field(STRING, "2+", nullable="2+", default=None)


@struct
class TransactionState:
    transactional_id: str = field(STRING, default="")
    producer_id: int = field(INT64, default=0)
    transaction_state: str = field(STRING, default="")


@message(versions="0-2", flexible="0+")
class ListTransactionsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    unknown_state_filters: list[str] = field(array(STRING), factory=list)
    transaction_states: list[TransactionState] = field(array(TransactionState), factory=list)
