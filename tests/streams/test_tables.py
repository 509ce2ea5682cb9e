"""Global tables, tables that are grouped, and joins of tables by a foreign key, run on Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock import Admin, Consumer, Producer
from penstock.streams import INT, LONG, TEXT, Application, TopologyError, col, json
from penstock.testing.brokers import broker
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


# ---- grouping ----


def test_a_row_that_changes_leaves_its_group(driven: Driven) -> None:
    app = _start()
    by_customer = app.table("orders", value=ORDERS).group_by(col.customer, key=TEXT)
    by_customer.count().to_stream().to("counts", value=LONG)
    sums = by_customer.aggregate(
        int, lambda sum, order: sum + order.amount, lambda sum, order: sum - order.amount or None, returns="INT"
    )
    sums.to_stream().to("sums", value=INT)
    driver = driven(app)
    for order, customer, amount in [("o1", "a", 1), ("o2", "a", 2), ("o3", "b", 4), ("o4", None, 8)]:
        driver.pipe("orders", order, {"customer": customer, "amount": amount}, timestamp=10)
    assert (driver.table("counts"), driver.table("sums")) == ({"a": 2, "b": 1}, {"a": 3, "b": 4})
    driver.pipe("orders", "o1", {"customer": "b", "amount": 16}, timestamp=20)  # to another group
    driver.pipe("orders", "o2", {"customer": "a", "amount": 32}, timestamp=20)  # in its group
    driver.pipe("orders", "o3", {"customer": "c", "amount": 4}, timestamp=20)  # to and fro
    driver.pipe("orders", "o3", {"customer": "b", "amount": 64}, timestamp=21)
    assert (driver.table("counts"), driver.table("sums")) == ({"a": 1, "b": 2, "c": 0}, {"a": 32, "b": 80})
    driver.pipe("orders", "o1", None, timestamp=30)
    driver.pipe("orders", "o9", None, timestamp=30)  # which never was
    driver.pipe("orders", "o2", {"amount": 1}, timestamp=30)  # to no group
    assert (driver.table("counts"), driver.table("sums")) == ({"a": 0, "b": 1, "c": 0}, {"b": 64})


def test_a_grouped_table_goes_on_after_a_restart(spark: Any, tmp_path: Path) -> None:
    def build(app: Application) -> None:
        orders = app.table("orders", value=ORDERS).map_values(col.amount).group_by("value % 2", key=INT)
        orders.reduce(lambda sum, one: sum + one, lambda sum, one: sum - one).to_stream().to("out", value=INT)

    with _Shop(build, spark, tmp_path) as shop:
        shop.send("orders", o1='{"amount": 1}', o2='{"amount": 2}', o3='{"amount": 3}')
        assert shop.newest("out") == {_int(0): _int(2), _int(1): _int(4)}
        shop.send("orders", o1='{"amount": 10}', o3=None)
        assert shop.newest("out") == {_int(0): _int(12), _int(1): _int(0)}


# ---- foreign keys ----


@pytest.mark.parametrize("kind", ["join", "left_join"])
def test_a_join_by_a_foreign_key_follows_both_tables(driven: Driven, kind: str) -> None:
    app = _start()
    orders, names = app.table("orders", value=ORDERS), app.table("names", value=TEXT)
    getattr(orders, kind)(names, on=col.customer, name=col.right, amount=col.left.amount).to_stream().to("out")
    driver = driven(app)
    none = {} if kind == "join" else {"o3": {"amount": 3}, "o4": {"amount": 4}}
    for order, customer, amount in [("o1", "a", 1), ("o2", "a", 2), ("o3", "x", 3), ("o4", None, 4)]:
        driver.pipe("orders", order, {"customer": customer, "amount": amount}, timestamp=10)
    driver.pipe("names", "a", "anna", timestamp=20)
    anna = {"o1": {"name": "anna", "amount": 1}, "o2": {"name": "anna", "amount": 2}}
    assert driver.table("out") == {**anna, **none}
    driver.pipe("names", "a", "anne", timestamp=30)
    driver.pipe("names", "b", "ben", timestamp=30)
    driver.pipe("orders", "o2", {"customer": "b", "amount": 2}, timestamp=40)
    anna = {"o1": {"name": "anne", "amount": 1}, "o2": {"name": "ben", "amount": 2}}
    assert driver.table("out") == {**anna, **none}
    driver.read("out")
    driver.pipe("names", "a", "anja", timestamp=50)  # which is nothing to o2 any more
    assert driver.read("out") == [Output("o1", {"name": "anja", "amount": 1}, 50)]
    driver.pipe("names", "b", None, timestamp=60)
    driver.pipe("orders", "o1", None, timestamp=60)
    assert driver.table("out") == {**none, **({} if kind == "join" else {"o2": {"amount": 2}})}


def test_a_join_by_a_foreign_key_goes_on_after_a_restart(spark: Any, tmp_path: Path) -> None:
    def build(app: Application) -> None:
        orders, names = app.table("orders", value=ORDERS), app.table("names", value=TEXT)
        orders.join(names, on=col.customer, value=col.right).to_stream().to("out", value=TEXT)

    with _Shop(build, spark, tmp_path) as shop:
        shop.send("orders", o1='{"customer": "a"}', o2='{"customer": "b"}', o3='{"customer": "a"}')
        shop.send("names", a="anna", b="ben")
        assert shop.newest("out") == {b"o1": b"anna", b"o2": b"ben", b"o3": b"anna"}
        shop.send("orders", o3='{"customer": "b"}')
        shop.send("names", a="anne")
        assert shop.newest("out") == {b"o1": b"anne", b"o2": b"ben", b"o3": b"ben"}
        shop.send("names", b=None)
        assert shop.newest("out") == {b"o1": b"anne"}


def _int(value: int) -> bytes:
    return value.to_bytes(4, "big")


class _Shop:
    """An application that is run anew each time that records have come."""

    def __init__(self, build: Callable[[Application], None], spark: Any, folder: Path) -> None:
        self._app = Application("shop", key=TEXT, value=json(), state_dir=str(folder))
        build(self._app)
        self._spark = spark
        self._broker = broker()

    def __enter__(self) -> _Shop:
        self._broker.start()
        topology = self._app.topology
        with Admin(self._broker.bootstrap) as admin:
            for topic in {*(one.topics[0] for one in topology.sources), *(one.topic for one in topology.sinks)}:
                admin.create_topic(topic, partitions=2, config={"retention.ms": "-1"})
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._broker.stop()

    def send(self, topic: str, **values: str | None) -> None:
        with Producer(self._broker.bootstrap) as producer:
            for key, value in values.items():
                producer.send(topic, value, key=key, timestamp=1000)

    def newest(self, topic: str) -> dict[Any, Any]:
        """What is in a topic when the application was run over all that is there."""
        self._app.catch_up(self._broker.bootstrap, spark=self._spark)
        with Consumer(self._broker.bootstrap, auto_offset_reset="earliest", stop_at_end=True) as consumer:
            consumer.assign([(topic, 0), (topic, 1)])
            newest = {one.key: one.value for one in consumer}
        return {key: value for key, value in newest.items() if value is not None}
