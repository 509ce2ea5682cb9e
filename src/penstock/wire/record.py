"""Single records, and the control records that mark the end of transactions."""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import NamedTuple

from penstock.wire.errors import InvalidRecords

Headers = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """One record. In a batch that is about to be encoded, `offset` counts from the batch's base offset."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class EndTxnMarker(NamedTuple):
    """What the control record at the end of a transaction says."""

    is_commit: bool
    coordinator_epoch: int


class ControlType(IntEnum):
    """What a control record says; the second field of its key."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4


_CONTROL_KEY = struct.Struct(">hh")  # version, type
_CONTROL_KEY_VERSION = 0
_END_TXN_VALUE = struct.Struct(">hi")  # version, coordinator epoch
_END_TXN_VERSION = 0


def control_key(control_type: ControlType) -> bytes:
    return _CONTROL_KEY.pack(_CONTROL_KEY_VERSION, control_type)


def control_type(key: bytes | None) -> int:
    """The type in a control record's key. Types this version does not know are returned as they are."""
    if key is None or len(key) < _CONTROL_KEY.size:
        raise InvalidRecords("a control record's key must hold a version and a type")
    version, kind = _CONTROL_KEY.unpack_from(key)
    if version < 0:
        raise InvalidRecords(f"a control record's key has version {version}")
    return int(kind)


def encode_end_txn_marker(marker: EndTxnMarker, timestamp: int) -> Record:
    """The one record of a batch that ends a transaction."""
    kind = ControlType.COMMIT if marker.is_commit else ControlType.ABORT
    return Record(0, timestamp, control_key(kind), _END_TXN_VALUE.pack(_END_TXN_VERSION, marker.coordinator_epoch))


def decode_end_txn_marker(record: Record) -> EndTxnMarker:
    kind = control_type(record.key)
    if kind not in (ControlType.COMMIT, ControlType.ABORT):
        raise InvalidRecords(f"control record of type {kind} does not end a transaction")
    if record.value is None or len(record.value) < _END_TXN_VALUE.size:
        raise InvalidRecords("a transaction marker's value must hold a version and a coordinator epoch")
    _, coordinator_epoch = _END_TXN_VALUE.unpack_from(record.value)
    return EndTxnMarker(kind == ControlType.COMMIT, coordinator_epoch)
