"""Programs that were changed: what goes on, what is refused, what is left. The old and the new one really run."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Admin, Consumer, Producer
from penstock.streams import LONG, TEXT, Application, Stream, TopologyError, col, fn, json, tumbling, within
from penstock.streams import shape as shapes
from penstock.testing.brokers import RunningBroker, broker

_AMOUNTS = json("amount INT, price DOUBLE")
_TOPICS = ("orders", "more", "payments", "out", "large", "all", "other")

Build = Callable[[Application], None]


@pytest.fixture(scope="module")
def brokers() -> Iterator[RunningBroker]:
    with broker() as one:
        with Admin(one.bootstrap) as admin:
            for topic in _TOPICS:
                admin.create_topic(topic, partitions=1, config={"retention.ms": "-1"})
        yield one


def _send(brokers: RunningBroker, topic: str, key: str, amount: int) -> None:
    with Producer(brokers.bootstrap) as producer:
        producer.send(topic, f'{{"amount": {amount}, "price": 1.5}}', key=key, timestamp=1000)


def _newest(brokers: RunningBroker, topic: str) -> dict[bytes, bytes]:
    with Consumer(brokers.bootstrap, auto_offset_reset="earliest", stop_at_end=True) as consumer:
        consumer.assign([(topic, 0)])
        return {one.key: one.value for one in consumer}


def _catch_up(name: str, state: Path, brokers: RunningBroker, spark: Any, build: Build) -> None:
    app = Application(name, key=TEXT, value=_AMOUNTS, state_dir=str(state))
    build(app)
    app.catch_up(brokers.bootstrap, spark=spark)


def _total(orders: Stream, **options: Any) -> Any:
    return orders.group_by_key().aggregate(total=fn.sum(col.amount), step="total", **options)


# ---- what goes on ----


def test_steps_without_state_outputs_and_queries_may_change(
    spark: Any, brokers: RunningBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def old(app: Application) -> None:
        orders = app.stream("orders")
        _total(orders).to_stream().to("out", value=json())
        orders.group_by_key().count(step="once").store("once")

    def new(app: Application) -> None:
        orders = app.stream("orders", "more").filter(col.amount < 100)
        totals = _total(orders)
        totals.map_values(total=col.total, twice=col.total * 2).to_stream().to("out", value=json())
        totals.filter(col.total > 5).to_stream().to("large", value=json())
        orders.group_by_key().count(step="new").to_stream().to("all", value=LONG)

    _send(brokers, "orders", "a", 5)
    _catch_up("grown", tmp_path, brokers, spark, old)
    assert _newest(brokers, "out") == {b"a": b'{"total":5}'}
    _send(brokers, "orders", "a", 2)
    _send(brokers, "orders", "a", 1000)
    _send(brokers, "more", "b", 1)
    with caplog.at_level(logging.WARNING, "penstock.streams"):
        _catch_up("grown", tmp_path, brokers, spark, new)
    assert _newest(brokers, "out") == {b"a": b'{"total":7,"twice":14}', b"b": b'{"total":1,"twice":2}'}
    assert _newest(brokers, "large")[b"a"] == b'{"total":7}'
    assert _newest(brokers, "all") == {b"a": (2).to_bytes(8, "big"), b"b": (1).to_bytes(8, "big")}
    (warning,) = caplog.messages
    assert warning.startswith("step once, formerly at test_upgrading.py:")
    assert "(the checkpoint grown-once, topic grown-once-changelog)" in warning
    kept = shapes.load(tmp_path / "grown")
    assert kept is not None
    assert (list(kept.queries), list(kept.gone)) == (["grown-total", "grown-new"], ["grown-once"])


# ---- what does not ----


def _old(app: Application) -> None:
    orders, payments = app.stream("orders"), app.stream("payments")
    _total(orders).to_stream().to("out", value=json())
    orders.group_by_key().window(tumbling("1 minute")).count(step="windows").store("windows")
    orders.group_by_key().aggregate(int, lambda n, order: n + 1, returns="INT", step="folded").store("folded")
    orders.join(payments, within("1 minute"), value={"amount": "left.amount"}, step="paid").to("all", value=json())
    orders.filter("amount > 5", step="large").to("large", step="write")


@pytest.fixture(scope="module")
def kept(spark: Any, brokers: RunningBroker, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the old program has kept."""
    state = tmp_path_factory.mktemp("kept")
    for topic in ("orders", "payments"):
        _send(brokers, topic, "a", 5)
    _catch_up("shop", state, brokers, spark, _old)
    return state


def _join(app: Application, **options: Any) -> Stream:
    orders, payments = app.stream("orders"), app.stream("payments")
    return orders.join(
        payments, step="paid", **({"window": within("1 minute"), "value": {"amount": "left.amount"}} | options)
    )


_REFUSED: dict[str, tuple[Build, str]] = {
    "window": (
        lambda app: _store(app.stream("orders").group_by_key().window(tumbling("5 minutes")).count(step="windows")),
        "windows: its window was 1 minute every 1 minute and is now 5 minutes every 5 minutes",
    ),
    "emit": (
        lambda app: _store(
            app.stream("orders").group_by_key().window(tumbling("1 minute", emit="final")).count(step="windows")
        ),
        "windows: its emit was updates and is now final",
    ),
    "computation": (
        lambda app: _store(app.stream("orders").group_by_key().aggregate(total=fn.max(col.amount), step="total")),
        r"total: its computes was total=sum\(amount\) and is now total=max\(amount\)",
    ),
    "type of results": (
        lambda app: _store(_total(app.stream("orders").map_values(amount="cast(amount AS DOUBLE)"))),
        "total: its type of results was struct<total:bigint> and is now struct<total:double>",
    ),
    "type of keys": (
        lambda app: _store(
            app.stream("orders").group_by("length(key)").aggregate(total=fn.sum(col.amount), step="total")
        ),
        "total: its type of keys was string and is now int",
    ),
    "folded type": (
        lambda app: _store(
            app.stream("orders").group_by_key().aggregate(str, lambda n, one: n, returns="STRING", step="folded")
        ),
        "folded: its type of results was int and is now string",
    ),
    "join window": (
        lambda app: _join(app, window=within("2 minutes")).to("all", value=json()),
        "paid: its window was within 1 minute before and 1 minute after and is now within 2 minutes",
    ),
    "join value": (
        lambda app: _join(app, value={"amount": "right.amount"}).to("all", value=json()),
        "paid: its value was amount=.*left.amount.* and is now amount=.*right.amount",
    ),
    "kind of step": (
        lambda app: _store(app.stream("orders").group_by_key().count(step="paid")),
        "paid: its kind was inner join of streams and is now aggregation",
    ),
    "source": (
        lambda app: _store(_total(app.stream("more"))),
        "total: it no longer reads orders",
    ),
    "source of a query without state": (
        lambda app: app.stream("more").to("large", step="write"),
        "write: it no longer reads orders",
    ),
}


def _store(table: Any) -> None:
    table.store("any")


@pytest.mark.parametrize(("build", "told"), _REFUSED.values(), ids=_REFUSED.keys())
def test_what_does_not_fit_is_refused_with_the_line_and_what_to_do(
    spark: Any, brokers: RunningBroker, kept: Path, build: Build, told: str
) -> None:
    before = shapes.load(kept / "shop")
    with pytest.raises(TopologyError, match=rf"^test_upgrading\.py:\d+: {told}.*, so it cannot go on") as caught:
        _catch_up("shop", kept, brokers, spark, build)
    assert "step=..., which begins anew, or begin anew with all, by 'penstock stream reset shop'" in str(caught.value)
    assert shapes.load(kept / "shop") == before


def test_what_was_kept_is_gone_on_with_if_grace_and_functions_change(
    spark: Any, brokers: RunningBroker, kept: Path, tmp_path: Path
) -> None:
    def new(app: Application) -> None:
        orders = app.stream("orders")
        orders.group_by_key().window(tumbling("1 minute", grace="1 day")).count(step="windows").to_stream().select_key(
            "key.key"
        ).to("other", key=TEXT)
        orders.group_by_key().aggregate(int, lambda n, one: n + 10, returns="INT", step="folded").store("folded")
        _join(app).filter("amount > 0").to("all", value=json())

    shutil.copytree(kept, tmp_path / "copy")
    before = _newest(brokers, "other")
    _send(brokers, "orders", "a", 1)
    _catch_up("shop", tmp_path / "copy", brokers, spark, new)
    assert before == {}
    (count,) = _newest(brokers, "other").values()
    assert int.from_bytes(count, "big") > 1  # so what was counted before is still there


def test_a_query_that_has_not_begun_may_change_in_any_way(spark: Any, brokers: RunningBroker, tmp_path: Path) -> None:
    app = Application("fresh", key=TEXT, value=_AMOUNTS, state_dir=str(tmp_path))
    _total(app.stream("other")).store("any")
    shapes.save(
        shapes.Shape("fresh", "", {"fresh-total": shapes.QueryShape("total", "x.py:1", {}, [["x"]], [], [])}),
        tmp_path / "fresh",
    )
    app.catch_up(brokers.bootstrap, spark=spark)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("{", "is damaged: delete it to go on without checking"),
        ('{"version": 99}', "is of another version of penstock"),
    ],
)
def test_a_shape_that_cannot_be_read_is_told(tmp_path: Path, content: str, told: str) -> None:
    (tmp_path / shapes.FILE).write_text(content)
    with pytest.raises(Exception, match=told):
        shapes.load(tmp_path)
