"""Applications that run: internal topics, going on after a stop, and queries that fail."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Admin, Consumer, Producer
from penstock.client.errors import ConfigurationError, PenstockError
from penstock.streams import LONG, TEXT, Application, TopologyError, col
from penstock.streams.engine import running
from penstock.testing.brokers import RunningBroker, broker

_FOR_EVER = {"retention.ms": "-1"}  # records in these tests are old


@pytest.fixture
def brokers() -> Iterator[RunningBroker]:
    with broker() as one:
        yield one


def _application(state: Path) -> Application:
    app = Application("words", key=TEXT, value=TEXT, state_dir=str(state))
    words = app.stream("lines").flat_map_values("split(value, ' ')")
    counts = words.group_by(col.value, key=TEXT).count(step="count")
    counts.to_stream().group_by("length(key)", key=LONG).count(step="lengths").to_stream().to("out", key=LONG)
    return app


def _send(bootstrap: str, *lines: str) -> None:
    with Producer(bootstrap) as producer:
        for line in lines:
            producer.send("lines", line, timestamp=1000)


def _table(bootstrap: str) -> dict[int, int]:
    with Consumer(bootstrap, auto_offset_reset="earliest", stop_at_end=True) as consumer:
        consumer.assign([("out", 0)])
        return {_number(one.key): _number(one.value) for one in consumer}


def _number(content: Any) -> int:
    return int.from_bytes(content, "big")


def _wait_for(expected: dict[int, int], bootstrap: str) -> None:
    deadline = time.monotonic() + 120
    while (found := _table(bootstrap)) != expected:
        assert time.monotonic() < deadline, found


def test_an_application_goes_on_where_it_was_stopped(spark: Any, brokers: RunningBroker, tmp_path: Path) -> None:
    with Admin(brokers.bootstrap) as admin:
        admin.create_topic("lines", partitions=2, config=_FOR_EVER)
        admin.create_topic("out", partitions=1, config=_FOR_EVER)
    _send(brokers.bootstrap, "a bb a", "ccc")
    with _application(tmp_path).run(brokers.bootstrap, spark=spark) as application:
        _wait_for({1: 1, 2: 1, 3: 1}, brokers.bootstrap)
        assert [query.name for query in application.queries] == ["words-count", "words-lengths"]
    assert application.wait(1)
    _send(brokers.bootstrap, "a dd")
    _application(tmp_path).catch_up(brokers.bootstrap, spark=spark)
    assert _table(brokers.bootstrap) == {1: 2, 2: 2, 3: 1}
    name = "words-select-key-2-repartition"
    with Admin(brokers.bootstrap) as admin:
        (topic,) = admin.describe_topics([name])
        assert len(topic.partitions) == 2
        assert {one.group for one in admin.list_groups()} >= {"words-count", "words-lengths"}


def test_a_table_that_is_looked_up_is_there_after_a_restart(spark: Any, brokers: RunningBroker, tmp_path: Path) -> None:
    def application() -> Application:
        app = Application("lookup", key=TEXT, value=TEXT, state_dir=str(tmp_path))
        names = app.table("names").map_values("upper(value)")
        app.stream("lines").join(names, value="concat(left, ' by ', right)").to("out")
        return app

    def send(topic: str, key: str, value: str) -> None:
        with Producer(brokers.bootstrap) as producer:
            producer.send(topic, value, key=key)

    with Admin(brokers.bootstrap) as admin:
        for topic in ("lines", "names", "out"):
            admin.create_topic(topic, partitions=1)
    send("names", "a", "anna")
    for number, line in enumerate(["one", "two"], 1):
        send("lines", "a", line)
        application().catch_up(brokers.bootstrap, spark=spark)
        with Consumer(brokers.bootstrap, auto_offset_reset="earliest", stop_at_end=True) as consumer:
            consumer.assign([("out", 0)])
            assert [one.value for one in consumer] == [b"one by ANNA", b"two by ANNA"][:number]


def test_a_query_that_keeps_failing_ends_the_application(
    spark: Any, brokers: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_BACKOFF_S", 0.1)
    monkeypatch.setattr(running, "_FAILURES_MAX", 2)
    app = Application("broken", key=TEXT, value=TEXT, state_dir=str(tmp_path))
    app.stream("lines").map_values(lambda value: 1 // (len(value) - 1), returns="INT").map_values(
        "cast(value AS STRING)"
    ).to("out")
    app.stream("fine").to("copy")
    with Admin(brokers.bootstrap) as admin:
        for topic in ("lines", "out", "fine", "copy"):
            admin.create_topic(topic, partitions=1, config=_FOR_EVER)
    _send(brokers.bootstrap, "a")
    application = app.run(brokers.bootstrap, spark=spark)
    told = "query broken-sink-1 failed 2 times in a row: ZeroDivisionError: integer division or modulo by zero$"
    with pytest.raises(running.ApplicationFailed, match=told):
        application.wait(120)
    assert not any(query.isActive for query in application.queries)


def test_a_query_that_cannot_be_started_again_is_tried_again_too(
    spark: Any, brokers: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*arguments: Any) -> Any:
        raise PenstockError("the broker is away")

    monkeypatch.setattr(running, "_BACKOFF_S", 0.1)
    monkeypatch.setattr(running, "_FAILURES_MAX", 3)
    app = Application("unlucky", key=TEXT, value=TEXT, state_dir=str(tmp_path))
    app.stream("lines").map_values(lambda value: str(1 // (len(value) - 1)), returns="STRING").to("out")
    with Admin(brokers.bootstrap) as admin:
        for topic in ("lines", "out"):
            admin.create_topic(topic, partitions=1, config=_FOR_EVER)
    application = app.run(brokers.bootstrap, spark=spark)
    monkeypatch.setattr(running.Query, "start", away)
    _send(brokers.bootstrap, "a")
    with pytest.raises(running.ApplicationFailed, match="failed 3 times in a row: the broker is away"):
        application.wait(120)


def test_a_topic_that_is_not_there_is_told_with_the_line(spark: Any, brokers: RunningBroker, tmp_path: Path) -> None:
    app = Application("early", key=TEXT, value=TEXT, state_dir=str(tmp_path))
    app.stream("lines").to("out")
    told = r"test_running\.py:\d+: there is no topic lines: make it first, as in 'penstock topic create lines'"
    with pytest.raises(TopologyError, match=told):
        app.run(brokers.bootstrap, spark=spark)
    with Admin(brokers.bootstrap) as admin:
        admin.create_topic("lines")
    with pytest.raises(TopologyError, match="there is no topic out"):
        app.run(brokers.bootstrap, spark=spark)


def test_an_application_without_an_end_is_refused(spark: Any, brokers: RunningBroker) -> None:
    app = Application("nothing", key=TEXT, value=TEXT)
    app.stream("lines").filter("true")
    with pytest.raises(ConfigurationError, match=r"does nothing: end a stream with to\(\) or for_each\(\)"):
        app.run(brokers.bootstrap, spark=spark)
