"""Records of repartition topics are deleted when all have read them, and not before."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Admin, Producer
from penstock.client.partitions import TopicPartition
from penstock.streams import LONG, TEXT, Application
from penstock.streams.engine.cleaning import committed_offsets, done_with
from penstock.streams.pieces import cut
from penstock.testing.brokers import RunningBroker, broker

_THROUGH = "shop-through-repartition"


def _application(state: str = "state") -> Application:
    app = Application("shop", key=TEXT, value=TEXT, state_dir=state)
    through = app.stream("orders").repartition(step="through")
    through.group_by_key().count(step="first").to_stream().to("out", value=LONG)
    through.group_by_key().count(step="second").store("second")
    return app


def test_what_all_readers_have_committed_is_done_with() -> None:
    pieces = cut(_application().topology)
    partitions = [TopicPartition(_THROUGH, number) for number in range(2)]
    read = {
        "shop-first": {partitions[0]: 5, partitions[1]: 3, TopicPartition("else", 0): 9},
        "shop-second": {partitions[0]: 7, partitions[1]: 2},
    }
    assert done_with(pieces, lambda query: read.get(query, {})) == {partitions[0]: 5, partitions[1]: 2}
    assert done_with(pieces, lambda query: {} if query == "shop-second" else read.get(query, {})) == {}


def test_what_a_table_is_read_from_again_is_kept() -> None:
    app = Application("shop", key=TEXT, value=TEXT)
    table = app.stream("users").select_key("value").repartition(step="through").to_table()
    app.stream("orders").join(table, value="right").to("out", value=TEXT)
    read = {TopicPartition(_THROUGH, 0): 5}
    assert done_with(cut(app.topology), lambda query: read) == {}


def test_only_batches_that_spark_has_committed_count(tmp_path: Path) -> None:
    assert committed_offsets(tmp_path, "shop-first") == {}
    for name in ("offsets", "commits"):
        (tmp_path / "shop-first" / name).mkdir(parents=True)
    for batch in (9, 10, 11):
        text = f'v1\n{{}}\n{{"{_THROUGH}": {{"0": {batch * 10}}}}}'
        (tmp_path / "shop-first" / "offsets" / str(batch)).write_text(text)
    for batch in (9, 10):
        (tmp_path / "shop-first" / "commits" / str(batch)).write_text("v1\n{}")
    assert committed_offsets(tmp_path, "shop-first") == {TopicPartition(_THROUGH, 0): 100}


@pytest.fixture
def brokers() -> Iterator[RunningBroker]:
    with broker() as one:
        yield one


def test_records_are_deleted_while_an_application_runs_and_it_goes_on(
    spark: Any, brokers: RunningBroker, tmp_path: Path
) -> None:
    def send(*keys: str) -> None:
        with Producer(brokers.bootstrap) as producer:
            for key in keys:
                producer.send("orders", "x", key=key)

    with Admin(brokers.bootstrap) as admin:
        for topic in ("orders", "out"):
            admin.create_topic(topic)
        send("a", "b", "a")
        _application(str(tmp_path)).catch_up(brokers.bootstrap, spark=spark)
        partition = TopicPartition(_THROUGH, 0)

        def first_and_last() -> tuple[int, int]:
            at = [admin.partition_offsets([partition], one)[partition].offset for one in ("earliest", "latest")]
            return at[0], at[1]

        first, last = first_and_last()
        assert first == last > 3
        send("a")
        with _application(str(tmp_path)).run(brokers.bootstrap, spark=spark, cleaning_interval=0.5) as running:
            deadline = time.monotonic() + 60
            while running.store("second").get("a").value != 3 or first_and_last()[0] == first:
                assert time.monotonic() < deadline, (running.status(), first_and_last())
                time.sleep(0.1)
        send("a")
        _application(str(tmp_path)).catch_up(brokers.bootstrap, spark=spark)
        first, last = first_and_last()
        assert first == last
