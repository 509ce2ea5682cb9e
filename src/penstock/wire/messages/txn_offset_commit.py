"""TxnOffsetCommit (28): note how far a group has read, as part of a transaction.

2 adds leader epochs, 3 is flexible and names the member, 4 adds TRANSACTION_ABORTABLE, 5 adds the group to the
transaction by itself (transaction version 2).
"""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import INT16, INT32, INT64, STRING, array


@struct
class TxnOffsetCommitRequestPartition:
    partition_index: int = field(INT32, default=0)
    committed_offset: int = field(INT64, default=0)
    committed_leader_epoch: int = field(INT32, "2+", default=-1, ignorable=True)
    committed_metadata: str | None = field(STRING, nullable="0+", default=None)


@struct
class TxnOffsetCommitRequestTopic:
    name: str = field(STRING, default="")
    partitions: list[TxnOffsetCommitRequestPartition] = field(array(TxnOffsetCommitRequestPartition), factory=list)


@message(versions="0-5", flexible="3+")
class TxnOffsetCommitRequest:
    transactional_id: str = field(STRING, default="")
    group_id: str = field(STRING, default="")
    producer_id: int = field(INT64, default=0)
    producer_epoch: int = field(INT16, default=0)
    generation_id: int = field(INT32, "3+", default=-1)
    member_id: str = field(STRING, "3+", default="")
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field(array(TxnOffsetCommitRequestTopic), factory=list)


@struct
class TxnOffsetCommitResponsePartition:
    partition_index: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)


@struct
class TxnOffsetCommitResponseTopic:
    name: str = field(STRING, default="")
    partitions: list[TxnOffsetCommitResponsePartition] = field(array(TxnOffsetCommitResponsePartition), factory=list)


@message(versions="0-5", flexible="3+")
class TxnOffsetCommitResponse:
    throttle_time_ms: int = field(INT32, default=0)
    topics: list[TxnOffsetCommitResponseTopic] = field(array(TxnOffsetCommitResponseTopic), factory=list)
