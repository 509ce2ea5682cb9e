"""Consumer groups: list, describe, delete."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from confluent_kafka import ConsumerGroupState, ConsumerGroupType

from penstock.client.admin.descriptions import GroupDescription, GroupListing, MemberDescription, Node
from penstock.client.admin.session import Session, by_name
from penstock.client.errors import ConfigurationError
from penstock.client.rdkafka import from_exception, from_rdkafka

# librdkafka's names differ from Kafka's in two states.
_STATES = {
    ConsumerGroupState.UNKNOWN: "Unknown",
    ConsumerGroupState.PREPARING_REBALANCING: "PreparingRebalance",
    ConsumerGroupState.COMPLETING_REBALANCING: "CompletingRebalance",
    ConsumerGroupState.STABLE: "Stable",
    ConsumerGroupState.DEAD: "Dead",
    ConsumerGroupState.EMPTY: "Empty",
}
_TYPES = {
    ConsumerGroupType.UNKNOWN: "Unknown",
    ConsumerGroupType.CONSUMER: "Consumer",
    ConsumerGroupType.CLASSIC: "Classic",
}


async def list_groups(
    session: Session, *, states: Iterable[str] | None = None, types: Iterable[str] | None = None
) -> list[GroupListing]:
    """All groups, or those in the given states ("Stable", "Empty", ...) and of the given types ("Classic", ...)."""
    found = await session.one(
        session.client.list_consumer_groups,
        states=_wanted(states, _STATES, "state"),
        types=_wanted(types, _TYPES, "type"),
        doing="list the groups",
    )
    if found.errors:
        raise from_exception(found.errors[0], "list the groups")
    listings = [
        GroupListing(group.group_id, _STATES[group.state], _TYPES[group.type], group.is_simple_consumer_group)
        for group in found.valid
    ]
    return sorted(listings, key=lambda listing: listing.group)


async def describe_groups(session: Session, names: Iterable[str]) -> list[GroupDescription]:
    """Groups with their members and what these are assigned. A group that does not exist has the state Dead."""
    wanted = by_name(names, "names")
    if not wanted:
        return []
    found = await session.each(
        lambda: session.client.describe_consumer_groups(wanted, request_timeout=session.timeout),
        lambda name: f"describe group {name!r}",
    )
    return [_description(found[name]) for name in wanted]


async def delete_groups(session: Session, names: Iterable[str]) -> None:
    """Delete groups and the offsets they committed. They must have no members."""
    wanted = by_name(names, "names")
    if not wanted:
        return
    await session.each(
        lambda: session.client.delete_consumer_groups(wanted, request_timeout=session.timeout),
        lambda name: f"delete group {name!r}",
    )


def _wanted(names: Iterable[str] | None, known: dict[Any, str], what: str) -> set[Any] | None:
    if names is None:
        return None
    by_lower_name = {name.lower(): value for value, name in known.items()}
    unknown = [name for name in names if name.lower() not in by_lower_name]
    if unknown:
        raise ConfigurationError(f"{unknown[0]!r} is no {what} of a group; there are {', '.join(known.values())}")
    return {by_lower_name[name.lower()] for name in names}


def _description(group: Any) -> GroupDescription:
    members = [
        MemberDescription(
            member_id=member.member_id,
            client_id=member.client_id,
            host=member.host.lstrip("/"),
            instance_id=member.group_instance_id,
            assignment=tuple(sorted(from_rdkafka(one) for one in member.assignment.topic_partitions)),
        )
        for member in group.members
    ]
    return GroupDescription(
        group=group.group_id,
        state=_STATES[group.state],
        type=_TYPES[group.type],
        assignor=group.partition_assignor,
        coordinator=node(group.coordinator),
        members=tuple(members),
    )


def node(found: Any) -> Node | None:
    """A broker; None if there is none, which librdkafka tells by a negative id."""
    if found is None or found.id < 0:
        return None
    return Node(found.id, found.host, found.port, found.rack)
