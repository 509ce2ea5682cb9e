"""The records of the metadata log: Kafka's own (KRaft) record types, in its own encoding.

So Kafka's tools read our metadata log, and a data directory can move between the two. A record's value is an unsigned
varint 1 (the framing's version), the record's type, its version, and the message.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from penstock.wire.errors import DecodeError
from penstock.wire.schema import codec, field, message, message_versions, struct
from penstock.wire.types import BOOL, INT8, INT16, INT32, INT64, STRING, UINT16, UUID, ZERO_UUID, array

_FRAME_VERSION = 1

# Stands for "as before" in a PartitionChangeRecord.
NO_LEADER_CHANGE = -2
NO_LEADER = -1


@struct
class BrokerEndpoint:
    name: str = field(STRING, default="")
    host: str = field(STRING, default="")
    port: int = field(UINT16, default=0)
    security_protocol: int = field(INT16, default=0)


@struct
class BrokerFeature:
    name: str = field(STRING, default="")
    min_supported_version: int = field(INT16, default=0)
    max_supported_version: int = field(INT16, default=0)


@message(versions="0-4", flexible="0+")
class RegisterBrokerRecord:
    broker_id: int = field(INT32, default=0)
    is_migrating_zk_broker: bool = field(BOOL, "2+", default=False)
    incarnation_id: bytes = field(UUID, default=ZERO_UUID)
    broker_epoch: int = field(INT64, default=0)
    end_points: list[BrokerEndpoint] = field(array(BrokerEndpoint), factory=list)
    features: list[BrokerFeature] = field(array(BrokerFeature), factory=list)
    rack: str | None = field(STRING, nullable="0+", default=None)
    fenced: bool = field(BOOL, default=True)
    in_controlled_shutdown: bool = field(BOOL, "1+", default=False)
    log_dirs: list[bytes] = field(array(UUID), "3+", tag=0, factory=list)
    cordoned_log_dirs: list[bytes] | None = field(array(UUID), "4+", nullable="4+", default=None, tag=1)


@message(versions="0", flexible="0+")
class UnregisterBrokerRecord:
    broker_id: int = field(INT32, default=0)
    broker_epoch: int = field(INT64, default=0)


@message(versions="0", flexible="0+")
class TopicRecord:
    name: str = field(STRING, default="")
    topic_id: bytes = field(UUID, default=ZERO_UUID)


@message(versions="0-2", flexible="0+")
class PartitionRecord:
    partition_id: int = field(INT32, default=-1)
    topic_id: bytes = field(UUID, default=ZERO_UUID)
    replicas: list[int] = field(array(INT32), factory=list)
    isr: list[int] = field(array(INT32), factory=list)
    removing_replicas: list[int] = field(array(INT32), factory=list)
    adding_replicas: list[int] = field(array(INT32), factory=list)
    leader: int = field(INT32, default=-1)
    leader_recovery_state: int = field(INT8, tag=0, default=0)
    leader_epoch: int = field(INT32, default=-1)
    partition_epoch: int = field(INT32, default=-1)
    directories: list[bytes] = field(array(UUID), "1+", factory=list)
    eligible_leader_replicas: list[int] | None = field(array(INT32), "2+", nullable="2+", default=None, tag=1)
    last_known_elr: list[int] | None = field(array(INT32), "2+", nullable="2+", default=None, tag=2)


@message(versions="0", flexible="0+")
class ConfigRecord:
    resource_type: int = field(INT8, default=0)
    resource_name: str = field(STRING, default="")
    name: str = field(STRING, default="")
    value: str | None = field(STRING, nullable="0+", default=None)


@message(versions="0-2", flexible="0+")
class PartitionChangeRecord:
    """What changed of a partition; fields that are left out stay as they are."""

    partition_id: int = field(INT32, default=-1)
    topic_id: bytes = field(UUID, default=ZERO_UUID)
    isr: list[int] | None = field(array(INT32), nullable="0+", default=None, tag=0)
    leader: int = field(INT32, default=NO_LEADER_CHANGE, tag=1)
    replicas: list[int] | None = field(array(INT32), nullable="0+", default=None, tag=2)
    removing_replicas: list[int] | None = field(array(INT32), nullable="0+", default=None, tag=3)
    adding_replicas: list[int] | None = field(array(INT32), nullable="0+", default=None, tag=4)
    leader_recovery_state: int = field(INT8, default=-1, tag=5)
    directories: list[bytes] | None = field(array(UUID), "1+", nullable="1+", default=None, tag=8)
    eligible_leader_replicas: list[int] | None = field(array(INT32), "2+", nullable="2+", default=None, tag=6)
    last_known_elr: list[int] | None = field(array(INT32), "2+", nullable="2+", default=None, tag=7)


@message(versions="0", flexible="0+")
class RemoveTopicRecord:
    topic_id: bytes = field(UUID, default=ZERO_UUID)


@message(versions="0", flexible="0+")
class FeatureLevelRecord:
    name: str = field(STRING, default="")
    feature_level: int = field(INT16, default=0)


@message(versions="0", flexible="0+")
class ProducerIdsRecord:
    broker_id: int = field(INT32, default=0)
    broker_epoch: int = field(INT64, default=-1)
    next_producer_id: int = field(INT64, default=0)


@message(versions="0-3", flexible="0+")
class BrokerRegistrationChangeRecord:
    broker_id: int = field(INT32, default=0)
    broker_epoch: int = field(INT64, default=0)
    fenced: int = field(INT8, tag=0, default=0)
    in_controlled_shutdown: int = field(INT8, "1+", tag=1, default=0)
    log_dirs: list[bytes] = field(array(UUID), "2+", tag=2, factory=list)
    cordoned_log_dirs: list[bytes] | None = field(array(UUID), "3+", nullable="3+", default=None, tag=3)


@message(versions="0", flexible="0+")
class BeginTransactionRecord:
    name: str | None = field(STRING, nullable="0+", default=None, tag=0)


@message(versions="0", flexible="0+")
class EndTransactionRecord:
    pass


@message(versions="0", flexible="0+")
class AbortTransactionRecord:
    reason: str | None = field(STRING, nullable="0+", default=None, tag=0)


@dataclass(frozen=True)
class UnknownRecord:
    """A record type that this version does not use. It is skipped."""

    record_type: int


# Record type -> (class, the version that is written).
_TYPES: dict[int, tuple[type, int]] = {
    0: (RegisterBrokerRecord, 4),
    1: (UnregisterBrokerRecord, 0),
    2: (TopicRecord, 0),
    3: (PartitionRecord, 2),
    4: (ConfigRecord, 0),
    5: (PartitionChangeRecord, 2),
    9: (RemoveTopicRecord, 0),
    12: (FeatureLevelRecord, 0),
    15: (ProducerIdsRecord, 0),
    17: (BrokerRegistrationChangeRecord, 3),
    23: (BeginTransactionRecord, 0),
    24: (EndTransactionRecord, 0),
    25: (AbortTransactionRecord, 0),
}
_TYPE_OF = {cls: record_type for record_type, (cls, _) in _TYPES.items()}


def encode_record(record: Any) -> bytes:
    record_type = _TYPE_OF[type(record)]
    cls, version = _TYPES[record_type]
    return bytes((_FRAME_VERSION, record_type, version)) + codec(cls, version).encode(record)


def decode_record(value: bytes | None) -> Any:
    """The record in a log entry's value; UnknownRecord for types that are not used here."""
    if value is None or len(value) < 3:
        raise DecodeError("a metadata record needs a frame version, a type and a version")
    frame_version, record_type, version = value[0], value[1], value[2]
    if frame_version != _FRAME_VERSION:
        raise DecodeError(f"metadata record with frame version {frame_version}")
    if record_type not in _TYPES:
        return UnknownRecord(record_type)
    cls = _TYPES[record_type][0]
    if version not in message_versions(cls):
        raise DecodeError(f"{cls.__name__} in version {version}, which is not known here")
    record, _ = codec(cls, version).read(value, 3)
    return record
