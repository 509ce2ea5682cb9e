"""Metadata (3): brokers, topics, partitions and their leaders.

An empty topic list means "all" in version 0 and "none" from version 1, where null means "all". 4 adds the switch for
auto-creation, 5 offline replicas, 7 leader epochs, 8 authorised operations, 9 is flexible, 10 adds topic ids, 12 asks
by id, 13 carries an error for the whole.
"""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import BOOL, INT16, INT32, STRING, UUID, ZERO_UUID, array


@struct
class MetadataRequestTopic:
    topic_id: bytes = field(UUID, "10+", default=ZERO_UUID, ignorable=True)
    name: str | None = field(STRING, nullable="10+", default=None)


@message(versions="0-13", flexible="9+")
class MetadataRequest:
    topics: list[MetadataRequestTopic] | None = field(array(MetadataRequestTopic), nullable="1+", factory=list)
    allow_auto_topic_creation: bool = field(BOOL, "4+", default=True)
    include_cluster_authorized_operations: bool = field(BOOL, "8-10", default=False)
    include_topic_authorized_operations: bool = field(BOOL, "8+", default=False)


@struct
class MetadataResponseBroker:
    node_id: int = field(INT32, default=0)
    host: str = field(STRING, default="")
    port: int = field(INT32, default=0)
    rack: str | None = field(STRING, "1+", nullable="1+", default=None, ignorable=True)


@struct
class MetadataResponsePartition:
    error_code: int = field(INT16, default=0)
    partition_index: int = field(INT32, default=0)
    leader_id: int = field(INT32, default=0)
    leader_epoch: int = field(INT32, "7+", default=-1, ignorable=True)
    replica_nodes: list[int] = field(array(INT32), factory=list)
    isr_nodes: list[int] = field(array(INT32), factory=list)
    offline_replicas: list[int] = field(array(INT32), "5+", factory=list, ignorable=True)


@struct
class MetadataResponseTopic:
    error_code: int = field(INT16, default=0)
    name: str | None = field(STRING, nullable="12+", default=None)
    topic_id: bytes = field(UUID, "10+", default=ZERO_UUID, ignorable=True)
    is_internal: bool = field(BOOL, "1+", default=False, ignorable=True)
    partitions: list[MetadataResponsePartition] = field(array(MetadataResponsePartition), factory=list)
    topic_authorized_operations: int = field(INT32, "8+", default=-2147483648)


@message(versions="0-13", flexible="9+")
class MetadataResponse:
    throttle_time_ms: int = field(INT32, "3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker] = field(array(MetadataResponseBroker), factory=list)
    cluster_id: str | None = field(STRING, "2+", nullable="2+", default=None, ignorable=True)
    controller_id: int = field(INT32, "1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = field(array(MetadataResponseTopic), factory=list)
    cluster_authorized_operations: int = field(INT32, "8-10", default=-2147483648)
    error_code: int = field(INT16, "13+", default=0, ignorable=True)
