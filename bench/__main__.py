"""Runs the scenarios in alternating rounds and writes RESULTS.md."""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from bench import compaction, groups, scenarios
from bench.scenarios import Numbers
from tests.support import systems
from tests.support.maven import KAFKA_VERSION, ROOT
from tests.support.systems import System

RESULTS = Path(__file__).with_name("RESULTS.md")
MEASURED = ROOT / ".cache" / "bench.json"  # the numbers of every scenario's last run, from which the report is made
LOG_SIZE = "log-size"


@dataclass(frozen=True)
class Goal:
    """A number of a scenario, and what it should be: a ratio Penstock / Kafka, or a value of Penstock alone."""

    number: str
    label: str
    limit: float
    is_ratio: bool = True
    more_is_better: bool = True

    def is_met(self, value: float) -> bool:
        return value >= self.limit if self.more_is_better else value <= self.limit

    @property
    def text(self) -> str:
        sign = ">=" if self.more_is_better else "<="
        return f"{sign} {self.limit:g}{'x' if self.is_ratio else ''}"


@dataclass(frozen=True)
class Scenario:
    name: str
    title: str
    run: Callable[[Any], Numbers]
    goals: tuple[Goal, ...]
    needs_own_broker: bool = False
    rounds: int = 5


def _fewer(number: str, label: str, limit: float, *, is_ratio: bool = True) -> Goal:
    return Goal(number, label, limit, is_ratio, more_is_better=False)


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
        "End to end (Kafka's EndToEndLatency, acks=1)",
        scenarios.end_to_end,
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
]


def _measure(scenario: Scenario, running: list[System], rounds: int) -> dict[str, list[Numbers]]:
    """All rounds of a scenario, the systems taking turns in going first."""
    results: dict[str, list[Numbers]] = {"penstock": [], "kafka": []}
    makers = {"penstock": systems.penstock, "kafka": systems.kafka}
    for number in range(rounds):
        order = ["penstock", "kafka"] if number % 2 == 0 else ["kafka", "penstock"]
        for name in order:
            if scenario.needs_own_broker:
                numbers = scenario.run(makers[name])
            else:
                numbers = scenario.run(next(system for system in running if system.name == name))
            results[name].append(numbers)
            shown = ", ".join(f"{key} {value:.4g}" for key, value in numbers.items())
            print(f"  round {number + 1} {name:8} {shown}", flush=True)
    return results


def _rows(scenario: Scenario, results: dict[str, list[Numbers]]) -> list[str]:
    rows = []
    for goal in scenario.goals:
        ours = [numbers[goal.number] for numbers in results["penstock"]]
        theirs = [numbers[goal.number] for numbers in results["kafka"]]
        ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True) if b)
        value = ratio if goal.is_ratio else statistics.median(ours)
        verdict = "yes" if goal.is_met(value) else "no"
        cells = [
            scenario.title,
            goal.label,
            f"{statistics.median(ours):,.4g}",
            f"{statistics.median(theirs):,.4g}",
            f"{ratio:.2f}x",
            goal.text,
            verdict,
        ]
        rows.append("| " + " | ".join(cells) + " |")
    return rows


def _log_size_note(numbers: Numbers) -> str:
    return (
        f"Cost per produce in a log of {numbers['log_gib']:.1f} GiB, beside a new log of the same broker, in turns: "
        f"throughput {numbers['throughput_ratio']:.2f}x, broker CPU {numbers['cpu_ratio']:.2f}x (goal: about 1)."
    )


def _report(measured: dict[str, Any]) -> str:
    lines = [
        "# Penstock beside Apache Kafka",
        "",
        f"{date.today().isoformat()}, Apache Kafka {KAFKA_VERSION} (KRaft, one node, defaults), {platform.machine()}, "
        f"Python {platform.python_version()}. Medians of one to five rounds, the systems "
        "alternating in each scenario; scenarios may come from different runs; the ratio is the median of the "
        "rounds' ratios. Made by `make bench`.",
        "",
        "| scenario | number | Penstock | Kafka | ratio | goal | met |",
        "|---|---|---|---|---|---|---|",
    ]
    for scenario in SCENARIOS:
        if scenario.name in measured:
            lines += _rows(scenario, measured[scenario.name])
    if LOG_SIZE in measured:
        lines += ["", _log_size_note(measured[LOG_SIZE])]
    return "\n".join([*lines, ""])


def _note(measured: dict[str, Any], name: str, numbers: Any) -> None:
    measured[name] = numbers
    MEASURED.parent.mkdir(exist_ok=True)
    MEASURED.write_text(json.dumps(measured))


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Penstock beside real Apache Kafka. Writes bench/RESULTS.md."
    )
    names = [*(scenario.name for scenario in SCENARIOS), LOG_SIZE]
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"what to run: {', '.join(names)}; all if none")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each scenario")
    parser.add_argument("--log-gib", type=float, default=10.0, help="how large the log grows for log-size")
    options = parser.parse_args()
    if unknown := set(options.names) - set(names):
        parser.error(f"there is no scenario {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    wanted = [scenario for scenario in SCENARIOS if not options.names or scenario.name in options.names]
    measured: dict[str, Any] = json.loads(MEASURED.read_text()) if options.names and MEASURED.exists() else {}
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        running = []
        if any(not scenario.needs_own_broker for scenario in wanted):
            running = [
                systems.penstock(Path(folder) / "penstock").start(),
                systems.kafka(Path(folder) / "kafka").start(),
            ]
            for system in running:  # let the JVM compile what is hot before anything counts
                scenarios.java_producer_100(system)
        try:
            for scenario in wanted:
                print(scenario.title, flush=True)
                rounds = min(options.rounds, scenario.rounds) if scenario.rounds < 5 else options.rounds
                _note(measured, scenario.name, _measure(scenario, running, rounds))
        finally:
            for system in running:
                system.kill()
    if not options.names or LOG_SIZE in options.names:
        print("Cost per produce as the log grows", flush=True)
        _note(measured, LOG_SIZE, scenarios.log_size(systems.penstock, options.log_gib))
    report = _report(measured)
    print(f"\n{report}\n({time.monotonic() - started:.0f} s)")
    RESULTS.write_text(report)


if __name__ == "__main__":
    main()
