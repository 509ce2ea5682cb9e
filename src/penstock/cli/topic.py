"""`penstock topic`: make, look at, change and delete topics."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.command import Topic, Topics, Yes, command, new_group, pairs
from penstock.cli.mistakes import Mistake
from penstock.cli.session import Session, check_topics
from penstock.cli.times import parse_time_ms, time_text
from penstock.client.admin.descriptions import NewTopic, Resource, TopicDescription

group = new_group("Make, look at, change and delete topics.")

Partitions = Annotated[int | None, typer.Option("--partitions", "-p", min=1, help="How many partitions.")]
Settings = Annotated[
    list[str] | None, typer.Option("--config", "-c", metavar="KEY=VALUE", help="A setting. Repeatable.")
]
Partition = Annotated[int | None, typer.Option("--partition", min=0, help="Only this partition.")]


@command(group, "create")
def create(
    session: Session,
    topics: Topics,
    partitions: Partitions = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", "-r", min=1, help="How many copies of each partition.")
    ] = None,
    config: Settings = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Leave topics alone that are there.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only ask the broker whether it could.")] = False,
) -> None:
    """Create topics. What you leave open is decided by the broker's defaults."""
    settings = pairs(config, "--config")
    with session.admin() as admin:
        there = set(admin.list_topics(internal=True)) if if_not_exists else set()
        wanted = [NewTopic(name, partitions, replication_factor, settings) for name in topics if name not in there]
        admin.create_topics(wanted, validate_only=dry_run)
    created = [topic.name for topic in wanted]
    verb = "could create" if dry_run else "created"
    message = f"{verb} {', '.join(created)}" if created else "nothing to do: all of them exist"
    session.out.done(message, {"created": created, "existed": sorted(there & set(topics)), "dry_run": dry_run})


@command(group, "list")
def list_topics(
    session: Session,
    internal: Annotated[bool, typer.Option("--internal", help="Also those that brokers keep for themselves.")] = False,
) -> None:
    """List all topics."""
    with session.admin() as admin:
        found = admin.describe_topics(admin.list_topics(internal=internal))
    session.out.rows(
        [_summary(topic) for topic in found],
        columns=("topic", "partitions", "replicas"),
        empty="There are no topics yet; make one with 'penstock topic create NAME'.",
    )


@command(group, "describe")
def describe(session: Session, topics: Topics) -> None:
    """Show partitions, leaders and replicas of topics, and the settings that were changed."""
    with session.admin() as admin:
        check_topics(admin, topics)
        described = []
        for topic in admin.describe_topics(topics):
            settings = admin.describe_config(Resource.topic(topic.name))
            described.append(_details(topic, {one.name: one.value for one in settings.values() if _is_own(one)}))
    if session.out.as_json:
        session.out.json(described)
        return
    for number, one in enumerate(described):
        if number:
            session.out.heading("")
        session.out.facts({key: value for key, value in one.items() if key not in ("partitions", "partition_count")})
        session.out.heading("")
        session.out.rows(one["partitions"], columns=("partition", "leader", "replicas", "in_sync"))


@command(group, "alter")
def alter(
    session: Session,
    topic: Topic,
    partitions: Partitions = None,
    config: Settings = None,
    delete_config: Annotated[
        list[str] | None, typer.Option("--delete-config", metavar="KEY", help="A setting to return to its default.")
    ] = None,
) -> None:
    """Add partitions to a topic, or change its settings."""
    settings = pairs(config, "--config")
    if partitions is None and not settings and not delete_config:
        raise Mistake("nothing to change: give --partitions, --config or --delete-config")
    with session.admin() as admin:
        check_topics(admin, [topic])
        if settings or delete_config:
            admin.alter_config(Resource.topic(topic), settings, delete=delete_config or ())
        if partitions is not None:
            admin.add_partitions(topic, partitions)
    facts = {"topic": topic, "partitions": partitions, "set": settings, "deleted": delete_config or []}
    session.out.done(f"changed {topic}", facts)


@command(group, "delete")
def delete(
    session: Session,
    topics: Topics,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do not mind topics that are not there.")] = False,
    yes: Yes = False,
) -> None:
    """Delete topics, with all their records."""
    with session.admin() as admin:
        if if_exists:
            known = set(admin.list_topics(internal=True))
            topics = [name for name in topics if name in known]
        check_topics(admin, topics)
        if topics:
            session.confirm(f"Delete {', '.join(topics)} and all records in {_it(topics)}?", yes)
            admin.delete_topics(topics)
    session.out.done(f"deleted {', '.join(topics)}" if topics else "nothing to do", {"deleted": topics})


@command(group, "offsets")
def offsets(
    session: Session,
    topic: Topic,
    at: Annotated[
        str | None, typer.Option("--at", metavar="TIME", help="Also the first offset at or after a time, like -1h.")
    ] = None,
) -> None:
    """Show where each partition begins and ends."""
    time_ms = None if at is None else parse_time_ms(at)
    with session.admin() as admin:
        check_topics(admin, [topic])
        first, last = admin.topic_offsets(topic, "earliest"), admin.topic_offsets(topic, "latest")
        found = {} if time_ms is None else admin.topic_offsets(topic, time_ms)
    rows: list[dict[str, Any]] = []
    for one in sorted(first):
        begin, end = first[one].offset, last[one].offset
        row: dict[str, Any] = {"partition": one.partition, "earliest": begin, "latest": end, "count": end - begin}
        if found:
            row |= {"at": found[one].offset, "timestamp": found[one].timestamp}
        rows.append(row)
    session.out.rows(rows, columns=tuple(rows[0]) if rows else ())


@command(group, "trim")
def trim(
    session: Session,
    topic: Topic,
    before: Annotated[
        str, typer.Option("--before", metavar="OFFSET|TIME|end", help="An offset, a time like -7d, or 'end' for all.")
    ],
    partition: Partition = None,
    yes: Yes = False,
) -> None:
    """Delete the oldest records of a topic."""
    with session.admin() as admin:
        check_topics(admin, [topic])
        ends = admin.topic_offsets(topic, "latest")
        chosen = [one for one in sorted(ends) if partition in (None, one.partition)]
        if not chosen:
            raise Mistake(f"topic {topic!r} has no partition {partition}; it has {len(ends)}")
        if before == "end":
            targets = {one: ends[one].offset for one in chosen}
        elif before.isascii() and before.isdigit():
            targets = {one: min(int(before), ends[one].offset) for one in chosen}
        else:
            time_ms = parse_time_ms(before)
            found = admin.topic_offsets(topic, time_ms)
            targets = {one: found[one].offset for one in chosen}
            before = time_text(time_ms) or before
        session.confirm(f"Delete the records of {topic} before {before}, in {len(targets)} partition(s)?", yes)
        firsts = admin.topic_offsets(topic, "earliest")
        kept = admin.delete_records({one: offset for one, offset in targets.items() if offset > firsts[one].offset})
    rows = [
        {
            "topic": topic,
            "partition": one.partition,
            "earliest": kept.get(one, firsts[one].offset),
            "deleted": max(kept.get(one, 0) - firsts[one].offset, 0),
        }
        for one in chosen
    ]
    session.out.rows(rows, columns=("topic", "partition", "earliest", "deleted"))


def _summary(topic: TopicDescription) -> dict[str, Any]:
    replicas = max((len(one.replicas) for one in topic.partitions), default=0)
    return {
        "topic": topic.name,
        "partitions": len(topic.partitions),
        "replicas": replicas,
        "topic_id": topic.topic_id,
        "internal": topic.is_internal,
    }


def _details(topic: TopicDescription, settings: dict[str, str | None]) -> dict[str, Any]:
    partitions = [
        {"partition": one.partition, "leader": one.leader, "replicas": one.replicas, "in_sync": one.in_sync}
        for one in topic.partitions
    ]
    return {
        "topic": topic.name,
        "topic_id": topic.topic_id,
        "internal": topic.is_internal,
        "partition_count": len(partitions),
        "config": settings,
        "partitions": partitions,
    }


def _is_own(entry: Any) -> bool:
    return bool(entry.source == "DYNAMIC_TOPIC_CONFIG")


def _it(names: list[str]) -> str:
    return "it" if len(names) == 1 else "them"
