"""Compaction beside a model that follows Kafka's rules record by record, over random logs."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field, replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.clock import ManualClock
from penstock.log.cleaning_plan import dirt_in
from penstock.log.inspection import PartitionCheck
from penstock.log.log import Log
from penstock.log.storage import Storage
from penstock.wire.batch import DELETE_HORIZON, encode_batch
from penstock.wire.compression import Codec
from penstock.wire.record import Record
from tests.log.cleaning import clean
from tests.log.samples import T0, append, batches_from, config_of, marker_batch, open_at

DELETE_RETENTION_MS = 1000


@dataclass(frozen=True)
class Modelled:
    """A batch as the model has it. `txn` tells the transactions of a producer apart."""

    base: int
    last: int
    producer: int
    sequence: int
    records: tuple[Record, ...]
    txn: int | None = None
    is_commit: bool | None = None  # of a marker
    horizon: int | None = None

    @property
    def is_control(self) -> bool:
        return self.is_commit is not None


@dataclass
class Model:
    batches: list[Modelled] = field(default_factory=list)
    aborted: set[int] = field(default_factory=set)
    indexed: set[int] = field(default_factory=set)  # offsets of abort markers that the transaction index knows

    def clean(self, log: Log, first: int, end: int, now: int) -> None:
        last_offsets = {
            producer.batches[-1].last_offset if producer.batches else None
            for producer in log.producers.producers.values()
        }
        newest = {
            record.key: record.offset
            for batch in self.batches
            if not batch.is_control and batch.txn not in self.aborted
            for record in batch.records
            if first <= record.offset < end and record.key is not None
        }
        seen: set[int | None] = set()  # transactions of which a batch came by
        kept = []
        for batch in self.batches:
            if batch.base >= end:
                kept.append(batch)
                continue
            is_over = batch.horizon is not None and batch.horizon <= now
            if batch.is_control:
                is_obsolete = batch.txn not in seen or not batch.records
                records = () if is_obsolete and is_over else batch.records
                gets_horizon = is_obsolete
                if is_obsolete:
                    self.indexed.discard(batch.base)
            else:
                seen.add(batch.txn)
                records = tuple(
                    record
                    for record in batch.records
                    if batch.txn not in self.aborted
                    and record.key is not None
                    and newest.get(record.key, -1) <= record.offset
                    and (record.value is not None or not is_over)
                )
                gets_horizon = any(record.value is None for record in records)
            if records or batch.last in last_offsets or batch.last == end - 1:
                horizon = batch.horizon
                if gets_horizon and horizon is None:
                    horizon = now + DELETE_RETENTION_MS
                kept.append(replace(batch, records=records, horizon=horizon if records else None))
        self.batches = kept


keys = st.one_of(st.integers(0, 5), st.integers(0, 60))
values = st.one_of(st.none(), st.integers(0, 100))
steps = st.one_of(
    st.tuples(
        st.just("data"),
        st.lists(st.tuples(keys, values, st.integers(0, 20)), min_size=1, max_size=6),
        st.sampled_from(list(Codec)),
        st.sampled_from([-1, -1, 7, 8]),
    ),
    st.tuples(
        st.just("txn"),
        st.lists(st.tuples(keys, values, st.integers(0, 20)), min_size=1, max_size=4),
        st.sampled_from([Codec.NONE, Codec.NONE, Codec.LZ4]),
        st.sampled_from([100, 101, 102]),
    ),
    st.tuples(st.just("end"), st.booleans(), st.just(None), st.sampled_from([100, 101, 102])),
    st.tuples(st.just("roll"), st.just(None), st.just(None), st.just(None)),
    st.tuples(st.just("wait"), st.sampled_from([1, 600, 1500]), st.just(None), st.just(None)),
    st.tuples(st.just("clean"), st.booleans(), st.just(None), st.just(None)),
)


class LogBesideModel:
    def __init__(self, directory: str, segment_bytes: int, buffer_bytes: int) -> None:
        self.clock = ManualClock(T0)
        self.directory = directory
        self.config = config_of(
            segment_bytes=segment_bytes,
            index_interval_bytes=100,
            cleanup_policy=("compact",),
            delete_retention_ms=DELETE_RETENTION_MS,
        )
        self.log = open_at(directory, self.config, clock=self.clock)
        self.buffer_bytes = buffer_bytes
        self.model = Model()
        self.cleaned_offset: int | None = None
        self.sequences: dict[int, int] = {}
        self.open_txns: dict[int, int] = {}
        self.txn_count = 0

    def step(self, what: str, a: object, codec: Codec, producer: int) -> None:
        getattr(self, what)(a, codec, producer)
        self.log.advance_high_watermark(self.log.end_offset)

    def data(
        self, shapes: list[tuple[int, int | None, int]], codec: Codec, producer: int, txn: int | None = None
    ) -> None:
        now = self.clock.time_ms()
        records = [
            Record(
                n,
                now + late,
                b"key-%d" % key,
                None if value is None else b"value %d " % value * 3,
                (("h", b"x"),) if late % 5 == 0 else (),
            )
            for n, (key, value, late) in enumerate(shapes)
        ]
        sequence = self.sequences.get(producer, 0) if producer >= 0 else -1
        self.sequences[producer] = sequence + len(records)
        identity = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence} if producer >= 0 else {}
        data = encode_batch(records, codec=codec, is_transactional=txn is not None, **identity)  # type: ignore[arg-type]
        batch = append(self.log, data)
        stored = tuple(record._replace(offset=batch.base_offset + record.offset) for record in records)
        self.model.batches.append(Modelled(batch.base_offset, batch.last_offset, producer, sequence, stored, txn))

    def txn(self, shapes: list[tuple[int, int | None, int]], codec: Codec, producer: int) -> None:
        if producer not in self.open_txns:
            self.txn_count += 1
            self.open_txns[producer] = self.txn_count
        self.data(shapes, codec, producer, self.open_txns[producer])

    def end(self, is_commit: bool, codec: Codec, producer: int) -> None:
        txn = self.open_txns.pop(producer, None)
        if txn is None:
            return
        if not is_commit:
            self.model.aborted.add(txn)
        batch = append(self.log, marker_batch(producer, is_commit=is_commit, timestamp=self.clock.time_ms()))
        if not is_commit:
            self.model.indexed.add(batch.base_offset)
        records = (Record(batch.base_offset, self.clock.time_ms(), None, None),)
        self.model.batches.append(Modelled(batch.base_offset, batch.last_offset, producer, -1, records, txn, is_commit))

    def roll(self, *_: object) -> None:
        self.log.roll()

    def wait(self, duration_ms: int, *_: object) -> None:
        self.clock.advance_ms(duration_ms)

    def clean(self, is_from_start: bool = False, *_: object) -> None:
        now = self.clock.time_ms()
        self.log.advance_high_watermark(self.log.end_offset)
        noted = None if is_from_start else self.cleaned_offset
        flushed = self.log.flush_job()
        flushed.run()
        self.log.flushed(flushed)
        dirt = dirt_in(self.log, noted, now)
        if dirt.first_offset < dirt.end_offset:
            self.cleaned_offset = clean(self.log, noted, now_ms=now, buffer_bytes=self.buffer_bytes)
            assert self.cleaned_offset == dirt.end_offset
            self.model.clean(self.log, dirt.first_offset, dirt.end_offset, now)
        self.check()

    def check(self) -> None:
        found = []
        for batch, records in batches_from(self.log, 0):
            has_horizon = batch.attributes & DELETE_HORIZON
            if batch.is_control:
                records = [Record(record.offset, record.timestamp, None, None) for record in records]
            found.append(
                (
                    batch.base_offset,
                    batch.last_offset,
                    batch.producer_id,
                    batch.base_sequence,
                    tuple(records),
                    batch.is_transactional,
                    batch.is_control,
                    batch.base_timestamp if has_horizon else None,
                )
            )
        expected = [
            (b.base, b.last, b.producer, b.sequence, b.records, b.txn is not None, b.is_control, b.horizon)
            for b in self.model.batches
        ]
        assert found == expected
        entries = [txn for segment in self.log.segments for txn in segment.txn_index.entries]
        assert [txn.last_offset for txn in entries] == sorted(self.model.indexed)
        for batch in self.model.batches:
            for record in batch.records:
                (first, inside), *_ = batches_from(self.log, record.offset, batch.last + 1)
                assert first.base_offset == batch.base
                assert record.offset in [one.offset for one in inside]
        assert [problem.text for problem in PartitionCheck(Storage(), self.directory).run().problems] == []

    def check_after_recovery(self) -> None:
        producers = {
            producer.producer_id: (producer.epoch, producer.last_sequence, producer.txn_first_offset)
            for producer in self.log.producers.producers.values()
        }
        self.log.close_files()
        self.log = open_at(self.directory, self.config, clock=self.clock, is_clean=False)
        self.model.indexed = {
            batch.base
            for number, batch in enumerate(self.model.batches)
            if batch.is_commit is False and any(before.txn == batch.txn for before in self.model.batches[:number])
        }  # recovery makes the index anew, from what is left
        self.check()
        assert {
            producer.producer_id: (producer.epoch, producer.last_sequence, producer.txn_first_offset)
            for producer in self.log.producers.producers.values()
        } == producers


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    script=st.lists(steps, min_size=1, max_size=60),
    segment_bytes=st.sampled_from([300, 900, 3000]),
    buffer_bytes=st.sampled_from([64, 500, 100_000]),
)
def test_a_cleaned_log_holds_what_the_rules_say(
    script: list[tuple[str, object, Codec, int]], segment_bytes: int, buffer_bytes: int
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        log = LogBesideModel(directory, segment_bytes, buffer_bytes)
        for step in script:
            log.step(*step)
        for producer in (100, 101, 102):  # so that no batch before is the last of its producer
            log.step("end", False, Codec.NONE, producer)
            log.step("txn", [(99, 1, 0)], Codec.NONE, producer)
            log.step("end", True, Codec.NONE, producer)
        log.roll()
        for _ in range(3):
            log.clean(True)
            log.wait(700)
        log.check_after_recovery()
