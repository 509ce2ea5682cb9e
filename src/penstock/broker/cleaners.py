"""The compaction of this broker's logs: finds the dirtiest one, has it compacted in a thread, takes over the result."""

from __future__ import annotations

import asyncio
import errno
import logging
import threading
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakSet

from penstock.log.checkpoints import TopicPartition
from penstock.log.cleaner import Cleaner, CleaningAborted
from penstock.log.cleaning_plan import CleaningPlan, dirt_in, plan_for
from penstock.log.compaction import grouped, overlapping
from penstock.log.directory import LogDirectory
from penstock.log.log import Log
from penstock.log.logs import PendingDeletion
from penstock.log.pace import Pace
from penstock.wire.errors import ApiError

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

logger = logging.getLogger(__name__)


class _Candidate(NamedTuple):
    partition: TopicPartition
    log: Log
    directory: LogDirectory
    ratio: float


@dataclass
class _Cleaning:
    """A compaction under way."""

    log: Log
    task: asyncio.Task[None] | None = None
    stop: threading.Event = field(default_factory=threading.Event)


class Cleaners:
    """Up to `log.cleaner.threads` compactions at a time, the dirtiest logs first.

    The threads read closed segments and write new files; the logs belong to the event loop, which alone puts results in
    place. A log that changed too much meanwhile (truncated, deleted, its segments expired, no longer compacted) is left
    as it is. A log that cannot be compacted is set aside until the broker starts again; the others go on.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._pace = Pace(lambda: broker.config.log_cleaner_io_max_bytes_per_second, broker.clock.monotonic)
        self._running: dict[TopicPartition, _Cleaning] = {}
        self._uncleanable: WeakSet[Log] = WeakSet()
        self._without_room: WeakSet[Log] = WeakSet()
        self._is_stopped = False

    def start(self) -> None:
        if self._broker.config.log_cleaner_enable:
            self._look_again_later()

    async def stop(self) -> None:
        """End what is under way; nothing of it is lost but the work."""
        self._is_stopped = True
        tasks = [cleaning.task for cleaning in self._running.values() if cleaning.task is not None]
        for cleaning in self._running.values():
            cleaning.stop.set()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- which log is next ----

    def _look_again_later(self) -> None:
        self._broker.background.later(max(self._broker.config.log_cleaner_backoff_ms, 1), self._tick)

    def _tick(self) -> None:
        try:
            self._stop_pointless()
            self._begin()
        finally:
            self._look_again_later()

    def _stop_pointless(self) -> None:
        for partition, cleaning in self._running.items():
            if not self._is_wanted(partition, cleaning.log):
                cleaning.stop.set()

    def _is_wanted(self, partition: TopicPartition, log: Log) -> bool:
        return self._broker.logs.get(partition) is log and log.config.is_compacted and not self._is_stopped

    def _begin(self) -> None:
        while len(self._running) < self._broker.config.log_cleaner_threads and not self._is_stopped:
            candidate = self._dirtiest()
            if candidate is None:
                return
            cleaning = self._running[candidate.partition] = _Cleaning(candidate.log)
            cleaning.task = self._broker.loop.create_task(self._clean(candidate, cleaning.stop))

    def _dirtiest(self) -> _Candidate | None:
        now_ms = self._broker.trusted_time.time_ms()
        candidates = []
        for partition, log in self._broker.logs:
            directory = self._broker.logs.directory_of(partition)
            is_idle = log.config.is_compacted and partition not in self._running and log not in self._uncleanable
            if directory is None or not is_idle:
                continue
            dirt = dirt_in(log, directory.cleaner_offsets.get(partition), now_ms)
            if dirt.is_due(log.config):
                candidates.append(_Candidate(partition, log, directory, dirt.ratio))
        return max(candidates, key=lambda candidate: candidate.ratio, default=None)

    # ---- one compaction ----

    async def _clean(self, candidate: _Candidate, stop: threading.Event) -> None:
        log = candidate.log
        try:
            await self._clean_log(candidate, stop)
            self._broker.loop.call_soon(self._begin)
        except CleaningAborted:
            logger.info("%s: the compaction was stopped", log.name)
        except OSError as error:
            if self._is_wanted(candidate.partition, log):  # else its folder was removed under the cleaner's feet
                self._disk_failed(log, error)
        except ApiError as error:
            logger.warning("%s: the compaction ended early: %s", log.name, error)  # its directory has failed
        except Exception as error:
            self._uncleanable.add(log)
            logger.error("%s cannot be compacted and is set aside until the broker starts again: %s", log.name, error)
        finally:
            del self._running[candidate.partition]

    def _disk_failed(self, log: Log, error: OSError) -> None:
        """The log itself is whole: that there is no room for a second copy is no reason to give it up."""
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            log.failed(error)
        elif log not in self._without_room:
            self._without_room.add(log)
            logger.error("%s cannot be compacted, the disk is full; it is tried again: make some room", log.name)

    async def _clean_log(self, candidate: _Candidate, stop: threading.Event) -> None:
        log, background = candidate.log, self._broker.background
        plan = self._plan(candidate)
        if plan is None:
            return
        cleaner = self._cleaner(plan, stop)
        end_offset = await background.run(cleaner.build_map)
        before = after = 0
        for group in grouped(overlapping(plan.segments, 0, end_offset), plan.config, plan.end_offset):
            cleaned = await background.run(partial(cleaner.clean, group))
            deleted = log.replace_segments(cleaned) if self._is_wanted(candidate.partition, log) else None
            if deleted is None:
                await background.run(partial(cleaner.discard, cleaned))
                raise CleaningAborted
            # Durable before the next step: what comes later relies on what was removed before it.
            await background.run(partial(self._broker.storage.sync_directory, plan.directory))
            self._broker.replicas.delete_later(
                PendingDeletion(log.config.file_delete_delay_ms, tuple(deleted), self._broker.storage)
            )
            before += sum(segment.size for segment in group)
            after += cleaned.size
        if log.truncations != plan.truncations or not self._is_wanted(candidate.partition, log):
            raise CleaningAborted
        candidate.directory.cleaner_offsets[candidate.partition] = end_offset
        await background.run(candidate.directory.write_cleaner_offsets)
        logger.info("%s: compacted up to offset %d, from %d to %d bytes", log.name, end_offset, before, after)

    def _plan(self, candidate: _Candidate) -> CleaningPlan | None:
        """What to do, as the log is now: since it was chosen, it may have changed."""
        now_ms = self._broker.trusted_time.time_ms()
        dirt = dirt_in(candidate.log, candidate.directory.cleaner_offsets.get(candidate.partition), now_ms)
        return plan_for(candidate.log, dirt, now_ms) if dirt.first_offset < dirt.end_offset else None

    def _cleaner(self, plan: CleaningPlan, stop: threading.Event) -> Cleaner:
        config = self._broker.config
        threads = max(config.log_cleaner_threads, 1)
        return Cleaner(
            self._broker.storage,
            plan,
            map_bytes=config.log_cleaner_dedupe_buffer_size // threads,
            load_factor=config.log_cleaner_io_buffer_load_factor,
            buffer_bytes=config.log_cleaner_io_buffer_size // threads // 2,
            pace=self._pace,
            stop=stop,
        )
