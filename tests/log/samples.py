"""Batches and logs for tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from penstock.clock import Clock, ManualClock
from penstock.config.topic import TopicConfig
from penstock.log.log import Log
from penstock.log.producer_state import Origin
from penstock.log.recovery import open_log
from penstock.log.storage import File, Storage
from penstock.log.validation import own_batch
from penstock.wire.batch import Batch, batches_in, decode_records, encode_batch
from penstock.wire.record import EndTxnMarker, Record, encode_end_txn_marker

T0 = 1_700_000_000_000
INDEX_BYTES = 4096  # small, so that tests do not write megabytes of zeros


def config_of(**settings: Any) -> TopicConfig:
    settings.setdefault("segment_index_bytes", INDEX_BYTES)
    return TopicConfig(**settings)


def data_batch(
    *values: bytes | None,
    timestamp: int | Sequence[int] = T0,
    key: bytes | None = b"k",
    producer: int = -1,
    epoch: int = 0,
    sequence: int = -1,
    **options: Any,
) -> bytearray:
    """A batch of one record per value; one timestamp for all of them, or one each."""
    values = values or (b"v",)
    timestamps = [timestamp] * len(values) if isinstance(timestamp, int) else timestamp
    records = [Record(n, at, key, value) for n, (value, at) in enumerate(zip(values, timestamps, strict=True))]
    if producer >= 0:
        options |= {"producer_id": producer, "producer_epoch": epoch, "base_sequence": sequence}
    return encode_batch(records, **options)


def txn_batch(producer: int, *values: bytes, epoch: int = 0, sequence: int = 0, timestamp: int = T0) -> bytearray:
    return data_batch(
        *values, timestamp=timestamp, producer=producer, epoch=epoch, sequence=sequence, is_transactional=True
    )


def marker_batch(
    producer: int, *, is_commit: bool, epoch: int = 0, coordinator_epoch: int = 0, timestamp: int = T0
) -> bytearray:
    marker = EndTxnMarker(is_commit, coordinator_epoch)
    return encode_batch(
        [encode_end_txn_marker(marker, timestamp)],
        is_control=True,
        is_transactional=True,
        producer_id=producer,
        producer_epoch=epoch,
    )


def open_at(
    path: Path | str,
    config: TopicConfig | None = None,
    *,
    clock: Clock | None = None,
    storage: Storage | None = None,
    is_clean: bool = True,
    start_offset: int = 0,
    recovery_point: int = 0,
    on_failure: Callable[[OSError], None] | None = None,
) -> Log:
    """The log in a folder, which is made if it is not there. A failure that nobody expects fails the test."""

    def unexpected(error: OSError) -> None:
        raise AssertionError(f"the log failed: {error}") from error

    os.makedirs(path, exist_ok=True)
    return open_log(
        storage=storage or Storage(),
        directory=str(path),
        config=config or config_of(),
        clock=clock or ManualClock(T0),
        is_clean=is_clean,
        start_offset=start_offset,
        recovery_point=recovery_point,
        on_failure=on_failure or unexpected,
    )


def append(log: Log, data: bytearray, epoch: int = 0, origin: Origin = Origin.CLIENT) -> Batch:
    return log.append(own_batch(data), epoch, origin)


def flush(log: Log) -> None:
    job = log.flush_job()
    job.run()
    log.flushed(job)


def batches_from(log: Log, offset: int, upper_bound: int | None = None) -> list[tuple[Batch, list[Record]]]:
    """All batches from an offset on, as a reader with small fetches gets them."""
    upper_bound = log.end_offset if upper_bound is None else upper_bound
    found = []
    while (part := log.read(offset, 1000, upper_bound)) is not None:
        content = part.read()
        assert len(content) == len(part)
        before = offset
        for batch in batches_in(content):
            found.append((batch, decode_records(content, batch)))
            offset = batch.next_offset
        assert offset > before, "a read gave no whole batch"
    return found


def records_from(log: Log, offset: int, upper_bound: int | None = None) -> list[Record]:
    """The records at or above an offset. Control records are left out."""
    return [
        record
        for batch, records in batches_from(log, offset, upper_bound)
        if not batch.is_control
        for record in records
        if record.offset >= offset
    ]


def values_from(log: Log, offset: int, upper_bound: int | None = None) -> list[bytes | None]:
    return [record.value for record in records_from(log, offset, upper_bound)]


def opened_as(kind: type[File], file: File) -> File:
    """The same open file as another kind of `File`."""
    return kind(file.path, os.dup(file.fd))


def files_in(path: Path | str) -> dict[str, bytes]:
    """The content of all files of a folder."""
    return {entry.name: Path(entry.path).read_bytes() for entry in os.scandir(path) if entry.is_file()}
