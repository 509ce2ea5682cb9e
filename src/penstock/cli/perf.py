"""`penstock perf`: how fast a cluster is, as a client sees it."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any, Literal

import typer

from penstock.cli.command import Topic, command, new_group
from penstock.cli.mistakes import Failure
from penstock.cli.output import progress
from penstock.cli.session import Session, check_topics
from penstock.client.errors import PenstockError
from penstock.client.records import Delivered

group = new_group("Measure how fast a cluster is.")

_PATIENCE_S = 60.0
_STEP = 500  # records between two looks at the clock and the progress bar

Records = Annotated[int, typer.Option("--records", "-n", min=1, help="How many records.")]
Size = Annotated[int, typer.Option("--size", "-s", min=1, help="Bytes in each value.")]
Acks = Annotated[Literal["0", "1", "all"], typer.Option("--acks", help="Whose acknowledgement to wait for.")]


@command(group, "produce")
def produce(
    session: Session,
    topic: Topic,
    records: Records = 100_000,
    size: Size = 100,
    acks: Acks = "all",
    compression: Annotated[
        Literal["none", "gzip", "snappy", "lz4", "zstd"], typer.Option("--compression", "-z", help="How to compress.")
    ] = "none",
    rate: Annotated[int | None, typer.Option("--rate", min=1, help="At most so many records in a second.")] = None,
) -> None:
    """Send records as fast as it goes, or at a rate, and say how long each took to be acknowledged."""
    _check(session, topic)
    value = os.urandom(size)
    told = _Acknowledgements()
    level: Literal[0, 1, "all"] = "all" if acks == "all" else 1 if acks == "1" else 0
    begin = time.perf_counter()
    with (
        progress(f"producing to {topic}", records) as bar,
        session.producer(acks=level, compression=compression) as producer,
    ):
        for number in range(records):
            if number % _STEP == 0:
                bar.advance(min(_STEP, records - number))
                told.check()
            if rate is not None:
                _wait_until(begin + number / rate)
            producer.send(topic, value, on_delivery=partial(told.acknowledge, time.perf_counter()))
        producer.flush()
    told.check()
    _report(session, "produce", topic, records, records * size, time.perf_counter() - begin, told.latencies)


@command(group, "consume")
def consume(
    session: Session,
    topic: Topic,
    records: Annotated[int | None, typer.Option("--records", "-n", min=1, help="At most so many records.")] = None,
) -> None:
    """Read a topic from its beginning as fast as it goes."""
    _check(session, topic)
    with session.admin() as admin:
        firsts, ends = admin.topic_offsets(topic, "earliest"), admin.topic_offsets(topic, "latest")
    total = sum(ends[one].offset - firsts[one].offset for one in ends)
    if total == 0:
        raise Failure(f"topic {topic!r} is empty; fill it with 'penstock perf produce {topic}'")
    wanted = min(total, records or total)
    count = size = 0
    begin = time.perf_counter()
    config = {"fetch.wait.max.ms": 50}
    options: dict[str, Any] = {"stop_at_end": True, "auto_offset_reset": "earliest", "config": config}
    with progress(f"reading {topic}", wanted) as bar, session.consumer(**options) as consumer:
        consumer.assign({one: firsts[one].offset for one in firsts})
        for record in consumer:
            count += 1
            size += len(record.value or b"") + len(record.key or b"")
            if count % _STEP == 0:
                bar.advance(_STEP)
            if count == wanted:
                break
        seconds = time.perf_counter() - begin
    _report(session, "consume", topic, count, size, seconds, ())


@command(group, "latency")
def latency(session: Session, topic: Topic, records: Records = 1_000, size: Size = 100, acks: Acks = "all") -> None:
    """Send records one by one, and say how long each took until a consumer had it."""
    _check(session, topic)
    with session.admin() as admin:
        ends = admin.topic_offsets(topic, "latest")
    mark = uuid.uuid4().bytes
    latencies: list[float] = []
    level: Literal[0, 1, "all"] = "all" if acks == "all" else 1 if acks == "1" else 0
    begin = time.perf_counter()
    with (
        progress(f"round trips through {topic}", records) as bar,
        session.producer(acks=level, linger_ms=0) as producer,
        session.consumer(auto_offset_reset="latest") as consumer,
    ):
        consumer.assign({one: info.offset for one, info in ends.items()})
        for number in range(records):
            value = (mark + number.to_bytes(8, "big")).ljust(size, b"-")
            sent = time.perf_counter()
            producer.send(topic, value)
            while True:
                record = consumer.poll(_PATIENCE_S)
                if record is None:
                    raise Failure(f"a record did not come back within {_PATIENCE_S:g} s")
                if record.value == value:
                    break
            if number or records == 1:  # the first one pays for the connections
                latencies.append(time.perf_counter() - sent)
            bar.advance()
        seconds = time.perf_counter() - begin
    _report(session, "latency", topic, records, records * max(size, len(mark) + 8), seconds, latencies)


class _Acknowledgements:
    def __init__(self) -> None:
        self.latencies: list[float] = []
        self._failure: PenstockError | None = None

    def acknowledge(self, sent: float, delivered: Delivered | None, error: PenstockError | None) -> None:
        if error is not None:
            self._failure = self._failure or error
        else:
            self.latencies.append(time.perf_counter() - sent)

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure


def _check(session: Session, topic: str) -> None:
    with session.admin() as admin:
        check_topics(admin, [topic])


def _wait_until(moment: float) -> None:
    remaining = moment - time.perf_counter()
    if remaining > 0:
        time.sleep(remaining)


def _report(
    session: Session, test: str, topic: str, records: int, size: int, seconds: float, latencies: Sequence[float]
) -> None:
    facts: dict[str, Any] = {
        "test": test,
        "topic": topic,
        "records": records,
        "seconds": round(seconds, 3),
        "records_per_second": round(records / seconds, 1),
        "megabytes_per_second": round(size / seconds / 1e6, 3),
    }
    ordered = sorted(latencies)
    for percent in (50, 95, 99):
        facts[f"p{percent}_ms"] = round(percentile(ordered, percent) * 1000, 3) if ordered else None
    session.out.facts(facts)


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The value that so many percent of sorted values do not exceed."""
    return ordered[max(0, min(len(ordered) - 1, -(-len(ordered) * int(percent) // 100) - 1))]
