"""ElectLeaders (43): hand partitions to another leader. 1 tells kinds of elections apart, 2 is flexible."""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import INT8, INT16, INT32, STRING, array


@struct
class TopicPartitions:
    topic: str = field(STRING, default="")
    partitions: list[int] = field(array(INT32), factory=list)


@message(versions="0-2", flexible="2+")
class ElectLeadersRequest:
    election_type: int = field(INT8, "1+", default=0)
    topic_partitions: list[TopicPartitions] | None = field(array(TopicPartitions), nullable="0+", factory=list)
    timeout_ms: int = field(INT32, default=60_000)


@struct
class PartitionResult:
    partition_id: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)


@struct
class ReplicaElectionResult:
    topic: str = field(STRING, default="")
    partition_result: list[PartitionResult] = field(array(PartitionResult), factory=list)


@message(versions="0-2", flexible="2+")
class ElectLeadersResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, "1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = field(array(ReplicaElectionResult), factory=list)
