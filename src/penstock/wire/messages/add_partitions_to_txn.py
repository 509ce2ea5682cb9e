"""AddPartitionsToTxn (24): a transaction is about to write to partitions.

0 to 3 come from clients, one transaction at a time; 2 adds PRODUCER_FENCED, 3 is flexible. 4 and 5 come from brokers:
several transactions at once, and the question whether partitions are in one already (`verify_only`).
"""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import BOOL, INT16, INT32, INT64, STRING, array


@struct
class AddPartitionsToTxnTopic:
    name: str = field(STRING, default="")
    partitions: list[int] = field(array(INT32), factory=list)


@struct
class AddPartitionsToTxnTransaction:
    transactional_id: str = field(STRING, "4+", default="")
    producer_id: int = field(INT64, "4+", default=0)
    producer_epoch: int = field(INT16, "4+", default=0)
    verify_only: bool = field(BOOL, "4+", default=False)
    topics: list[AddPartitionsToTxnTopic] = field(array(AddPartitionsToTxnTopic), "4+", factory=list)


@message(versions="0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    transactions: list[AddPartitionsToTxnTransaction] = field(array(AddPartitionsToTxnTransaction), "4+", factory=list)
    v3_and_below_transactional_id: str = field(STRING, "0-3", default="")
    v3_and_below_producer_id: int = field(INT64, "0-3", default=0)
    v3_and_below_producer_epoch: int = field(INT16, "0-3", default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(array(AddPartitionsToTxnTopic), "0-3", factory=list)


@struct
class AddPartitionsToTxnPartitionResult:
    partition_index: int = field(INT32, default=0)
    partition_error_code: int = field(INT16, default=0)


@struct
class AddPartitionsToTxnTopicResult:
    name: str = field(STRING, default="")
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(
        array(AddPartitionsToTxnPartitionResult), factory=list
    )


@struct
class AddPartitionsToTxnResult:
    transactional_id: str = field(STRING, "4+", default="")
    topic_results: list[AddPartitionsToTxnTopicResult] = field(array(AddPartitionsToTxnTopicResult), "4+", factory=list)


@message(versions="0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, "4+", default=0, ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResult] = field(array(AddPartitionsToTxnResult), "4+", factory=list)
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(
        array(AddPartitionsToTxnTopicResult), "0-3", factory=list
    )
