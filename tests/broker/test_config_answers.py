from __future__ import annotations

from penstock.broker.config_answers import Entry, Synonym, broker_entries, cluster_default_entries, topic_entries
from penstock.config.broker import BrokerSettings, Source, broker_keys
from penstock.config.definition import keys
from penstock.config.topic import TopicConfig

DYNAMIC_TOPIC, DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC, DEFAULT, _ = Source


def topic_entry(settings: BrokerSettings, name: str, overrides: dict[str, str | None] | None = None) -> Entry:
    return next(entry for entry in topic_entries(settings, overrides or {}) if entry.key.name == name)


def broker_entry(settings: BrokerSettings, name: str) -> Entry:
    return next(entry for entry in broker_entries(settings) if entry.key.name == name)


def test_every_key_of_a_topic_is_listed_once() -> None:
    entries = list(topic_entries(BrokerSettings.resolve({}), {}))
    assert [entry.key.name for entry in entries] == list(keys(TopicConfig))
    assert {entry.source for entry in entries} == {DEFAULT}
    assert not any(entry.is_read_only for entry in entries)


def test_a_topics_own_setting_comes_first() -> None:
    settings = BrokerSettings.resolve({"log.segment.bytes": "100"}, {"log.segment.bytes": "200"})
    entry = topic_entry(settings, "segment.bytes", {"segment.bytes": "300"})
    assert (entry.value, entry.source) == ("300", DYNAMIC_TOPIC)
    assert entry.synonyms == [
        Synonym("segment.bytes", "300", DYNAMIC_TOPIC),
        Synonym("log.segment.bytes", "200", DYNAMIC_DEFAULT),
        Synonym("log.segment.bytes", "100", STATIC),
        Synonym("log.segment.bytes", "1073741824", DEFAULT),
    ]


def test_without_one_the_brokers_setting_counts() -> None:
    settings = BrokerSettings.resolve({"log.segment.bytes": "100"})
    entry = topic_entry(settings, "segment.bytes")
    assert (entry.value, entry.source) == ("100", STATIC)


def test_the_units_of_retention_are_synonyms_of_one_setting() -> None:
    settings = BrokerSettings.resolve({"log.retention.hours": "2", "log.retention.minutes": "3"})
    entry = topic_entry(settings, "retention.ms")
    assert (entry.value, entry.source) == ("180000", STATIC)
    assert entry.synonyms == [
        Synonym("log.retention.minutes", "3", STATIC),
        Synonym("log.retention.hours", "2", STATIC),
        Synonym("log.retention.hours", "168", DEFAULT),
    ]


def test_a_default_in_hours_is_shown_in_milliseconds() -> None:
    entry = topic_entry(BrokerSettings.resolve({}), "retention.ms")
    assert (entry.value, entry.source) == ("604800000", DEFAULT)
    assert entry.synonyms == [Synonym("log.retention.hours", "168", DEFAULT)]


def test_a_topic_key_that_no_broker_key_stands_behind_has_only_its_default() -> None:
    entry = topic_entry(BrokerSettings.resolve({}), "leader.replication.throttled.replicas")
    assert (entry.value, entry.source, entry.synonyms) == ("", DEFAULT, [])


def test_every_key_of_a_broker_is_listed_once() -> None:
    entries = list(broker_entries(BrokerSettings.resolve({})))
    assert [entry.key.name for entry in entries] == list(broker_keys())


def test_a_brokers_settings_have_their_sources() -> None:
    settings = BrokerSettings.resolve(
        {"max.connections": "1", "num.partitions": "5"}, {"max.connections": "2"}, {"max.connections": "3"}
    )
    entry = broker_entry(settings, "max.connections")
    assert (entry.value, entry.source, entry.is_read_only) == ("3", DYNAMIC_BROKER, False)
    assert [(synonym.value, synonym.source) for synonym in entry.synonyms] == [
        ("3", DYNAMIC_BROKER),
        ("2", DYNAMIC_DEFAULT),
        ("1", STATIC),
        ("2147483647", DEFAULT),
    ]
    entry = broker_entry(settings, "num.partitions")
    assert (entry.value, entry.source, entry.is_read_only) == ("5", STATIC, True)
    entry = broker_entry(settings, "broker.rack")
    assert (entry.value, entry.source, entry.synonyms) == (None, DEFAULT, [])


def test_what_is_set_for_all_brokers_is_listed_alone() -> None:
    settings = BrokerSettings.resolve({"num.partitions": "5"}, {"max.connections": "2", "nobody.knows": "x"})
    [entry] = cluster_default_entries(settings)
    assert (entry.key.name, entry.value, entry.source) == ("max.connections", "2", DYNAMIC_DEFAULT)
    assert entry.synonyms == [Synonym("max.connections", "2", DYNAMIC_DEFAULT)]
    assert list(cluster_default_entries(BrokerSettings.resolve({}))) == []
