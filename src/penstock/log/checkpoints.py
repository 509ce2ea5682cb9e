"""Kafka's small text files: a version, a count, and that many lines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.log.storage import Storage

TopicPartition = tuple[str, int]

_VERSION = 0


class CorruptCheckpoint(Exception):
    """A checkpoint file that is not what it should be."""


def read_lines(storage: Storage, path: str) -> list[list[str]]:
    """The lines of a checkpoint, cut into words; no lines if the file does not exist."""
    try:
        text = storage.read(path).decode()
    except FileNotFoundError:
        return []
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint(f"{path} is not text") from error
    lines = text.splitlines()
    try:
        version, count = int(lines[0]), int(lines[1])
    except (IndexError, ValueError) as error:
        raise CorruptCheckpoint(f"{path} does not begin with a version and a count") from error
    if version != _VERSION:
        raise CorruptCheckpoint(f"{path} has version {version}; {_VERSION} is the one known")
    rows = [line.split() for line in lines[2:] if line]
    if len(rows) != count:
        raise CorruptCheckpoint(f"{path} should have {count} lines but has {len(rows)}")
    return rows


def write_lines(storage: Storage, path: str, rows: Iterable[str]) -> None:
    lines = list(rows)
    storage.replace(path, "\n".join([str(_VERSION), str(len(lines)), *lines, ""]).encode())


def read_offsets(storage: Storage, path: str) -> dict[TopicPartition, int]:
    """A checkpoint of one offset per partition: lines of topic, partition, offset."""
    offsets = {}
    for row in read_lines(storage, path):
        try:
            topic, partition, offset = row
            offsets[topic, int(partition)] = int(offset)
        except ValueError as error:
            raise CorruptCheckpoint(f"{path}: {' '.join(row)!r} is not topic, partition and offset") from error
    return offsets


def write_offsets(storage: Storage, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    write_lines(storage, path, (f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()))
