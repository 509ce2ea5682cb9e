"""Global tables, tables that are grouped, and joins of tables by a foreign key, run on Spark."""

from __future__ import annotations

import pytest

from penstock.streams import TEXT, Application, TopologyError, col, json
from penstock.testing.streams import Output
from tests.streams.conftest import Driven

ORDERS = json("customer STRING, amount INT")


def _start() -> Application:
    return Application("shop", key=TEXT, value=json())


def _by_key(outputs: list[Output]) -> list[Output]:
    return sorted(outputs, key=lambda one: str(one.key))


# ---- global tables ----


def test_a_global_table_is_looked_into_by_any_expression(driven: Driven) -> None:
    app = _start()
    orders, names = app.stream("orders", value=ORDERS), app.global_table("names", value=TEXT)
    orders.join(names, on=col.customer, name=col.right, amount=col.left.amount).to("inner")
    orders.left_join(names, on="upper(customer)", value=lambda order, name: name, returns="STRING").to(
        "left", value=TEXT
    )
    driver = driven(app)
    driver.pipe("orders", "o1", {"customer": "a", "amount": 1}, timestamp=100)
    driver.pipe("orders", None, {"customer": "b", "amount": 2}, timestamp=100)
    driver.pipe("orders", "o3", {"amount": 3}, timestamp=100)
    driver.pipe("names", "a", "anna", timestamp=200)  # younger, and there all the same
    driver.pipe("names", "A", "ANNA", timestamp=200)
    assert driver.read("inner") == [Output("o1", {"name": "anna", "amount": 1}, 100)]
    assert _by_key(driver.read("left")) == [
        Output(None, None, 100),
        Output("o1", "ANNA", 100),
        Output("o3", None, 100),
    ]
    driver.pipe("names", "a", None, timestamp=300)
    driver.pipe("names", "b", "ben", timestamp=300)
    driver.advance()
    driver.pipe("orders", "o4", {"customer": "a", "amount": 4}, timestamp=400)
    driver.pipe("orders", "o5", {"customer": "b", "amount": 5}, timestamp=50)
    assert driver.read("inner") == [Output("o5", {"name": "ben", "amount": 5}, 50)]


def test_what_is_looked_up_must_be_like_the_tables_keys(driven: Driven) -> None:
    app = _start()
    app.stream("orders", value=ORDERS).join(app.global_table("names", value=TEXT), on=col.amount).to("out")
    with pytest.raises(TopologyError, match="on= gives int, and the table's keys are string: cast it"):
        driven(app).advance()
