"""Settings of topics, brokers and groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import confluent_kafka.admin as rdkafka

from penstock.client.admin import broker_defaults
from penstock.client.admin.broker_defaults import Change
from penstock.client.admin.descriptions import ConfigEntry, Resource
from penstock.client.admin.session import Session
from penstock.client.errors import ConfigurationError


async def describe_config(session: Session, resource: Resource) -> dict[str, ConfigEntry]:
    """All settings of a topic, a broker or a group, by name; for all brokers, those that were made for them."""
    doing = f"describe the settings of {resource}"
    if resource == Resource.all_brokers():
        return await broker_defaults.describe(session, doing)
    found = await session.each(
        lambda: session.client.describe_configs([_rdkafka(resource)], request_timeout=session.timeout), doing
    )
    (entries,) = found.values()
    return {name: _entry(entry) for name, entry in sorted(entries.items())}


async def alter_config(
    session: Session,
    resource: Resource,
    set: Mapping[str, str] | None = None,
    *,
    delete: Iterable[str] = (),
    append: Mapping[str, str] | None = None,
    subtract: Mapping[str, str] | None = None,
    validate_only: bool = False,
) -> None:
    """Change some settings and leave the others as they are. A deleted one returns to its default.

    `append` and `subtract` change settings that are lists.
    """
    operations = rdkafka.AlterConfigOpType
    changes: list[Change] = [(operations.SET, name, str(value)) for name, value in (set or {}).items()]
    changes += [(operations.DELETE, name, None) for name in delete]
    changes += [(operations.APPEND, name, str(value)) for name, value in (append or {}).items()]
    changes += [(operations.SUBTRACT, name, str(value)) for name, value in (subtract or {}).items()]
    if not changes:
        raise ConfigurationError(f"no change of the settings of {resource} was given")
    doing = f"change the settings of {resource}"
    if resource == Resource.all_brokers():
        await broker_defaults.alter(session, changes, validate_only, doing)
        return
    await session.each(
        lambda: session.client.incremental_alter_configs(
            [_rdkafka(resource, changes)], validate_only=validate_only, request_timeout=session.timeout
        ),
        doing,
    )


def _rdkafka(resource: Resource, changes: Iterable[Change] | None = None) -> rdkafka.ConfigResource:
    entries = None
    if changes is not None:
        entries = [rdkafka.ConfigEntry(name, value, incremental_operation=one) for one, name, value in changes]
    return rdkafka.ConfigResource(resource.type.value, resource.name, incremental_configs=entries)


def _entry(entry: Any) -> ConfigEntry:
    return ConfigEntry(
        name=entry.name,
        value=entry.value,
        source=rdkafka.ConfigSource(entry.source).name,
        is_default=entry.is_default,
        is_read_only=entry.is_read_only,
        is_sensitive=entry.is_sensitive,
    )
