"""A log beside a plain list: whatever happens, in whatever order, reading gives what the list holds."""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.clock import ManualClock
from penstock.wire.batch import batches_in
from penstock.wire.compression import Codec
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.record import Record
from tests.log.samples import T0, append, config_of, data_batch, flush, open_at, records_from


@dataclass(frozen=True)
class Appended:
    base: int
    records: list[Record]

    @property
    def next(self) -> int:
        return self.base + len(self.records)


record_shapes = st.lists(
    st.tuples(st.integers(0, 120), st.one_of(st.just(-1), st.integers(T0, T0 + 50))), min_size=1, max_size=5
)


class LogBesideList(RuleBasedStateMachine):
    @initialize(
        segment_bytes=st.sampled_from([150, 400, 1500, 10**6]),
        interval=st.sampled_from([0, 0, 100, 4096]),
        index_bytes=st.sampled_from([24, 36, 100, 4096]),
        preallocate=st.booleans(),
        has_gaps=st.booleans(),
    )
    def begin(self, segment_bytes: int, interval: int, index_bytes: int, preallocate: bool, has_gaps: bool) -> None:
        """Only a log that is compacted may have gaps in its offsets."""
        self.has_gaps = has_gaps
        self.directory = tempfile.mkdtemp()
        self.clock = ManualClock(T0)
        self.config = config_of(
            segment_bytes=segment_bytes,
            index_interval_bytes=interval,
            segment_index_bytes=index_bytes,
            preallocate=preallocate,
            retention_ms=-1,
            cleanup_policy=("compact", "delete") if has_gaps else ("delete",),
        )
        self.log = open_at(self.directory, self.config, clock=self.clock)
        self.batches: list[Appended] = []
        self.start = self.end = self.high_watermark = 0
        self.recovery_point = 0
        self.serial = 0

    def teardown(self) -> None:
        if hasattr(self, "directory"):
            shutil.rmtree(self.directory)

    # ---- what happens to a log ----

    @rule(shapes=record_shapes, codec=st.sampled_from([Codec.NONE, Codec.NONE, Codec.GZIP]), epoch=st.integers(0, 2))
    def append_as_leader(self, shapes: list[tuple[int, int]], codec: Codec, epoch: int) -> None:
        epoch = max(epoch, self.log.epochs.latest)
        records = self._records(shapes)
        result = append(self.log, self._encode(records, codec), epoch)
        assert (result.base_offset, result.last_offset) == (self.end, self.end + len(records) - 1)
        self._added(records)

    @rule(shapes=record_shapes, gap=st.sampled_from([0, 0, 1, 7]))
    def append_as_follower(self, shapes: list[tuple[int, int]], gap: int) -> None:
        self.end += gap if self.has_gaps else 0
        records = self._records(shapes)
        data = self._encode(records, Codec.NONE)
        data[0:8] = self.end.to_bytes(8, "big")
        self.log.append_as_follower(data)
        self._added(records)

    def _records(self, shapes: list[tuple[int, int]]) -> list[Record]:
        made = []
        for n, (size, timestamp) in enumerate(shapes):
            self.serial += 1
            made.append(Record(self.end + n, timestamp, None, b"%d:" % self.serial + b"v" * size))
        return made

    def _encode(self, records: list[Record], codec: Codec) -> bytearray:
        values = [record.value for record in records]
        return data_batch(*values, timestamp=[record.timestamp for record in records], key=None, codec=codec)

    def _added(self, records: list[Record]) -> None:
        self.batches.append(Appended(self.end, records))
        self.end += len(records)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(duration_ms=st.integers(1, 10**6))
    def time_passes(self, duration_ms: int) -> None:
        self.clock.advance_ms(duration_ms)

    @rule(share=st.floats(0, 1))
    def move_high_watermark(self, share: float) -> None:
        offset = int(self.end * share)
        self.log.advance_high_watermark(offset)
        self.high_watermark = max(self.high_watermark, offset)

    @rule()
    def flush(self) -> None:
        flush(self.log)
        self.recovery_point = self.end

    @rule(share=st.floats(0, 1), within_a_batch=st.booleans())
    def truncate(self, share: float, within_a_batch: bool) -> None:
        offset = self.start + int((self.end - self.start) * share)
        if not (within_a_batch and self.has_gaps):
            offset = max([b.base for b in self.batches if self.start <= b.base <= offset], default=self.start)
        self.log.truncate(offset)
        self.batches = [batch for batch in self.batches if batch.next <= offset]
        self.end = offset
        self.high_watermark = min(self.high_watermark, offset)
        self.recovery_point = min(self.recovery_point, offset)

    @rule(share=st.floats(0, 1))
    def delete_records(self, share: float) -> None:
        offset = int(self.high_watermark * share)
        self.log.advance_start(offset)
        self.start = max(self.start, offset)
        self.recovery_point = max(self.recovery_point, self.start)

    @rule(retention_bytes=st.integers(-1, 3000))
    def apply_retention(self, retention_bytes: int) -> None:
        self.log.reconfigure(replace(self.config, retention_bytes=retention_bytes))
        self.log.delete_old_segments()
        assert self.start <= self.log.start_offset <= self.high_watermark
        self.start = self.log.start_offset
        self.recovery_point = max(self.recovery_point, self.start)

    @precondition(lambda self: hasattr(self, "log"))
    @rule(is_clean=st.booleans())
    def reopen(self, is_clean: bool) -> None:
        if is_clean:
            self.log.close()
        del self.log
        self.log = open_at(
            self.directory,
            self.config,
            clock=self.clock,
            is_clean=is_clean,
            start_offset=self.start,
            recovery_point=self.recovery_point,
        )
        self.log.advance_high_watermark(self.high_watermark)
        # Offsets that a truncation left without records, at the very end, may be given out again.
        last = max([batch.next for batch in self.batches], default=self.start)
        assert max(last, self.start) <= self.log.end_offset <= self.end
        self.end = self.log.end_offset
        self.high_watermark = min(self.high_watermark, self.end)
        self.recovery_point = self.log.recovery_point

    # ---- what must hold ----

    @invariant()
    def bounds_agree(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert (log.start_offset, log.end_offset) == (self.start, self.end)
        assert log.start_offset <= log.recovery_point <= log.end_offset
        assert log.start_offset <= log.high_watermark <= log.end_offset
        bases = [segment.base_offset for segment in log.segments]
        assert bases == sorted(set(bases))
        assert log.segments[0].base_offset <= log.start_offset or log.size == 0

    @invariant()
    def reading_gives_what_the_list_holds(self) -> None:
        if not hasattr(self, "log"):
            return
        expected = [record for batch in self.batches for record in batch.records if record.offset >= self.start]
        assert records_from(self.log, self.start) == expected
        for offset in range(self.start, self.end):
            batch = next((batch for batch in self.batches if batch.next > offset), None)
            part = self.log.read(offset, 1, self.end)
            if batch is None:
                assert part is None
            else:
                assert part is not None
                assert [found.base_offset for found in batches_in(part.read())] == [batch.base]
        for outside in (self.start - 1, self.end + 1):
            with pytest.raises(ApiError) as caught:
                self.log.read(outside, 1, self.end)
            assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE

    @invariant()
    def times_are_found(self) -> None:
        if not hasattr(self, "log"):
            return
        records = [record for batch in self.batches for record in batch.records if record.offset >= self.start]
        for timestamp in (T0, T0 + 10, T0 + 25, T0 + 50):
            expected = next((r for r in records if r.timestamp >= timestamp), None)
            found = self.log.offset_for_timestamp(timestamp)
            assert (found and found[:2]) == (expected and (expected.timestamp, expected.offset))


TestLogBesideList = LogBesideList.TestCase
TestLogBesideList.settings = settings(
    deadline=None,
    max_examples=200,
    stateful_step_count=40,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],  # to explain a failure takes minutes here
    suppress_health_check=list(HealthCheck),
)
