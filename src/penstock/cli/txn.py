"""`penstock txn`: transactions, who holds one open, and an end to those that nobody will end."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.command import command, new_group
from penstock.cli.mistakes import Failure
from penstock.cli.session import Session
from penstock.cli.times import parse_duration_ms, parse_time_ms, time_text
from penstock.client.admin.descriptions import OpenTransaction, TransactionDescription

group = new_group("Look at transactions, and end those that hang.")

_UNKNOWN = "Unknown"

Ids = Annotated[list[str], typer.Argument(metavar="ID...", help="The transactional ids.")]


@command(group, "list")
def list_transactions(
    session: Session,
    states: Annotated[
        list[str] | None, typer.Option("--state", help="Only ids in this state: Ongoing, Empty, ... Repeatable.")
    ] = None,
    longer_than: Annotated[
        str | None, typer.Option("--longer-than", metavar="DURATION", help="Only those open for longer, like 5m.")
    ] = None,
    pattern: Annotated[
        str | None, typer.Option("--matching", metavar="REGEX", help="Only ids that match as a whole.")
    ] = None,
) -> None:
    """List transactional ids and what they are in."""
    longer_than_ms = None if longer_than is None else parse_duration_ms(longer_than)
    if longer_than is not None and states is None:
        states = ["Ongoing", "PrepareCommit", "PrepareAbort"]  # brokers count unused ids as open since 1970
    with session.admin() as admin:
        found = admin.list_transactions(states=states, longer_than_ms=longer_than_ms, pattern=pattern)
    rows = [{"id": one.transactional_id, "state": one.state, "producer_id": one.producer_id} for one in found]
    session.out.rows(rows, columns=("id", "state", "producer_id"), empty="There are no such transactional ids.")


@command(group, "describe")
def describe(session: Session, ids: Ids) -> None:
    """Show what the coordinator knows of transactional ids."""
    with session.admin() as admin:
        found = admin.describe_transactions(ids)
    missing = [one.transactional_id for one in found if one.state == _UNKNOWN]
    if missing:
        raise Failure(f"there is no transactional id {missing[0]!r}; 'penstock txn list' shows those that exist")
    details = [_details(one) for one in found]
    if session.out.as_json:
        session.out.json(details)
        return
    for number, one in enumerate(details):
        if number:
            session.out.heading("")
        session.out.facts({**one, "partitions": " ".join(one["partitions"])})


@command(group, "abort-hanging")
def abort_hanging(
    session: Session,
    topics: Annotated[list[str] | None, typer.Option("--topic", "-t", help="Only this topic. Repeatable.")] = None,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than",
            metavar="DURATION",
            help="Only if the last record is older. Never below the broker's transaction.max.timeout.ms.",
        ),
    ] = "15m",
    execute: Annotated[bool, typer.Option("--execute", help="Do it. Without this, only show what would be.")] = False,
) -> None:
    """End transactions in partitions that no coordinator knows of, so that nobody else will. Only shows them unless you
    say --execute.

    Readers of committed records see nothing behind a transaction that is open.
    """
    longer_than_ms = parse_duration_ms(older_than)
    with session.admin() as admin:
        found = admin.hanging_transactions(topics, now_ms=parse_time_ms("now"), longer_than_ms=longer_than_ms)
        if execute:
            for one in found:
                admin.abort_transaction(one)
    rows = [_hanging(one) for one in found]
    if session.out.as_json:
        session.out.json({"executed": execute, "hanging": rows})
        return
    columns = ("topic", "partition", "producer_id", "producer_epoch", "start_offset", "last_record")
    session.out.rows(rows, columns=columns, empty="No transaction hangs.")
    if rows:
        session.out.remark("aborted" if execute else "Nothing was changed yet: add --execute to abort them.")


def _details(one: TransactionDescription) -> dict[str, Any]:
    return {
        "id": one.transactional_id,
        "state": one.state,
        "coordinator": one.coordinator.id,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "timeout_ms": one.timeout_ms,
        "started": time_text(one.start_ms),
        "partitions": [f"{topic}-{partition}" for topic, partition in one.partitions],
    }


def _hanging(one: OpenTransaction) -> dict[str, Any]:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "producer_id": one.producer_id,
        "producer_epoch": one.producer_epoch,
        "start_offset": one.start_offset,
        "last_record": time_text(one.last_timestamp),
    }
