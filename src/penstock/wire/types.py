"""The protocol's primitive types, as field tables name them."""

from __future__ import annotations

import base64
import os
import re
from dataclasses import dataclass

from penstock.wire import _codec


@dataclass(frozen=True, slots=True)
class FieldType:
    """What a field holds: a primitive kind, a struct, or an array of either."""

    kind: int
    struct: type | None = None  # for STRUCT, and for ARRAY of structs
    element: int = -1  # for ARRAY of primitives


BOOL = FieldType(_codec.BOOL)
INT8 = FieldType(_codec.INT8)
INT16 = FieldType(_codec.INT16)
UINT16 = FieldType(_codec.UINT16)
INT32 = FieldType(_codec.INT32)
UINT32 = FieldType(_codec.UINT32)
INT64 = FieldType(_codec.INT64)
FLOAT64 = FieldType(_codec.FLOAT64)
UUID = FieldType(_codec.UUID)
STRING = FieldType(_codec.STRING)
BYTES = FieldType(_codec.BYTES)
RECORDS = FieldType(_codec.RECORDS)

ZERO_UUID = _codec.ZERO_UUID


def array(element: FieldType | type) -> FieldType:
    """An array of a primitive or of a struct."""
    if isinstance(element, FieldType):
        return FieldType(_codec.ARRAY, element=element.kind)
    return FieldType(_codec.ARRAY, struct=element)


def struct_of(struct: type) -> FieldType:
    """A nested struct."""
    return FieldType(_codec.STRUCT, struct=struct)


# UUIDs travel as 16 raw bytes; that is also how the code holds them: as dictionary keys they are cheap.
# People see them as Kafka prints them: URL-safe base64 without padding.


_UUID_TEXT = re.compile(r"[A-Za-z0-9_-]{22}(==)?")


def uuid_text(uuid: bytes) -> str:
    """A UUID as Kafka prints it."""
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


def uuid_from_text(text: str) -> bytes:
    """The inverse of `uuid_text`. Raises ValueError for anything else."""
    if not _UUID_TEXT.fullmatch(text):
        raise ValueError(f"{text!r} is not a UUID: 22 letters, digits, '-' and '_' are")
    return base64.urlsafe_b64decode(text[:22] + "==")


def random_uuid() -> bytes:
    """A random (version 4) UUID, never one that Kafka reserves or that its tools would take for an option."""
    while True:
        uuid = bytearray(os.urandom(16))
        uuid[6] = uuid[6] & 0x0F | 0x40
        uuid[8] = uuid[8] & 0x3F | 0x80
        if not uuid_text(bytes(uuid)).startswith("-"):
            return bytes(uuid)
