"""Compacting logs in tests, and what compaction ought to leave, by the book."""

from __future__ import annotations

import threading

from penstock.config.definition import LONG_MAX
from penstock.log.cleaner import Cleaner
from penstock.log.cleaning_plan import CleaningPlan, dirt_in, plan_for
from penstock.log.compaction import grouped, overlapping
from penstock.log.log import Log
from penstock.log.pace import Pace
from penstock.log.storage import Storage
from tests.log.samples import flush

MAP_BYTES = 1 << 20


def cleaner_for(
    plan: CleaningPlan,
    storage: Storage | None = None,
    *,
    map_bytes: int = MAP_BYTES,
    buffer_bytes: int = 4096,
    stop: threading.Event | None = None,
) -> Cleaner:
    return Cleaner(
        storage or Storage(),
        plan,
        map_bytes=map_bytes,
        load_factor=0.9,
        buffer_bytes=buffer_bytes,
        pace=Pace(lambda: 0.0, lambda: 0.0),
        stop=stop or threading.Event(),
    )


def clean(
    log: Log,
    cleaned_offset: int | None = None,
    *,
    now_ms: int,
    storage: Storage | None = None,
    map_bytes: int = MAP_BYTES,
    buffer_bytes: int = 4096,
    is_flushed: bool = True,
) -> int:
    """One whole compaction; returns the offset up to which the log is clean now."""
    storage = storage or Storage()
    if is_flushed:
        flush(log)
    dirt = dirt_in(log, cleaned_offset, now_ms)
    if dirt.first_offset >= dirt.end_offset:
        return dirt.first_offset
    plan = plan_for(log, dirt, now_ms)
    cleaner = cleaner_for(plan, storage, map_bytes=map_bytes, buffer_bytes=buffer_bytes)
    end_offset = cleaner.build_map()
    for group in grouped(overlapping(plan.segments, 0, end_offset), plan.config, plan.end_offset):
        deleted = log.replace_segments(cleaner.clean(group))
        assert deleted is not None
        storage.sync_directory(log.directory)
        for path in deleted:
            storage.remove(path)
    return end_offset


NEVER = LONG_MAX
