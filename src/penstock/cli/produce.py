"""`penstock produce`: records from lines."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Annotated, Literal

import typer

from penstock.cli.command import Topic, command
from penstock.cli.lines import NewRecord, from_json, from_line
from penstock.cli.mistakes import Mistake
from penstock.cli.session import Session, check_topics
from penstock.client.delivery import OnDelivery
from penstock.client.errors import PenstockError
from penstock.client.records import Delivered


def register(app: typer.Typer, panel: str) -> None:
    """Add the command to the application."""
    command(app, "produce", rich_help_panel=panel)(produce)


def produce(
    session: Session,
    topic: Topic,
    file: Annotated[
        str | None, typer.Option("--file", "-f", metavar="FILE", help="Read lines from a file, not from stdin.")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", help="The key of all records.")] = None,
    key_separator: Annotated[
        str | None, typer.Option("--key-separator", "-K", metavar="TEXT", help="What stands between key and value.")
    ] = None,
    headers: Annotated[
        list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header. Repeatable.")
    ] = None,
    jsonl: Annotated[
        bool, typer.Option("--jsonl", "-J", help="Lines are JSON objects, as 'consume --json' prints them.")
    ] = False,
    keep_partitions: Annotated[
        bool, typer.Option("--keep-partitions", help="With --jsonl: to the partition that each object names.")
    ] = False,
    empty_is_null: Annotated[
        bool, typer.Option("--empty-is-null", "-Z", help="Empty keys and values are null; such values delete keys.")
    ] = False,
    partition: Annotated[int | None, typer.Option("--partition", "-p", min=0, help="To this partition.")] = None,
    compression: Annotated[
        Literal["none", "gzip", "snappy", "lz4", "zstd"], typer.Option("--compression", "-z", help="How to compress.")
    ] = "none",
    acks: Annotated[
        Literal["0", "1", "all"], typer.Option("--acks", help="Whose acknowledgement to wait for.")
    ] = "all",
) -> None:
    """Send records: each line of stdin, or of a file, is one.

    \b
    echo hello | penstock produce orders
    penstock produce orders --key-separator : --file orders.txt
    penstock consume orders --json | penstock produce copy --jsonl
    """
    if jsonl and (key_separator is not None or key is not None):
        raise Mistake("--jsonl has keys of its own: leave out --key and --key-separator")
    fixed = _headers(headers)
    with session.admin() as admin:
        check_topics(admin, [topic])
        count = len(admin.describe_topics([topic])[0].partitions)
    if partition is not None and partition >= count:
        raise Mistake(f"topic {topic!r} has no partition {partition}; it has {count}")
    told = _Told()
    level: Literal[0, 1, "all"] = "all" if acks == "all" else 1 if acks == "1" else 0
    with _opened(file) as lines, session.producer(acks=level, compression=compression, linger_ms=5) as producer:
        for number, line in enumerate(lines, 1):
            text = line[:-1] if line.endswith(b"\n") else line
            if jsonl:
                if not text.strip():
                    continue
                record = from_json(text, number)
            else:
                record = from_line(text, number, key, key_separator, is_empty_null=empty_is_null)
            told.sent += 1
            producer.send(
                topic,
                record.value,
                key=record.key,
                headers=[*fixed, *record.headers],
                partition=_partition(record, partition, keep_partitions),
                timestamp=record.timestamp,
                on_delivery=told.delivery(),
            )
            if told.failure is not None:
                break
        producer.flush()
    if told.failure is not None:
        raise told.failure
    message = f"sent {told.sent} record{'' if told.sent == 1 else 's'} to {topic}"
    if session.out.as_json:
        by_partition = {str(number): told.delivered[number] for number in sorted(told.delivered)}
        session.out.json({"topic": topic, "records": told.sent, "partitions": by_partition})
    else:
        session.out.remark(message)


class _Told:
    """What became of the records."""

    def __init__(self) -> None:
        self.sent = 0
        self.delivered: Counter[int] = Counter()
        self.failure: PenstockError | None = None

    def delivery(self) -> OnDelivery:
        return self._deliver

    def _deliver(self, delivered: Delivered | None, error: PenstockError | None) -> None:
        if delivered is not None:
            self.delivered[delivered.partition] += 1
        elif self.failure is None:
            self.failure = error


def _partition(record: NewRecord, fixed: int | None, is_kept: bool) -> int | None:
    return record.partition if is_kept and record.partition is not None else fixed


def _headers(given: list[str] | None) -> list[tuple[str, bytes | None]]:
    found: list[tuple[str, bytes | None]] = []
    for text in given or ():
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise Mistake(f"--header {text}: write it as name=value")
        found.append((name, value.encode()))
    return found


@contextmanager
def _opened(path: str | None) -> Iterator[IO[bytes]]:
    if path is None or path == "-":
        yield sys.stdin.buffer
    else:
        with open(path, "rb") as file:
            yield file
