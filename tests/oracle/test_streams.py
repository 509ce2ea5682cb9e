"""The same input through our Streams and through real Kafka Streams.

Streams must give the same records with the same timestamps; tables the same final state. Cases with the same input
run together, which saves time. Records come in several rounds, so state is kept between micro-batches; within a round
none is so late that it matters when exactly the clock of the stream moves on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from penstock.streams import TEXT, Application, GlobalTable, Stream, Table, col, fn, hopping, sliding, tumbling, within
from penstock.streams import session as sessions
from penstock.testing.streams import Output, TopologyTestDriver
from tests.oracle.kafka_streams import Input, KafkaStreams

pytestmark = pytest.mark.java

Build = Callable[[Stream, Stream], Any]
Rounds = list[list[Input]]

_WINDOW = tumbling("10 seconds", grace="5 seconds")
_HOPPING = hopping("10 seconds", "5 seconds", grace="5 seconds")
_WITHIN = within(before="2 seconds", after="4 seconds", grace="5 seconds")
_PAIR = fn.concat(fn.coalesce(col.left, fn.lit("null")), fn.lit("+"), fn.coalesce(col.right, fn.lit("null")))
_WINDOWED_KEY = "concat(key.key, '@', unix_millis(key.start), '-', unix_millis(key.end))"


def _text(table: Table) -> Stream:
    """A table's changes, with keys and values as the oracle writes them."""
    return table.map_values("cast(value AS STRING)").to_stream()


def _windowed(table: Table) -> Stream:
    return _text(table).select_key(_WINDOWED_KEY)


def _branches(left: Stream) -> Stream:
    long, middle, short = left.branch("length(value) > 2", "length(value) > 1", default=True)
    named = [(long, "long "), (middle, "middle "), (short, "short ")]
    first, *others = [stream.map_values(fn.concat(fn.lit(name), col.value)) for stream, name in named]
    return first.merge(*others)


def _counts(left: Stream) -> Table:
    return left.group_by_key().count()


_STATELESS: dict[str, Build] = {
    "filter": lambda left, _: left.filter(fn.length(col.value) > 1),
    "filter_not": lambda left, _: left.filter_not(lambda value: len(value) > 1),
    "map_values": lambda left, _: left.map_values(fn.upper(col.value)),
    "map": lambda left, _: left.map(key=col.value, value=col.key),
    "select_key": lambda left, _: left.select_key("concat(key, value)"),
    "flat_map_values": lambda left, _: left.flat_map_values(list, returns="STRING"),
    "flat_map": lambda left, _: left.flat_map("array(struct(key, value), struct(value AS key, key AS value))"),
    "merge": lambda left, right: left.merge(right),
    "branch": lambda left, _: _branches(left),
    "repartition": lambda left, _: left.select_key(col.value).repartition(),
}
_AGGREGATIONS: dict[str, Build] = {
    "count": lambda left, _: _text(_counts(left)),
    "count_by_value": lambda left, _: _text(left.group_by(col.value).count()),
    "reduce": lambda left, _: _text(left.group_by_key().reduce(lambda old, new: old + new)),
    "aggregate": lambda left, _: _text(left.group_by_key().aggregate(fn.sum(fn.length(col.value)))),
    "cogroup": lambda left, right: _text(
        left.group_by_key()
        .cogroup(lambda total, value: total + len(value))
        .cogroup(right.group_by_key(), lambda total, value: total + 100 * len(value))
        .aggregate(int, returns="BIGINT")
    ),
    "count_of_counts": lambda left, _: _text(
        _counts(left).to_stream().group_by("substring(key, 1, 1)").aggregate(fn.max(col.value))
    ),
}
_WINDOWS: dict[str, Build] = {
    "tumbling_count": lambda left, _: _windowed(left.group_by_key().window(_WINDOW).count()),
    "tumbling_final": lambda left, _: _windowed(left.group_by_key().window(_WINDOW).count().suppress()),
    "tumbling_reduce": lambda left, _: _windowed(left.group_by_key().window(_WINDOW).reduce(lambda a, b: a + b)),
    "tumbling_reduce_final": lambda left, _: _windowed(
        left.group_by_key().window(_WINDOW).reduce(lambda old, new: old + new).suppress()
    ),
    "hopping_count": lambda left, _: _windowed(left.group_by_key().window(_HOPPING).count()),
    "hopping_final": lambda left, _: _windowed(left.group_by_key().window(_HOPPING).count().suppress()),
    "hopping_reduce": lambda left, _: _windowed(left.group_by_key().window(_HOPPING).reduce(lambda a, b: a + b)),
    "session_final": lambda left, _: _windowed(
        left.group_by_key().window(sessions("3 seconds", grace="5 seconds")).count()
    ),
    "session_updates": lambda left, _: _windowed(
        left.group_by_key().window(sessions("3 seconds", grace="5 seconds", emit="updates")).count()
    ),
    "session_reduce": lambda left, _: _windowed(
        left.group_by_key().window(sessions("1 second", grace="5 seconds", emit="updates")).reduce(lambda a, b: a + b)
    ),
    "session_aggregate_final": lambda left, _: _windowed(
        left.group_by_key()
        .window(sessions("1 second", grace="5 seconds"))
        .aggregate(int, lambda sum, value: sum + len(value), merge=lambda a, b: a + b, returns="BIGINT")
    ),
    "sliding_count": lambda left, _: _windowed(
        left.group_by_key().window(sliding("3 seconds", grace="5 seconds")).count()
    ),
    "sliding_reduce": lambda left, _: _windowed(
        left.group_by_key().window(sliding("3 seconds", grace="5 seconds")).reduce(lambda a, b: a + b)
    ),
    "sliding_final": lambda left, _: _windowed(
        left.group_by_key().window(sliding("3 seconds", grace="5 seconds", emit="final")).count()
    ),
    "two_windows": lambda left, _: _windowed(
        left.group_by_key()
        .window(_WINDOW)
        .count()
        .suppress()
        .to_stream()
        .map(key="concat('n', value)", value="key.key")
        .group_by_key()
        .window(tumbling("30 seconds", grace="30 seconds"))
        .count()
    ),
}
_JOINS: dict[str, Build] = {
    "stream_join": lambda left, right: left.join(right, _WITHIN, _PAIR),
    "stream_left_join": lambda left, right: left.left_join(right, _WITHIN, _PAIR),
    "stream_outer_join": lambda left, right: left.outer_join(right, _WITHIN, _PAIR),
}
_TABLES: dict[str, Callable[[Table, Table], Any]] = {
    "table": lambda left, _: _text(left),
    "table_filter": lambda left, _: _text(left.filter(fn.length(col.value) > 1)),
    "table_map_values": lambda left, _: _text(left.map_values(fn.concat(col.value, fn.lit("!")))),
    "to_table": lambda left, _: _text(left.map_values(fn.concat(col.value, fn.lit("!"))).to_stream().to_table()),
    "table_group_count": lambda left, _: _text(left.group_by("substring(value, 1, 1)").count()),
    "table_group_reduce": lambda left, _: _text(
        left.map_values("cast(length(value) AS BIGINT)")
        .group_by("concat('g', value % 2)")
        .reduce(lambda sum, one: sum + one, lambda sum, one: sum - one or None)
    ),
    "table_group_aggregate": lambda left, _: _text(
        left.group_by("CASE WHEN value != 'ccc' THEN concat(substring(key, 1, 1), length(value) % 2) END").aggregate(
            int, lambda sum, one: sum + len(one), lambda sum, one: sum - len(one), returns="BIGINT"
        )
    ),
    "table_join": lambda left, right: _text(left.join(right, _PAIR)),
    "table_left_join": lambda left, right: _text(left.left_join(right, _PAIR)),
    "table_outer_join": lambda left, right: _text(left.outer_join(right, _PAIR)),
}
_LOOKUPS: dict[str, Callable[[Stream, Table], Any]] = {
    "lookup_join": lambda left, right: left.join(right, value=_PAIR),
    "lookup_left_join": lambda left, right: left.left_join(right, value=_PAIR),
}
_ASKED = "CASE WHEN value != 'ccc' THEN concat('k', 1 + length(value) % 3) END"
_FOREIGN: dict[str, Callable[[Table, Table], Any]] = {
    "foreign_key_join": lambda left, right: _text(left.join(right, _PAIR, on=_ASKED)),
    "foreign_key_left_join": lambda left, right: _text(left.left_join(right, _PAIR, on=_ASKED)),
}
_GLOBALS: dict[str, Callable[[Stream, GlobalTable], Any]] = {
    "global_join": lambda left, right: left.join(right, on=_ASKED, value=_PAIR),
    "global_left_join": lambda left, right: left.left_join(right, on=_ASKED, value=_PAIR),
}
_MIXED: dict[str, Callable[[Stream, Table], Any]] = {
    "count_joined": lambda left, right: _text(
        _counts(left).join(right, fn.concat(col.left.cast("string"), fn.lit("+"), col.right))
    ),
}

_FLUSH_MS = 1_000_000


def _random_records(seed: int, *, topics: tuple[str, ...], with_nulls: bool) -> Iterator[Input]:
    """Records whose times run ahead of each other by less than the windows' grace."""
    source = random.Random(seed)
    for n in range(60):
        timestamp = 20_000 + n * 700 + source.randrange(4_000)
        value = source.choice(["a", "bb", "ccc", "dddd"])
        if with_nulls and source.random() < 0.2:
            yield Input(source.choice(topics), source.choice(["k1", "k2"]), None, timestamp)
        else:
            yield Input(source.choice(topics), source.choice(["k1", "k2", "k3", "m1"]), value, timestamp)


def _rounds(
    seed: int, *, topics: tuple[str, ...] = ("left", "right"), late: bool = False, nulls: bool = False
) -> Rounds:
    records = list(_random_records(seed, topics=topics, with_nulls=nulls))
    rounds = [records[:25], records[25:45], records[45:]]
    if late:
        rounds[2].insert(0, Input("left", "k1", "late", 21_000))  # its windows were closed by the round before
    flush = [Input(topic, "zz", "zz", _FLUSH_MS + n) for n, topic in enumerate(topics)]
    return [*rounds, flush]


def _in_order(rounds: Rounds) -> Rounds:
    """The same records in the order of their times: what a table says depends on what came before."""
    every = sorted((one for records in rounds for one in records), key=lambda one: one.timestamp)
    return [every[:25], every[25:45], every[45:]]


def _one_by_one(rounds: Rounds) -> Rounds:
    """The same records, in each round first the right ones: what a global table says has nothing to do with time."""
    return [[one for one in every if one.topic == topic] for every in rounds for topic in ("right", "left")]


def _started(cases: dict[str, Any], begin: Callable[[Application], tuple[Any, Any]]) -> Application:
    app = Application("oracle", key=TEXT, value=TEXT)
    left, right = begin(app)
    for name, build in cases.items():
        build(left, right).to(name)
    return app


_GROUPS: dict[str, tuple[dict[str, Any], Callable[[Application], tuple[Any, Any]], Rounds]] = {
    "stateless": (_STATELESS, lambda app: (app.stream("left"), app.stream("right")), _rounds(1)),
    "aggregations": (_AGGREGATIONS, lambda app: (app.stream("left"), app.stream("right")), _rounds(2, nulls=True)),
    "windows": (_WINDOWS, lambda app: (app.stream("left"), None), _rounds(3, topics=("left",), late=True)),
    "joins": (_JOINS, lambda app: (app.stream("left"), app.stream("right")), _rounds(4)),
    "lookups": (_LOOKUPS, lambda app: (app.stream("left"), app.table("right")), _in_order(_rounds(7, nulls=True))),
    "globals": (
        _GLOBALS,
        lambda app: (app.stream("left"), app.global_table("right")),
        _one_by_one(_rounds(8, nulls=True)),
    ),
    "foreign": (
        _FOREIGN,
        lambda app: (app.table("left"), app.table("right")),
        _one_by_one(_rounds(11, nulls=True)),
    ),
    "tables": (_TABLES, lambda app: (app.table("left"), app.table("right")), _rounds(5, nulls=True)),
    "mixed": (_MIXED, lambda app: (app.stream("left"), app.table("right")), _rounds(6, nulls=True)),
}


@pytest.fixture(scope="module")
def kafka_streams() -> Iterator[KafkaStreams]:
    running = KafkaStreams()
    yield running
    running.close()


@pytest.fixture(scope="session")
def outputs(spark: Any) -> Callable[[str], dict[str, list[Output]]]:
    """What our Streams give, by group of cases and case."""

    @cache
    def run(group: str) -> dict[str, list[Output]]:
        cases, begin, rounds = _GROUPS[group]
        with TopologyTestDriver(_started(cases, begin), spark=spark) as driver:
            for records in rounds:
                for one in records:
                    driver.pipe(one.topic, one.key, one.value, one.timestamp)
                driver.advance()
            return {name: driver.read(name) for name in cases}

    return run


def _every(*groups: str) -> list[tuple[str, str]]:
    return [(group, case) for group in groups for case in _GROUPS[group][0]]


def _input(group: str) -> list[Input]:
    cases, begin, rounds = _GROUPS[group]
    read = {topic for source in _started(cases, begin).topology.sources for topic in source.topics}
    return [one for records in rounds for one in records if one.topic in read]


def _without_flush(outputs: list[Output]) -> list[Output]:
    return [one for one in outputs if "zz" not in f"{one.key}{one.value}"]


@pytest.mark.parametrize(("group", "case"), _every("stateless", "joins", "lookups", "globals"))
def test_streams_give_the_same_records(group: str, case: str, outputs: Any, kafka_streams: KafkaStreams) -> None:
    expected = _without_flush(kafka_streams.run(case, _known(case, _input(group))))
    found = _without_flush(outputs(group)[case])
    assert len(expected) > 4
    assert sorted(found, key=str) == sorted(expected, key=str)


@pytest.mark.parametrize(("group", "case"), _every("aggregations", "windows", "tables", "foreign", "mixed"))
def test_tables_have_the_same_final_state(group: str, case: str, outputs: Any, kafka_streams: KafkaStreams) -> None:
    expected = _final(kafka_streams.run(case, _known(case, _input(group))))
    found = _final(outputs(group)[case])
    assert len(expected) > 1
    assert found == expected


def _known(case: str, records: list[Input]) -> list[Input]:
    """Real Kafka Streams knows only the topics that a topology reads."""
    has_right = case in ("merge", "cogroup", "count_joined") or case.endswith("_join")
    return [one for one in records if has_right or one.topic == "left"]


def _final(outputs: list[Output]) -> dict[Any, Any]:
    newest = {one.key: (one.value, one.timestamp) for one in _without_flush(outputs)}
    return {key: found for key, found in newest.items() if found[0] is not None}
