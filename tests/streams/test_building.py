"""Topologies that cannot be, and what users are told: the line of their program, what is wrong, what to do."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from penstock.streams import (
    BYTES,
    INT,
    LONG,
    TEXT,
    Application,
    GlobalTable,
    Stream,
    TopologyError,
    col,
    fn,
    json,
    session,
    sliding,
    tumbling,
    within,
)
from penstock.streams.nodes import Sink


def _application() -> Application:
    return Application("shop")


def _orders(app: Application | None = None) -> Stream:
    return (app or _application()).stream("orders", key=TEXT, value=json("customer STRING, amount DOUBLE"))


def test_an_error_names_the_line_of_the_users_program() -> None:
    line = inspect.currentframe().f_lineno + 2  # type: ignore[union-attr]
    with pytest.raises(TopologyError) as caught:
        _orders().map_values(lambda value: value)
    assert str(caught.value).startswith(f"test_building.py:{line}: ")
    assert caught.value.place.file == __file__


_MISTAKES: list[tuple[Callable[[], Any], str]] = [
    (lambda: Application("my shop"), "application id 'my shop' cannot be"),
    (lambda: _application().stream(), "stream needs at least one topic"),
    (lambda: _application().stream("a", value=TEXT), "say how the key of a is read, as in key=TEXT"),
    (lambda: _application().table("a", key=TEXT), "say how the value of a is read, as in value=TEXT"),
    (lambda: _orders().filter(5), "filter got 5: give an expression"),
    (lambda: _orders().filter(lambda a, b, c: True), "a function that takes neither value, nor key and value"),
    (lambda: _orders().map_values(), "map_values needs an expression, fields by name, or a function"),
    (lambda: _orders().map_values("amount", total="amount"), "either one expression or fields by name, not both"),
    (lambda: _orders().map_values(lambda value: 1), "say what type it returns, as in returns='STRING'"),
    (lambda: _orders().branch(), "branch needs at least one condition"),
    (lambda: _orders().filter("a", step="no good"), "name 'no good' cannot be"),
    (lambda: _orders().filter("a", step="one").filter("b", step="one"), "there is a step one at test_building.py:"),
    (lambda: _orders().select_key("customer").to("out"), "say how the key is written, as in to('out', key=TEXT)"),
    (lambda: _orders().map_values("amount").to("out"), "say how the value is written, as in to('out', value=TEXT)"),
    (
        lambda: _orders().select_key("customer").group_by_key(repartition=False),
        "group_by_key: the key was changed before select-key-1",
    ),
    (
        lambda: _joined(_orders().map(key="customer", value="amount"), repartition=False),
        "join: the key was changed before map-1",
    ),
    (lambda: _orders().join(_orders(), "5 minutes"), "join needs a window, as in within"),  # type: ignore[arg-type]
    (lambda: _orders().join(_orders().to_table(), within("1 minute")), "a join with a table has no window"),
    (
        lambda: _orders().outer_join(_orders().to_table()),
        "there is no outer join of a stream and a table: use left_join",
    ),
    (lambda: _orders().to_table().join(_orders()), "give a table; stream.to_table() makes one of a stream"),  # type: ignore[arg-type]
    (
        lambda: _joined(_application().stream("a", key=INT, value=TEXT)),
        "keys are int on the left and text on the right",
    ),
    (lambda: _orders().group_by_key().window("1 minute"), "window got '1 minute': give a window"),  # type: ignore[arg-type]
    (lambda: _orders().group_by_key().reduce(lambda a: a), "reduce needs a function of result and value"),
    (lambda: _orders().group_by_key().aggregate(list, lambda a, b: a), "say what type results have"),
    (lambda: _orders().group_by_key().aggregate(1, 2, 3), "aggregate takes one expression, fields by name, or"),
    (lambda: _orders().group_by_key().aggregate(), "aggregate needs an expression"),
    (
        lambda: _orders().group_by_key().window(session("1 minute")).aggregate(int, max, returns="INT"),
        "aggregate in sessions needs merge=",
    ),
    (
        lambda: _orders().group_by_key().window(session("1 minute", emit="updates")).aggregate("sum(amount)"),
        "Spark's functions know neither sliding windows nor updates of sessions",
    ),
    (
        lambda: _orders().group_by_key().window(sliding("1 minute")).aggregate(total="sum(amount)"),
        "Spark's functions know neither sliding windows nor updates of sessions",
    ),
    (
        lambda: _orders().group_by("customer").window(tumbling("1 minute"), late="late").count(),
        "say how the key of late records is written: give group_by key=",
    ),
    (lambda: _counted_twice(), "topic late is written at test_building.py:"),
    (
        lambda: _orders().group_by_key().window(tumbling("1 minute"), late="late").count().suppress(),
        "say emit='final' in its window, not suppress",
    ),
    (lambda: _orders().join(_names()), "a join with a global table needs on=, an expression for what to look up"),
    (lambda: _orders().join(_names(), on=lambda order: order.customer), "give an expression, as in on=col.customer"),
    (lambda: _orders().join(_orders().to_table(), on="customer"), "on= is for global tables"),
    (lambda: _orders().to_table().join(_names()), "give a table; stream.to_table() makes one of a stream"),  # type: ignore[arg-type]
    (
        lambda: _orders().to_table().group_by("customer").reduce(lambda a, b: a, lambda a: a),
        "reduce: subtractor needs a function of result and value, or of key, result and value",
    ),
    (
        lambda: _orders().to_table().group_by("customer").aggregate(0, max, max, returns="INT"),  # type: ignore[arg-type]
        "aggregate got 0: give a function that makes the first result",
    ),
    (lambda: _orders().to_table().group_by(lambda order: 1), "say what type it returns"),
    (
        lambda: _orders().to_table().outer_join(_orders().to_table(), on="customer"),
        "there is no outer join by a foreign key: use left_join",
    ),
    (lambda: _orders().to_table().join(_orders().to_table(), on=5), "on=5 cannot be: give an expression"),
    (lambda: _orders().group_by_key().count().suppress(), "suppress must follow a windowed aggregation at once"),
]


def _names() -> GlobalTable:
    return _application().global_table("names", key=TEXT, value=TEXT)


def _counted_twice() -> None:
    windows = _orders().group_by_key().window(tumbling("1 minute"), late="late")
    windows.count()
    windows.count()


def _joined(left: Stream, **options: Any) -> Stream:
    return left.join(_orders(), within("1 minute"), **options)


@pytest.mark.parametrize(("mistake", "told"), _MISTAKES, ids=[told[:40] for _, told in _MISTAKES])
def test_a_mistake_is_refused_with_what_to_do(mistake: Callable[[], Any], told: str) -> None:
    with pytest.raises(TopologyError, match=r"^test_building\.py:\d+: .*" + re.escape(told)):
        mistake()


def test_a_topic_cannot_be_both_read_and_written() -> None:
    app = _application()
    _orders(app).filter("amount > 1").to("orders")
    with pytest.raises(TopologyError, match=r"topic orders is written here and read at test_building\.py:\d+"):
        _ = app.topology


def test_a_topic_gets_one_kind_of_records() -> None:
    app = _application()
    orders = _orders(app)
    orders.to("out")
    orders.to("out", value=BYTES)
    with pytest.raises(TopologyError, match="topic out gets text and bytes here but text and json at"):
        _ = app.topology


def test_a_topic_is_one_table_only() -> None:
    app = _application()
    app.table("users", key=TEXT, value=TEXT)
    with pytest.raises(TopologyError, match=r"topic users is read at .* use that stream or table again"):
        app.stream("users", key=TEXT, value=TEXT)


def test_streams_of_two_applications_do_not_mix() -> None:
    with pytest.raises(TopologyError, match="of another application"):
        _orders().merge(_orders(Application("other")))


def _sink(app: Application) -> Sink:
    (sink,) = app.topology.sinks
    return sink


def test_serdes_follow_from_the_source_as_long_as_they_fit() -> None:
    app = _application()
    _orders(app).filter("amount > 1").peek(print).to("out")
    assert (_sink(app).key, _sink(app).value) == (TEXT, json("customer STRING, amount DOUBLE"))


def test_a_count_is_written_as_a_long_under_a_windowed_key() -> None:
    app = _application()
    _orders(app).group_by_key().window(tumbling("1 minute")).count().to_stream().to("out")
    assert str(_sink(app).key) == "windowed(text)"
    assert _sink(app).value == LONG


def test_the_applications_serdes_are_used_where_none_is_given() -> None:
    app = Application("shop", key=TEXT, value=json())
    app.stream("a").map_values(total=col.amount * 2).to("out")
    assert (_sink(app).key, _sink(app).value) == (TEXT, json())


def test_operators_leave_what_they_are_called_on_as_it_was() -> None:
    app = _application()
    orders = _orders(app)
    orders.filter("amount > 1").to("large")
    orders.to("all")
    assert app.topology.sinks[1].parents == (orders.node,)


def test_a_field_may_be_called_name() -> None:
    app = _application()
    stream = _orders(app).map_values(name=fn.upper(col.customer), step="named")
    assert (stream.node.name, stream.node.detail) == ("named", "value: name=upper(customer)")
