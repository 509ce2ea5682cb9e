"""How the result of a compaction takes the place of the segments it was made of, so that a crash at any step leaves one
or the other. Exactly Kafka's steps (LocalLog.replaceSegments, LogLoader):

1. The new files are written and synced under names that end in `.cleaned`. Found after a crash: they are removed.
2. They are renamed to `.swap`. Found with a `.cleaned` file beside them: this was not finished, they are removed.
3. The old files are renamed to `.deleted`.
4. The `.swap` files get their final names. Found without any `.cleaned` file: the old files in their range are removed,
   and they are put in place.

The old files are removed for good only after the new names are durable.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

from penstock.log import names
from penstock.log.storage import Storage
from penstock.wire._kernel import HEADER_BYTES, parse_header
from penstock.wire.errors import CorruptBatch

logger = logging.getLogger(__name__)


def announce(storage: Storage, paths: Sequence[str]) -> None:
    """Step 2: from now on the compaction counts."""
    _rename_all(storage, paths, names.CLEANED, names.SWAP)


def put_in_place(storage: Storage, paths: Sequence[str]) -> None:
    """Step 4."""
    _rename_all(storage, paths, names.SWAP, "")


def _rename_all(storage: Storage, paths: Sequence[str], old: str, new: str) -> None:
    for path in paths:
        if storage.exists(path + old):
            storage.rename(path + old, path + new)


def recover(storage: Storage, directory: str) -> None:
    """Finish or undo the swap that a crash interrupted, and remove what was about to be deleted."""
    present = storage.names(directory)
    for name in present:
        if name.endswith((names.DELETED, ".tmp")):
            storage.remove(os.path.join(directory, name))
    cleaned = [name for name in present if name.endswith(names.CLEANED)]
    unfinished_from = min(
        (offset for name in cleaned if (offset := names.offset_in_name(name)) is not None), default=None
    )
    swaps = []
    for name in present:
        offset = names.offset_in_name(name)
        if not name.endswith(names.SWAP) or offset is None:
            continue
        if unfinished_from is not None and offset >= unfinished_from:
            storage.remove(os.path.join(directory, name))
        else:
            swaps.append(name)
    # Only now: as long as a `.cleaned` file is there, the `.swap` files beside it are known to be incomplete.
    for name in cleaned:
        storage.remove(os.path.join(directory, name))
    if swaps:
        _finish(storage, directory, swaps)


def _finish(storage: Storage, directory: str, swaps: Sequence[str]) -> None:
    logger.info("%s: finishing the compaction that the last run began: %s", directory, ", ".join(sorted(swaps)))
    ranges = [
        _offset_range(storage, os.path.join(directory, name)) for name in swaps if name.endswith(names.LOG + names.SWAP)
    ]
    for name in storage.names(directory):
        offset = names.offset_in_name(name)
        is_replaced = offset is not None and any(first <= offset < end for first, end in ranges)
        if is_replaced and not name.endswith(names.SWAP):
            storage.remove(os.path.join(directory, name))
    for name in sorted(swaps):
        path = os.path.join(directory, name)
        storage.rename(path, path.removesuffix(names.SWAP))


def _offset_range(storage: Storage, path: str) -> tuple[int, int]:
    """The offsets from a segment's base up to behind its last batch."""
    base_offset = next_offset = names.offset_in_name(os.path.basename(path)) or 0
    file = storage.open(path)
    position, size = 0, file.size()
    while position < size:
        batch = parse_header(file.read_at(HEADER_BYTES, position))
        if batch.size < HEADER_BYTES:
            raise CorruptBatch(f"{path} holds no batch at {position}")
        next_offset = batch.next_offset
        position += batch.size
    return base_offset, next_offset
