"""What the consumers of classic groups tell each other inside JoinGroup and SyncGroup.

The broker passes these bytes on unread, except where a group moves between the classic protocol and its own.
"""

from __future__ import annotations

from typing import Any

from penstock.wire.errors import DecodeError
from penstock.wire.schema import codec, field, message, struct
from penstock.wire.types import BYTES, INT32, STRING, array

_NEWEST = 3


@struct
class TopicPartition:
    topic: str = field(STRING, default="")
    partitions: list[int] = field(array(INT32), factory=list)


@message(versions="0-3")
class ConsumerProtocolSubscription:
    topics: list[str] = field(array(STRING), factory=list)
    user_data: bytes | None = field(BYTES, nullable="0+", default=None)
    owned_partitions: list[TopicPartition] = field(array(TopicPartition), "1+", factory=list, ignorable=True)
    generation_id: int = field(INT32, "2+", default=-1, ignorable=True)
    rack_id: str | None = field(STRING, "3+", nullable="3+", default=None, ignorable=True)


@message(versions="0-3")
class ConsumerProtocolAssignment:
    assigned_partitions: list[TopicPartition] = field(array(TopicPartition), factory=list)
    user_data: bytes | None = field(BYTES, nullable="0+", default=None)


def decode_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Raises DecodeError for bytes that are none."""
    found: ConsumerProtocolSubscription = _decode(ConsumerProtocolSubscription, data)
    return found


def decode_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Raises DecodeError for bytes that are none. No bytes are an empty assignment."""
    found: ConsumerProtocolAssignment = (
        _decode(ConsumerProtocolAssignment, data) if data else ConsumerProtocolAssignment()
    )
    return found


def subscription_version(data: bytes) -> int:
    return int.from_bytes(data[:2])


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int) -> bytes:
    version = min(version, _NEWEST)
    return version.to_bytes(2) + codec(ConsumerProtocolAssignment, version).encode(assignment)


def encode_subscription(subscription: ConsumerProtocolSubscription, version: int = _NEWEST) -> bytes:
    return version.to_bytes(2) + codec(ConsumerProtocolSubscription, version).encode(subscription)


def _decode(cls: type, data: bytes) -> Any:
    if len(data) < 2 or data[0] & 0x80:
        raise DecodeError(f"{cls.__name__} begins with its version")
    # A newer version only has more fields at its end.
    message, _ = codec(cls, min(int.from_bytes(data[:2]), _NEWEST)).read(data, 2)
    return message
