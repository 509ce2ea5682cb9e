"""Fetch (1): read record batches; the same call serves consumers and followers.

4 adds the isolation level, 7 incremental sessions, 9 leader epochs, 10 permits zstd, 11 reads from a nearby replica. 12
is flexible and detects diverging logs by epoch, 13 names topics by id, 15 moves the replica id into a tagged field, 16
adds leader endpoints, 17 the follower's directory, 18 the follower's high watermark.
"""

from __future__ import annotations

from collections.abc import Sized

from penstock.wire.schema import field, message, struct
from penstock.wire.types import INT8, INT16, INT32, INT64, RECORDS, STRING, UUID, ZERO_UUID, array, struct_of


@struct
class ReplicaState:
    replica_id: int = field(INT32, "15+", default=-1)
    replica_epoch: int = field(INT64, "15+", default=-1)


@struct
class FetchPartition:
    partition: int = field(INT32, default=0)
    current_leader_epoch: int = field(INT32, "9+", default=-1, ignorable=True)
    fetch_offset: int = field(INT64, default=0)
    last_fetched_epoch: int = field(INT32, "12+", default=-1)
    log_start_offset: int = field(INT64, "5+", default=-1, ignorable=True)
    partition_max_bytes: int = field(INT32, default=0)
    replica_directory_id: bytes = field(UUID, "17+", default=ZERO_UUID, tag=0, ignorable=True)
    high_watermark: int = field(INT64, "18+", default=9223372036854775807, tag=1, ignorable=True)


@struct
class FetchTopic:
    topic: str = field(STRING, "4-12", default="", ignorable=True)
    topic_id: bytes = field(UUID, "13+", default=ZERO_UUID, ignorable=True)
    partitions: list[FetchPartition] = field(array(FetchPartition), factory=list)


@struct
class ForgottenTopic:
    topic: str = field(STRING, "7-12", default="", ignorable=True)
    topic_id: bytes = field(UUID, "13+", default=ZERO_UUID, ignorable=True)
    partitions: list[int] = field(array(INT32), "7+", factory=list)


@message(versions="4-18", flexible="12+")
class FetchRequest:
    cluster_id: str | None = field(STRING, "12+", nullable="12+", default=None, tag=0, ignorable=True)
    replica_id: int = field(INT32, "4-14", default=-1)
    replica_state: ReplicaState | None = field(struct_of(ReplicaState), "15+", default=None, tag=1)
    max_wait_ms: int = field(INT32, default=0)
    min_bytes: int = field(INT32, default=0)
    max_bytes: int = field(INT32, default=2147483647, ignorable=True)
    isolation_level: int = field(INT8, default=0, ignorable=True)
    session_id: int = field(INT32, "7+", default=0, ignorable=True)
    session_epoch: int = field(INT32, "7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = field(array(FetchTopic), factory=list)
    forgotten_topics_data: list[ForgottenTopic] = field(array(ForgottenTopic), "7+", factory=list)
    rack_id: str = field(STRING, "11+", default="", ignorable=True)


@struct
class EpochEndOffset:
    epoch: int = field(INT32, "12+", default=-1)
    end_offset: int = field(INT64, "12+", default=-1)


@struct
class LeaderIdAndEpoch:
    leader_id: int = field(INT32, "12+", default=-1)
    leader_epoch: int = field(INT32, "12+", default=-1)


@struct
class SnapshotId:
    end_offset: int = field(INT64, default=-1)
    epoch: int = field(INT32, default=-1)


@struct
class AbortedTransaction:
    producer_id: int = field(INT64, default=0)
    first_offset: int = field(INT64, default=0)


@struct
class PartitionData:
    partition_index: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    high_watermark: int = field(INT64, default=0)
    last_stable_offset: int = field(INT64, default=-1, ignorable=True)
    log_start_offset: int = field(INT64, "5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset | None = field(struct_of(EpochEndOffset), "12+", default=None, tag=0)
    current_leader: LeaderIdAndEpoch | None = field(struct_of(LeaderIdAndEpoch), "12+", default=None, tag=1)
    snapshot_id: SnapshotId | None = field(struct_of(SnapshotId), "12+", default=None, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = field(
        array(AbortedTransaction),
        nullable="4+",
        factory=list,
        ignorable=True,
    )
    preferred_read_replica: int = field(INT32, "11+", default=-1)
    records: Sized | None = field(RECORDS, nullable="0+", default=None)


@struct
class FetchableTopicResponse:
    topic: str = field(STRING, "4-12", default="", ignorable=True)
    topic_id: bytes = field(UUID, "13+", default=ZERO_UUID, ignorable=True)
    partitions: list[PartitionData] = field(array(PartitionData), factory=list)


@struct
class NodeEndpoint:
    node_id: int = field(INT32, "16+", default=0)
    host: str = field(STRING, "16+", default="")
    port: int = field(INT32, "16+", default=0)
    rack: str | None = field(STRING, "16+", nullable="16+", default=None)


@message(versions="4-18", flexible="12+")
class FetchResponse:
    throttle_time_ms: int = field(INT32, default=0, ignorable=True)
    error_code: int = field(INT16, "7+", default=0, ignorable=True)
    session_id: int = field(INT32, "7+", default=0)
    responses: list[FetchableTopicResponse] = field(array(FetchableTopicResponse), factory=list)
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), "16+", factory=list, tag=0)
