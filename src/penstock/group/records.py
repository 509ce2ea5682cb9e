"""The records of `__consumer_offsets`: Kafka's own types, in its own encoding.

So Kafka's tools read the topic, and a data directory can move between the two. A record's key begins with its type, its
value with the version it is written in; a record without a value removes what its key names. Everything a coordinator
knows is the sum of these records.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.wire.errors import DecodeError
from penstock.wire.schema import codec, field, message, message_versions, struct
from penstock.wire.types import BYTES, INT8, INT32, INT64, STRING, UUID, ZERO_UUID, array, struct_of


class GroupRecord(NamedTuple):
    """A key, and its value; None removes it."""

    key: Any
    value: Any


@message(versions="0")
class OffsetCommitKey:
    group: str = field(STRING, default="")
    topic: str = field(STRING, default="")
    partition: int = field(INT32, default=0)


@message(versions="0-4", flexible="4+")
class OffsetCommitValue:
    offset: int = field(INT64, default=0)
    leader_epoch: int = field(INT32, "3+", default=-1, ignorable=True)
    metadata: str = field(STRING, default="")
    commit_timestamp: int = field(INT64, default=0)
    expire_timestamp: int = field(INT64, "1", default=-1, ignorable=True)
    topic_id: bytes = field(UUID, "4+", default=ZERO_UUID, tag=0, ignorable=True)


@message(versions="0")
class GroupMetadataKey:
    group: str = field(STRING, default="")


@struct
class MemberMetadata:
    member_id: str = field(STRING, default="")
    group_instance_id: str | None = field(STRING, "3+", nullable="3+", default=None, ignorable=True)
    client_id: str = field(STRING, default="")
    client_host: str = field(STRING, default="")
    rebalance_timeout: int = field(INT32, "1+", default=-1, ignorable=True)
    session_timeout: int = field(INT32, default=0)
    subscription: bytes = field(BYTES, default=b"")
    assignment: bytes = field(BYTES, default=b"")


@message(versions="0-4", flexible="4+")
class GroupMetadataValue:
    protocol_type: str = field(STRING, default="")
    generation: int = field(INT32, default=0)
    protocol: str | None = field(STRING, nullable="0+", default=None)
    leader: str | None = field(STRING, nullable="0+", default=None)
    current_state_timestamp: int = field(INT64, "2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = field(array(MemberMetadata), factory=list)


@message(versions="0")
class ConsumerGroupMetadataKey:
    group_id: str = field(STRING, default="")


@message(versions="0", flexible="0+")
class ConsumerGroupMetadataValue:
    epoch: int = field(INT32, default=0)
    metadata_hash: int = field(INT64, default=0, tag=0)


@message(versions="0")
class ConsumerGroupMemberMetadataKey:
    group_id: str = field(STRING, default="")
    member_id: str = field(STRING, default="")


@struct
class ClassicProtocol:
    name: str = field(STRING, default="")
    metadata: bytes = field(BYTES, default=b"")


@struct
class ClassicMemberMetadata:
    session_timeout_ms: int = field(INT32, default=0)
    supported_protocols: list[ClassicProtocol] = field(array(ClassicProtocol), factory=list)


@message(versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue:
    instance_id: str | None = field(STRING, nullable="0+", default=None)
    rack_id: str | None = field(STRING, nullable="0+", default=None)
    client_id: str = field(STRING, default="")
    client_host: str = field(STRING, default="")
    subscribed_topic_names: list[str] = field(array(STRING), factory=list)
    subscribed_topic_regex: str | None = field(STRING, nullable="0+", default=None)
    rebalance_timeout_ms: int = field(INT32, default=-1)
    server_assignor: str | None = field(STRING, nullable="0+", default=None)
    classic_member_metadata: ClassicMemberMetadata | None = field(
        struct_of(ClassicMemberMetadata), nullable="0+", default=None, tag=0
    )


@message(versions="0")
class ConsumerGroupTargetAssignmentMetadataKey:
    group_id: str = field(STRING, default="")


@message(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: int = field(INT32, default=0)
    assignment_timestamp: int = field(INT64, default=0, tag=0, ignorable=True)


@message(versions="0")
class ConsumerGroupTargetAssignmentMemberKey:
    group_id: str = field(STRING, default="")
    member_id: str = field(STRING, default="")


@struct
class TopicPartition:
    topic_id: bytes = field(UUID, default=ZERO_UUID)
    partitions: list[int] = field(array(INT32), factory=list)


@message(versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: list[TopicPartition] = field(array(TopicPartition), factory=list)


@message(versions="0")
class ConsumerGroupCurrentMemberAssignmentKey:
    group_id: str = field(STRING, default="")
    member_id: str = field(STRING, default="")


@struct
class TopicPartitions:
    topic_id: bytes = field(UUID, default=ZERO_UUID)
    partitions: list[int] = field(array(INT32), factory=list)
    assignment_epochs: list[int] | None = field(array(INT32), nullable="0+", factory=list, tag=0)


@message(versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: int = field(INT32, default=0)
    previous_member_epoch: int = field(INT32, default=0)
    state: int = field(INT8, default=0)
    assigned_partitions: list[TopicPartitions] = field(array(TopicPartitions), factory=list)
    partitions_pending_revocation: list[TopicPartitions] = field(array(TopicPartitions), factory=list)


@message(versions="0")
class ConsumerGroupRegularExpressionKey:
    group_id: str = field(STRING, default="")
    regular_expression: str = field(STRING, default="")


@message(versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue:
    topics: list[str] = field(array(STRING), factory=list)
    version: int = field(INT64, default=0)
    timestamp: int = field(INT64, default=0)


# The type that begins a key -> (class of the key, class of the value, the version that values are written in).
_TYPES: dict[int, tuple[type, type, int]] = {
    1: (OffsetCommitKey, OffsetCommitValue, 3),
    2: (GroupMetadataKey, GroupMetadataValue, 3),
    3: (ConsumerGroupMetadataKey, ConsumerGroupMetadataValue, 0),
    5: (ConsumerGroupMemberMetadataKey, ConsumerGroupMemberMetadataValue, 0),
    6: (ConsumerGroupTargetAssignmentMetadataKey, ConsumerGroupTargetAssignmentMetadataValue, 0),
    7: (ConsumerGroupTargetAssignmentMemberKey, ConsumerGroupTargetAssignmentMemberValue, 0),
    8: (ConsumerGroupCurrentMemberAssignmentKey, ConsumerGroupCurrentMemberAssignmentValue, 0),
    16: (ConsumerGroupRegularExpressionKey, ConsumerGroupRegularExpressionValue, 0),
}
_TYPE_OF = {key: record_type for record_type, (key, _, _) in _TYPES.items()}
_OLD_OFFSET_COMMIT = 0  # the same fields as type 1
_EXPIRING_OFFSET_COMMIT = 1  # the only version that has room for a time to live


def encode_record(record: GroupRecord) -> tuple[bytes, bytes | None]:
    """A record's key and value as they are in the log."""
    record_type = _TYPE_OF[type(record.key)]
    key_class, value_class, version = _TYPES[record_type]
    key = record_type.to_bytes(2) + codec(key_class, 0).encode(record.key)
    if record.value is None:
        return key, None
    if value_class is OffsetCommitValue and record.value.expire_timestamp >= 0:
        version = _EXPIRING_OFFSET_COMMIT
    return key, version.to_bytes(2) + codec(value_class, version).encode(record.value)


def decode_record(key: bytes, value: bytes | None) -> GroupRecord | None:
    """The record in a log entry; None for types that are not used here."""
    if len(key) < 2:
        raise DecodeError("a group record needs a key that begins with its type")
    record_type = int.from_bytes(key[:2])
    if record_type == _OLD_OFFSET_COMMIT:
        record_type = 1
    if record_type not in _TYPES:
        return None
    key_class, value_class, _ = _TYPES[record_type]
    found, _ = codec(key_class, 0).read(key, 2)
    if value is None:
        return GroupRecord(found, None)
    if len(value) < 2:
        raise DecodeError("a group record's value begins with its version")
    version = int.from_bytes(value[:2])
    if version not in message_versions(value_class):
        raise DecodeError(f"{value_class.__name__} in version {version}, which is not known here")
    content, _ = codec(value_class, version).read(value, 2)
    return GroupRecord(found, content)
