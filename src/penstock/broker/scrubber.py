"""The scrub of this broker's logs: one closed segment after the other, slowly, again and again."""

from __future__ import annotations

import asyncio
import logging
import threading
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock.log.log import Log
from penstock.log.pace import Pace
from penstock.log.scrub import Scrub, ScrubStopped
from penstock.log.segment import Segment
from penstock.wire.errors import CorruptBatch

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

logger = logging.getLogger(__name__)


class Scrubber:
    """Reads all closed segments every `penstock.scrub.interval.ms`, at `penstock.scrub.bytes.per.second` at most.

    What is damaged is told once, with its place, and not served any more; all around it is.
    """

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._pace = Pace(lambda: broker.config.penstock_scrub_bytes_per_second, broker.clock.monotonic)
        self._stop = threading.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        config = self._broker.config
        first_after_ms = min(config.log_initial_task_delay_ms, config.penstock_scrub_interval_ms)
        self._broker.background.every(config.penstock_scrub_interval_ms, self._begin, first_after_ms=first_after_ms)

    async def stop(self) -> None:
        self._stop.set()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def _begin(self) -> None:
        is_wanted = self._broker.config.penstock_scrub_bytes_per_second > 0
        if is_wanted and (self._task is None or self._task.done()):
            self._task = self._broker.loop.create_task(self._scrub_all())

    async def _scrub_all(self) -> None:
        for _, log in self._broker.logs:
            segments = log.segments
            for segment, following in pairwise(segments):
                if not self._stop.is_set() and segment in log.segments:
                    await self._scrub(log, segment, following.base_offset)

    async def _scrub(self, log: Log, segment: Segment, end_offset: int) -> None:
        scrub = Scrub(self._broker.storage, segment, end_offset, self._pace, self._stop)
        try:
            damages = await self._broker.background.run(scrub.run)
        except ScrubStopped:
            return
        except (OSError, CorruptBatch) as error:
            if segment in log.segments:
                logger.error("%s cannot be read: %s", segment.file.path, error)
            return
        for damage in damages:
            if damage not in segment.damages:
                logger.error(
                    "%s is damaged from position %d to %d; offsets %d to %d are not served any more. "
                    "Restore them from a replica or a backup; 'penstock log verify' shows the damage.",
                    segment.file.path, damage.position, damage.end_position, damage.first_offset,
                    damage.end_offset - 1,
                )  # fmt: skip
        segment.damages = damages
