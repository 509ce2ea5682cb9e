"""Website activity tracking, end to end on one machine: a broker, a website, and a streams application on Spark.

    make demo              until Ctrl-C
    make demo SECONDS=60   ends by itself

At the end everything is counted: what the broker acknowledged, what came out of the pipeline, and what is in the table.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

import penstock.testing
from demo.activity import COUNTRIES, PROFILES, VIEWS, Website
from demo.application import COUNTS, SEEN
from demo.pipeline import GROUP, Pipeline
from penstock import Admin, Consumer
from penstock.spark.query_progress import table

PARTITIONS = 3
VIEWS_PER_SECOND = 2_000
_SHELTERED = "--sheltered"

console = Console()


class Results:
    """Reads what the pipeline has committed, live. A later count of a minute and country replaces the one before."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="results", daemon=True)
        self.counts: dict[tuple[int, str], int] = {}

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        with Consumer(self._bootstrap, auto_offset_reset="earliest", value_deserializer="json") as consumer:
            consumer.assign([(COUNTS, index) for index in range(PARTITIONS)])
            while True:
                records = consumer.poll_many(1000, 0.2)
                for record in records:
                    self.counts[record.value["minute"], record.value["country"]] = record.value["count"]
                if not records and self._stopping.is_set():
                    return


def create_topics(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topic(VIEWS, partitions=PARTITIONS)
        admin.create_topic(PROFILES, partitions=1, config={"cleanup.policy": "compact"})
        admin.create_topic(SEEN, partitions=PARTITIONS)
        admin.create_topic(COUNTS, partitions=PARTITIONS, config={"cleanup.policy": "compact"})


def shown(website: Website, pipeline: Pipeline, results: Results, admin: Admin) -> Group:
    """The state of everything, as a picture."""
    counts = Table("minute", *COUNTRIES, title="page views per minute and country, as committed")
    for minute in sorted({minute for minute, _ in results.counts})[-5:]:
        cells = (f"{results.counts.get((minute, country), 0):,}" for country in COUNTRIES)
        counts.add_row(time.strftime("%H:%M", time.gmtime(minute / 1000)), *cells)
    queries = table(pipeline.queries)
    queries.title = "the pipeline"
    with suppress(Exception):  # the group is there after the first batch
        lag = sum(partition.lag or 0 for partition in admin.group_lag(GROUP))
        queries.caption = f"lag of the group {GROUP} at this moment: {lag:,}"
    total = Text(f"{website.acknowledged.total():,} views in, {sum(results.counts.values()):,} counted so far")
    return Group(total, queries, counts)


def watch(seconds: float, website: Website, pipeline: Pipeline, results: Results, admin: Admin) -> None:
    """Show what happens until the time is up or somebody presses Ctrl-C."""
    is_enough = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: is_enough.set())  # Spark's own handler would cancel the batch under way
    end = time.monotonic() + seconds
    with Live(console=console, refresh_per_second=4, transient=True) as live:
        while time.monotonic() < end and website.failure is None and not is_enough.wait(0.5):
            live.update(shown(website, pipeline, results, admin))
            pipeline.check_running()


def is_complete(website: Website, results: Results, table_rows: int, lag: int) -> bool:
    """Compare what went in with what came out, and say so."""
    sent, counted = website.acknowledged, results.counts
    summary = Table("", "page views", title="what went in and what came out")
    summary.add_row("acknowledged by the broker", f"{sent.total():,}")
    summary.add_row("counted per minute, read back committed", f"{sum(counted.values()):,}")
    summary.add_row("rows in the Parquet table", f"{table_rows:,}")
    summary.add_row(f"lag of the group {GROUP}", f"{lag:,}")
    console.print(summary)
    return dict(sent) == counted and table_rows == sent.total() and lag == 0


def main(seconds: float) -> int:
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        began = time.perf_counter()
        with penstock.testing.broker(as_process=True) as broker, Admin(broker.bootstrap) as admin:
            console.print(f"broker ready on {broker.bootstrap} after {time.perf_counter() - began:.2f} s")
            create_topics(broker.bootstrap)
            website, results = Website(broker.bootstrap, VIEWS_PER_SECOND), Results(broker.bootstrap)
            website.start()
            console.print(f"the website sends {VIEWS_PER_SECOND:,} page views a second; starting Spark")
            pipeline = Pipeline(broker.bootstrap, Path(folder))
            pipeline.start()
            results.start()
            watch(seconds, website, pipeline, results, admin)
            console.print("stopping: the website first, then the pipeline when it has read everything")
            website.stop()
            table_rows = pipeline.finish()
            results.stop()
            lag = sum(partition.lag or 0 for partition in admin.group_lag(GROUP))
            is_right = is_complete(website, results, table_rows, lag)
    console.print("everything that went in came out, once" if is_right else "[red]the counts differ[/red]")
    return 0 if is_right else 1


def _seconds(arguments: list[str]) -> float:
    if not arguments or not arguments[0]:
        return float("inf")
    try:
        return float(arguments[0])
    except ValueError:
        sys.exit(f"SECONDS={arguments[0]} is not a number")


def sheltered(arguments: list[str]) -> int:
    """Run the demonstration where Ctrl-C does not reach it: else it would end Spark's tasks in the midst of their work.

    It is told when Ctrl-C is pressed, and ends in good order.
    """
    command = [sys.executable, "-m", "demo.run", _SHELTERED, *arguments]
    with subprocess.Popen(command, start_new_session=True) as child:
        while True:
            try:
                return child.wait()
            except KeyboardInterrupt:
                child.send_signal(signal.SIGINT)


if __name__ == "__main__":
    given = sys.argv[1:]
    sys.exit(main(_seconds(given[1:])) if given[:1] == [_SHELTERED] else sheltered(given))
