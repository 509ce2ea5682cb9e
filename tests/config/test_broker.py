from __future__ import annotations

import logging

import pytest

from penstock.config.broker import (
    BrokerConfig,
    BrokerSettings,
    Source,
    broker_keys,
    check_dynamic_broker_change,
    warn_of_unknown,
)
from penstock.config.definition import LONG_MAX, InvalidConfig, keys, parse, to_text

HOUR_MS = 3_600_000

# What the system's documentation names, with Kafka's defaults (None: none, or one of our own).
DOCUMENTED = {
    "broker.id": "-1",
    "reserved.broker.max.id": "1000",
    "log.dirs": None,
    "log.dir": None,
    "zookeeper.connect": None,
    "listeners": None,
    "advertised.listeners": None,
    "log.flush.interval.messages": "9223372036854775807",
    "log.flush.interval.ms": None,
    "log.flush.scheduler.interval.ms": "9223372036854775807",
    "log.retention.bytes": "-1",
    "log.retention.ms": None,
    "log.retention.minutes": None,
    "log.retention.hours": "168",
    "log.segment.bytes": "1073741824",
    "log.segment.delete.delay.ms": "60000",
    "log.roll.ms": None,
    "log.index.size.max.bytes": "10485760",
    "log.index.interval.bytes": "4096",
    "num.recovery.threads.per.data.dir": "2",
    "auto.create.topics.enable": "true",
    "background.threads": "10",
    "compression.type": "producer",
    "delete.topic.enable": "true",
    "message.max.bytes": "1048588",
    "num.partitions": "1",
    "default.replication.factor": "1",
    "min.insync.replicas": "1",
    "unclean.leader.election.enable": "false",
    "replica.lag.time.max.ms": "30000",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "3000",
    "inter.broker.protocol.version": None,
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "50",
    "transaction.state.log.segment.bytes": "104857600",
    "transaction.state.log.load.buffer.size": "5242880",
    "connections.max.idle.ms": "600000",
    "broker.rack": None,
}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_documented_key_exists_with_kafkas_default(name: str) -> None:
    key = broker_keys()[name]
    if DOCUMENTED[name] is not None:
        assert to_text(key.default) == DOCUMENTED[name]


def test_every_default_passes_its_own_check() -> None:
    for key in broker_keys().values():
        assert parse(key, to_text(key.default)) == key.default


def test_defaults_of_topics_are_keys_of_brokers_under_other_names() -> None:
    table = broker_keys()
    for name in ("log.retention.ms", "log.segment.bytes", "log.cleanup.policy", "log.message.timestamp.type"):
        assert table[name].is_dynamic
        assert table[name].name == name
    assert "retention.ms" not in table


def test_settings_are_typed() -> None:
    resolved = BrokerSettings.resolve(
        {
            "broker.id": " 7 ",
            "listeners": "PLAINTEXT://:9092, OTHER://h:1",
            "auto.create.topics.enable": "FALSE",
            "log.segment.bytes": "1000",
            "log.cleanup.policy": "compact,delete",
        }
    )
    assert resolved.broker.broker_id == 7
    assert resolved.broker.listeners == ("PLAINTEXT://:9092", "OTHER://h:1")
    assert resolved.broker.auto_create_topics_enable is False
    assert resolved.topic_defaults.segment_bytes == 1000
    assert resolved.topic_defaults.cleanup_policy == ("compact", "delete")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("broker.id", "x", "Invalid value x for configuration broker.id: Not a number of type INT"),
        ("broker.id", "-2", "Invalid value -2 for configuration broker.id: Value must be at least -1"),
        ("num.partitions", "0", "Invalid value 0 for configuration num.partitions: Value must be at least 1"),
        ("log.segment.bytes", "13", "Invalid value 13 for configuration log.segment.bytes: Value must be at least 14"),
        (
            "compression.type",
            "brotli",
            "Invalid value brotli for configuration compression.type: String must be one of: uncompressed, zstd, lz4, "
            "snappy, gzip, producer",
        ),
        (
            "offsets.topic.replication.factor",
            "32768",
            "Invalid value 32768 for configuration offsets.topic.replication.factor: Not a number of type SHORT",
        ),
        (
            "delete.topic.enable",
            "maybe",
            "Invalid value maybe for configuration delete.topic.enable: Expected value to be either true or false",
        ),
    ],
)
def test_a_value_that_cannot_be_is_refused_under_the_brokers_own_name(name: str, text: str, message: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        BrokerSettings.resolve({name: text})
    assert str(caught.value) == message


def test_unknown_settings_are_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    static = {"no.such.key": "1", "broker.id": "3", "another": "x"}
    assert BrokerSettings.resolve(static).broker.broker_id == 3
    with caplog.at_level(logging.WARNING):
        warn_of_unknown(static)
    assert "another, no.such.key" in caplog.text
    caplog.clear()
    warn_of_unknown({"broker.id": "3"})
    assert caplog.text == ""


# ---- one setting under several names ----


@pytest.mark.parametrize(
    ("static", "retention_ms"),
    [
        ({}, 168 * HOUR_MS),
        ({"log.retention.hours": "2"}, 2 * HOUR_MS),
        ({"log.retention.minutes": "3", "log.retention.hours": "2"}, 180_000),
        ({"log.retention.ms": "4", "log.retention.minutes": "3", "log.retention.hours": "2"}, 4),
        ({"log.retention.ms": "-1", "log.retention.minutes": "3"}, -1),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-1"}, -1),
        ({"log.retention.hours": "2147483647"}, 2147483647 * HOUR_MS),
    ],
)
def test_the_finest_unit_of_retention_counts(static: dict[str, str], retention_ms: int) -> None:
    assert BrokerSettings.resolve(static).topic_defaults.retention_ms == retention_ms


@pytest.mark.parametrize(
    ("static", "segment_ms", "jitter_ms"),
    [
        ({}, 168 * HOUR_MS, 0),
        ({"log.roll.hours": "2", "log.roll.jitter.hours": "1"}, 2 * HOUR_MS, HOUR_MS),
        ({"log.roll.hours": "2", "log.roll.ms": "7", "log.roll.jitter.hours": "1", "log.roll.jitter.ms": "3"}, 7, 3),
    ],
)
def test_the_finest_unit_of_rolling_counts(static: dict[str, str], segment_ms: int, jitter_ms: int) -> None:
    defaults = BrokerSettings.resolve(static).topic_defaults
    assert (defaults.segment_ms, defaults.segment_jitter_ms) == (segment_ms, jitter_ms)


@pytest.mark.parametrize(
    ("static", "flush_ms"),
    [
        ({}, LONG_MAX),
        ({"log.flush.scheduler.interval.ms": "9"}, 9),
        ({"log.flush.scheduler.interval.ms": "9", "log.flush.interval.ms": "8"}, 8),
    ],
)
def test_the_flush_interval_is_the_schedulers_if_not_set(static: dict[str, str], flush_ms: int) -> None:
    assert BrokerSettings.resolve(static).topic_defaults.flush_ms == flush_ms


@pytest.mark.parametrize(
    ("static", "directories"),
    [
        ({}, ("penstock-data",)),
        ({"log.dir": "/one"}, ("/one",)),
        ({"log.dirs": "/a,/b"}, ("/a", "/b")),
        ({"log.dir": "/one", "log.dirs": "/a"}, ("/a",)),
    ],
)
def test_log_dirs_stands_over_log_dir(static: dict[str, str], directories: tuple[str, ...]) -> None:
    assert BrokerSettings.resolve(static).broker.data_directories == directories


# ---- layers ----


def test_what_is_set_for_a_broker_stands_over_what_is_set_for_all_and_that_over_the_file() -> None:
    static = {"max.connections": "1", "log.retention.ms": "1", "log.segment.bytes": "100"}
    resolved = BrokerSettings.resolve(
        static, {"max.connections": "2", "log.retention.ms": "2"}, {"log.retention.ms": "3"}
    )
    assert resolved.broker.max_connections == 2
    assert resolved.topic_defaults.retention_ms == 3
    assert resolved.topic_defaults.segment_bytes == 100


def test_a_dynamic_setting_that_is_taken_back_gives_way_to_the_file() -> None:
    before = BrokerSettings.resolve({"log.retention.ms": "1"}, {"log.retention.ms": "2"}, {"log.retention.ms": "3"})
    assert before.with_dynamic({"log.retention.ms": "2"}, {}).topic_defaults.retention_ms == 2
    assert before.with_dynamic({}, {}).topic_defaults.retention_ms == 1


def test_the_chain_of_values_begins_with_the_strongest() -> None:
    resolved = BrokerSettings.resolve({"max.connections": "1"}, {"max.connections": "2"}, {"max.connections": "3"})
    assert resolved.value_and_source("max.connections") == [
        ("3", Source.DYNAMIC_BROKER),
        ("2", Source.DYNAMIC_DEFAULT_BROKER),
        ("1", Source.STATIC_BROKER),
        ("2147483647", Source.DEFAULT),
    ]
    assert resolved.value_and_source("log.retention.ms") == [(None, Source.DEFAULT)]


def test_sources_have_the_codes_of_the_protocol() -> None:
    assert [int(source) for source in Source] == [1, 2, 3, 4, 5, 8]


# ---- changes while the broker runs ----


def test_only_dynamic_keys_can_be_changed_while_the_broker_runs() -> None:
    assert check_dynamic_broker_change("log.retention.ms").name == "log.retention.ms"
    with pytest.raises(InvalidConfig, match=r"Cannot update these configs dynamically: broker\.id"):
        check_dynamic_broker_change("broker.id")
    with pytest.raises(InvalidConfig, match=r"Unknown broker config name: no\.such"):
        check_dynamic_broker_change("no.such")


def test_every_key_of_a_broker_has_a_line_of_documentation() -> None:
    for key in keys(BrokerConfig).values():
        assert key.doc.strip().endswith(".")
        assert "\n" not in key.doc
