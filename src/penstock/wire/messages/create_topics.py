"""CreateTopics (19).

0 and 1 are kept for old clients (Kafka 4 starts at 2). 1 adds validate-only, 5 is flexible and answers with the
effective configuration, 6 can refuse by quota, 7 adds topic ids.
"""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import BOOL, INT8, INT16, INT32, STRING, UUID, ZERO_UUID, array


@struct
class CreatableReplicaAssignment:
    partition_index: int = field(INT32, default=0)
    broker_ids: list[int] = field(array(INT32), factory=list)


@struct
class CreatableTopicConfig:
    name: str = field(STRING, default="")
    value: str | None = field(STRING, nullable="0+", default=None)


@struct
class CreatableTopic:
    name: str = field(STRING, default="")
    num_partitions: int = field(INT32, default=0)
    replication_factor: int = field(INT16, default=0)
    assignments: list[CreatableReplicaAssignment] = field(array(CreatableReplicaAssignment), factory=list)
    configs: list[CreatableTopicConfig] = field(array(CreatableTopicConfig), factory=list)


@message(versions="0-7", flexible="5+")
class CreateTopicsRequest:
    topics: list[CreatableTopic] = field(array(CreatableTopic), factory=list)
    timeout_ms: int = field(INT32, default=60000)
    validate_only: bool = field(BOOL, "1+", default=False)


@struct
class CreatableTopicConfigs:
    name: str = field(STRING, "5+", default="")
    value: str | None = field(STRING, "5+", nullable="5+", default=None)
    read_only: bool = field(BOOL, "5+", default=False)
    config_source: int = field(INT8, "5+", default=-1, ignorable=True)
    is_sensitive: bool = field(BOOL, "5+", default=False)


@struct
class CreatableTopicResult:
    name: str = field(STRING, default="")
    topic_id: bytes = field(UUID, "7+", default=ZERO_UUID, ignorable=True)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, "1+", nullable="0+", default=None, ignorable=True)
    topic_config_error_code: int = field(INT16, "5+", default=0, tag=0, ignorable=True)
    num_partitions: int = field(INT32, "5+", default=-1, ignorable=True)
    replication_factor: int = field(INT16, "5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = field(
        array(CreatableTopicConfigs),
        "5+",
        nullable="5+",
        factory=list,
        ignorable=True,
    )


@message(versions="0-7", flexible="5+")
class CreateTopicsResponse:
    throttle_time_ms: int = field(INT32, "2+", default=0, ignorable=True)
    topics: list[CreatableTopicResult] = field(array(CreatableTopicResult), factory=list)
