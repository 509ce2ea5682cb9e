from __future__ import annotations

import pytest

from penstock.config.broker import broker_keys
from penstock.config.definition import InvalidConfig, keys, parse, to_text
from penstock.config.topic import TopicConfig, parse_topic_overrides, topic_config

# What the system's documentation names, with Kafka's defaults.
DOCUMENTED = {
    "cleanup.policy": "delete",
    "compression.type": "producer",
    "delete.retention.ms": "86400000",
    "file.delete.delay.ms": "60000",
    "segment.bytes": "1073741824",
    "segment.ms": "604800000",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
    "max.message.bytes": "1048588",
    "flush.messages": "9223372036854775807",
    "flush.ms": "9223372036854775807",
    "min.insync.replicas": "1",
    "unclean.leader.election.enable": "false",
    "min.cleanable.dirty.ratio": "0.5",
    "min.compaction.lag.ms": "0",
    "max.compaction.lag.ms": "9223372036854775807",
    "message.timestamp.type": "CreateTime",
    "preallocate": "false",
    "index.interval.bytes": "4096",
}


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_documented_key_exists_with_kafkas_default(name: str) -> None:
    key = keys(TopicConfig)[name]
    assert to_text(key.default) == DOCUMENTED[name]
    assert getattr(TopicConfig(), key.attribute) == key.default
    assert key.doc.endswith(".")


def test_every_default_passes_its_own_check() -> None:
    for key in keys(TopicConfig).values():
        assert parse(key, to_text(key.default)) == key.default


def test_every_broker_key_a_topic_key_takes_its_default_from_exists() -> None:
    for key in keys(TopicConfig).values():
        for synonym in key.synonyms:
            assert synonym in broker_keys()


def accepted(name: str, text: str) -> bool:
    try:
        topic_config(TopicConfig(), {name: text})
    except InvalidConfig:
        return False
    return True


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("cleanup.policy", ["compact", "delete", "compact,delete"], ["shred", "compact,", "COMPACT"]),
        ("compression.gzip.level", ["-1", "1", "9"], ["0", "10", "-2"]),
        ("compression.lz4.level", ["1", "17"], ["0", "18"]),
        ("compression.type", ["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"], ["none", "brotli", ""]),
        ("compression.zstd.level", ["-131072", "22"], ["-131073", "23"]),
        ("delete.retention.ms", ["0"], ["-1"]),
        ("file.delete.delay.ms", ["0"], ["-1"]),
        ("flush.messages", ["1"], ["0", "-1"]),
        ("flush.ms", ["0"], ["-1"]),
        ("follower.replication.throttled.replicas", ["", "*", "0:1", "0:1,2:3"], ["x", "0", "0:1,*"]),
        ("index.interval.bytes", ["0"], ["-1"]),
        ("leader.replication.throttled.replicas", ["", "*", "0:1"], ["a:b"]),
        ("max.compaction.lag.ms", ["1"], ["0"]),
        ("max.message.bytes", ["0", "2147483647"], ["-1", "2147483648"]),
        ("message.timestamp.after.max.ms", ["0"], ["-1"]),
        ("message.timestamp.before.max.ms", ["0"], ["-1"]),
        ("message.timestamp.type", ["CreateTime", "LogAppendTime"], ["createtime", "NoTime"]),
        ("min.cleanable.dirty.ratio", ["0", "0.99", "1"], ["-0.1", "1.1"]),
        ("min.compaction.lag.ms", ["0"], ["-1"]),
        ("min.insync.replicas", ["1"], ["0"]),
        ("preallocate", ["true", "false"], ["maybe"]),
        ("remote.storage.enable", ["false"], ["true"]),
        ("retention.bytes", ["-1", "0"], ["x"]),
        ("retention.ms", ["-1", "0"], ["-2"]),
        ("segment.bytes", ["14"], ["13", "-1"]),
        ("segment.index.bytes", ["4"], ["3"]),
        ("segment.jitter.ms", ["0"], ["-1"]),
        ("segment.ms", ["1"], ["0"]),
        ("unclean.leader.election.enable", ["true"], ["1"]),
    ],
)
def test_values_within_the_limits_are_accepted_and_others_are_not(name: str, good: list[str], bad: list[str]) -> None:
    assert [text for text in good if not accepted(name, text)] == []
    assert [text for text in bad if accepted(name, text)] == []


def test_what_is_set_for_a_topic_stands_over_the_brokers_defaults() -> None:
    defaults = TopicConfig(retention_ms=7, segment_ms=9)
    config = topic_config(defaults, {"retention.ms": "8", "cleanup.policy": "compact"})
    assert (config.retention_ms, config.segment_ms, config.cleanup_policy) == (8, 9, ("compact",))
    assert topic_config(defaults, {}) is defaults


def test_a_key_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"^Unknown topic config name: log\.retention\.ms$"):
        parse_topic_overrides({"log.retention.ms": "1"})


def test_a_missing_value_is_refused() -> None:
    with pytest.raises(InvalidConfig, match=r"^Null value not supported for topic configs: retention\.ms$"):
        parse_topic_overrides({"retention.ms": None})


def test_the_two_compaction_lags_must_fit_together() -> None:
    both = {"min.compaction.lag.ms": "8", "max.compaction.lag.ms": "8"}
    assert topic_config(TopicConfig(), both).min_compaction_lag_ms == 8
    with pytest.raises(InvalidConfig, match=r"min\.compaction\.lag\.ms \(9\) > max\.compaction\.lag\.ms \(8\)"):
        topic_config(TopicConfig(max_compaction_lag_ms=8), {"min.compaction.lag.ms": "9"})


def test_questions_about_a_topic() -> None:
    assert (TopicConfig().is_deleted, TopicConfig().is_compacted) == (True, False)
    both = TopicConfig(cleanup_policy=("compact", "delete"))
    assert (both.is_deleted, both.is_compacted) == (True, True)
    assert not TopicConfig().is_log_append_time
    assert TopicConfig(message_timestamp_type="LogAppendTime").is_log_append_time
