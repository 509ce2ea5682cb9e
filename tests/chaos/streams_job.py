"""A streams application that may be killed at any time.

    python -m tests.chaos.streams_job MASTER BOOTSTRAP STATE_DIR

It counts events by user and minute, sums up those counts by five minutes, finds sessions, and joins a table of totals
with the table of profiles. It ends when it is killed. What it writes, `Results.of` says too, without Spark.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from penstock.streams import TEXT, Application, col, fn, session, tumbling
from tests.chaos.under_fire import EVENTS, MINUTE_MS, PROFILES, job_session

APPLICATION = "fired-at"
OUTPUTS = MINUTES, STRETCHES, SESSIONS, STANDINGS = "minutes", "stretches", "sessions", "standings"
STRETCH_MS = 5 * MINUTE_MS
GAP_MS = 20_000
GRACE = "3 minutes"


def application(state_dir: str) -> Application:
    """Two windowed aggregations in a chain, a session window, and a join of tables."""
    app = Application(APPLICATION, key=TEXT, value=TEXT, state_dir=state_dir)
    events = app.stream(EVENTS).group_by_key()
    minutes = (
        events.window(tumbling("1 minute", grace=GRACE, emit="final"))
        .aggregate(n=fn.count("*"), total=fn.sum(col.value.cast("bigint")), step="by-minute")
        .to_stream()
    )
    named = minutes.map(
        key=col.key.key,
        value=fn.concat_ws(" ", fn.unix_millis(col.key.start), col.key.key, col.n, col.total),
    )
    named.to(MINUTES, key=TEXT, value=TEXT)
    (
        minutes.group_by(col.key.key, key=TEXT)
        .window(tumbling("5 minutes", grace=GRACE))
        .aggregate(n=fn.sum(col.n), minutes=fn.count("*"), step="by-stretch")
        .to_stream()
        .map(
            key=fn.concat_ws(" ", fn.unix_millis(col.key.start), col.key.key),
            value=fn.concat_ws(" ", col.n, col.minutes),
        )
        .to(STRETCHES, key=TEXT, value=TEXT)
    )
    (
        events.window(session("20 seconds", grace=GRACE))
        .aggregate(n=fn.count("*"), total=fn.sum(col.value.cast("bigint")), step="by-session")
        .to_stream()
        .map(
            key=col.key.key,
            value=fn.concat_ws(
                " ", fn.unix_millis(col.key.start), fn.unix_millis(col.key.end), col.key.key, col.n, col.total
            ),
        )
        .to(SESSIONS, key=TEXT, value=TEXT)
    )
    totals = events.aggregate(n=fn.count("*"), step="totals")
    profiles = app.table(PROFILES)
    standings = totals.join(profiles, standing=fn.concat_ws(" ", col.left.n, col.right), step="standings")
    standings.to_stream().map_values(col.standing).to(STANDINGS, key=TEXT, value=TEXT)
    return app


@dataclass(frozen=True)
class Results:
    """What comes out: rows that come once, and tables by key."""

    minutes: list[str]
    stretches: dict[str, str]
    sessions: list[str]
    standings: dict[str, str]

    @classmethod
    def of(cls, events: Iterable[Any], profiles: Iterable[Any], until_ms: int) -> Results:
        """Of all records, as they are in the topics. Windows from `until_ms` on are not over."""
        segments = {record.key.decode(): record.value.decode() for record in profiles}
        by_user: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for record in events:
            by_user[record.key.decode()].append((record.timestamp, int(record.value)))
        minutes, sessions = [], []
        stretches: dict[str, list[int]] = defaultdict(list)
        for user, told in by_user.items():
            by_minute: dict[int, list[int]] = defaultdict(list)
            for timestamp, number in told:
                by_minute[timestamp // MINUTE_MS * MINUTE_MS].append(number)
            for start, numbers in by_minute.items():
                if start < until_ms:
                    minutes.append(f"{start} {user} {len(numbers)} {sum(numbers)}")
                    stretches[f"{start // STRETCH_MS * STRETCH_MS} {user}"].append(len(numbers))
            for start, end, numbers in _sessions(sorted(told)):
                if start < until_ms:
                    sessions.append(f"{start} {end} {user} {len(numbers)} {sum(numbers)}")
        return cls(
            sorted(minutes),
            {key: f"{sum(counts)} {len(counts)}" for key, counts in stretches.items()},
            sorted(sessions),
            {user: f"{len(told)} {segments[user]}" for user, told in by_user.items()},
        )

    @classmethod
    def found(cls, topics: dict[str, list[Any]]) -> Results:
        """From the records of the topics that were written."""

        def rows(topic: str) -> list[str]:
            return sorted(record.value.decode() for record in topics[topic])

        def table(topic: str) -> dict[str, str]:
            return {record.key.decode(): record.value.decode() for record in topics[topic]}

        return cls(rows(MINUTES), table(STRETCHES), rows(SESSIONS), table(STANDINGS))


def _sessions(told: list[tuple[int, int]]) -> Iterable[tuple[int, int, list[int]]]:
    """Start, end and numbers of each session of one user: it goes on until nothing comes for longer than the gap."""
    start = end = told[0][0]
    numbers: list[int] = []
    for timestamp, number in told:
        if timestamp - end > GAP_MS:
            yield start, end, numbers
            start, numbers = timestamp, []
        end = timestamp
        numbers.append(number)
    yield start, end, numbers


def run(master: str, bootstrap: str, state_dir: str) -> None:
    spark = job_session(master, APPLICATION)
    application(state_dir).run(bootstrap, spark=spark, http=None).wait()


if __name__ == "__main__":
    run(*sys.argv[1:])
