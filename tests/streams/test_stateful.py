"""Aggregations, windows and joins, run on Spark."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.streams import (
    LONG,
    TEXT,
    Application,
    Stream,
    TopologyError,
    col,
    fn,
    hopping,
    json,
    session,
    tumbling,
    within,
)
from penstock.testing.streams import Output, Windowed
from tests.streams.conftest import Driven

CLICKS = json("page STRING, ms BIGINT")


def _start() -> tuple[Application, Stream]:
    app = Application("site", key=TEXT, value=json())
    return app, app.stream("clicks", value=CLICKS)


def _pipe(driver: Any, *clicks: tuple[str | None, int], page: str = "home") -> None:
    for user, timestamp in clicks:
        driver.pipe("clicks", user, {"page": page, "ms": timestamp}, timestamp=timestamp)


def test_counts_are_kept_from_batch_to_batch(driven: Driven) -> None:
    app, clicks = _start()
    clicks.group_by_key().count().to_stream().to("out")
    driver = driven(app)
    _pipe(driver, ("a", 10), ("a", 30), ("b", 20), (None, 40))
    driver.pipe("clicks", "a", None, timestamp=50)  # neither this nor the one without a key counts
    assert sorted(driver.read("out"), key=str) == [Output("a", 2, 30), Output("b", 1, 20)]
    _pipe(driver, ("a", 25))
    assert driver.read("out") == [Output("a", 3, 30)]
    assert driver.table("out") == {"a": 3, "b": 1}


def test_aggregates_of_columns_by_a_new_key(driven: Driven) -> None:
    app, clicks = _start()
    pages = clicks.group_by(col.page, key=TEXT)
    pages.aggregate(total=fn.sum(col.ms), times=fn.collect_list(col.ms)).to_stream().to("many")
    pages.aggregate(fn.max(col.ms)).to_stream().to("one", value=LONG)
    driver = driven(app)
    _pipe(driver, ("a", 10), ("a", 30))
    _pipe(driver, ("b", 5), page="help")
    assert driver.table("many") == {"home": {"total": 40, "times": [10, 30]}, "help": {"total": 5, "times": [5]}}
    assert driver.table("one") == {"home": 30, "help": 5}


def test_reduce_and_fold_with_python_functions(driven: Driven) -> None:
    app, clicks = _start()
    by_user = clicks.group_by_key()
    by_user.reduce(lambda old, new: new if new.ms > 20 else old).to_stream().to("reduced")

    def add(key: str, result: list[str], value: Any) -> list[str] | None:
        return None if value.page == "exit" else [*result, f"{key}:{value.page}"]

    by_user.aggregate(list, add, returns="ARRAY<STRING>").to_stream().to("folded")
    driver = driven(app)
    _pipe(driver, ("a", 10), ("a", 15))
    _pipe(driver, ("b", 25), page="help")
    assert driver.table("reduced") == {"a": {"page": "home", "ms": 10}, "b": {"page": "help", "ms": 25}}
    assert driver.table("folded") == {"a": ["a:home", "a:home"], "b": ["b:help"]}
    _pipe(driver, ("a", 30), page="exit")
    assert driver.table("reduced")["a"] == {"page": "exit", "ms": 30}
    assert driver.table("folded") == {"b": ["b:help"]}
    _pipe(driver, ("a", 35))
    assert driver.table("folded")["a"] == ["a:home"]


def test_cogroup_folds_several_streams(driven: Driven) -> None:
    app, clicks = _start()
    sales = app.stream("sales", value=json("price INT"))
    both = clicks.group_by_key().cogroup(lambda result, _: result + 1)
    both = both.cogroup(sales.group_by_key(), lambda result, value: result + value.price)
    both.aggregate(int, returns="BIGINT").to_stream().to("out", value=LONG)
    driver = driven(app)
    _pipe(driver, ("a", 10), ("b", 15))
    driver.pipe("sales", "a", {"price": 100}, timestamp=20)
    assert driver.table("out") == {"a": 101, "b": 1}


def test_tumbling_windows_with_grace(driven: Driven) -> None:
    app, clicks = _start()
    windows = tumbling("10 seconds", grace="5 seconds")
    clicks.group_by_key().window(windows).count().to_stream().to("updates")
    clicks.group_by_key().window(windows).count().suppress().to_stream().to("final")
    driver = driven(app)
    _pipe(driver, ("a", 1_000), ("a", 9_999), ("a", 10_000))
    first, second = Windowed("a", 0), Windowed("a", 10_000)
    assert driver.table("updates") == {first: 2, second: 1}
    assert driver.read("final") == []
    _pipe(driver, ("a", 14_999))
    _pipe(driver, ("a", 5_000))  # late, in time
    assert driver.table("updates") == {first: 3, second: 2}
    assert driver.read("final") == []
    _pipe(driver, ("a", 15_000))
    assert driver.read("final") == [Output(first, 3, 9_999)]
    _pipe(driver, ("a", 5_000))  # too late
    assert driver.table("updates") == {first: 3, second: 3}
    assert driver.read("final") == []


def test_hopping_windows(driven: Driven) -> None:
    app, clicks = _start()
    windows = hopping("10 seconds", "5 seconds")
    counts = clicks.group_by_key().window(windows).aggregate(total=fn.sum(col.ms))
    counts.to_stream().map(
        key="concat(key.key, '@', unix_millis(key.start), '-', unix_millis(key.end))", value="value"
    ).to("out")
    driver = driven(app)
    _pipe(driver, ("a", 6_000), ("a", 11_000))
    assert driver.table("out") == {
        "a@0-10000": {"total": 6_000},
        "a@5000-15000": {"total": 17_000},
        "a@10000-20000": {"total": 11_000},
    }


def test_windows_with_python_functions(driven: Driven) -> None:
    app, clicks = _start()
    windows = hopping("10 seconds", "5 seconds", grace="2 seconds")
    by_window = clicks.group_by_key().window(windows)
    longest = by_window.reduce(lambda old, new: max(old, new, key=lambda one: one.ms))
    longest.to_stream().map_values(col.ms).to("updates", value=LONG)
    longest.suppress().to_stream().map_values(col.ms).to("final", value=LONG)
    driver = driven(app)
    _pipe(driver, ("a", 106_000), ("a", 107_000), ("a", 105_000))
    assert driver.table("updates") == {Windowed("a", 100_000): 107_000, Windowed("a", 105_000): 107_000}
    _pipe(driver, ("b", 112_000))  # closes the window that ends at 110 000
    assert driver.table("final") == {Windowed("a", 100_000): 107_000}
    _pipe(driver, ("a", 109_000))  # late for the first window, not for the second
    assert driver.table("updates")[Windowed("a", 100_000)] == 107_000
    assert driver.table("updates")[Windowed("a", 105_000)] == 109_000
    _pipe(driver, ("b", 122_001))
    assert driver.table("final") == {
        Windowed("a", 100_000): 107_000,
        Windowed("a", 105_000): 109_000,
        Windowed("b", 105_000): 112_000,
        Windowed("b", 110_000): 112_000,
    }


def test_session_windows(driven: Driven) -> None:
    app, clicks = _start()
    clicks.group_by_key().window(session("5 seconds", grace="1 second")).count().to_stream().to("out")
    driver = driven(app)
    _pipe(driver, ("a", 1_000), ("a", 6_000), ("a", 11_001), ("b", 8_000))
    assert driver.table("out") == {}
    _pipe(driver, ("a", 20_000))
    assert driver.table("out") == {
        Windowed("a", 1_000, 6_000): 2,  # what comes just at the end of the gap still belongs to it
        Windowed("a", 11_001, 11_001): 1,
        Windowed("b", 8_000, 8_000): 1,
    }


def test_a_second_aggregation_reads_what_the_first_wrote(driven: Driven) -> None:
    app, clicks = _start()
    per_user = clicks.group_by_key().window(tumbling("10 seconds", emit="final")).count()
    by_count = per_user.to_stream().group_by("concat('count ', value)", key=TEXT)
    by_count.window(tumbling("1 minute")).count().to_stream().to("out")
    driver = driven(app)
    _pipe(driver, ("a", 1_000), ("a", 2_000), ("b", 3_000), ("c", 4_000), ("c", 12_000), ("z", 99_000))
    assert driver.table("out") == {
        Windowed("count 2", 0): 1,
        Windowed("count 1", 0): 3,
    }


@pytest.mark.parametrize("kind", ["join", "left_join", "outer_join"])
def test_joins_of_streams(driven: Driven, kind: str) -> None:
    app, clicks = _start()
    sales = app.stream("sales", value=json("price INT"))
    window = within(before="1 second", after="5 seconds")
    joined = getattr(clicks, kind)(sales, window, page=col.left.page, price=col.right.price, user=col.key)
    joined.to("out")
    driver = driven(app)
    _pipe(driver, ("a", 10_000), ("b", 10_000), ("c", 30_000))
    for user, price, timestamp in [("a", 1, 9_000), ("a", 2, 15_000), ("a", 3, 15_001), ("d", 4, 12_000)]:
        driver.pipe("sales", user, {"price": price}, timestamp=timestamp)
    pairs = [({"page": "home", "price": 1, "user": "a"}, 10_000), ({"page": "home", "price": 2, "user": "a"}, 15_000)]
    lonely_left = [({"page": "home", "user": "b"}, 10_000)]
    lonely_right = [({"price": 3, "user": "a"}, 15_001), ({"price": 4, "user": "d"}, 12_000)]
    expected = pairs + (lonely_left if kind != "join" else []) + (lonely_right if kind == "outer_join" else [])
    found = driver.read("out")
    _pipe(driver, ("z", 90_000))
    found += driver.read("out")
    found = [one for one in found if one.value["user"] != "c"]  # whose window is closed too by now
    assert sorted(((one.value, one.timestamp) for one in found), key=str) == sorted(expected, key=str)


def test_joins_of_a_stream_with_a_table(driven: Driven) -> None:
    app, clicks = _start()
    names = app.table("names", value=json("name STRING")).filter(col.name != "nobody")
    clicks.join(names, page=col.left.page, name=col.right.name).to("inner")
    clicks.left_join(names, value=lambda left, right: right and right.name, returns="STRING").to("left", value=TEXT)
    driver = driven(app)
    driver.pipe("names", "a", {"name": "anna"}, timestamp=100)
    driver.pipe("names", "a", {"name": "anne"}, timestamp=300)
    driver.pipe("names", "b", {"name": "nobody"}, timestamp=100)
    _pipe(driver, ("a", 200), ("a", 300), ("b", 400), (None, 500))
    assert sorted(driver.read("inner"), key=lambda one: one.timestamp) == [
        Output("a", {"page": "home", "name": "anna"}, 200),  # what the table said at that time
        Output("a", {"page": "home", "name": "anne"}, 300),
    ]
    left = sorted(driver.read("left"), key=lambda one: one.timestamp)
    assert [(one.key, one.value) for one in left] == [("a", "anna"), ("a", "anne"), ("b", None), (None, None)]
    _pipe(driver, ("a", 50))  # late, and still with what the table says now
    assert driver.read("inner") == [Output("a", {"page": "home", "name": "anne"}, 50)]
    driver.pipe("names", "a", None, timestamp=600)
    _pipe(driver, ("a", 700))
    assert driver.read("inner") == []


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("join", {"a": "anna 2"}),
        ("left_join", {"a": "anna 2", "c": "cleo none"}),
        ("outer_join", {"a": "anna 2", "c": "cleo none", "d": "nobody 4"}),
    ],
)
def test_joins_of_tables(driven: Driven, kind: str, expected: dict[str, str]) -> None:
    app = Application("site", key=TEXT, value=TEXT)
    names, scores = app.table("names"), app.table("scores")
    both = fn.concat_ws(" ", fn.coalesce(col.left, fn.lit("nobody")), fn.coalesce(col.right, fn.lit("none")))
    getattr(names, kind)(scores, both).to_stream().to("out")
    driver = driven(app)
    for key, value in [("a", "anna"), ("b", "ben"), ("c", "cleo")]:
        driver.pipe("names", key, value, timestamp=10)
    for key, value in [("a", "1"), ("b", "3"), ("d", "4")]:
        driver.pipe("scores", key, value, timestamp=20)
    driver.advance()
    driver.pipe("scores", "a", "2", timestamp=5)  # the newest by offset, not by time
    driver.pipe("names", "b", None, timestamp=30)
    driver.pipe("scores", "b", None, timestamp=30)
    assert driver.table("out") == expected


def test_a_table_deletes_what_its_filter_no_longer_keeps(driven: Driven) -> None:
    app = Application("site", key=TEXT, value=json("n INT"))
    table = app.table("numbers").filter(col.n > 1).map_values(twice=col.n * 2)
    table.to_stream().to("out")
    driver = driven(app)
    driver.pipe("numbers", "a", {"n": 5}, timestamp=1)
    driver.pipe("numbers", "b", {"n": 7}, timestamp=2)
    driver.pipe("numbers", "a", {"n": 0}, timestamp=3)
    driver.pipe("numbers", "b", None, timestamp=4)
    assert driver.read("out") == [
        Output("a", {"twice": 10}, 1),
        Output("b", {"twice": 14}, 2),
        Output("a", None, 3),
        Output("b", None, 4),
    ]


def test_keys_of_different_types_cannot_be_joined(driven: Driven) -> None:
    app, clicks = _start()
    clicks.select_key(col.ms).join(clicks, within("1 second")).to("out", key=TEXT)
    with pytest.raises(TopologyError, match="keys are bigint on the left and string on the right"):
        driven(app).advance()
