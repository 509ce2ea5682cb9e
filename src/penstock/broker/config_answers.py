"""Settings as DescribeConfigs shows them: value, source, and the chain of settings it was taken from. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from penstock.config.broker import BrokerSettings, Source, broker_keys
from penstock.config.definition import Key, keys, to_text
from penstock.config.group import GroupConfig
from penstock.config.topic import TopicConfig


class Synonym(NamedTuple):
    """One of the settings that were looked at for a value."""

    name: str
    value: str | None
    source: Source


class Entry(NamedTuple):
    key: Key
    value: str | None
    source: Source
    is_read_only: bool
    synonyms: list[Synonym]  # the strongest first; the first that has a value counts


def topic_entries(settings: BrokerSettings, overrides: Mapping[str, str | None]) -> Iterator[Entry]:
    """All settings of a topic, for which `overrides` were set."""
    for key in keys(TopicConfig).values():
        synonyms = _synonyms(key, settings, overrides, Source.DYNAMIC_TOPIC)
        value = to_text(getattr(settings.topic_defaults, key.attribute))
        source = synonyms[0].source if synonyms else Source.DEFAULT
        if key.name in overrides:
            value = overrides[key.name]
        yield Entry(key, value, source, False, synonyms)


def group_entries(settings: BrokerSettings, overrides: Mapping[str, str | None]) -> Iterator[Entry]:
    """All settings of a group, for which `overrides` were set."""
    for key in keys(GroupConfig).values():
        synonyms = _synonyms(key, settings, overrides, Source.DYNAMIC_GROUP)
        yield Entry(key, synonyms[0].value, synonyms[0].source, False, synonyms)


def _synonyms(key: Key, settings: BrokerSettings, overrides: Mapping[str, str | None], own: Source) -> list[Synonym]:
    """Where a value is looked for: in the resource's own settings, then in the broker's."""
    synonyms = [Synonym(key.name, overrides[key.name], own)] if key.name in overrides else []
    for broker_name in key.synonyms:
        synonyms += [
            Synonym(broker_name, value, source)
            for value, source in settings.value_and_source(broker_name)
            if value is not None
        ]
    return synonyms


def broker_entries(settings: BrokerSettings) -> Iterator[Entry]:
    """All settings of this broker."""
    for name, key in broker_keys().items():
        chain = settings.value_and_source(name)
        value, source = chain[0]
        synonyms = [Synonym(name, text, origin) for text, origin in chain if text is not None]
        if key.is_sensitive:
            value, synonyms = None, [synonym._replace(value=None) for synonym in synonyms]
        yield Entry(key, value, source, not key.is_dynamic, synonyms)


def cluster_default_entries(settings: BrokerSettings) -> Iterator[Entry]:
    """What was set for all brokers while they run."""
    for name, value in settings.dynamic_default.items():
        key = broker_keys().get(name)
        if key is not None:
            shown = None if key.is_sensitive else value
            synonyms = [Synonym(name, shown, Source.DYNAMIC_DEFAULT_BROKER)]
            yield Entry(key, shown, Source.DYNAMIC_DEFAULT_BROKER, False, synonyms)
