"""Exactly once: whatever fails in whichever step, the output has every row once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.errors import PySparkException

from penstock import Admin
from penstock.client.cluster import LATEST, Cluster
from penstock.client.errors import ConfigurationError
from penstock.client.partitions import TopicPartition
from penstock.client.shared_transaction import SharedTransaction
from penstock.spark import checkpoints, sink
from penstock.spark.sink import write_stream
from tests.spark.conftest import OUT_PARTITIONS, numbers
from tests.support.java_tools import JavaTools, rows
from tests.support.systems import System


@pytest.fixture
def copy(spark: Any, system: System, topic: str, out: str, unique: Any, tmp_path: Any) -> Callable[..., None]:
    """Copy the test's topic to another, over all that is there. It goes on where it ended."""
    name = unique("query")

    def run(columns: tuple[str, ...] = ("key", "value"), query: str = name, **options: Any) -> None:
        reader = spark.readStream.format("penstock").option("kafka.bootstrap.servers", system.bootstrap)
        frame = reader.options(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=60).load()
        settings = {"topic": out, "trigger": {"availableNow": True}, **options}
        checkpoint = str(tmp_path / "checkpoint")
        write_stream(
            frame.selectExpr(*columns), bootstrap=system.bootstrap, query=query, checkpoint=checkpoint, **settings
        ).awaitTermination()

    run.query = name  # type: ignore[attr-defined]
    return run


def test_a_topic_is_copied_and_the_group_shows_it(
    system: System, topic: str, create: Any, fill: Any, copy: Any, written: Any
) -> None:
    create()
    fill(range(100))
    copy(compression="zstd")
    assert numbers(written()) == list(range(100))
    assert {record.key for record in written()} == {b"k%d" % n for n in range(10)}
    fill(range(100, 130))
    copy(compression="gzip")
    assert numbers(written()) == list(range(130))
    with Admin(system.bootstrap) as admin:
        offsets = {place.partition: found.offset for place, found in admin.group_offsets(copy.query).items()}
    assert sum(offsets.values()) == 130
    assert len(offsets) == 3


def test_columns_say_where_rows_go(
    system: System, topic: str, create: Any, fill: Any, copy: Any, out: str, unique: Any, written: Any
) -> None:
    create()
    other = create(OUT_PARTITIONS, unique("other"))
    fill(range(60))
    headers = "array(struct('from' as key, cast(partition as string) as value))"
    copy(
        (
            "cast(value as string) as value",
            f"if(int(cast(value as string)) % 2 = 0, '{other}', null) as topic",
            "int(cast(value as string)) % 3 as partition",
            f"cast({headers} as array<struct<key: string, value: binary>>) as headers",
        ),
        topics=[other],
    )
    for name, rest in ((out, 1), (other, 0)):
        found = written(name)
        assert numbers(found) == list(range(rest, 60, 2))
        assert all(record.partition == int(record.value) % 3 for record in found)
        assert all(record.headers == (("from", b"%d" % (int(record.value) % 3)),) for record in found)
        assert all(record.key is None for record in found)


def test_records_get_the_timestamps_of_their_rows(create: Any, fill: Any, copy: Any, written: Any) -> None:
    create()
    fill(range(30))
    copy(("value", "timestamp_millis(1000 * int(cast(value as string))) as timestamp"))
    assert {int(record.value): record.timestamp for record in written()} == {n: 1000 * n for n in range(30)}


def test_a_batch_can_be_made_into_other_rows_before_it_is_written(
    create: Any, fill: Any, copy: Any, written: Any
) -> None:
    create()
    fill(range(30))
    copy(around=lambda frame, _, write: write(frame.where("int(cast(value as string)) % 2 = 0")))
    assert numbers(written()) == list(range(0, 30, 2))


class Failure(Exception):
    """An injected one."""


# The steps of a micro-batch on the driver, in order. Each fails once before and once after it was done.
STEPS = [
    (SharedTransaction, "begin"),
    (SharedTransaction, "committed"),
    (SharedTransaction, "add"),
    (sink, "_run"),
    (SharedTransaction, "add_offsets"),
    (SharedTransaction, "commit"),
]


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS, ids=[name.strip("_") for _, name in STEPS])
def test_a_batch_that_fails_in_any_step_is_there_once(
    create: Any, fill: Any, copy: Any, written: Any, monkeypatch: pytest.MonkeyPatch, step: Any, is_done: bool
) -> None:
    create()
    fill(range(100))
    owner, name = step
    real = getattr(owner, name)
    calls = []

    def failing(*arguments: Any) -> Any:
        calls.append(name)
        if len(calls) != 2:  # the second batch, or the second call in the first
            return real(*arguments)
        if is_done:
            real(*arguments)
        raise Failure(name)

    monkeypatch.setattr(owner, name, failing)
    # As after a crash of the driver, nobody cleans up.
    monkeypatch.setattr(sink.Sink, "_abort_if_possible", lambda self: None)
    with pytest.raises(Exception, match="Failure"):
        copy()
    copy()
    assert numbers(written()) == list(range(100))


def test_two_runs_of_a_query_cannot_both_write(
    system: System, create: Any, fill: Any, copy: Any, written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    create()
    fill(range(40))
    real = SharedTransaction.commit

    def overtaken(transaction: SharedTransaction) -> None:
        monkeypatch.setattr(SharedTransaction, "commit", real)
        SharedTransaction(transaction._cluster, copy.query).begin()  # as another driver of the same query does
        real(transaction)

    monkeypatch.setattr(SharedTransaction, "commit", overtaken)
    with pytest.raises(Exception, match=r"PRODUCER_FENCED|INVALID_PRODUCER_EPOCH"):
        copy()
    assert written() == []
    copy()
    assert numbers(written()) == list(range(40))


def test_a_name_is_not_used_with_another_checkpoint(
    create: Any, fill: Any, copy: Any, written: Any, tmp_path: Any
) -> None:
    """Its batches have the same numbers, so all of them would be taken for repetitions."""
    create()
    fill(range(100))
    copy()
    (tmp_path / "checkpoint").rename(tmp_path / "lost")
    with pytest.raises(Exception, match=rf"was written with another checkpoint up to batch \d+.*{copy.query}\.batches"):
        copy()
    copy(query=f"{copy.query}-again")
    assert numbers(written()) == sorted([*range(100), *range(100)])


def test_a_batch_begins_anew_when_spark_has_failed(
    create: Any, fill: Any, copy: Any, written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when an executor dies: what was written under the first epoch is aborted, and the query goes on."""
    create()
    fill(range(100))
    real = sink._run
    epochs = []

    def failing(frame: Any, layout: Any, plan: Any, tasks: Any) -> Any:
        epochs.append(plan.identity.producer_epoch)
        sizes = real(frame, layout, plan, tasks)
        if len(epochs) == 2:
            raise PySparkException("an executor is lost")
        return sizes

    monkeypatch.setattr(sink, "_run", failing)
    copy()
    assert epochs == sorted(set(epochs)), "each attempt has an epoch of its own"
    assert len(epochs) == 3, "two batches, one of them twice"
    assert numbers(written()) == list(range(100))


def test_at_least_once_writes_without_transactions(
    system: System, topic: str, create: Any, fill: Any, copy: Any, written: Any, out: str
) -> None:
    create()
    fill(range(100))
    copy(guarantee="at-least-once", compression="lz4")
    assert numbers(written()) == list(range(100))
    with Cluster(system.bootstrap) as cluster:
        ends = cluster.offsets({TopicPartition(out, index): LATEST for index in range(OUT_PARTITIONS)})
        told = SharedTransaction(cluster, copy.query).committed(copy.query)
    assert sum(ends.values()) == 100, "records, and no markers"
    assert sum(one.offset for one in told.values()) == 100, "the group shows how far the query is"


def test_at_least_once_writes_again_what_may_not_be_there(
    create: Any, fill: Any, copy: Any, written: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    create()
    fill(range(40))

    def failing(*_: Any) -> None:
        raise Failure("commit_offsets")

    with monkeypatch.context() as patched:
        patched.setattr(sink, "commit_offsets", failing)
        with pytest.raises(Exception, match="Failure"):
            copy(guarantee="at-least-once")
    copy(guarantee="at-least-once")
    assert numbers(written()) == sorted([*range(40), *range(40)])


def test_two_sources_of_a_topic_count_where_both_have_been() -> None:
    log = 'v1\n{"batchWatermarkMs":0}\n{"a":{"0":7,"1":3}}\n{"a":{"0":5,"1":4},"b":{"0":1}}\n"not offsets"'
    assert checkpoints.source_offsets(log) == {("a", 0): 5, ("a", 1): 3, ("b", 0): 1}


@pytest.mark.java
def test_kafka_consumer_groups_shows_the_lag_of_a_query(
    system: System, topic: str, create: Any, fill: Any, copy: Any, java: JavaTools
) -> None:
    def lags() -> list[int]:
        command = ("consumer.group.ConsumerGroupCommand", "--bootstrap-server", system.bootstrap)
        shown = rows(java.tool(*command, "--describe", "--group", copy.query).out)
        assert {row["TOPIC"] for row in shown} == {topic}
        return [int(row["LAG"]) for row in shown]

    create()
    fill(range(90))
    copy()
    assert lags() == [0, 0, 0]
    fill(range(90, 120))
    assert lags() == [10, 10, 10]
    copy()
    assert lags() == [0, 0, 0]


@pytest.mark.parametrize(
    ("columns", "options", "says"),
    [
        (("key",), {}, "there is no column value"),
        (("value", "offset"), {}, "there is no place for column offset"),
        (("offset as value",), {}, "column value is bigint: make it binary or string"),
        (("value",), {"topic": None}, "say where to write"),
        (("value",), {"topic": None, "topics": ["a", "b"]}, "a column topic must say where each row goes"),
        (("value",), {"guarantee": "at-most-once"}, "guarantee is 'at-most-once': use exactly-once or at-least-once"),
        (("value",), {"compression": "rar"}, "compression is 'rar': use one of none, gzip, snappy, lz4, zstd"),
    ],
)
def test_mistakes_are_told_before_anything_starts(
    create: Any, copy: Any, columns: Any, options: dict[str, Any], says: str
) -> None:
    create()
    with pytest.raises(ConfigurationError, match=says):
        copy(columns, **options)


def test_a_topic_must_be_there(create: Any, fill: Any, copy: Any) -> None:
    create()
    fill(range(3))
    with pytest.raises(Exception, match="there is no topic no-such-topic: create it first"):
        copy(topic="no-such-topic")


def test_a_plain_write_puts_every_row_somewhere(spark: Any, system: System, out: str, written: Any) -> None:
    frame = spark.range(1000).selectExpr("cast(id % 7 as string) as key", "cast(id as string) as value")
    options = {"kafka.bootstrap.servers": system.bootstrap, "topic": out, "kafka.compression.type": "lz4"}
    options["includeHeaders"] = "true"
    frame.repartition(4).write.format("penstock").options(**options).mode("append").save()
    found = written()
    assert numbers(found) == list(range(1000))
    by_key = {record.key: record.partition for record in found}
    assert len({(record.key, record.partition) for record in found}) == len(by_key) == 7, "a key has one partition"
    with pytest.raises(Exception, match="a topic cannot be overwritten"):
        frame.write.format("penstock").options(**options).mode("overwrite").save()
    with pytest.raises(Exception, match="ErrorIfExists"):
        frame.write.format("penstock").options(**options).save()
    secured = {**options, "kafka.security.protocol": "SASL_SSL"}
    with pytest.raises(Exception, match="encrypted and authenticated connections are not there yet"):
        frame.write.format("penstock").options(**secured).mode("append").save()
    with pytest.raises(Exception, match="there is no option tpoic for writing"):
        frame.write.format("penstock").options(**options, tpoic="x").mode("append").save()
