"""Steps without state, run on Spark."""

from __future__ import annotations

import gc
from typing import Any

import pytest

from penstock.client.errors import ConfigurationError
from penstock.streams import INT, TEXT, Application, Stream, TopologyError, col, fn, json
from penstock.testing.streams import Output
from tests.streams.conftest import Driven

ORDERS = json("customer STRING, amount DOUBLE, tags ARRAY<STRING>")


def _start() -> tuple[Application, Stream]:
    app = Application("shop", key=TEXT, value=json())
    return app, app.stream("orders", value=ORDERS)


def _pipe_orders(driver: Any) -> None:
    for n, (customer, amount) in enumerate([("anna", 5.0), ("ben", 20.0), ("anna", None)]):
        value = {"customer": customer, "amount": amount, "tags": ["x", "y"][:n]}
        driver.pipe("orders", f"k{n}", value, timestamp=1000 * (n + 1))


def test_records_keep_their_keys_and_times_and_the_driver_goes_on(driven: Driven) -> None:
    app, orders = _start()
    orders.map_values(fn.upper(col.customer)).to("out", value=TEXT)
    driver = driven(app)
    _pipe_orders(driver)
    assert driver.read("out") == [Output("k0", "ANNA", 1000), Output("k1", "BEN", 2000), Output("k2", "ANNA", 3000)]
    driver.pipe("orders", "k3", {"customer": "cleo"}, timestamp=500)
    assert driver.read("out") == [Output("k3", "CLEO", 500)]
    assert driver.read("out") == []
    assert gc.get_freeze_count() == 0, "what the tests have made may become garbage"
    with pytest.raises(ConfigurationError, match="does not read nothing: it reads orders"):
        driver.pipe("nothing", "k", {}, timestamp=1)
    with pytest.raises(ConfigurationError, match="does not write orders: it writes out"):
        driver.read("orders")
    with pytest.raises(ConfigurationError, match="must be at least 1 ms"):
        driver.pipe("orders", "k", {}, timestamp=0)


def test_what_each_step_does(driven: Driven) -> None:
    app, orders = _start()
    orders.filter(col.amount > 10).to("columns")
    orders.filter("amount > 10 AND timestamp < timestamp_seconds(5)").to("sql")
    orders.filter(lambda value: (value.amount or 0) > 10).to("function")
    orders.filter(lambda key, value: key == "k1").to("function-with-key")
    orders.filter_not(col.amount > 10).map_values("customer").to("not", value=TEXT)
    orders.select_key(col.customer).map_values("size(tags)").to("select-key", value=INT)
    orders.map(key=fn.concat(col.key, col.customer), value={"twice": col.amount * 2}).to("map")
    orders.map_values(lambda value: len(value.tags), returns="INT").to("map-function", value=INT)
    orders.flat_map_values(col.tags).to("flat-values", value=TEXT)
    orders.flat_map_values(lambda value: value.tags * 2, returns="STRING").to("flat-function", value=TEXT)
    pairs = orders.flat_map("transform(tags, tag -> struct(tag AS key, customer AS value))")
    pairs.to("flat", value=TEXT)
    large, absent, rest = orders.branch(col.amount > 10, "amount IS NULL", default=True)
    for stream, topic in ((large, "large"), (absent, "absent"), (rest, "rest")):
        stream.map_values("customer").to(topic, value=TEXT)
    large.merge(absent).map_values("offset").to("merged", value=INT)
    driver = driven(app)
    _pipe_orders(driver)
    ben = [Output("k1", {"customer": "ben", "amount": 20.0, "tags": ["x"]}, 2000)]
    for topic in ("columns", "sql", "function", "function-with-key"):
        assert driver.read(topic) == ben, topic
    assert driver.read("not") == [Output("k0", "anna", 1000), Output("k2", "anna", 3000)]
    assert driver.read("select-key") == [Output("anna", 0, 1000), Output("ben", 1, 2000), Output("anna", 2, 3000)]
    assert driver.read("map") == [
        Output("k0anna", {"twice": 10.0}, 1000),
        Output("k1ben", {"twice": 40.0}, 2000),
        Output("k2anna", {}, 3000),
    ]
    assert [one.value for one in driver.read("map-function")] == [0, 1, 2]
    assert [(one.key, one.value) for one in driver.read("flat-values")] == [("k1", "x"), ("k2", "x"), ("k2", "y")]
    assert [one.value for one in driver.read("flat-function")] == ["x", "x", "x", "y", "x", "y"]
    assert [(one.key, one.value) for one in driver.read("flat")] == [("x", "ben"), ("x", "anna"), ("y", "anna")]
    assert [one.key for topic in ("large", "absent", "rest") for one in driver.read(topic)] == ["k1", "k2", "k0"]
    assert sorted(one.value for one in driver.read("merged")) == [1, 2]


def test_repartition_and_event_time_of_the_users_own(driven: Driven) -> None:
    app = Application("shop", key=TEXT, value=json("at BIGINT, n INT"))
    events = app.stream("events", timestamp=col.at)
    events.select_key("cast(n AS STRING)").repartition(1).map_values(n="n", late="timestamp").to("out")
    driver = driven(app)
    driver.pipe("events", "a", {"at": 1_700_000_000_123, "n": 7}, timestamp=5)
    driver.pipe("events", "a", None, timestamp=6)
    found = driver.read("out")
    assert found[0] == Output("7", {"n": 7, "late": "2023-11-14T22:13:20.123Z"}, 1_700_000_000_123)


def test_peek_and_for_each_see_every_record(driven: Driven, tmp_path: Any) -> None:
    app, orders = _start()
    seen, ended = tmp_path / "seen", tmp_path / "ended"

    def note(path: Any) -> Any:
        def action(key: Any, value: Any) -> None:
            with open(path, "a") as file:
                file.write(f"{key} {value.customer}\n")

        return action

    orders.peek(note(seen)).to("out")
    orders.for_each(note(ended))
    driver = driven(app)
    _pipe_orders(driver)
    assert len(driver.read("out")) == 3
    expected = ["k0 anna", "k1 ben", "k2 anna"]
    assert seen.read_text().splitlines() == expected
    assert ended.read_text().splitlines() == expected


def _mistake(build: Any) -> Application:
    app, orders = _start()
    build(orders).to("out", key=TEXT, value=TEXT)
    return app


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (
            lambda orders: orders.filter(fn.uper("customer") == "A"),
            "filter-1: Spark has no function fn.uper; there is u",
        ),
        (lambda orders: orders.filter(col.customer.startwith("A")), "no method startwith; there is startswith"),
        (lambda orders: orders.filter(col.amout > 1), "filter-1: .*`amout` cannot be resolved.*`amount`"),
        (lambda orders: orders.filter("amount >"), "filter-1: .*Syntax error at or near end of input"),
        (lambda orders: orders.map_values(fn.upper("customer", 1)), "map-values-1: upper.* cannot be called like that"),
        (
            lambda orders: orders.map_values("customer").merge(orders),
            "merge-1: values are string and struct<.*>: make them the same type first",
        ),
    ],
)
def test_a_mistake_that_only_spark_can_see_names_the_line_too(driven: Driven, build: Any, told: str) -> None:
    driver = driven(_mistake(build))
    with pytest.raises(TopologyError, match=r"^test_stateless\.py:\d+: .*" + told):
        driver.advance()
