"""`penstock consume`: read records, choose among them, print them."""

from __future__ import annotations

import sys
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from typing import IO, Annotated, Any

import typer

from penstock.cli.command import Topics, command
from penstock.cli.filters import Filter, compile_filters
from penstock.cli.formats import Formatter, compile_format
from penstock.cli.lines import AnyRecord, to_json
from penstock.cli.mistakes import Mistake
from penstock.cli.session import Session, check_topics
from penstock.cli.times import parse_time_ms
from penstock.client.admin import Admin
from penstock.client.partitions import TopicPartition

_FORMAT = r"%s\n"
_QUICK = {"fetch.wait.max.ms": 50}  # without --follow, the end should be noticed soon


@dataclass(frozen=True)
class Start:
    """Where to begin in each partition: an offset (below 0: so many before the end), a time, or an end of it."""

    is_beginning: bool
    offset: int | None
    time_ms: int | None


def register(app: typer.Typer, panel: str) -> None:
    """Add the command to the application."""
    command(app, "consume", rich_help_panel=panel)(consume)


def consume(
    session: Session,
    topics: Topics,
    from_beginning: Annotated[
        bool, typer.Option("--from-beginning", help="From the oldest record. This is so unless you --follow.")
    ] = False,
    offset: Annotated[
        int | None, typer.Option("--offset", "-o", help="From this offset; -10 stands for the last ten.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="From a time: 2026-05-01T12:00:00Z, or -1h.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-F", help="Wait for more at the end. Begins there, unless told otherwise.")
    ] = False,
    partitions: Annotated[
        list[int] | None, typer.Option("--partition", "-p", min=0, help="Only this partition. Repeatable.")
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", "-G", help="As a member of this group, going on where it left off.")
    ] = None,
    format: Annotated[
        str | None,
        typer.Option("--format", "-f", help=r"How to print, as kcat: %t %p %o %k %s %h %T %S %K \n \t ..."),
    ] = None,
    grep: Annotated[
        str | None, typer.Option("--grep", metavar="REGEX", help="Only records whose value or key matches.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where", metavar="FIELD=VALUE", help="Only JSON values with this; = != > < >= <= ~. Repeatable."
        ),
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", "-H", metavar="NAME[=VALUE]", help="Only records with this header. Repeatable."),
    ] = None,
    max_records: Annotated[
        int | None, typer.Option("--max", "-n", min=1, help="Stop after so many records were printed.")
    ] = None,
    uncommitted: Annotated[
        bool, typer.Option("--uncommitted", help="Also records of transactions that are open or were aborted.")
    ] = False,
) -> None:
    """Read records and print them. Ends when all were read, unless you --follow.

    With --json, each record is a line of JSON with everything there is to know about it.

    \b
    penstock consume orders --follow
    penstock consume orders --since -1h --where 'amount>100' --json
    penstock consume orders --offset -10 --format '%T %k: %s\\n'
    """
    if sum((from_beginning, offset is not None, since is not None)) > 1:
        raise Mistake("begin at one place: --from-beginning, --offset or --since")
    if session.out.as_json and format is not None:
        raise Mistake("choose either --json or --format")
    if group is not None and (offset is not None or since is not None or partitions):
        raise Mistake("a group has offsets and partitions of its own: leave out --offset, --since and --partition")
    start = Start(from_beginning or not follow, offset, None if since is None else parse_time_ms(since))
    show = _json_line if session.out.as_json else compile_format(_FORMAT if format is None else format)
    accepts = compile_filters(grep, where or (), headers or ())
    options: dict[str, Any] = {"isolation_level": "read_uncommitted" if uncommitted else "read_committed"}
    with session.admin() as admin:
        check_topics(admin, topics)
        if group is None:
            ranges = _ranges(admin, topics, partitions, start, read_committed=not uncommitted)
            records = _read(session, ranges, follow, options)
        else:
            records = _read_as_group(session, topics, group, start, follow, options)
    _print(records, accepts, show, max_records, is_prompt=follow)


Ranges = dict[TopicPartition, tuple[int, int]]


def _ranges(
    admin: Admin, topics: list[str], partitions: list[int] | None, start: Start, *, read_committed: bool
) -> Ranges:
    """From where to where each partition is to be read."""
    ranges: Ranges = {}
    for topic in dict.fromkeys(topics):
        ends = admin.topic_offsets(topic, "latest", read_committed=read_committed)
        for number in partitions or ():
            if (topic, number) not in ends:
                raise Mistake(f"topic {topic!r} has no partition {number}; it has {len(ends)}")
        firsts = admin.topic_offsets(topic, "earliest")
        times = {} if start.time_ms is None else admin.topic_offsets(topic, start.time_ms)
        for one, end in sorted(ends.items()):
            if partitions and one.partition not in partitions:
                continue
            first, last = firsts[one].offset, end.offset
            if start.time_ms is not None:
                begin = times[one].offset
            elif start.offset is not None:
                begin = start.offset if start.offset >= 0 else last + start.offset
            else:
                begin = first if start.is_beginning else last
            ranges[one] = (min(max(begin, first), last), last)
    return ranges


def _read(session: Session, ranges: Ranges, follow: bool, options: dict[str, Any]) -> Generator[AnyRecord]:
    """The records in the ranges; with `follow` also all that come later."""
    left = {one for one, (begin, end) in ranges.items() if begin < end}
    wanted = ranges if follow else left
    if not wanted:
        return
    config = None if follow else _QUICK
    with session.consumer(stop_at_end=not follow, auto_offset_reset="earliest", config=config, **options) as consumer:
        consumer.assign({one: ranges[one][0] for one in wanted})
        for record in consumer:
            place = TopicPartition(record.topic, record.partition)
            end = ranges[place][1]
            if follow or record.offset < end:
                yield record
            if not follow and record.offset >= end - 1:
                left.discard(place)
                if not left:
                    return


def _read_as_group(
    session: Session, topics: list[str], group: str, start: Start, follow: bool, options: dict[str, Any]
) -> Generator[AnyRecord]:
    reset = "earliest" if start.is_beginning else "latest"
    config = None if follow else _QUICK
    with session.consumer(
        group=group, topics=topics, auto_offset_reset=reset, stop_at_end=not follow, config=config, **options
    ) as consumer:
        try:
            yield from consumer
        except GeneratorExit:
            return  # enough was read: an orderly end, which commits all that was printed


def _print(
    records: Generator[AnyRecord], accepts: Filter, show: Formatter, count_max: int | None, *, is_prompt: bool
) -> None:
    out: IO[bytes] = sys.stdout.buffer
    count = 0
    with closing(records):
        for record in records:
            if accepts(record):
                out.write(show(record))
                count += 1
                if is_prompt:
                    out.flush()
                if count == count_max:
                    break
    out.flush()


def _json_line(record: AnyRecord) -> bytes:
    return f"{to_json(record)}\n".encode()
