"""Processors: what they remember of a key, for how long, and their timers; run on Spark where it matters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock import Admin, Consumer, Producer
from penstock.client.errors import ConfigurationError
from penstock.streams import (
    LONG,
    TEXT,
    WALL_CLOCK,
    Application,
    Context,
    Processor,
    Record,
    Stream,
    Timer,
    TopologyError,
    json,
    list_state,
    map_state,
    value_state,
)
from penstock.streams.processors import Kept, called
from penstock.testing.brokers import broker
from penstock.testing.streams import Output
from tests.streams.conftest import Driven


class Deduplicated(Processor):
    seen = map_state(ttl="1 minute")

    def process(self, record: Record, context: Context) -> None:
        if record.value not in self.seen:
            self.seen[record.value] = True
            context.emit(record.value)


class Silence(Processor):
    last = value_state()

    def process(self, record: Record, context: Context) -> None:
        self.last = record.value
        context.set_timer(after="5 seconds")

    def on_timer(self, timer: Timer, context: Context) -> None:
        context.emit(f"silent after {self.last}")
        del self.last


class SilenceOnTheWall(Silence):
    clock = WALL_CLOCK


class Pairs(Processor):
    """Two values that follow each other, under a new key."""

    waiting = list_state()
    count = value_state(0)

    def process(self, record: Record, context: Context) -> None:
        self.waiting.append(record.value)
        self.count += 1
        if len(self.waiting) == 2:
            context.emit("+".join(self.waiting), key=self.count, timestamp=record.timestamp + 1)
            self.waiting.clear()


def _start() -> tuple[Application, Stream]:
    app = Application("shop", key=TEXT, value=TEXT)
    return app, app.stream("in")


# ---- without Spark ----


class _Driven:
    """A processor with one key, called as the engine calls it."""

    def __init__(self, processor: Processor) -> None:
        self._processor = processor
        self.kept = Kept()

    def at(self, time: int, value: Any = None) -> list[tuple[Any, Any, int]]:
        context = Context("k", self.kept, may_change_key=True)
        called(self._processor, context, None if value is None else Record("k", value, time), time)
        self.kept.expire(time)
        return context.emitted


def test_what_has_lived_long_enough_is_forgotten() -> None:
    driven = _Driven(Deduplicated())
    assert driven.at(1_000, "a") == [("k", "a", 1_000)]
    assert driven.at(31_000, "b") == [("k", "b", 31_000)]
    assert driven.at(60_999, "a") == []
    assert driven.at(61_000, "a") == [("k", "a", 61_000)]
    assert driven.kept.next_ms() == 91_000
    driven.at(200_000)
    assert driven.kept.is_empty


def test_a_timer_is_called_before_a_record_that_is_later() -> None:
    driven = _Driven(Silence())
    driven.at(1_000, "a")
    driven.at(5_000, "b")  # sets the timer anew
    assert driven.at(10_500, "c") == [("k", "silent after b", 10_000)]
    assert driven.at(20_000) == [("k", "silent after c", 15_500)]
    assert driven.kept.is_empty


def test_state_can_be_used_as_what_it_is() -> None:
    class Everything(Processor):
        value = value_state(5)
        values = list_state(ttl="1 second")
        by_name = map_state()

        def process(self, record: Record, context: Context) -> None:
            self.value += 1
            self.values.extend([1, 2, 3])
            self.values[0] = 9
            del self.values[1]
            self.values[0:1] = [7, 8]
            self.by_name.update(a=1, b=2)
            del self.by_name["a"]
            context.emit((self.value, self.values[:], len(self.values), dict(self.by_name)))

    assert _Driven(Everything()).at(1, "x")[0][1] == (6, [7, 8, 3], 3, {"b": 2})


def test_mistakes_in_processors_are_told() -> None:
    class Endless(Processor):
        items = list_state()

        def process(self, record: Record, context: Context) -> None:
            if record.value == "replace":
                self.items = []  # type: ignore[misc]
            context.set_timer(at=5)

        def on_timer(self, timer: Timer, context: Context) -> None:
            context.set_timer(at=timer.at)

    with pytest.raises(ConfigurationError, match="items cannot be replaced: change what is in it"):
        _Driven(Endless()).at(1, "replace")
    driven = _Driven(Endless())
    driven.at(1, "a")
    with pytest.raises(ConfigurationError, match="on_timer set its timer to 5 again, which is not after 5"):
        driven.at(10)
    context = Context("k", Kept(), may_change_key=False)
    with pytest.raises(ConfigurationError, match="process_values keeps the key"):
        context.emit("a", key="other")
    with pytest.raises(ConfigurationError, match="needs either after='5 minutes' or at=<ms>"):
        context.set_timer()
    context.set_timer("a", at=7)
    context.cancel_timer("a")
    assert context.kept.is_empty


def test_what_is_no_processor_is_refused() -> None:
    class Wrong(Processor):
        clock = "sundial"

    _, stream = _start()
    with pytest.raises(TopologyError, match=r"process got .*: give a subclass of Processor"):
        stream.process(len, returns="STRING")  # type: ignore[arg-type]
    with pytest.raises(TopologyError, match=r"Wrong.clock is 'sundial': use 'stream time' or 'wall clock'"):
        stream.process(Wrong, returns="STRING")


def test_a_processor_is_shown_with_its_store() -> None:
    app, stream = _start()
    stream.process_values(Silence, returns="STRING").to("out")
    assert "Processor: process-values-1 (Silence, stream time; store: process-values-1)" in app.describe()


# ---- on Spark ----


def test_processors_by_the_time_of_the_stream(driven: Driven) -> None:
    app, stream = _start()
    stream.process_values(Deduplicated, returns="STRING").to("once")
    stream.process_values(Silence, returns="STRING").to("silent")
    stream.process(Pairs(), returns="STRING", returns_key="BIGINT", key=LONG).to("pairs")
    driver = driven(app)
    for key, value, timestamp in [("a", "x", 1_000), ("a", "x", 2_000), ("b", "x", 3_000), ("a", "y", 4_000)]:
        driver.pipe("in", key, value, timestamp)
    assert [(one.key, one.value) for one in driver.read("once")] == [("a", "x"), ("a", "y"), ("b", "x")]
    assert driver.read("silent") == []
    assert driver.read("pairs") == [Output(2, "x+x", 2_001)]
    driver.pipe("in", "a", "z", 70_000)
    driver.pipe("in", "a", "x", 500)  # late, and seen all the same
    assert [one.value for one in driver.read("once")] == ["z", "x"]
    assert sorted(driver.read("silent"), key=str) == [
        Output("a", "silent after y", 9_000),
        Output("b", "silent after x", 8_000),
    ]
    assert driver.read("pairs") == [Output(4, "y+z", 70_001)]


def test_processors_by_the_clock_on_the_wall(driven: Driven) -> None:
    app, stream = _start()
    stream.process_values(SilenceOnTheWall, returns="STRING").to("out")
    driver = driven(app)
    driver.pipe("in", "a", "x", 900_000)
    driver.advance_wall_clock("4 seconds")
    driver.pipe("in", "b", "y", 950_000)
    assert driver.read("out") == []
    driver.advance_wall_clock("1 second")
    assert driver.read("out") == [Output("a", "silent after x", 5_001)]
    driver.advance_wall_clock("1 minute")
    assert driver.read("out") == [Output("b", "silent after y", 9_001)]


def test_the_wall_stands_still_where_nobody_looks(driven: Driven) -> None:
    app, stream = _start()
    stream.to("out")
    with pytest.raises(ConfigurationError, match="does not look at the wall"):
        driven(app).advance_wall_clock("1 second")


def test_a_processor_remembers_after_a_restart(spark: Any, tmp_path: Path) -> None:
    def application() -> Application:
        app = Application("shop", key=TEXT, value=json("n INT"), state_dir=str(tmp_path))
        app.stream("in").process_values(_Sum, returns="INT").map_values(total="value").to("out")
        return app

    with broker() as running, Admin(running.bootstrap) as admin:
        for topic in ("in", "out"):
            admin.create_topic(topic, partitions=1, config={"retention.ms": "-1"})
        for n in (1, 2):
            with Producer(running.bootstrap) as producer:
                producer.send("in", b'{"n": %d}' % n, key="a", timestamp=1000)
            application().catch_up(running.bootstrap, spark=spark)
        with Consumer(running.bootstrap, auto_offset_reset="earliest", stop_at_end=True) as consumer:
            consumer.assign([("out", 0)])
            assert [one.value for one in consumer] == [b'{"total":1}', b'{"total":3}']


class _Sum(Processor):
    total = value_state(0)

    def process(self, record: Record, context: Context) -> None:
        self.total += record.value.n
        context.emit(self.total)
