"""Records that come too late for their windows, and windows that Python functions fold."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.streams import TEXT, Application, fn, session, sliding, tumbling
from penstock.streams.engine.spans import SlidingSpans, Slots, Span
from penstock.testing.streams import Output, Windowed
from tests.streams.conftest import Driven


def _start() -> tuple[Application, Any]:
    app = Application("site", key=TEXT, value=TEXT)
    return app, app.stream("in").group_by_key()


_FOLDS: dict[str, Any] = {
    "native": lambda windows: windows.aggregate(fn.count("*")),
    "python": lambda windows: windows.aggregate(int, lambda count, _: count + 1, returns="BIGINT"),
}


@pytest.mark.parametrize("kind", _FOLDS)
def test_every_record_is_counted_or_late_and_late_only_once(driven: Driven, kind: str) -> None:
    app, grouped = _start()
    windows = grouped.window(tumbling("10 seconds", grace="5 seconds"), late="late")
    _FOLDS[kind](windows).map_values("cast(value AS STRING)").to_stream().to("out")
    driver = driven(app)
    source = random.Random(7)
    sent = []
    for n in range(4):
        for number in range(20):
            at = 1_000 + n * 20_000 + source.randrange(20_000) - (source.randrange(40_000) if n else 0)
            sent.append(Output("a", f"{n}-{number}", max(at, 1)))
            driver.pipe("in", "a", sent[-1].value, sent[-1].timestamp)
        driver.advance()
    late = driver.read("late")
    assert 3 < len(late) < 40
    assert len(set(late)) == len(late)
    assert set(late) <= set(sent)
    counted = sum(int(count) for count in driver.table("out").values())
    assert counted + len(late) == len(sent)


def test_a_hopping_record_is_late_when_all_its_windows_are_closed(driven: Driven) -> None:
    from penstock.streams import hopping

    app, grouped = _start()
    grouped.window(hopping("10 seconds", "5 seconds"), late="late").count().to_stream().to("out")
    driver = driven(app)
    driver.pipe("in", "a", "first", 20_000)
    driver.advance()
    driver.pipe("in", "a", "half", 18_000)  # in 10-20 s, which is closed, and in 15-25 s
    driver.pipe("in", "a", "late", 14_000)
    assert driver.read("late") == [Output("a", "late", 14_000)]
    assert driver.table("out")[Windowed("a", 15_000)] == 2
    assert Windowed("a", 10_000) not in driver.table("out")


def test_sessions_with_updates_delete_what_they_merge(driven: Driven) -> None:
    app, grouped = _start()
    windows = grouped.window(session("5 seconds", grace="10 seconds", emit="updates"), late="late")
    windows.reduce(lambda old, new: old + new).to_stream().to("out")
    driver = driven(app)
    driver.pipe("in", "a", "x", 1_000)
    driver.pipe("in", "a", "z", 9_000)
    assert driver.table("out") == {Windowed("a", 1_000, 1_000): "x", Windowed("a", 9_000, 9_000): "z"}
    driver.pipe("in", "a", "y", 5_000)
    merged = driver.read("out")
    assert merged[:-3] == []
    assert set(merged) == {
        Output(Windowed("a", 1_000, 1_000), None, 1_000),
        Output(Windowed("a", 9_000, 9_000), None, 9_000),
        Output(Windowed("a", 1_000, 9_000), "xzy", 9_000),
    }
    driver.pipe("in", "b", "far", 90_000)
    driver.advance()
    driver.pipe("in", "a", "late", 9_000)
    assert driver.read("late") == [Output("a", "late", 9_000)]


def test_sliding_windows_hold_every_set_of_records_that_are_close() -> None:
    spans = SlidingSpans(sliding("10 ms", grace="1 second"))
    source = random.Random(3)
    for _ in range(200):
        slots: Slots = {}
        times = [source.randrange(60) for _ in range(source.randrange(1, 12))]
        for at in times:
            spans.take(slots, at, 0, lambda result, at=at: [*(result or []), at], lambda one, _: one)
        for span, slot in slots.items():
            assert sorted(slot.result) == sorted(at for at in times if span.start <= at <= span.end)
        for at in times:
            assert Span(max(at - 10, 0), max(at, 10)) in slots
            if any(at < other <= at + 11 for other in times):
                assert Span(at + 1, at + 11) in slots
