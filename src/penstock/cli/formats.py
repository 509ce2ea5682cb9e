r"""Format strings, as kcat has them.

%s value     %S its length (-1: null)    %k key        %K its length
%t topic     %p partition                %o offset     %T timestamp in milliseconds
%h headers   %R value's length in 4 bytes, big-endian  %% a percent sign
\n \r \t \\ \0 \xNN
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Any

from penstock.cli.mistakes import Mistake
from penstock.client.records import Record

AnyRecord = Record[Any, Any]
Formatter = Callable[[AnyRecord], bytes]

_TOKEN = re.compile(r"%(.)|\\x([0-9a-fA-F]{2})|\\(.)|([^%\\]+|[%\\])", re.DOTALL)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "0": b"\0"}


def _length(content: bytes | None) -> int:
    return -1 if content is None else len(content)


def _headers(record: AnyRecord) -> bytes:
    return b",".join(name.encode() + b"=" + (b"NULL" if value is None else value) for name, value in record.headers)


_FIELDS: dict[str, Formatter] = {
    "s": lambda record: record.value or b"",
    "S": lambda record: b"%d" % _length(record.value),
    "R": lambda record: struct.pack(">i", _length(record.value)),
    "k": lambda record: record.key or b"",
    "K": lambda record: b"%d" % _length(record.key),
    "t": lambda record: record.topic.encode(),
    "p": lambda record: b"%d" % record.partition,
    "o": lambda record: b"%d" % record.offset,
    "T": lambda record: b"%d" % (-1 if record.timestamp is None else record.timestamp),
    "h": _headers,
    "%": lambda record: b"%",
}


def compile_format(text: str) -> Formatter:
    """What turns a record into bytes. Raises Mistake if the format has something that is not known."""
    parts: list[bytes | Formatter] = []
    for field, byte, escape, literal in _TOKEN.findall(text):
        if field:
            if field not in _FIELDS:
                raise Mistake(f"%{field} is not known in a format; there are {' '.join('%' + one for one in _FIELDS)}")
            parts.append(_FIELDS[field])
        elif byte:
            parts.append(bytes([int(byte, 16)]))
        elif escape:
            if escape not in _ESCAPES:
                raise Mistake(rf"\{escape} is not known in a format; there are \n \r \t \\ \0 \xNN")
            parts.append(_ESCAPES[escape])
        elif literal in ("%", "\\"):
            raise Mistake(f"the format ends within a {literal!r}; write it twice to have it printed")
        else:
            parts.append(literal.encode())
    return lambda record: b"".join(part if isinstance(part, bytes) else part(record) for part in parts)
