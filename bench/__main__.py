"""Runs the scenarios in alternating rounds and writes RESULTS.md."""

from __future__ import annotations

import argparse
import compileall
import math
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import partial
from importlib.metadata import version
from pathlib import Path

from bench import compaction, groups, scenarios, spark, streams
from bench.scenarios import Numbers
from bench.steadiness import steadied
from tests.support import official_connector, systems
from tests.support.maven import KAFKA_VERSION, ROOT
from tests.support.systems import System

RESULTS = Path(__file__).with_name("RESULTS.md")
LOG_SIZE = "log-size"
LOG_SIZE_NOTE = "Cost per produce in a log of"
SPARK_RECORDS = 10_000_000  # as the report says; other numbers are for a quick look
STREAMS_RECORDS = 5_000_000


@dataclass(frozen=True)
class Goal:
    """A number of a scenario, and what it should be: a ratio Penstock / the other, or a value of Penstock alone."""

    number: str
    label: str
    limit: float | None  # none: it is only shown
    is_ratio: bool = True
    more_is_better: bool = True

    def verdict(self, value: float) -> str:
        if self.limit is None:
            return ""
        is_met = value >= self.limit if self.more_is_better else value <= self.limit
        return "yes" if is_met else "no"

    @property
    def text(self) -> str:
        if self.limit is None:
            return ""
        sign = ">=" if self.more_is_better else "<="
        return f"{sign} {self.limit:g}{'x' if self.is_ratio else ''}"


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    run: Callable[..., Numbers]
    goals: tuple[Goal, ...]
    needs_own_broker: bool = False
    is_of_connectors: bool = False  # it compares Spark's connectors on one broker, not two brokers
    rounds: int = 5


def _fewer(number: str, label: str, limit: float, *, is_ratio: bool = True) -> Goal:
    return Goal(number, label, limit, is_ratio, more_is_better=False)


def _shown(number: str, label: str) -> Goal:
    return Goal(number, label, None)


def _of_connectors(name: str, title: str, run: Callable[..., Numbers], *goals: Goal) -> Scenario:
    return Scenario(name, title, run, goals, is_of_connectors=True)


_SPARK_CPU = _shown("cpu_s_per_million", "CPU s of Spark per million records")

SCENARIOS = [
    Scenario(
        "produce-100",
        "Java producer, 100 B records, acks=1",
        scenarios.java_producer_100,
        (
            Goal("records_per_second", "records/s", 1.1),
            _fewer("cpu_s_per_million", "broker CPU s per million records", 0.6),
        ),
    ),
    Scenario(
        "produce-1k",
        "Java producer, 1 KiB records, acks=1",
        scenarios.java_producer_1k,
        (
            Goal("records_per_second", "records/s", 1.1),
            _fewer("cpu_s_per_million", "broker CPU s per million records", 0.6),
        ),
    ),
    Scenario(
        "pipelined",
        "50 pipelined single-record produces on one connection",
        scenarios.pipelined,
        (Goal("per_second", "requests/s", 4.0),),
    ),
    Scenario(
        "connections",
        "100 connections, one single-record produce each",
        scenarios.hundred_connections,
        (Goal("per_second", "requests/s", 1.5),),
    ),
    Scenario(
        "round-trip",
        "One connection, one single-record produce at a time",
        scenarios.round_trip,
        (_fewer("p50_us", "p50 in us", 1.0), _fewer("p99_us", "p99 in us", 1.0)),
    ),
    Scenario(
        "transactions",
        "librdkafka, 100 records per transaction",
        scenarios.transactions,
        (
            Goal("records_per_second", "records/s", 1.0),
            _fewer("commit_p99_ms", "commit p99 in ms", 1.0),
            _fewer("cpu_ms_per_transaction", "broker CPU in ms per transaction", 1.0),
        ),
    ),
    Scenario(
        "consume",
        "Java consumer, 100 B records",
        scenarios.Consumer(),
        (
            Goal("records_per_second", "records/s", 1.0),
            _fewer("cpu_s_per_gib", "broker CPU s per GiB fetched", 1.0),
        ),
    ),
    Scenario(
        "consume-1k",
        "Java consumer, 1 KiB records",
        scenarios.Consumer(1_000_000, 1024),
        (
            Goal("records_per_second", "records/s", 1.0),
            _fewer("cpu_s_per_gib", "broker CPU s per GiB fetched", 1.0),
        ),
    ),
    Scenario(
        "end-to-end",
        "End to end, acks=1, Java clients",
        scenarios.end_to_end,
        (_fewer("p50_us", "p50 in us", 1.0), _fewer("p99_us", "p99 in us", 0.7)),
    ),
    Scenario(
        "end-to-end-tool",
        "End to end (Kafka's EndToEndLatency, acks=1)",
        scenarios.end_to_end_tool,
        (_fewer("p99_ms", "p99 in ms", 0.7), _fewer("mean_ms", "mean in ms", 1.0)),
    ),
    Scenario(
        "group-heartbeats",
        "A group of 1,000 classic members",
        groups.thousand_members,
        (
            _fewer("settle_s", "seconds to settle", 1.0),
            _fewer("cpu_us_per_heartbeat", "broker CPU in us per heartbeat", 1.0),
        ),
    ),
    Scenario(
        "group-rebalance",
        "One member joins a classic group of 50",
        groups.rebalance,
        (_fewer("median_ms", "ms until all have their assignment", 1.0),),
    ),
    Scenario(
        "group-rebalance-consumer",
        "One member joins a consumer group of 50",
        groups.consumer_rebalance,
        (_fewer("median_ms", "ms until it has its partitions", 1.0),),
    ),
    Scenario(
        "commits",
        "OffsetCommit from 50 clients",
        groups.commits,
        (
            Goal("per_second", "commits/s", 1.0),
            _fewer("p99_ms", "p99 in ms", 1.0),
            _fewer("cpu_us_per_commit", "broker CPU in us per commit", 1.0),
        ),
    ),
    Scenario(
        "start",
        "Start after a clean shutdown",
        scenarios.start,
        (
            _fewer("first_answer_s", "seconds to the first answer", 0.3, is_ratio=False),
            _fewer("idle_mib", "idle memory in MiB", 60, is_ratio=False),
        ),
        needs_own_broker=True,
    ),
    Scenario(
        "memory",
        "Memory under load",
        scenarios.memory,
        (
            _fewer("after_10m_mib", "MiB after 10 M records", 120, is_ratio=False),
            _fewer("with_1000_connections_mib", "MiB with 1,000 idle connections besides", 120, is_ratio=False),
        ),
        needs_own_broker=True,
        rounds=1,
    ),
    Scenario(
        "compaction",
        "Compaction of 10 M records of 1 M keys",
        compaction.compaction,
        (
            Goal("records_per_second", "records/s", 2.0),
            _fewer("cpu_s_per_million", "broker CPU s per million records", 1.0),
            _fewer("memory_mib", "memory meanwhile in MiB", 150, is_ratio=False),
            _fewer("p99_growth", "p99 of a produce elsewhere, beside when idle", 2.0, is_ratio=False),
        ),
        needs_own_broker=True,
        rounds=3,
    ),
    Scenario(
        "partitions",
        "2,000 partitions",
        scenarios.many_partitions,
        (_fewer("start_s", "seconds to start", 2.0, is_ratio=False),),
        needs_own_broker=True,
        rounds=3,
    ),
    _of_connectors(
        "spark-batch-read",
        "Batch read of all columns",
        spark.batch_read,
        Goal("records_per_second", "records/s", 3.0),
        _SPARK_CPU,
        _shown("jvm_mib", "JVM memory in MiB, at most"),
        _shown("python_mib", "memory of the tasks' Python processes in MiB, at most"),
    ),
    _of_connectors(
        "spark-cores",
        "The same by cores",
        spark.cores,
        _shown("records_per_second_1", "records/s on one core"),
        _shown("records_per_second_2", "records/s on two"),
    ),
    _of_connectors(
        "spark-stream-read",
        "Streaming read of all there is",
        spark.stream_read,
        Goal("records_per_second", "records/s", 2.5),
        _SPARK_CPU,
    ),
    _of_connectors(
        "spark-write",
        "Streaming write of files to a topic, ours exactly once",
        spark.write,
        Goal("records_per_second", "records/s", 2.0),
        _SPARK_CPU,
    ),
    _of_connectors(
        "spark-windowed-count",
        "Count by key and window, topic to topic, ours exactly once",
        spark.windowed_count,
        Goal("records_per_second", "records/s", 2.0),
        _SPARK_CPU,
    ),
    _of_connectors(
        "spark-latency",
        "Topic to topic at 1,000 records/s, ours exactly once",
        spark.latency,
        _shown("p50_ms", "p50 in ms"),
        _shown("p99_ms", "p99 in ms"),
    ),
]

STREAMS = {  # by name: what it is called, and what is run
    "streams-windowed-count": ("Count by key in windows of 10 s", streams.COUNT),
    "streams-table-join": ("Join of a stream with a table of 1,000 keys", streams.JOIN),
}
STREAMS_ROUNDS = 3
OTHER_STREAMS = {  # by name: what they are called, and how many times as fast ours is to be
    "kafka-streams": (f"Kafka Streams {KAFKA_VERSION}, exactly_once_v2, two threads", 1.0),
    "quix": ("Quix Streams 3.28.1, at least once, two processes", 10.0),
    "faust": ("Faust 0.15.3, at least once, two processes", 10.0),
}


def _measure(run: Callable[[str], Numbers], rounds: int) -> dict[str, list[Numbers]]:
    """All rounds of a scenario, the systems taking turns in going first."""
    results: dict[str, list[Numbers]] = {"penstock": [], "kafka": []}
    for number in range(rounds):
        order = ["penstock", "kafka"] if number % 2 == 0 else ["kafka", "penstock"]
        for name in order:
            os.sync()  # the disk must not still be busy with what another has written
            numbers = steadied(partial(run, name))
            results[name].append(numbers)
            shown = ", ".join(f"{key} {value:.4g}" for key, value in numbers.items())
            print(f"  round {number + 1} {name:8} {shown}", flush=True)
    return results


def _runner(scenario: Scenario, running: list[System], stage: spark.Stage) -> Callable[[str], Numbers]:
    """What runs a scenario for one of the two, by name."""
    if scenario.is_of_connectors:
        return lambda name: scenario.run(stage, name)
    if scenario.needs_own_broker:
        return lambda name: scenario.run(partial(systems.named, name))
    return lambda name: scenario.run(next(system for system in running if system.name == name))


def _rows(scenario: Scenario, results: dict[str, list[Numbers]]) -> list[str]:
    rows = []
    for goal in scenario.goals:
        ours = [numbers[goal.number] for numbers in results["penstock"]]
        theirs = [numbers[goal.number] for numbers in results["kafka"]]
        ratios = [a / b for a, b in zip(ours, theirs, strict=True) if b]
        ratio = statistics.median(ratios) if ratios else math.inf
        value = ratio if goal.is_ratio else statistics.median(ours)
        cells = [
            scenario.title,
            goal.label,
            f"{statistics.median(ours):,.4g}",
            f"{statistics.median(theirs):,.4g}",
            f"{ratio:.2f}x" if ratios else "",
            goal.text,
            goal.verdict(value),
            _today(),
        ]
        rows.append(_row(cells))
    return rows


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _today() -> str:
    return date.today().isoformat()


def _measure_streams(stage: streams.Stage, scenario: str, rounds: int) -> dict[str, list[float]]:
    """All rounds of a streams scenario, in records per second, each round beginning with another one."""
    results: dict[str, list[float]] = {name: [] for name in streams.SYSTEMS}
    for number in range(rounds):
        first = number % len(streams.SYSTEMS)
        for name in (*streams.SYSTEMS[first:], *streams.SYSTEMS[:first]):
            results[name].append(stage.run(scenario, name)["records_per_second"])
            print(f"  round {number + 1} {name:13} {results[name][-1]:,.0f} records/s", flush=True)
    return results


def _streams_rows(title: str, results: dict[str, list[float]]) -> list[str]:
    rows = []
    ours = statistics.median(results["penstock"])
    for name, (label, goal) in OTHER_STREAMS.items():
        ratio = statistics.median(a / b for a, b in zip(results["penstock"], results[name], strict=True))
        theirs = statistics.median(results[name])
        met = "yes" if ratio >= goal else "no"
        numbers = [f"{ours:,.0f}", f"{theirs:,.0f}", f"{ratio:.2f}x", f">= {goal:g}x", met]
        rows.append(_row([title, label, *numbers, _today()]))
    return rows


def _log_size_note(numbers: Numbers) -> str:
    return (
        f"{LOG_SIZE_NOTE} {numbers['log_gib']:.1f} GiB, beside a new log of the same broker, in turns: "
        f"throughput {numbers['throughput_ratio']:.2f}x, broker CPU {numbers['cpu_ratio']:.2f}x (goal: about 1)."
    )


class Report:
    """RESULTS.md: the rows of what is measured now, and as they are those of everything else that it had."""

    def __init__(self, file: Path, *, is_kept: bool) -> None:
        """One that is not kept is only for a quick look."""
        self._file = file
        self._is_kept = is_kept
        self._rows: dict[str, list[str]] = {}  # by the title of their scenario
        self._log_size_note = ""
        for line in file.read_text().splitlines():
            if line.startswith(LOG_SIZE_NOTE):
                self._log_size_note = line
            elif line.startswith("| "):
                self._rows.setdefault(line.split(" | ")[0].removeprefix("| "), []).append(line)

    def has(self, title: str, rows: list[str]) -> None:
        """Take the rows of a scenario in the place of those that were there."""
        self._rows[title] = rows
        self._keep()

    def has_log_size(self, numbers: Numbers) -> None:
        self._log_size_note = _log_size_note(numbers)
        self._keep()

    def _keep(self) -> None:
        if self._is_kept:
            self._file.write_text(str(self))

    def __str__(self) -> str:
        lines = [
            "# Penstock beside Apache Kafka",
            "",
            f"Apache Kafka {KAFKA_VERSION} (KRaft, one node, defaults), {platform.machine()}, Python "
            f"{platform.python_version()}, {os.cpu_count()} cores. Medians of one to seven rounds, the systems "
            "alternating in each scenario; the ratio is the median of the rounds' ratios. A run in which the machine's "
            "host kept more than a tenth of the processor time is made again, for up to a minute; then the one with "
            "the least loss counts. "
            "Made by `make bench`.",
            "",
            *self._table("Kafka", is_of_connectors=False),
            "",
            self._log_size_note,
            "",
            "# Penstock's Spark connector beside Spark's own",
            "",
            f"Spark's own is spark-sql-kafka-0-10 on Spark {official_connector.SPARK_VERSION}, the newest there is of "
            f"it; ours runs on Spark {version('pyspark')}. Both read the same topics of the same Penstock broker: "
            f"{SPARK_RECORDS:,} records of 100 bytes in {spark.PARTITIONS} partitions, "
            "with a session on two cores that has run the query eight times before, and once more before each round: "
            "ours is `penstock.spark.session()`, the other has Spark's own defaults.",
            "",
            *self._table("Spark's own", is_of_connectors=True),
            "",
            "# Penstock's streams beside others",
            "",
            f"All read the same topics of the same Penstock broker: {STREAMS_RECORDS:,} records of 100 bytes "
            f"in {streams.PARTITIONS} partitions, on two cores. Ours writes exactly once, in micro-batches of a "
            "million records. What counts is what is committed from the first commit to the last, for at most 40 "
            "seconds.",
            "",
            "| scenario | beside | Penstock, records/s | theirs | ratio | goal | met | on |",
            "|---|---|---|---|---|---|---|---|",
            *(row for title, _ in STREAMS.values() for row in self._rows.get(title, ())),
            "",
        ]
        return "\n".join(lines)

    def _table(self, other: str, *, is_of_connectors: bool) -> list[str]:
        titles = [scenario.title for scenario in SCENARIOS if scenario.is_of_connectors == is_of_connectors]
        return [
            f"| scenario | number | Penstock | {other} | ratio | goal | met | on |",
            "|---|---|---|---|---|---|---|---|",
            *(row for title in titles for row in self._rows.get(title, ())),
        ]


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Penstock beside real Apache Kafka. Writes bench/RESULTS.md."
    )
    names = [*(scenario.name for scenario in SCENARIOS), *STREAMS, LOG_SIZE]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"what to run: {', '.join(names)}; all if none")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each scenario")
    parser.add_argument("--log-gib", type=float, default=10.0, help="how large the log grows for log-size")
    parser.add_argument(
        "--spark-records", type=int, default=SPARK_RECORDS, help="how many records the spark scenarios read"
    )
    parser.add_argument(
        "--streams-records", type=int, default=STREAMS_RECORDS, help="how many records the streams scenarios read"
    )
    options = parser.parse_args()
    if unknown := set(options.names) - set(names):
        parser.error(f"there is no scenario {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    wanted = [scenario for scenario in SCENARIOS if not options.names or scenario.name in options.names]
    has_usual_size = (options.spark_records, options.streams_records) == (SPARK_RECORDS, STREAMS_RECORDS)
    report = Report(RESULTS, is_kept=has_usual_size)
    compileall.compile_dir(ROOT / "src", quiet=1)  # as an installed package is, whatever Python is told to do here
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        running = []
        if any(not scenario.needs_own_broker and not scenario.is_of_connectors for scenario in wanted):
            running = [
                systems.penstock(Path(folder) / "penstock").start(),
                systems.kafka(Path(folder) / "kafka").start(),
            ]
            for system in running:  # let the JVM compile what is hot before anything counts
                scenarios.java_producer_100(system)
                for _ in range(3):
                    scenarios.hundred_connections(system)
        stage = spark.Stage(Path(folder), options.spark_records)
        try:
            for scenario in wanted:
                print(scenario.title, flush=True)
                rounds = min(options.rounds, scenario.rounds) if scenario.rounds < 5 else options.rounds
                results = _measure(_runner(scenario, running, stage), rounds)
                report.has(scenario.title, _rows(scenario, results))
        finally:
            stage.close()
            for system in running:
                system.kill()
    with tempfile.TemporaryDirectory() as folder:
        streams_stage = streams.Stage(Path(folder), options.streams_records)
        try:
            for name, (title, task) in STREAMS.items():
                if not options.names or name in options.names:
                    print(title, flush=True)
                    rounds = min(options.rounds, STREAMS_ROUNDS)
                    report.has(title, _streams_rows(title, _measure_streams(streams_stage, task, rounds)))
        finally:
            streams_stage.close()
    if not options.names or LOG_SIZE in options.names:
        print("Cost per produce as the log grows", flush=True)
        report.has_log_size(scenarios.log_size(systems.penstock, options.log_gib))
    print(f"\n{report}\n({time.monotonic() - started:.0f} s)")


if __name__ == "__main__":
    main()
