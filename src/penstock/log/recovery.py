"""Opening a log: from the files that the last run left, in whatever state it left them.

After a clean shutdown nothing is read but the tail of the last segment. After a crash, every segment that was not
known to be durable is checked batch by batch; what is torn at the end is cut off, and the indexes are rebuilt.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence

from penstock.clock import Clock
from penstock.config.topic import TopicConfig
from penstock.log import names, swap
from penstock.log.epochs import LeaderEpochs
from penstock.log.log import Log
from penstock.log.producer_replay import rebuild_producers, replay, snapshot_offsets
from penstock.log.producer_state import ProducerState
from penstock.log.segment import Segment
from penstock.log.storage import Buffer, Storage
from penstock.wire._kernel import Batch

logger = logging.getLogger(__name__)

_INDEX_SUFFIXES = (names.OFFSET_INDEX, names.TIME_INDEX, names.TXN_INDEX)


def open_log(
    *,
    storage: Storage,
    directory: str,
    config: TopicConfig,
    clock: Clock,
    is_clean: bool,
    start_offset: int,
    recovery_point: int,
    on_failure: Callable[[OSError], None],
    unsynced_files: Sequence[str] = (),
) -> Log:
    """Open the log in a folder, or begin a new one there.

    `start_offset` and `recovery_point` are what the last run noted down of it; `is_clean` says whether that run ended
    in good order. `unsynced_files` are new files of this folder that the first flush must make durable.
    """
    swap.recover(storage, directory)
    segments = _open_segments(storage, directory, config, clock)
    epochs = LeaderEpochs(storage, os.path.join(directory, names.LEADER_EPOCHS))
    if is_clean and segments:
        end_offset = segments[-1].next_offset()
        producers = rebuild_producers(storage, directory, segments, end_offset)
        recovery_point = end_offset
    else:
        producers = _recover(storage, directory, segments, epochs, recovery_point, may_have_gaps=config.is_compacted)
        end_offset = producers.end_offset if segments else start_offset
        recovery_point = min(recovery_point, end_offset)
    if segments and end_offset < start_offset:
        logger.warning(
            "%s: the log ends at %d, before its noted start %d; its segments must have been removed by hand. "
            "Starting anew at %d",
            directory, end_offset, start_offset, start_offset,
        )  # fmt: skip
        for segment in segments:
            for path in segment.paths():
                storage.remove(path)
        segments, end_offset, producers = [], start_offset, ProducerState()
        epochs.clear()
    if not segments:
        segments = [Segment.create(storage, directory, start_offset, config, clock)]
        end_offset = recovery_point = start_offset
    start_offset = max(start_offset, segments[0].base_offset)
    epochs.truncate_from_end(end_offset)
    epochs.truncate_from_start(start_offset)
    log = Log(
        storage=storage,
        directory=directory,
        config=config,
        clock=clock,
        segments=segments,
        epochs=epochs,
        producers=producers,
        start_offset=start_offset,
        end_offset=end_offset,
        recovery_point=max(recovery_point, start_offset),
        on_failure=on_failure,
        unsynced_files=unsynced_files,
        has_unsynced_names=not is_clean,  # recovery may have removed files
    )
    if not is_clean and log.is_synced_before_use:
        # Nobody may see the log shorter than it was: what has been shown before must not have to wait for a sync.
        job = log.flush_job()
        job.run()
        log.flushed(job)
    return log


def _open_segments(storage: Storage, directory: str, config: TopicConfig, clock: Clock) -> list[Segment]:
    present = storage.names(directory)
    bases = sorted(
        offset for name in present if name.endswith(names.LOG) and (offset := names.offset_in_name(name)) is not None
    )
    known = set(bases)
    for name in present:
        if name.endswith(_INDEX_SUFFIXES) and names.offset_in_name(name) not in known:
            logger.warning("removing %s: there is no log file for it", os.path.join(directory, name))
            storage.remove(os.path.join(directory, name))
    segments = [Segment.open(storage, directory, base_offset, config, clock) for base_offset in bases]
    for segment in segments[:-1]:
        if not (storage.exists(segment.offset_index.path) and storage.exists(segment.time_index.path)):
            logger.warning("%s: rebuilding the missing index of segment %d", directory, segment.base_offset)
            segment.rebuild_indexes()
    return segments


def _recover(
    storage: Storage,
    directory: str,
    segments: list[Segment],
    epochs: LeaderEpochs,
    recovery_point: int,
    *,
    may_have_gaps: bool,
) -> ProducerState:
    """Check all segments that may not be durable; cut the log where it is not whole. Changes `segments`.

    A disk may keep the name of a new segment and forget the end of the one before. Only compaction leaves such gaps for
    good; anywhere else, what lies behind one must go, or records that were sent first could never be sent again.
    """
    first = _first_unsynced(segments, recovery_point)
    start = segments[first].base_offset if segments else 0
    for offset in snapshot_offsets(storage, directory):
        if offset > start:
            storage.remove(names.segment_path(directory, offset, names.SNAPSHOT))
    producers = rebuild_producers(storage, directory, segments[:first], start) if segments else ProducerState()
    for number in range(first, len(segments)):
        segment = segments[number]
        problem = _recover_segment(segment, producers, epochs)
        if problem is None and not may_have_gaps and number + 1 < len(segments):
            problem = _gap(producers.end_offset, segments[number + 1].base_offset)
        if problem is not None:
            logger.warning("%s: cut segment %d to %d bytes: %s", directory, segment.base_offset, segment.size, problem)
            for later in segments[number + 1 :]:
                logger.warning("%s: removing segment %d behind the cut", directory, later.base_offset)
                for path in later.paths():
                    storage.remove(path)
            del segments[number + 1 :]
            break
        if number + 1 < len(segments):
            producers.end_offset = segments[number + 1].base_offset
            _take_snapshot(storage, directory, producers)
    return producers


def _first_unsynced(segments: list[Segment], recovery_point: int) -> int:
    """The number of the first segment that reaches the recovery point (of one that ends there, the indexes may not be
    durable).
    """
    for number in range(1, len(segments)):
        if segments[number].base_offset >= recovery_point:
            return number - 1
    return max(len(segments) - 1, 0)


def _recover_segment(segment: Segment, producers: ProducerState, epochs: LeaderEpochs) -> str | None:
    def visit(batch: Batch, buffer: Buffer) -> None:
        if batch.leader_epoch > epochs.latest:
            epochs.assign(batch.leader_epoch, batch.base_offset)
        aborted = replay(producers, batch, buffer)
        if aborted is not None:
            segment.txn_index.append(aborted)

    scan = segment.recover(visit)
    producers.end_offset = scan.next_offset
    return scan.problem


def _gap(end_offset: int, next_base_offset: int) -> str | None:
    if end_offset < next_base_offset:
        return f"the records from offset {end_offset} to {next_base_offset - 1} are missing"
    return None


def _take_snapshot(storage: Storage, directory: str, producers: ProducerState) -> None:
    path = names.segment_path(directory, producers.end_offset, names.SNAPSHOT)
    file = storage.open(path, create=True)
    file.truncate(0)
    file.write_at(producers.encode(), 0)
