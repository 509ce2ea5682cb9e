"""Stores of applications that run: every kind of table, asked in Python and over HTTP."""

from __future__ import annotations

import json
import time
import urllib.request
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from penstock import Admin, Producer
from penstock.streams import TEXT, Application, col, fn, tumbling
from penstock.streams import json as as_json
from penstock.streams.stores.answers import Row
from penstock.streams.values import Windowed
from penstock.testing.brokers import broker
from tests.streams.conftest import Driven

_ORDERS = as_json("customer STRING, amount DOUBLE")


def test_every_kind_of_table_can_be_stored(driven: Driven) -> None:
    app = Application("shop", key=TEXT, value=_ORDERS)
    orders = app.stream("orders")
    by_customer = orders.group_by(col.customer, key=TEXT)
    by_customer.aggregate(total=fn.sum(col.amount), orders=fn.count("*")).store("totals")
    by_customer.window(tumbling("1 minute")).count().store("per-minute")
    by_customer.reduce(lambda one, other: max(one, other, key=lambda order: order.amount)).store("largest")
    orders.to_table().filter(col.amount > 1).store("large")
    app.table("users", value=TEXT).store("users")
    driver = driven(app)
    driver.pipe("users", "anna", "Anna", timestamp=1)
    for number, (customer, amount) in enumerate([("anna", 5.0), ("bert", 1.0), ("anna", 2.5)]):
        driver.pipe("orders", f"o{number}", {"customer": customer, "amount": amount}, timestamp=1000 + 60_000 * number)
    assert driver.store("totals").get("anna").rows == (Row("anna", {"total": 7.5, "orders": 2}, 121_000),)
    assert driver.store("totals").standing.records_behind == 0
    assert driver.store("per-minute").windows("anna").rows == (
        Row(Windowed("anna", 0, 60_000), 1, 1000),
        Row(Windowed("anna", 120_000, 180_000), 1, 121_000),
    )
    assert driver.store("per-minute").get(Windowed("bert", 60_000)).value == 1
    assert driver.store("largest").get("anna").value == {"customer": "anna", "amount": 5.0}
    assert [row.key for row in driver.store("large").all()] == ["o0", "o2"]
    assert driver.store("users").get("anna").value == "Anna"
    driver.pipe("users", "anna", None, timestamp=2)
    driver.pipe("orders", "o0", {"customer": "anna", "amount": 0.5}, timestamp=300_000)
    assert driver.store("users").get("anna").value is None
    assert [row.key for row in driver.store("large").all()] == ["o2"]


def test_values_of_every_type_come_out_as_python_has_them(driven: Driven) -> None:
    app = Application("types", key=TEXT, value=TEXT)
    app.stream("in").to_table().map_values(
        number="cast(1 AS SMALLINT)",
        real="cast('NaN' AS DOUBLE)",
        exact="cast('1234567890.12' AS DECIMAL(20, 2))",
        at="timestamp_millis(1500)",
        content="cast(value AS BINARY)",
        many="array(1, null)",
        by_name="map('a', 1L)",
        nothing="cast(null AS STRING)",
    ).store("all")
    driver = driven(app)
    driver.pipe("in", "k", "v", timestamp=1)
    value = driver.store("all").get("k").value
    assert value.pop("real") != 0.0
    assert value == {
        "number": 1,
        "exact": Decimal("1234567890.12"),
        "at": datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC),
        "content": b"v",
        "many": [1, None],
        "by_name": {"a": 1},
        "nothing": None,
    }


def test_a_running_application_answers_over_http(spark: Any, tmp_path: Path) -> None:
    app = Application("asked", key=TEXT, value=TEXT, state_dir=str(tmp_path))
    app.stream("lines").group_by_key().count().store("counts")
    with broker() as one:
        with Admin(one.bootstrap) as admin:
            admin.create_topic("lines", partitions=1)
        with Producer(one.bootstrap) as producer:
            for _ in range(3):
                producer.send("lines", "x", key="a")
        with app.run(one.bootstrap, spark=spark) as running:
            deadline = time.monotonic() + 60
            while running.store("counts").get("a").value != 3:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            before = time.perf_counter()
            for _ in range(100):
                running.store("counts").get("a")
            assert time.perf_counter() - before < 1
            with urllib.request.urlopen(f"http://{running.http}/stores/counts/a") as answer:
                assert [row["value"] for row in json.load(answer)["rows"]] == [3]
            with urllib.request.urlopen(f"http://{running.http}/status") as answer:
                status = json.load(answer)
            assert (status["application"], list(status["stores"])) == ("asked", ["counts"])
            assert [query["query"] for query in status["queries"]] == ["asked-count-1"]
