"""The settings of a broker, and where each value comes from.

Most defaults of topic settings are broker settings too, under another name (`retention.ms` is `log.retention.ms`); they
are derived from the topic's keys and not listed here a second time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cache
from typing import Any

from penstock.config.definition import (
    BOOLEAN,
    DOUBLE,
    INT,
    INT_MAX,
    LIST,
    LONG,
    LONG_MAX,
    SHORT,
    STRING,
    InvalidConfig,
    Key,
    at_least,
    each_one_of,
    keys,
    one_of,
    parse,
    setting,
    settings,
    to_text,
)
from penstock.config.topic import TopicConfig

logger = logging.getLogger(__name__)

MIGRATION_POLICIES = ("disabled", "downgrade", "upgrade", "bidirectional")


@settings
class BrokerConfig:
    # ---- identity ----
    broker_id: int = setting(
        "broker.id",
        INT,
        default=-1,
        check=at_least(-1),
        doc="This broker's number. -1 takes the one in the data directory, or a new one above reserved.broker.max.id.",
    )
    node_id: int = setting("node.id", INT, default=-1, check=at_least(-1), doc="Another name for broker.id.")
    broker_rack: str | None = setting(
        "broker.rack",
        STRING,
        default=None,
        doc="Where this broker stands. Replicas of a partition go to different racks.",
    )
    broker_id_generation_enable: bool = setting(
        "broker.id.generation.enable", BOOLEAN, default=True, doc="Whether a broker without an id gives itself one."
    )
    reserved_broker_max_id: int = setting(
        "reserved.broker.max.id", INT, default=1000, check=at_least(0), doc="Generated broker ids are above this one."
    )
    inter_broker_protocol_version: str = setting(
        "inter.broker.protocol.version",
        STRING,
        default="4.3-IV0",
        doc="Accepted for old configurations; it has no effect.",
    )

    # ---- network ----
    listeners: tuple[str, ...] = setting(
        "listeners",
        LIST,
        default=("PLAINTEXT://127.0.0.1:9092",),
        doc="Where to listen, as NAME://host:port, separated by commas. An empty host is all addresses.",
    )
    advertised_listeners: tuple[str, ...] | None = setting(
        "advertised.listeners",
        LIST,
        default=None,
        doc="The addresses clients are told to use. As 'listeners' if not set.",
    )
    listener_security_protocol_map: tuple[str, ...] = setting(
        "listener.security.protocol.map",
        LIST,
        default=("PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL"),
        doc="Which security protocol a listener name stands for, as NAME:PROTOCOL.",
    )
    inter_broker_listener_name: str | None = setting(
        "inter.broker.listener.name", STRING, default=None, doc="The listener that brokers use among themselves."
    )
    socket_request_max_bytes: int = setting(
        "socket.request.max.bytes", INT, default=104_857_600, check=at_least(1), doc="The largest request accepted."
    )
    socket_send_buffer_bytes: int = setting(
        "socket.send.buffer.bytes",
        INT,
        default=-1,
        check=at_least(-1),
        doc="SO_SNDBUF; -1 leaves it to the system.",
    )
    socket_receive_buffer_bytes: int = setting(
        "socket.receive.buffer.bytes",
        INT,
        default=-1,
        check=at_least(-1),
        doc="SO_RCVBUF; -1 leaves it to the system.",
    )
    socket_listen_backlog_size: int = setting(
        "socket.listen.backlog.size",
        INT,
        default=50,
        check=at_least(1),
        doc="How many connections may wait to be accepted.",
    )
    queued_max_request_bytes: int = setting(
        "queued.max.request.bytes",
        LONG,
        default=268_435_456,
        check=at_least(-1),
        doc="How many bytes of incoming requests may be in memory; then reading pauses. -1 is without limit.",
    )
    queued_max_requests: int = setting(
        "queued.max.requests",
        INT,
        default=500,
        check=at_least(1),
        doc="How many requests of one connection may wait for their answers; then reading from it pauses.",
    )
    max_connections: int = setting(
        "max.connections",
        INT,
        default=INT_MAX,
        check=at_least(0),
        is_dynamic=True,
        doc="How many connections the broker accepts.",
    )
    max_connections_per_ip: int = setting(
        "max.connections.per.ip",
        INT,
        default=INT_MAX,
        check=at_least(0),
        is_dynamic=True,
        doc="How many connections it accepts from one address.",
    )
    max_connections_per_ip_overrides: tuple[str, ...] = setting(
        "max.connections.per.ip.overrides",
        LIST,
        default=(),
        is_dynamic=True,
        doc="Other limits for single addresses, as address:count.",
    )
    connections_max_idle_ms: int = setting(
        "connections.max.idle.ms", LONG, default=600_000, doc="Close connections that are silent for so long; -1 never."
    )
    request_timeout_ms: int = setting(
        "request.timeout.ms",
        INT,
        default=30_000,
        check=at_least(0),
        doc="How long the broker waits for answers of its own requests.",
    )
    max_incremental_fetch_session_cache_slots: int = setting(
        "max.incremental.fetch.session.cache.slots",
        INT,
        default=1000,
        check=at_least(0),
        doc="How many consumers' incremental fetch sessions are remembered.",
    )
    fetch_max_bytes: int = setting(
        "fetch.max.bytes", INT, default=57_671_680, check=at_least(1024), doc="The most one fetch answer may hold."
    )
    max_request_partition_size_limit: int = setting(
        "max.request.partition.size.limit",
        INT,
        default=2000,
        check=at_least(1),
        doc="The most partitions one answer of DescribeTopicPartitions lists.",
    )
    num_network_threads: int = setting(
        "num.network.threads",
        INT,
        default=3,
        check=at_least(1),
        doc="Accepted for old configurations; it has no effect.",
    )
    num_io_threads: int = setting(
        "num.io.threads", INT, default=8, check=at_least(1), doc="Accepted for old configurations; it has no effect."
    )

    # ---- storage ----
    log_dir: tuple[str, ...] = setting(
        "log.dir", LIST, default=("penstock-data",), doc="Where the data is kept, if log.dirs is not set."
    )
    log_dirs: tuple[str, ...] | None = setting(
        "log.dirs", LIST, default=None, doc="Where the data is kept: one folder, or several separated by commas."
    )
    metadata_log_dir: str | None = setting(
        "metadata.log.dir",
        STRING,
        default=None,
        doc="Where the metadata log is kept; the first of log.dirs if not set.",
    )
    metadata_log_max_record_bytes_between_snapshots: int = setting(
        "metadata.log.max.record.bytes.between.snapshots",
        LONG,
        default=20_971_520,
        check=at_least(1),
        doc="How many bytes of metadata records are written before the next snapshot.",
    )
    background_threads: int = setting(
        "background.threads",
        INT,
        default=10,
        check=at_least(1),
        doc="The threads for flushing, deleting and other slow disk work.",
    )
    num_recovery_threads_per_data_dir: int = setting(
        "num.recovery.threads.per.data.dir",
        INT,
        default=2,
        check=at_least(1),
        doc="The threads per data directory that recover logs at start and flush them at shutdown.",
    )
    log_flush_scheduler_interval_ms: int = setting(
        "log.flush.scheduler.interval.ms",
        LONG,
        default=LONG_MAX,
        doc="How often to look for logs that are due for a flush.",
    )
    log_flush_offset_checkpoint_interval_ms: int = setting(
        "log.flush.offset.checkpoint.interval.ms",
        INT,
        default=60_000,
        check=at_least(0),
        doc="How often to note down how far logs are flushed.",
    )
    log_flush_start_offset_checkpoint_interval_ms: int = setting(
        "log.flush.start.offset.checkpoint.interval.ms",
        INT,
        default=60_000,
        check=at_least(0),
        doc="How often to note down where logs start.",
    )
    log_retention_check_interval_ms: int = setting(
        "log.retention.check.interval.ms",
        LONG,
        default=300_000,
        check=at_least(1),
        doc="How often to look for segments to delete.",
    )
    log_initial_task_delay_ms: int = setting(
        "log.initial.task.delay.ms",
        LONG,
        default=30_000,
        check=at_least(0),
        doc="How long after start such checks begin.",
    )
    log_retention_minutes: int | None = setting(
        "log.retention.minutes", INT, default=None, doc="log.retention.ms in minutes; used if that is not set."
    )
    log_retention_hours: int = setting(
        "log.retention.hours", INT, default=168, doc="log.retention.ms in hours; used if the finer ones are not set."
    )
    log_roll_hours: int = setting("log.roll.hours", INT, default=168, check=at_least(1), doc="log.roll.ms in hours.")
    log_roll_jitter_hours: int = setting(
        "log.roll.jitter.hours", INT, default=0, check=at_least(0), doc="log.roll.jitter.ms in hours."
    )
    producer_id_expiration_ms: int = setting(
        "producer.id.expiration.ms",
        INT,
        default=86_400_000,
        check=at_least(1),
        is_dynamic=True,
        doc="How long a silent producer is remembered.",
    )
    producer_id_expiration_check_interval_ms: int = setting(
        "producer.id.expiration.check.interval.ms",
        INT,
        default=600_000,
        check=at_least(1),
        doc="How often to look for producers to forget.",
    )

    # ---- compaction ----
    log_cleaner_enable: bool = setting(
        "log.cleaner.enable",
        BOOLEAN,
        default=True,
        doc="Whether topics with cleanup.policy=compact are compacted. Without it they only grow.",
    )
    log_cleaner_threads: int = setting(
        "log.cleaner.threads",
        INT,
        default=1,
        check=at_least(0),
        is_dynamic=True,
        doc="How many logs are compacted at the same time.",
    )
    log_cleaner_dedupe_buffer_size: int = setting(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        default=134_217_728,
        check=at_least(1),
        is_dynamic=True,
        doc="The memory for the keys of the logs that are being compacted, over all threads. Used as far as needed.",
    )
    log_cleaner_io_buffer_size: int = setting(
        "log.cleaner.io.buffer.size",
        INT,
        default=524_288,
        check=at_least(0),
        is_dynamic=True,
        doc="The memory for reading and writing while compacting, over all threads.",
    )
    log_cleaner_io_buffer_load_factor: float = setting(
        "log.cleaner.io.buffer.load.factor",
        DOUBLE,
        default=0.9,
        is_dynamic=True,
        doc="How full the table of keys may become. More keys fit into a fuller one, but finding them takes longer.",
    )
    log_cleaner_io_max_bytes_per_second: float = setting(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        default=1.7976931348623157e308,
        is_dynamic=True,
        doc="How many bytes compaction may read and write per second, over all threads.",
    )
    log_cleaner_backoff_ms: int = setting(
        "log.cleaner.backoff.ms",
        LONG,
        default=15_000,
        check=at_least(0),
        is_dynamic=True,
        doc="How long to wait before looking again for logs to compact, when there was none.",
    )

    # ---- health: these are Penstock's own ----
    penstock_scrub_interval_ms: int = setting(
        "penstock.scrub.interval.ms",
        LONG,
        default=604_800_000,
        check=at_least(1),
        doc="How often all closed segments are read and checked, so that damage is found before it is needed.",
    )
    penstock_scrub_bytes_per_second: int = setting(
        "penstock.scrub.bytes.per.second",
        LONG,
        default=10_485_760,
        check=at_least(0),
        is_dynamic=True,
        doc="How fast they are read; 0 does not read them at all.",
    )
    penstock_clock_jump_patience_ms: int = setting(
        "penstock.clock.jump.patience.ms",
        LONG,
        default=3_600_000,
        check=at_least(0),
        doc="How long nothing is deleted by a clock that jumped ahead; 0 believes it at once.",
    )

    # ---- topics ----
    auto_create_topics_enable: bool = setting(
        "auto.create.topics.enable", BOOLEAN, default=True, doc="Whether the first use of a topic creates it."
    )
    delete_topic_enable: bool = setting(
        "delete.topic.enable", BOOLEAN, default=True, doc="Whether topics may be deleted."
    )
    num_partitions: int = setting(
        "num.partitions",
        INT,
        default=1,
        check=at_least(1),
        doc="The partitions of a new topic for which none were asked.",
    )
    default_replication_factor: int = setting(
        "default.replication.factor",
        INT,
        default=1,
        check=at_least(1),
        doc="The replicas of a new topic for which none were asked.",
    )

    # ---- replication ----
    replica_lag_time_max_ms: int = setting(
        "replica.lag.time.max.ms",
        LONG,
        default=30_000,
        doc="A follower that is behind for longer is not in sync any more.",
    )
    replica_high_watermark_checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms",
        LONG,
        default=5_000,
        check=at_least(1),
        doc="How often to note down high watermarks.",
    )
    controlled_shutdown_enable: bool = setting(
        "controlled.shutdown.enable", BOOLEAN, default=True, doc="Hand over leadership before shutting down."
    )
    zookeeper_connect: str | None = setting(
        "zookeeper.connect",
        STRING,
        default=None,
        doc="The ZooKeeper servers of a cluster, as host:port/path. A single broker needs none.",
    )

    # ---- groups ----
    group_initial_rebalance_delay_ms: int = setting(
        "group.initial.rebalance.delay.ms",
        INT,
        default=3_000,
        check=at_least(0),
        doc="How long a new group waits for more members before its first rebalance.",
    )
    group_min_session_timeout_ms: int = setting(
        "group.min.session.timeout.ms",
        INT,
        default=6_000,
        doc="The shortest session timeout that members of classic groups may ask for.",
    )
    group_max_session_timeout_ms: int = setting(
        "group.max.session.timeout.ms",
        INT,
        default=1_800_000,
        doc="The longest session timeout that members of classic groups may ask for.",
    )
    group_max_size: int = setting(
        "group.max.size", INT, default=INT_MAX, check=at_least(1), doc="How many members a classic group may have."
    )
    group_consumer_session_timeout_ms: int = setting(
        "group.consumer.session.timeout.ms",
        INT,
        default=45_000,
        check=at_least(1),
        doc="After how long without a heartbeat a member of a consumer group is removed.",
    )
    group_consumer_heartbeat_interval_ms: int = setting(
        "group.consumer.heartbeat.interval.ms",
        INT,
        default=5_000,
        check=at_least(1),
        doc="How often members of consumer groups are asked to send heartbeats.",
    )
    group_consumer_min_session_timeout_ms: int = setting(
        "group.consumer.min.session.timeout.ms",
        INT,
        default=45_000,
        check=at_least(1),
        doc="The shortest session timeout that can be set for a single consumer group.",
    )
    group_consumer_max_session_timeout_ms: int = setting(
        "group.consumer.max.session.timeout.ms",
        INT,
        default=60_000,
        check=at_least(1),
        doc="The longest session timeout that can be set for a single consumer group.",
    )
    group_consumer_min_heartbeat_interval_ms: int = setting(
        "group.consumer.min.heartbeat.interval.ms",
        INT,
        default=5_000,
        check=at_least(1),
        doc="The shortest heartbeat interval that can be set for a single consumer group.",
    )
    group_consumer_max_heartbeat_interval_ms: int = setting(
        "group.consumer.max.heartbeat.interval.ms",
        INT,
        default=15_000,
        check=at_least(1),
        doc="The longest heartbeat interval that can be set for a single consumer group.",
    )
    group_consumer_max_size: int = setting(
        "group.consumer.max.size",
        INT,
        default=INT_MAX,
        check=at_least(1),
        doc="How many members a consumer group may have.",
    )
    group_consumer_assignors: tuple[str, ...] = setting(
        "group.consumer.assignors",
        LIST,
        default=("uniform", "range"),
        check=each_one_of("uniform", "range"),
        doc="The ways to assign partitions that members of consumer groups may ask for; the first is the default.",
    )
    group_consumer_migration_policy: str = setting(
        "group.consumer.migration.policy",
        STRING,
        default="bidirectional",
        check=one_of(*MIGRATION_POLICIES),
        doc="Whether groups may change between the classic and the consumer protocol while they run.",
    )

    # ---- transactions ----
    transaction_max_timeout_ms: int = setting(
        "transaction.max.timeout.ms",
        INT,
        default=900_000,
        check=at_least(1),
        doc="The longest transaction.timeout.ms that a producer may ask for.",
    )
    transactional_id_expiration_ms: int = setting(
        "transactional.id.expiration.ms",
        INT,
        default=604_800_000,
        check=at_least(1),
        doc="How long a transactional id is remembered that nobody uses.",
    )
    transaction_partition_verification_enable: bool = setting(
        "transaction.partition.verification.enable",
        BOOLEAN,
        default=True,
        is_dynamic=True,
        doc="Whether a write of an old client is checked to belong to its open transaction.",
    )
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        INT,
        default=10_000,
        check=at_least(1),
        doc="How often it is looked for transactions that are open for too long.",
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        default=3_600_000,
        check=at_least(1),
        doc="How often it is looked for transactional ids that nobody uses.",
    )
    transaction_state_log_replication_factor: int = setting(
        "transaction.state.log.replication.factor",
        SHORT,
        default=3,
        check=at_least(1),
        doc="The replicas of the topic of transactions. Unless set, no more than there are brokers.",
    )
    transaction_state_log_min_isr: int = setting(
        "transaction.state.log.min.isr",
        INT,
        default=2,
        check=at_least(1),
        doc="min.insync.replicas of the topic of transactions. Unless set, no more than there are brokers.",
    )
    transaction_state_log_num_partitions: int = setting(
        "transaction.state.log.num.partitions",
        INT,
        default=50,
        check=at_least(1),
        doc="The partitions of the topic of transactions.",
    )
    transaction_state_log_segment_bytes: int = setting(
        "transaction.state.log.segment.bytes",
        INT,
        default=104_857_600,
        check=at_least(1),
        doc="segment.bytes of the topic of transactions.",
    )
    transaction_state_log_load_buffer_size: int = setting(
        "transaction.state.log.load.buffer.size",
        INT,
        default=5_242_880,
        check=at_least(1),
        doc="How much of the topic of transactions is read at once.",
    )

    # ---- committed offsets ----
    offsets_topic_replication_factor: int = setting(
        "offsets.topic.replication.factor",
        SHORT,
        default=3,
        check=at_least(1),
        doc="The replicas of the topic of committed offsets. Unless set, no more than there are brokers.",
    )
    offsets_topic_num_partitions: int = setting(
        "offsets.topic.num.partitions",
        INT,
        default=50,
        check=at_least(1),
        doc="The partitions of the topic of committed offsets.",
    )
    offsets_topic_segment_bytes: int = setting(
        "offsets.topic.segment.bytes",
        INT,
        default=104_857_600,
        check=at_least(1),
        doc="segment.bytes of the topic of committed offsets.",
    )
    offsets_load_buffer_size: int = setting(
        "offsets.load.buffer.size",
        INT,
        default=5_242_880,
        check=at_least(1),
        doc="How much of the topic of committed offsets is read at once.",
    )
    offsets_retention_minutes: int = setting(
        "offsets.retention.minutes",
        INT,
        default=10_080,
        check=at_least(1),
        doc="How long the offsets of a group without members are kept.",
    )
    offsets_retention_check_interval_ms: int = setting(
        "offsets.retention.check.interval.ms",
        LONG,
        default=600_000,
        check=at_least(1),
        doc="How often it is looked for offsets that are too old.",
    )
    offsets_commit_timeout_ms: int = setting(
        "offsets.commit.timeout.ms",
        INT,
        default=5_000,
        check=at_least(1),
        doc="How long a commit may wait until it is replicated.",
    )
    offset_metadata_max_bytes: int = setting(
        "offset.metadata.max.bytes",
        INT,
        default=4_096,
        doc="How long the note may be that comes with a committed offset.",
    )

    @property
    def data_directories(self) -> tuple[str, ...]:
        return self.log_dirs or self.log_dir


class Source(IntEnum):
    """Where a value comes from, with the code DescribeConfigs uses for it."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_GROUP = 8


@cache
def broker_keys() -> dict[str, Key]:
    """All keys of a broker: its own and those that are defaults of topic settings."""
    table = dict(keys(BrokerConfig))
    for topic_key in keys(TopicConfig).values():
        if topic_key.synonyms and topic_key.synonyms[0] not in table:
            name = topic_key.synonyms[0]
            default = topic_key.default if len(topic_key.synonyms) == 1 else None
            table[name] = replace(topic_key, name=name, default=default, synonyms=(), is_dynamic=True)
    return table


@dataclass(frozen=True)
class BrokerSettings:
    """A broker's settings: typed values, and the texts they were made of.

    `static` is what the broker was started with, `dynamic_default` what was set for all brokers while they run,
    `dynamic` what was set for this one. The later wins.
    """

    static: Mapping[str, str]
    dynamic_default: Mapping[str, str]
    dynamic: Mapping[str, str]
    broker: BrokerConfig
    topic_defaults: TopicConfig

    @classmethod
    def resolve(
        cls,
        static: Mapping[str, str],
        dynamic_default: Mapping[str, str] | None = None,
        dynamic: Mapping[str, str] | None = None,
    ) -> BrokerSettings:
        """Parse and check everything. Raises InvalidConfig."""
        dynamic_default = dynamic_default or {}
        dynamic = dynamic or {}
        texts = {**static, **dynamic_default, **dynamic}
        table = broker_keys()
        values = {name: parse(table[name], text) for name, text in texts.items() if name in table}
        own = {key.attribute: values[name] for name, key in keys(BrokerConfig).items() if name in values}
        broker = BrokerConfig(**own)
        return cls(static, dynamic_default, dynamic, broker, _topic_defaults(broker, values))

    def with_dynamic(self, dynamic_default: Mapping[str, str], dynamic: Mapping[str, str]) -> BrokerSettings:
        return self.resolve(self.static, dynamic_default, dynamic)

    def value_and_source(self, name: str) -> list[tuple[str | None, Source]]:
        """The texts given for a key, the strongest first; its default comes last."""
        layers = (
            (self.dynamic, Source.DYNAMIC_BROKER),
            (self.dynamic_default, Source.DYNAMIC_DEFAULT_BROKER),
            (self.static, Source.STATIC_BROKER),
        )
        found: list[tuple[str | None, Source]] = [(layer[name], source) for layer, source in layers if name in layer]
        return [*found, (to_text(broker_keys()[name].default), Source.DEFAULT)]


def _topic_defaults(broker: BrokerConfig, values: Mapping[str, Any]) -> TopicConfig:
    defaults = {}
    for key in keys(TopicConfig).values():
        if key.synonyms and values.get(key.synonyms[0]) is not None:
            defaults[key.attribute] = values[key.synonyms[0]]
    if "retention_ms" not in defaults:
        minutes = broker.log_retention_minutes
        retention_ms = minutes * 60_000 if minutes is not None else broker.log_retention_hours * 3_600_000
        defaults["retention_ms"] = retention_ms if retention_ms >= 0 else -1
    defaults.setdefault("segment_ms", broker.log_roll_hours * 3_600_000)
    defaults.setdefault("segment_jitter_ms", broker.log_roll_jitter_hours * 3_600_000)
    defaults.setdefault("flush_ms", broker.log_flush_scheduler_interval_ms)
    return TopicConfig(**defaults)


def warn_of_unknown(static: Mapping[str, str]) -> None:
    """One line in the log for settings nobody knows: they are ignored, as Kafka does."""
    unknown = sorted(set(static) - set(broker_keys()))
    if unknown:
        logger.warning("ignoring unknown settings: %s", ", ".join(unknown))


def check_dynamic_broker_change(name: str) -> Key:
    """The key of a broker setting that may be changed while the broker runs. Raises InvalidConfig."""
    key = broker_keys().get(name)
    if key is None:
        raise InvalidConfig(f"Unknown broker config name: {name}")
    if not key.is_dynamic:
        raise InvalidConfig(f"Cannot update these configs dynamically: {name}")
    return key
