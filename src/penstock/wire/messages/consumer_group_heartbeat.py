"""ConsumerGroupHeartbeat (68): everything a member of a consumer group says and hears.

1 adds the subscription by regular expression, and lets the member choose its id.
"""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import INT16, INT32, STRING, UUID, ZERO_UUID, array, struct_of


@struct
class TopicPartitions:
    topic_id: bytes = field(UUID, default=ZERO_UUID)
    partitions: list[int] = field(array(INT32), factory=list)


@message(versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest:
    group_id: str = field(STRING, default="")
    member_id: str = field(STRING, default="")
    member_epoch: int = field(INT32, default=0)
    instance_id: str | None = field(STRING, nullable="0+", default=None)
    rack_id: str | None = field(STRING, nullable="0+", default=None)
    rebalance_timeout_ms: int = field(INT32, default=-1)
    subscribed_topic_names: list[str] | None = field(array(STRING), nullable="0+", default=None)
    subscribed_topic_regex: str | None = field(STRING, "1+", nullable="1+", default=None)
    server_assignor: str | None = field(STRING, nullable="0+", default=None)
    topic_partitions: list[TopicPartitions] | None = field(array(TopicPartitions), nullable="0+", default=None)


@struct
class Assignment:
    topic_partitions: list[TopicPartitions] = field(array(TopicPartitions), factory=list)


@message(versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    member_id: str | None = field(STRING, nullable="0+", default=None)
    member_epoch: int = field(INT32, default=0)
    heartbeat_interval_ms: int = field(INT32, default=0)
    assignment: Assignment | None = field(struct_of(Assignment), nullable="0+", default=None)
