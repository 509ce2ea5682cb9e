"""What the files of a log are called. Exactly Kafka's names."""

from __future__ import annotations

import os

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
SEGMENT_SUFFIXES = (LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX)

DELETED = ".deleted"  # a segment file that waits for its removal
CLEANED = ".cleaned"  # half-made result of a compaction
SWAP = ".swap"  # finished result of a compaction that is not in place yet

LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

DELETE_DIRECTORY = "-delete"  # ends the name of a partition's folder that waits for its removal
STRAY_DIRECTORY = "-stray"  # ends the name of a partition's folder whose topic nobody knows


def segment_path(directory: str, base_offset: int, suffix: str) -> str:
    return os.path.join(directory, f"{base_offset:020d}{suffix}")


def offset_in_name(name: str) -> int | None:
    """The offset a segment or snapshot file's name begins with; None if it is no such file."""
    digits = name.partition(".")[0]
    return int(digits) if len(digits) == 20 and digits.isascii() and digits.isdigit() else None


def parse_partition_directory(name: str) -> tuple[str, int] | None:
    """The topic and partition a folder's name stands for; None if it is not a partition's folder."""
    topic, dash, number = name.rpartition("-")
    if not dash or not topic or not number.isascii() or not number.isdigit():
        return None
    return topic, int(number)
