"""Stores: views of changelogs on disk, what is asked of them, and the same over HTTP. Without Spark."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from penstock import Admin, Producer
from penstock.client.errors import ConfigurationError
from penstock.client.records import Record
from penstock.streams import INT, LONG, TEXT, Application, TopologyError, tumbling, windowed
from penstock.streams import json as as_json
from penstock.streams.pieces import cut
from penstock.streams.stores import view as views
from penstock.streams.stores.answers import Row, Standing
from penstock.streams.stores.follower import Changelog, Stores
from penstock.streams.stores.forms import Form, SerdeForm
from penstock.streams.stores.http import Pages, StoreServer
from penstock.streams.stores.store import Store
from penstock.streams.stores.view import View
from penstock.streams.values import Windowed, to_bytes
from penstock.testing.brokers import RunningBroker, broker

_TEXTS = SerdeForm(TEXT, TEXT)
_WINDOWS = SerdeForm(windowed(TEXT), LONG)


def _record(key: Any, value: Any, offset: int, timestamp: int = 1000, partition: int = 0) -> Record[Any, Any]:
    return Record("log", partition, offset, timestamp, key, value)


def _store(path: Path, form: Form, *rows: tuple[bytes, bytes | None]) -> Store:
    view = View(path / "one.sqlite3", form, "id")
    view.take_in([_record(key, value, number) for number, (key, value) in enumerate(rows)], {0: len(rows)})
    return Store("one", "log", view, lambda: Standing(0, None, None))


def _window(key: str, start: int) -> bytes:
    return key.encode() + start.to_bytes(8, "big")


# ---- naming stores ----


def test_a_stored_table_is_in_a_changelog_of_its_own() -> None:
    app = Application("shop", key=TEXT, value=TEXT)
    app.stream("orders").group_by_key().count(step="totals").store("totals")
    pieces = cut(app.topology)
    (piece,) = pieces.pieces
    (topic,) = pieces.internal.values()
    assert (piece.name, topic.name, topic.cleanup_policy) == ("shop-totals", "shop-totals-changelog", "compact")
    assert "Stores\n  totals: shop-totals-changelog\n" in app.describe()
    assert "queryable as totals" in app.draw("mermaid")


def test_a_table_that_is_just_its_topic_needs_no_other() -> None:
    app = Application("shop", key=TEXT, value=TEXT)
    app.table("users").store("users")
    pieces = cut(app.topology)
    assert (pieces.pieces, pieces.internal) == ((), {})
    assert pieces.changelog(app.topology.stores[0]) == "users"


def test_a_table_with_times_of_its_own_is_written_anew() -> None:
    app = Application("shop", key=TEXT, value=as_json("at BIGINT"))
    app.table("users", timestamp="at", step="users").store("users")
    assert [topic.name for topic in cut(app.topology).internal.values()] == ["shop-users-changelog"]


def test_a_stored_table_shares_its_changelog_with_other_queries() -> None:
    app = Application("shop", key=TEXT, value=TEXT)
    counts = app.stream("orders").group_by_key().count().store("counts")
    counts.join(app.table("users")).to_stream().to("out", value=as_json())
    assert [topic.name for topic in cut(app.topology).internal.values()] == ["shop-count-1-changelog"]


def test_two_stores_cannot_have_one_name() -> None:
    app = Application("shop", key=TEXT, value=TEXT)
    app.table("a").store("same")
    with pytest.raises(TopologyError, match=r"there is a step store-same at test_stores\.py:\d+ already"):
        app.table("b").store("same")


# ---- views ----


def test_the_newest_row_of_a_key_counts_and_deleted_ones_are_gone(tmp_path: Path) -> None:
    store = _store(tmp_path, _TEXTS, (b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"b", None), (b"c", b"4"))
    assert store.all().rows == (Row("a", "3", 1000), Row("c", "4", 1000))
    assert store.get("a").value == "3"
    assert store.get("b").value is None
    assert store.count() == 2
    assert store.standing.event_time == 1000


def test_keys_are_in_their_own_order(tmp_path: Path) -> None:
    rows = [(to_bytes(INT, number), b"x") for number in (10, -5, 9, 100)]
    store = _store(tmp_path, SerdeForm(INT, TEXT), *rows)  # type: ignore[arg-type]
    assert [row.key for row in store.all()] == [-5, 9, 10, 100]
    assert [row.key for row in store.range(9, 10)] == [9, 10]
    assert [row.key for row in store.range(last=9)] == [-5, 9]


def test_an_answer_says_whether_there_is_more(tmp_path: Path) -> None:
    store = _store(tmp_path, _TEXTS, *((b"%d" % number, b"x") for number in range(5)))
    assert (len(store.all(limit=4)), store.all(limit=4).is_complete) == (4, False)
    assert store.all(limit=5).is_complete
    with pytest.raises(ConfigurationError, match="limit is 0: use 1 to 100,000"):
        store.all(limit=0)


def test_windows_are_asked_for_by_key_and_time(tmp_path: Path) -> None:
    value = to_bytes(LONG, 7)
    places = [("a", 0), ("a", 60_000), ("a", 120_000), ("b", 60_000)]
    store = _store(tmp_path, _WINDOWS, *((_window(*place), value) for place in places))
    assert [row.key for row in store.windows("a", 60_000, 120_000)] == [Windowed("a", 60_000), Windowed("a", 120_000)]
    assert [row.key.key for row in store.windows(start=60_000, end=60_000)] == ["a", "b"]
    assert store.get(Windowed("b", 60_000)).value == 7
    with pytest.raises(ConfigurationError, match=r"store one is by key and window: ask with windows\("):
        store.get("a")


def test_structs_can_be_keys_whatever_the_order_of_their_fields(tmp_path: Path) -> None:
    store = _store(tmp_path, SerdeForm(as_json(), TEXT), (b'{"x": 1, "y": 2}', b"there"))
    assert store.get({"y": 2, "x": 1}).value == "there"


def test_what_does_not_fit_is_none_and_no_key_is_no_row(tmp_path: Path) -> None:
    store = _store(tmp_path, SerdeForm(INT, LONG), (b"no", b""), (b"\0\0\0\1", b"no"))
    assert store.all().rows == (Row(1, None, 1000),)


def test_a_view_goes_on_where_it_was(tmp_path: Path) -> None:
    first = View(tmp_path / "one", _TEXTS, "id")
    first.take_in([_record(b"a", b"1", 0), _record(b"b", b"2", 0, partition=1)], {0: 1, 1: 3})
    first.close()
    again = View(tmp_path / "one", _TEXTS, "id")
    assert again.positions == {0: 1, 1: 3}
    assert again.count() == 2


def _damage(path: Path) -> None:
    path.write_bytes(b"this is no database" * 1000)


def _age(path: Path) -> None:
    with sqlite3.connect(path) as opened:
        opened.execute("UPDATE about SET value = value - 100000000 WHERE name = 'followed_at'")


def _other_format(path: Path) -> None:
    with sqlite3.connect(path) as opened:
        opened.execute("UPDATE about SET value = 0 WHERE name = 'format'")


@pytest.mark.parametrize(
    ("change", "topic_id"),
    [(_damage, "id"), (_age, "id"), (_other_format, "id"), (lambda path: None, "another topic of that name")],
    ids=["damaged", "left alone for too long", "another format", "the topic is another one"],
)
def test_a_view_that_cannot_go_on_is_made_anew(tmp_path: Path, change: Callable[[Path], None], topic_id: str) -> None:
    path = tmp_path / "one"
    first = View(path, _TEXTS, "id")
    first.take_in([_record(b"a", b"1", 0)], {0: 1})
    first.close()
    change(path)
    again = View(path, _TEXTS, topic_id)
    assert (again.positions, again.count()) == ({}, 0)
    again.take_in([_record(b"a", b"1", 0)], {0: 1})
    assert again.count() == 1


def test_what_could_not_be_written_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    view = View(tmp_path / "one", _TEXTS, "id")
    view.take_in([_record(b"a", b"1", 0)], {0: 1})
    with monkeypatch.context() as patched:
        patched.setattr(views, "_EVENT_TIME", "no SQL")
        with pytest.raises(sqlite3.Error):
            view.take_in([_record(b"b", b"2", 1)], {0: 2})
    assert (view.count(), view.positions) == (1, {0: 1})
    view.take_in([_record(b"b", b"2", 1)], {0: 2})
    assert view.count() == 2


# ---- following topics ----


@pytest.fixture(scope="module")
def brokers() -> Iterator[RunningBroker]:
    with broker() as one:
        yield one


def _stores(brokers: RunningBroker, folder: Path, topic: str) -> Stores:
    return Stores([Changelog("users", topic, _TEXTS)], brokers.bootstrap, folder, "test")


def _wait_until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_store_follows_what_was_committed_and_says_how_far_it_is(
    brokers: RunningBroker, topic: str, tmp_path: Path
) -> None:
    with Admin(brokers.bootstrap) as admin:
        admin.create_topic(topic, partitions=2, config={"cleanup.policy": "compact"})
    with Producer(brokers.bootstrap, transactional_id=topic) as producer, _stores(brokers, tmp_path, topic) as stores:
        with producer.transaction():
            producer.send(topic, "Anna", key="a", timestamp=5000)
            producer.send(topic, "Bert", key="b", timestamp=4000)
        _wait_until(lambda: stores["users"].count() == 2 and stores["users"].standing.records_behind == 0)
        answer = stores["users"].get("a")
        assert answer.rows == (Row("a", "Anna", 5000),)
        assert answer.standing.event_time == 5000
        assert answer.standing.as_of is not None
        assert abs(answer.standing.as_of - time.time() * 1000) < 10_000
        with suppress(ZeroDivisionError), producer.transaction():
            producer.send(topic, "Aborted", key="a")
            _ = 1 / 0
        with producer.transaction():
            producer.send(topic, None, key="b")
        _wait_until(lambda: stores["users"].count() == 1)
        assert stores["users"].get("a").value == "Anna"
    with _stores(brokers, tmp_path, topic) as stores:
        assert stores["users"].get("a").value == "Anna"  # before anything was fetched


def test_a_store_that_is_not_there_is_told_with_those_that_are(
    brokers: RunningBroker, topic: str, tmp_path: Path
) -> None:
    with Admin(brokers.bootstrap) as admin:
        admin.create_topic(topic)
    with (
        _stores(brokers, tmp_path, topic) as stores,
        pytest.raises(ConfigurationError, match="there is no store 'x': there are users"),
    ):
        _ = stores["x"]


# ---- over HTTP ----


class _Fixed(Stores):
    """Stores that follow nothing."""

    def __init__(self, *stores: Store) -> None:
        self._stores = {store.name: store for store in stores}


def _page(pages: Pages, target: str, code: int = 200) -> Any:
    found, content = pages.page(target)
    assert found == code, content
    return json.loads(json.dumps(content))


def test_rows_are_asked_for_over_http(tmp_path: Path) -> None:
    pages = Pages(
        _Fixed(_store(tmp_path, _TEXTS, (b"a b", b"1"), ("ä/ö".encode(), b"2"))), lambda: {"application": "x"}
    )
    assert _page(pages, "/status") == {"application": "x"}
    (listed,) = _page(pages, "/stores")
    assert (listed["name"], listed["topic"], listed["rows"], listed["is_windowed"]) == ("one", "log", 2, False)
    assert _page(pages, "/stores/one/" + quote("ä/ö", safe=""))["rows"][0]["value"] == "2"
    assert _page(pages, "/stores/one/none")["rows"] == []
    assert [row["key"] for row in _page(pages, "/stores/one?from=a&to=b")["rows"]] == ["a b"]
    answer = _page(pages, "/stores/one?limit=1")
    assert (len(answer["rows"]), answer["is_complete"]) == (1, False)
    assert answer["standing"] == {"records_behind": 0, "event_time": 1000, "as_of": None}


def test_windows_are_asked_for_over_http(tmp_path: Path) -> None:
    rows = [(_window("a", start), to_bytes(LONG, start)) for start in (0, 60_000)]
    pages = Pages(_Fixed(_store(tmp_path, _WINDOWS, *rows)), dict)  # type: ignore[arg-type]
    assert len(_page(pages, "/stores/one/a")["rows"]) == 2
    (row,) = _page(pages, "/stores/one/a?start=1&end=1970-01-01T00:01:00Z")["rows"]
    assert (row["key"], row["value"]) == ({"key": "a", "start": 60_000, "end": None}, 60_000)
    assert len(_page(pages, "/stores/one?start=0&end=0")["rows"]) == 1


_MISTAKES = [
    ("/", 404, "there are /status, /stores, /stores/<name> and /stores/<name>/<key>"),
    ("/stores/two", 404, "there is no store 'two': there are one"),
    ("/stores/one?limit=1000000", 400, "limit is '1000000': use 1 to 10,000"),
    ("/stores/one?limit=-1", 400, "limit is '-1': use 1 to 10,000"),
    ("/stores/one?form=a", 400, "unknown form: there are end, from, limit, start, to"),
    ("/stores/one?start=0", 400, "windows: store one has no windows: ask with get(key) or range(first, last)"),
    ("/stores/one?start=soon", 400, "start is 'soon': give milliseconds, or a time like 2026-05-01T12:00:00Z"),
    ("/stores/one/one", 400, "key 'one' cannot be: keys of this store are int"),
    ("/stores/one/" + "1" * 10_000, 414, "the address is longer than 8192 bytes"),
]


@pytest.mark.parametrize(("target", "code", "told"), _MISTAKES, ids=[told[:30] for _, _, told in _MISTAKES])
def test_what_cannot_be_asked_is_told(tmp_path: Path, target: str, code: int, told: str) -> None:
    pages = Pages(_Fixed(_store(tmp_path, SerdeForm(INT, TEXT), (b"\0\0\0\1", b"x"))), dict)  # type: ignore[arg-type]
    assert _page(pages, target, code) == {"error": told}


def test_a_server_answers_many_at_once_in_json(tmp_path: Path) -> None:
    server = StoreServer(_Fixed(_store(tmp_path, _TEXTS, (b"a", b"1"))), dict, "0")  # type: ignore[arg-type]
    values: list[str] = []

    def ask() -> None:
        for _ in range(20):
            with urllib.request.urlopen(f"http://{server.address}/stores/one/a", timeout=10) as answer:
                assert answer.headers["Content-Type"].startswith("application/json")
                values.append(json.load(answer)["rows"][0]["value"])

    try:
        assert server.address.startswith("127.0.0.1:")
        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert values == ["1"] * 160
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://{server.address}/no", timeout=10)
        with pytest.raises(urllib.error.HTTPError, match="501"):
            urllib.request.urlopen(f"http://{server.address}/stores", data=b"{}", timeout=10)
    finally:
        server.close()


@pytest.mark.parametrize("address", ["here", "localhost:http", "localhost:70000"])
def test_an_address_that_cannot_be_is_refused(tmp_path: Path, address: str) -> None:
    with pytest.raises(ConfigurationError, match="write it as host:port"):
        StoreServer(_Fixed(), dict, address)  # type: ignore[arg-type]


def test_windowed_tables_can_be_stored() -> None:
    app = Application("shop", key=TEXT, value=TEXT)
    app.stream("a").group_by_key().window(tumbling("1 minute")).count().store("counts")
    assert [store.store for store in app.topology.stores] == ["counts"]
