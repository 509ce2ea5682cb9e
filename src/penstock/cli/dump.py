"""What is in log files and indexes, entry by entry as they are read: a segment may have millions of records."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from penstock.cli.mistakes import Mistake
from penstock.cli.times import time_text
from penstock.log import names
from penstock.log.inspection import Buffer, iterate_batches, mapped, offset_entries, time_entries
from penstock.log.storage import Storage
from penstock.log.txn_index import TxnIndex
from penstock.wire._kernel import Batch
from penstock.wire.batch import decode_records
from penstock.wire.compression import Codec
from penstock.wire.errors import WireError

Entry = Mapping[str, Any]

_SUFFIXES = (names.LOG, names.OFFSET_INDEX, names.TIME_INDEX, names.TXN_INDEX)


class Damage(Exception):
    """A file cannot be read beyond a position."""

    def __init__(self, position: int, text: str) -> None:
        super().__init__(text)
        self.position = position


def files_at(path: str) -> list[str]:
    """The file at a path, or all that a partition's folder has."""
    if os.path.isdir(path):
        found = [name for name in sorted(os.listdir(path)) if name.endswith(_SUFFIXES)]
        if not found:
            raise Mistake(f"{path} has no segment files; name the folder of a partition in it, like {path}/orders-0")
        return [os.path.join(path, name) for name in found]
    if not os.path.exists(path):
        raise Mistake(f"{path} does not exist")
    if not path.endswith(_SUFFIXES) or names.offset_in_name(os.path.basename(path)) is None:
        raise Mistake(f"{path} is no segment or index: their names are an offset and {', '.join(_SUFFIXES)}")
    return [path]


def dump_as_text(files: Iterable[str], deep: bool) -> int:
    """Print a line for each entry; returns how many files are damaged."""
    damaged = 0
    for path in files:
        print(path)
        try:
            for entry in _entries(path, deep):
                print("  " + "  ".join(f"{name}={_text(value)}" for name, value in entry.items() if value is not None))
        except Damage as damage:
            damaged += 1
            print(f"  stopped at position {damage.position}: {damage}")
    return damaged


def dump_as_json(files: Iterable[str], deep: bool) -> int:
    """Print an array with an object for each file; returns how many files are damaged."""
    damaged = 0
    for number, path in enumerate(files):
        print("[" if number == 0 else ",")
        print(f'{{"file": {json.dumps(path)}, "entries": [', end="")
        problem = None
        separator = "\n"
        try:
            for entry in _entries(path, deep):
                print(separator + json.dumps(entry, ensure_ascii=False), end="")
                separator = ",\n"
        except Damage as damage:
            damaged += 1
            problem = {"position": damage.position, "text": str(damage)}
        print(f'], "problem": {json.dumps(problem)}}}')
    print("]")
    return damaged


def _entries(path: str, deep: bool) -> Iterator[Entry]:
    base_offset = names.offset_in_name(os.path.basename(path)) or 0
    if path.endswith(names.LOG):
        with mapped(path) as content:
            yield from _batches(content, deep)
    elif path.endswith(names.TXN_INDEX):
        try:
            yield from (one._asdict() for one in TxnIndex(Storage(), path).entries)
        except ValueError as error:
            raise Damage(0, str(error)) from None
    elif path.endswith(names.TIME_INDEX):
        for timestamp, offset in time_entries(Storage().read(path), base_offset):
            yield {"timestamp": timestamp, "offset": offset}
    else:
        for offset, position in offset_entries(Storage().read(path), base_offset):
            yield {"offset": offset, "position": position}


def _batches(content: Buffer, deep: bool) -> Iterator[Entry]:
    end = 0
    try:
        for position, batch in iterate_batches(content):
            end = position
            yield _batch(position, batch)
            if deep:
                yield from _records(content, batch)
            end = position + batch.size
    except WireError as error:
        raise Damage(end, str(error)) from None


def _batch(position: int, batch: Batch) -> Entry:
    return {
        "position": position,
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "count": batch.count,
        "size": batch.size,
        "codec": Codec(batch.codec).name.lower(),
        "timestamp": batch.max_timestamp,
        "leader_epoch": batch.leader_epoch,
        "producer_id": batch.producer_id if batch.has_producer_id else None,
        "producer_epoch": batch.producer_epoch if batch.has_producer_id else None,
        "base_sequence": batch.base_sequence if batch.has_producer_id else None,
        "crc": batch.crc & 0xFFFFFFFF,
        "transactional": batch.is_transactional,
        "control": batch.is_control,
    }


def _records(content: Buffer, batch: Batch) -> Iterator[Entry]:
    for record in decode_records(content, batch):
        yield {
            "offset": record.offset,
            "timestamp": record.timestamp,
            "time": time_text(record.timestamp),
            "key": _shown(record.key),
            "value": _shown(record.value),
            "headers": [[name, _shown(value)] for name, value in record.headers],
        }


def _shown(content: bytes | None) -> str | None:
    """Text as text, other bytes in base64."""
    if content is None:
        return None
    try:
        return bytes(content).decode()
    except UnicodeDecodeError:
        return f"base64:{base64.b64encode(content).decode()}"


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(f"{name}:{_text(one)}" for name, one in value) or "-"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
