"""InitProducerId (22): an identity for an idempotent or transactional producer.

2 is flexible, 3 lets a producer keep its identity after an error, 4 fences with PRODUCER_FENCED, 5 goes with
transaction version 2. Version 6 (two-phase commit) is not served: Kafka itself holds it unstable.
"""

from __future__ import annotations

from penstock.wire.schema import field, message
from penstock.wire.types import BOOL, INT16, INT32, INT64, STRING


@message(versions="0-5", flexible="2+")
class InitProducerIdRequest:
    transactional_id: str | None = field(STRING, nullable="0+", default=None)
    transaction_timeout_ms: int = field(INT32, default=0)
    producer_id: int = field(INT64, "3+", default=-1)
    producer_epoch: int = field(INT16, "3+", default=-1)
    enable2_pc: bool = field(BOOL, "6+", default=False)
    keep_prepared_txn: bool = field(BOOL, "6+", default=False)


@message(versions="0-5", flexible="2+")
class InitProducerIdResponse:
    throttle_time_ms: int = field(INT32, default=0, ignorable=True)
    error_code: int = field(INT16, default=0)
    producer_id: int = field(INT64, default=-1)
    producer_epoch: int = field(INT16, default=0)
    ongoing_txn_producer_id: int = field(INT64, "6+", default=-1)
    ongoing_txn_producer_epoch: int = field(INT16, "6+", default=-1)
