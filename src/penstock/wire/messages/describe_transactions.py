"""DescribeTransactions (65): what the coordinator knows of transactional ids."""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import INT16, INT32, INT64, STRING, array


@message(versions="0", flexible="0+")
class DescribeTransactionsRequest:
    transactional_ids: list[str] = field(array(STRING), factory=list)


@struct
class TopicData:
    topic: str = field(STRING, default="")
    partitions: list[int] = field(array(INT32), factory=list)


@struct
class TransactionState:
    error_code: int = field(INT16, default=0)
    transactional_id: str = field(STRING, default="")
    transaction_state: str = field(STRING, default="")
    transaction_timeout_ms: int = field(INT32, default=0)
    transaction_start_time_ms: int = field(INT64, default=0)
    producer_id: int = field(INT64, default=0)
    producer_epoch: int = field(INT16, default=0)
    topics: list[TopicData] = field(array(TopicData), factory=list)


@message(versions="0", flexible="0+")
class DescribeTransactionsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    transaction_states: list[TransactionState] = field(array(TransactionState), factory=list)
