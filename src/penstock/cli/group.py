"""`penstock group`: consumer groups, how far they are behind, and where they go on."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.command import Group, Groups, Yes, command, new_group
from penstock.cli.mistakes import Failure, Mistake
from penstock.cli.reset import Reset, plan, read_offsets
from penstock.cli.session import Session
from penstock.cli.times import parse_duration_ms, parse_time_ms
from penstock.client.admin import Admin
from penstock.client.admin.descriptions import GroupDescription

group = new_group("Look at consumer groups, how far they are behind, and move them.")

_DEAD = "Dead"


@command(group, "list")
def list_groups(
    session: Session,
    states: Annotated[
        list[str] | None, typer.Option("--state", help="Only groups in this state: Stable, Empty, ... Repeatable.")
    ] = None,
) -> None:
    """List all groups."""
    with session.admin() as admin:
        found = admin.list_groups(states=states)
    rows = [{"group": one.group, "state": one.state, "type": one.type} for one in found]
    session.out.rows(rows, columns=("group", "state", "type"), empty="There are no groups.")


@command(group, "describe")
def describe(session: Session, groups: Groups) -> None:
    """Show the members of groups and what each of them reads."""
    with session.admin() as admin:
        described = [_details(_existing(admin, name)) for name in groups]
    if session.out.as_json:
        session.out.json(described)
        return
    for number, one in enumerate(described):
        if number:
            session.out.heading("")
        session.out.facts({key: value for key, value in one.items() if key != "members"})
        session.out.heading("")
        session.out.rows(
            [{**member, "assignment": _assignment(member["assignment"])} for member in one["members"]],
            columns=("member_id", "client_id", "host", "instance_id", "assignment"),
            empty="The group has no members now.",
        )


@command(group, "lag")
def lag(session: Session, groups: Groups) -> None:
    """Show how far groups are behind, in each partition."""
    rows: list[dict[str, Any]] = []
    with session.admin() as admin:
        for name in groups:
            _existing(admin, name)
            rows += [
                {
                    "group": name,
                    "topic": one.topic,
                    "partition": one.partition,
                    "committed": one.committed,
                    "end": one.end,
                    "lag": one.lag,
                }
                for one in admin.group_lag(name)
            ]
    columns = ("group", "topic", "partition", "committed", "end", "lag")
    session.out.rows(rows, columns=columns, empty="Nothing was committed yet.")
    session.out.remark(f"total lag: {sum(row['lag'] or 0 for row in rows)}")


@command(group, "reset-offsets")
def reset_offsets(
    session: Session,
    name: Group,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC[:0,1]", help="Only this topic, or partitions of it. Repeatable."),
    ] = None,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the oldest record there is.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Behind the newest record.")] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, help="To this offset.")] = None,
    to_time: Annotated[
        str | None, typer.Option("--to-time", metavar="TIME", help="To the first record at or after a time.")
    ] = None,
    shift: Annotated[
        int | None, typer.Option("--shift", metavar="N", help="By N records; back if it is below 0.")
    ] = None,
    by_duration: Annotated[
        str | None, typer.Option("--by-duration", metavar="DURATION", help="To what came in since, like 2h.")
    ] = None,
    from_file: Annotated[
        str | None, typer.Option("--from-file", metavar="FILE", help="As lines of topic,partition,offset say.")
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it. Without this, only show what would be.")] = False,
) -> None:
    """Move a group to other offsets. Only shows what would change unless you say --execute.

    The group must have no members. Without --topic, all partitions that it ever committed are moved.
    """
    time_ms = None if to_time is None else parse_time_ms(to_time)
    if by_duration is not None:
        time_ms = parse_time_ms("now") - parse_duration_ms(by_duration)
    targets = [to_earliest, to_latest, to_offset is not None, to_time is not None]
    targets += [shift is not None, by_duration is not None, from_file is not None]
    if sum(targets) != 1:
        raise Mistake(
            "say where to move the group with one of --to-earliest, --to-latest, --to-offset, --to-time, --shift, "
            "--by-duration and --from-file"
        )
    given = None if from_file is None else read_offsets(from_file)
    reset = Reset("earliest" if to_earliest else "latest" if to_latest else time_ms, to_offset, shift, given)
    with session.admin() as admin:
        moves = plan(admin, name, reset, topics)
        if execute:
            admin.alter_group_offsets(name, {(move.topic, move.partition): move.new for move in moves})
    rows = [
        {
            "topic": move.topic,
            "partition": move.partition,
            "current": move.current,
            "new": move.new,
            "change": None if move.current is None else move.new - move.current,
        }
        for move in moves
    ]
    if session.out.as_json:
        session.out.json({"group": name, "executed": execute, "offsets": rows})
        return
    session.out.rows(rows, columns=("topic", "partition", "current", "new", "change"))
    session.out.remark(f"moved {name}" if execute else "Nothing was changed yet: add --execute to do this.")


@command(group, "delete")
def delete(session: Session, groups: Groups, yes: Yes = False) -> None:
    """Delete groups and what they committed. They must have no members."""
    with session.admin() as admin:
        for name in groups:
            _existing(admin, name)
        session.confirm(f"Delete {', '.join(groups)}, with all committed offsets?", yes)
        admin.delete_groups(groups)
    session.out.done(f"deleted {', '.join(groups)}", {"deleted": groups})


def _existing(admin: Admin, name: str) -> GroupDescription:
    (description,) = admin.describe_groups([name])
    if description.state == _DEAD:
        raise Failure(f"there is no group {name!r}; 'penstock group list' shows those that exist")
    return description


def _details(one: GroupDescription) -> dict[str, Any]:
    return {
        "group": one.group,
        "state": one.state,
        "type": one.type,
        "assignor": one.assignor,
        "coordinator": None if one.coordinator is None else one.coordinator.id,
        "members": [
            {
                "member_id": member.member_id,
                "client_id": member.client_id,
                "host": member.host,
                "instance_id": member.instance_id,
                "assignment": [{"topic": topic, "partition": partition} for topic, partition in member.assignment],
            }
            for member in one.members
        ],
    }


def _assignment(partitions: list[dict[str, Any]]) -> str:
    by_topic: dict[str, list[int]] = {}
    for one in partitions:
        by_topic.setdefault(one["topic"], []).append(one["partition"])
    return " ".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in by_topic.items())
