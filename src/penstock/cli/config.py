"""`penstock config`: settings of topics, brokers and groups."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from penstock.cli.command import Yes, command, new_group, pairs
from penstock.cli.mistakes import Mistake
from penstock.cli.session import Session, check_topics
from penstock.client.admin import Admin
from penstock.client.admin.descriptions import Resource

group = new_group("Look at and change settings of topics, brokers and groups.")

ALL_BROKERS = "all"


class Kind(StrEnum):
    """What has settings."""

    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"


KindOf = Annotated[Kind, typer.Argument(metavar="topic|broker|group", help="What has the settings.")]
Name = Annotated[str, typer.Argument(help="Its name; for brokers the id, or 'all' for what holds for every broker.")]


@command(group, "describe")
def describe(
    session: Session,
    kind: KindOf,
    name: Name,
    keys: Annotated[list[str] | None, typer.Option("--key", "-k", help="Only this setting. Repeatable.")] = None,
    changed: Annotated[bool, typer.Option("--changed", help="Only settings that differ from the default.")] = False,
) -> None:
    """Show settings, their values and where these come from."""
    with session.admin() as admin:
        entries = admin.describe_config(_resource(admin, kind, name))
    for key in keys or ():
        if key not in entries:
            raise Mistake(f"there is no setting {key!r} for a {kind.value}; leave out --key to see them all")
    rows = [
        {
            "key": one.name,
            "value": one.value,
            "source": one.source,
            "default": one.is_default,
            "read_only": one.is_read_only,
            "sensitive": one.is_sensitive,
        }
        for one in entries.values()
        if (not keys or one.name in keys) and not (changed and one.is_default)
    ]
    session.out.rows(rows, columns=("key", "value", "source"), empty="All settings have their default values.")


@command(group, "set")
def set_config(
    session: Session,
    kind: KindOf,
    name: Name,
    settings: Annotated[list[str], typer.Argument(metavar="KEY=VALUE", help="What to set.")],
    append: Annotated[bool, typer.Option("--append", help="Add the values to settings that are lists.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only ask the broker whether it could.")] = False,
) -> None:
    """Change settings. The others stay as they are."""
    wanted = pairs(settings, "setting")
    with session.admin() as admin:
        resource = _resource(admin, kind, name)
        changes = {"append": wanted} if append else {"set": wanted}
        admin.alter_config(resource, **changes, validate_only=dry_run)
    shown = ", ".join(f"{key}={value}" for key, value in wanted.items())
    verb = "could set" if dry_run else "set"
    session.out.done(
        f"{verb} {shown} for {resource}", {"kind": kind.value, "name": name, "set": wanted, "dry_run": dry_run}
    )


@command(group, "delete")
def delete_config(
    session: Session,
    kind: KindOf,
    name: Name,
    keys: Annotated[list[str], typer.Argument(metavar="KEY", help="What to return to its default.")],
    yes: Yes = False,
) -> None:
    """Return settings to their defaults."""
    with session.admin() as admin:
        resource = _resource(admin, kind, name)
        session.confirm(f"Return {', '.join(keys)} of {resource} to the default?", yes)
        admin.alter_config(resource, delete=keys)
    session.out.done(
        f"returned {', '.join(keys)} of {resource} to the default", {"kind": kind.value, "name": name, "deleted": keys}
    )


def _resource(admin: Admin, kind: Kind, name: str) -> Resource:
    if kind is Kind.TOPIC:
        check_topics(admin, [name])
        return Resource.topic(name)
    if kind is Kind.GROUP:
        return Resource.group(name)
    if name == ALL_BROKERS:
        return Resource.all_brokers()
    brokers = [broker.id for broker in admin.describe_cluster().brokers]
    if not name.isdigit() or int(name) not in brokers:
        raise Mistake(f"there is no broker {name!r}; there are {', '.join(map(str, brokers))}, and 'all'")
    return Resource.broker(int(name))
