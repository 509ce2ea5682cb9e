"""The settings of a topic."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from penstock.config.definition import (
    BOOLEAN,
    DOUBLE,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    STRING,
    InvalidConfig,
    at_least,
    between,
    each_one_of,
    keys,
    one_of,
    parse,
    setting,
    settings,
)

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
TIMESTAMP_TYPES = ("CreateTime", "LogAppendTime")

# The smallest file that can hold anything. (Kafka 4 raised its own limit to 1 MiB; before, it was this.)
SEGMENT_BYTES_MIN = 14


def _gzip_level(value: Any) -> str | None:
    return None if value == -1 or 1 <= value <= 9 else "Value must be -1 or between 1 and 9"


def _tiered_storage(value: Any) -> str | None:
    return "tiered storage is not supported" if value else None


def _throttled_replicas(value: Any) -> str | None:
    if value in ((), ("*",)) or all(re.fullmatch(r"\d+:\d+", item) for item in value):
        return None
    return "must be the literal '*' or a list of replicas: [partitionId]:[brokerId],[partitionId]:[brokerId],..."


@settings
class TopicConfig:
    cleanup_policy: tuple[str, ...] = setting(
        "cleanup.policy",
        LIST,
        default=("delete",),
        check=each_one_of("compact", "delete"),
        synonyms=("log.cleanup.policy",),
        doc="What happens to old segments: delete them, compact them to the last record of each key, or both.",
    )
    compression_gzip_level: int = setting(
        "compression.gzip.level",
        INT,
        default=-1,
        check=_gzip_level,
        synonyms=("compression.gzip.level",),
        doc="Level for re-compression with gzip; -1 is the library's default.",
    )
    compression_lz4_level: int = setting(
        "compression.lz4.level",
        INT,
        default=9,
        check=between(1, 17),
        synonyms=("compression.lz4.level",),
        doc="Level for re-compression with lz4.",
    )
    compression_type: str = setting(
        "compression.type",
        STRING,
        default="producer",
        check=one_of(*COMPRESSION_TYPES),
        synonyms=("compression.type",),
        doc="The codec batches are stored with; 'producer' keeps what the producer chose.",
    )
    compression_zstd_level: int = setting(
        "compression.zstd.level",
        INT,
        default=3,
        check=between(-131072, 22),
        synonyms=("compression.zstd.level",),
        doc="Level for re-compression with zstd.",
    )
    delete_retention_ms: int = setting(
        "delete.retention.ms",
        LONG,
        default=86_400_000,
        check=at_least(0),
        synonyms=("log.cleaner.delete.retention.ms",),
        doc="How long compaction keeps a tombstone, so that readers of the whole topic can see it.",
    )
    file_delete_delay_ms: int = setting(
        "file.delete.delay.ms",
        LONG,
        default=60_000,
        check=at_least(0),
        synonyms=("log.segment.delete.delay.ms",),
        doc="How long a deleted segment's files stay on disk.",
    )
    flush_messages: int = setting(
        "flush.messages",
        LONG,
        default=LONG_MAX,
        check=at_least(1),
        synonyms=("log.flush.interval.messages",),
        doc="Force data to disk after this many records. With 1, no record is acknowledged before it is on disk.",
    )
    flush_ms: int = setting(
        "flush.ms",
        LONG,
        default=LONG_MAX,
        check=at_least(0),
        synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        doc="Force data to disk at least this often.",
    )
    follower_replication_throttled_replicas: tuple[str, ...] = setting(
        "follower.replication.throttled.replicas",
        LIST,
        default=(),
        check=_throttled_replicas,
        doc="Replicas whose copying is throttled on the follower's side, as partition:broker pairs, or '*'.",
    )
    index_interval_bytes: int = setting(
        "index.interval.bytes",
        INT,
        default=4096,
        check=at_least(0),
        synonyms=("log.index.interval.bytes",),
        doc="How many bytes of log lie between two entries of the offset index.",
    )
    leader_replication_throttled_replicas: tuple[str, ...] = setting(
        "leader.replication.throttled.replicas",
        LIST,
        default=(),
        check=_throttled_replicas,
        doc="Replicas whose copying is throttled on the leader's side, as partition:broker pairs, or '*'.",
    )
    local_retention_bytes: int = setting(
        "local.retention.bytes",
        LONG,
        default=-2,
        check=at_least(-2),
        synonyms=("log.local.retention.bytes",),
        doc="Belongs to tiered storage, which is not supported; it has no effect.",
    )
    local_retention_ms: int = setting(
        "local.retention.ms",
        LONG,
        default=-2,
        check=at_least(-2),
        synonyms=("log.local.retention.ms",),
        doc="Belongs to tiered storage, which is not supported; it has no effect.",
    )
    max_compaction_lag_ms: int = setting(
        "max.compaction.lag.ms",
        LONG,
        default=LONG_MAX,
        check=at_least(1),
        synonyms=("log.cleaner.max.compaction.lag.ms",),
        doc="The longest time a record may stay uncompacted.",
    )
    max_message_bytes: int = setting(
        "max.message.bytes",
        INT,
        default=1_048_588,
        check=at_least(0),
        synonyms=("message.max.bytes",),
        doc="The largest record batch accepted, after compression.",
    )
    message_timestamp_after_max_ms: int = setting(
        "message.timestamp.after.max.ms",
        LONG,
        default=3_600_000,
        check=at_least(0),
        synonyms=("log.message.timestamp.after.max.ms",),
        doc="How far in the future a record's own timestamp may lie.",
    )
    message_timestamp_before_max_ms: int = setting(
        "message.timestamp.before.max.ms",
        LONG,
        default=LONG_MAX,
        check=at_least(0),
        synonyms=("log.message.timestamp.before.max.ms",),
        doc="How far in the past a record's own timestamp may lie.",
    )
    message_timestamp_type: str = setting(
        "message.timestamp.type",
        STRING,
        default="CreateTime",
        check=one_of(*TIMESTAMP_TYPES),
        synonyms=("log.message.timestamp.type",),
        doc="Whose clock dates records: the producer's (CreateTime) or the broker's (LogAppendTime).",
    )
    min_cleanable_dirty_ratio: float = setting(
        "min.cleanable.dirty.ratio",
        DOUBLE,
        default=0.5,
        check=between(0, 1),
        synonyms=("log.cleaner.min.cleanable.ratio",),
        doc="Compact a log when this share of it has not been compacted yet.",
    )
    min_compaction_lag_ms: int = setting(
        "min.compaction.lag.ms",
        LONG,
        default=0,
        check=at_least(0),
        synonyms=("log.cleaner.min.compaction.lag.ms",),
        doc="The shortest time a record stays uncompacted.",
    )
    min_insync_replicas: int = setting(
        "min.insync.replicas",
        INT,
        default=1,
        check=at_least(1),
        synonyms=("min.insync.replicas",),
        doc="With acks=all, how many replicas must be in sync for a write to be accepted.",
    )
    preallocate: bool = setting(
        "preallocate",
        BOOLEAN,
        default=False,
        synonyms=("log.preallocate",),
        doc="Reserve a segment's full size on disk when it is created.",
    )
    remote_log_copy_disable: bool = setting(
        "remote.log.copy.disable",
        BOOLEAN,
        default=False,
        check=_tiered_storage,
        doc="Belongs to tiered storage, which is not supported.",
    )
    remote_log_delete_on_disable: bool = setting(
        "remote.log.delete.on.disable",
        BOOLEAN,
        default=False,
        check=_tiered_storage,
        doc="Belongs to tiered storage, which is not supported.",
    )
    remote_storage_enable: bool = setting(
        "remote.storage.enable",
        BOOLEAN,
        default=False,
        check=_tiered_storage,
        doc="Tiered storage is not supported: only 'false' is accepted.",
    )
    retention_bytes: int = setting(
        "retention.bytes",
        LONG,
        default=-1,
        synonyms=("log.retention.bytes",),
        doc="How large a partition may grow before its oldest segments are deleted; -1 is without limit.",
    )
    retention_ms: int = setting(
        "retention.ms",
        LONG,
        default=604_800_000,
        check=at_least(-1),
        synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        doc="How long records are kept; -1 is for ever.",
    )
    segment_bytes: int = setting(
        "segment.bytes",
        INT,
        default=1_073_741_824,
        check=at_least(SEGMENT_BYTES_MIN),
        synonyms=("log.segment.bytes",),
        doc="The size at which a new segment is begun.",
    )
    segment_index_bytes: int = setting(
        "segment.index.bytes",
        INT,
        default=10_485_760,
        check=at_least(4),
        synonyms=("log.index.size.max.bytes",),
        doc="The largest size of a segment's index; a full index begins a new segment.",
    )
    segment_jitter_ms: int = setting(
        "segment.jitter.ms",
        LONG,
        default=0,
        check=at_least(0),
        synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours"),
        doc="The most that is randomly taken off segment.ms, so that segments do not all end at once.",
    )
    segment_ms: int = setting(
        "segment.ms",
        LONG,
        default=604_800_000,
        check=at_least(1),
        synonyms=("log.roll.ms", "log.roll.hours"),
        doc="The age at which a new segment is begun, even if the old one is not full.",
    )
    unclean_leader_election_enable: bool = setting(
        "unclean.leader.election.enable",
        BOOLEAN,
        default=False,
        synonyms=("unclean.leader.election.enable",),
        doc="Whether a replica that is not in sync may become leader when no other is left. It loses records.",
    )

    @property
    def is_compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def is_deleted(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def segment_age_max_ms(self) -> int:
        """The age at which a new segment is begun: only closed ones can be compacted, and that in time."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    @property
    def is_log_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"


def parse_topic_overrides(overrides: Mapping[str, str | None]) -> dict[str, Any]:
    """Typed values, by attribute, of settings given as text. Raises InvalidConfig."""
    known = keys(TopicConfig)
    values = {}
    for name, text in overrides.items():
        key = known.get(name)
        if key is None:
            raise InvalidConfig(f"Unknown topic config name: {name}")
        if text is None:
            raise InvalidConfig(f"Null value not supported for topic configs: {name}")
        values[key.attribute] = parse(key, text)
    return values


def topic_config(defaults: TopicConfig, overrides: Mapping[str, str | None]) -> TopicConfig:
    """A topic's settings: the broker's defaults, with what was set for the topic itself."""
    if not overrides:
        return defaults
    config = replace(defaults, **parse_topic_overrides(overrides))
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
        raise InvalidConfig(
            f"conflict topic config setting min.compaction.lag.ms ({config.min_compaction_lag_ms}) > "
            f"max.compaction.lag.ms ({config.max_compaction_lag_ms})"
        )
    return config
