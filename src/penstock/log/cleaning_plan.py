"""What a compaction works on, and what it gives: all that passes between the event loop and the cleaner's thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.config.topic import TopicConfig
from penstock.log.compaction import Dirt, dirt_of, first_dirty_offset, overlapping
from penstock.log.log import Log
from penstock.log.producer_state import Producer
from penstock.log.segment import Segment
from penstock.log.txn_index import AbortedTxn


@dataclass(frozen=True)
class LastRecord:
    """The last that a producer wrote: the last offset of its last batch, None if that was only a marker."""

    last_offset: int | None
    epoch: int


@dataclass(frozen=True)
class CleaningPlan:
    """What one compaction is about, as the log was when it began.

    `segments` are all closed ones before `end_offset`; `first_position` is where, in the one that holds `first_offset`,
    to begin to look for it. `producers` are those that the log remembers.
    """

    directory: str
    config: TopicConfig
    segments: tuple[Segment, ...]
    first_offset: int
    first_position: int
    end_offset: int
    aborted: tuple[AbortedTxn, ...]
    producers: Mapping[int, LastRecord]
    now_ms: int
    truncations: int  # of the log so far: if there are more when the work is done, it was for nothing

    def aborted_transactions(self) -> list[AbortedTxn]:
        """Those that began before the end. Their markers may stand behind it, even in the active segment."""
        found = [txn for segment in self.segments for txn in segment.txn_index.entries]
        return [txn for txn in [*found, *self.aborted] if txn.first_offset < self.end_offset]


@dataclass(frozen=True)
class CleanedSegment:
    """New files under temporary names, complete and durable, to take the place of `replaced`."""

    base_offset: int
    replaced: tuple[Segment, ...]
    paths: tuple[str, ...]  # of the new files, without the suffix
    size: int
    records_read: int
    records_kept: int
    truncations: int


def dirt_in(log: Log, cleaned_offset: int | None, now_ms: int) -> Dirt:
    """The dirty part of a log, of which `cleaned_offset` was noted when it was last compacted."""
    return dirt_of(
        log.segments,
        log.config,
        first_offset=first_dirty_offset(cleaned_offset, log.start_offset, log.end_offset),
        # Beyond what Kafka asks for, also durable: else a power cut could take the last record of a key after
        # compaction removed the one before it.
        stable_offset=min(log.last_stable_offset, log.recovery_point),
        now_ms=now_ms,
    )


def plan_for(log: Log, dirt: Dirt, now_ms: int) -> CleaningPlan:
    """Everything the cleaner needs, taken down at one moment."""
    segments = tuple(overlapping(log.segments, 0, dirt.end_offset))
    behind = log.segments[len(segments) :]
    first = overlapping(segments, dirt.first_offset, dirt.end_offset)[0]
    return CleaningPlan(
        directory=log.directory,
        config=log.config,
        segments=segments,
        first_offset=dirt.first_offset,
        first_position=first.offset_index.position_before(dirt.first_offset),
        end_offset=dirt.end_offset,
        aborted=tuple(txn for segment in behind for txn in segment.txn_index.entries),
        producers={number: _last_record(producer) for number, producer in log.producers.producers.items()},
        now_ms=now_ms,
        truncations=log.truncations,
    )


def _last_record(producer: Producer) -> LastRecord:
    return LastRecord(producer.batches[-1].last_offset if producer.batches else None, producer.epoch)
