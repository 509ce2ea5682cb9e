"""What is known of the cluster: the sum of all metadata records. Pure.

An image never changes; applying records gives a new one, and says what is different. Every broker that applies the same
log has the same image.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Any

from penstock.metadata.records import (
    NO_LEADER,
    NO_LEADER_CHANGE,
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnregisterBrokerRecord,
)

_EMPTY: Mapping[Any, Any] = MappingProxyType({})

# Topics in which brokers keep what they know. Only they write to them.
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


def metric_name(topic: str) -> str:
    """A topic's name as metrics have it: they know no dots."""
    return topic.replace(".", "_")


class ResourceType(IntEnum):
    """What a setting belongs to, with the code the protocol uses for it."""

    TOPIC = 2
    BROKER = 4  # the name is a broker id; empty for all brokers
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


@dataclass(frozen=True, slots=True)
class Broker:
    """A registered broker. One that is fenced leads nothing and is not shown to clients."""

    broker_id: int
    epoch: int
    incarnation_id: bytes
    endpoints: tuple[BrokerEndpoint, ...]
    rack: str | None
    is_fenced: bool
    in_controlled_shutdown: bool
    directories: tuple[bytes, ...]

    @property
    def is_active(self) -> bool:
        return not self.is_fenced and not self.in_controlled_shutdown

    def endpoint(self, listener: str) -> BrokerEndpoint | None:
        for endpoint in self.endpoints:
            if endpoint.name == listener:
                return endpoint
        return None


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Who has a partition and who leads it. The epochs only grow."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    directories: tuple[bytes, ...] = ()
    eligible_leader_replicas: tuple[int, ...] = ()  # not in sync, but known to have all that is committed (KIP-966)
    leader_recovery_state: int = 0

    def changed(self, record: PartitionChangeRecord) -> PartitionState:
        """The state after a change: a new leader begins a new leader epoch, any change a new partition epoch."""
        state = replace(self, partition_epoch=self.partition_epoch + 1)
        if record.leader != NO_LEADER_CHANGE:
            state = replace(state, leader=record.leader, leader_epoch=self.leader_epoch + 1)
        if record.isr is not None:
            state = replace(state, isr=tuple(record.isr))
        if record.replicas is not None:
            state = replace(state, replicas=tuple(record.replicas))
        if record.adding_replicas is not None:
            state = replace(state, adding_replicas=tuple(record.adding_replicas))
        if record.removing_replicas is not None:
            state = replace(state, removing_replicas=tuple(record.removing_replicas))
        if record.directories is not None:
            state = replace(state, directories=tuple(record.directories))
        if record.eligible_leader_replicas is not None:
            state = replace(state, eligible_leader_replicas=tuple(record.eligible_leader_replicas))
        if record.leader_recovery_state >= 0:
            state = replace(state, leader_recovery_state=record.leader_recovery_state)
        return state

    @property
    def has_leader(self) -> bool:
        return self.leader != NO_LEADER


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: bytes
    partitions: Mapping[int, PartitionState]

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class Image:
    """Everything that metadata records say, up to an offset of the metadata log."""

    offset: int = -1  # of the last record applied
    epoch: int = -1  # of the controller that wrote it
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    topics_by_id: Mapping[bytes, Topic] = field(default_factory=dict)
    topics_by_metric_name: Mapping[str, str] = field(
        default_factory=dict
    )  # of names with '.' or '_', which metrics cannot tell apart
    configs: Mapping[tuple[int, str], Mapping[str, str]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: int = 0

    def config(self, resource_type: ResourceType, name: str) -> Mapping[str, str]:
        """What was set for a topic, a broker, or (with an empty name) for all brokers."""
        return self.configs.get((resource_type, name), _EMPTY)

    def partition(self, topic: str, index: int) -> PartitionState | None:
        found = self.topics.get(topic)
        return found.partitions.get(index) if found is not None else None

    @property
    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics.values())

    def apply(self, records: Iterable[Any], offset: int, epoch: int) -> tuple[Image, Delta]:
        """The image after these records, and what they changed. `offset` is that of the last of them."""
        draft = _Draft(self)
        for record in records:
            apply_one = _APPLY.get(type(record))
            if apply_one is not None:
                apply_one(draft, record)
        return draft.finish(offset, epoch)


@dataclass(frozen=True, slots=True)
class Delta:
    """What a run of records changed."""

    changed_topics: Mapping[str, Topic]  # created, or with other partitions: as they are now
    deleted_topics: Mapping[str, Topic]  # as they were
    changed_configs: frozenset[tuple[int, str]]
    changed_brokers: frozenset[int]


@dataclass
class _Draft:
    """A new image in the making. Maps are copied when they are first changed."""

    base: Image
    brokers: dict[int, Broker] | None = None
    configs: dict[tuple[int, str], Mapping[str, str]] | None = None
    features: dict[str, int] | None = None
    next_producer_id: int = -1
    topics: dict[bytes, tuple[str, dict[int, PartitionState]]] = field(default_factory=dict)
    deleted: dict[bytes, Topic] = field(default_factory=dict)
    changed_configs: set[tuple[int, str]] = field(default_factory=set)
    changed_brokers: set[int] = field(default_factory=set)

    def topic(self, topic_id: bytes) -> dict[int, PartitionState]:
        """The partitions of a topic, to be changed."""
        drafted = self.topics.get(topic_id)
        if drafted is None:
            topic = self.base.topics_by_id[topic_id]
            drafted = self.topics[topic_id] = (topic.name, dict(topic.partitions))
        return drafted[1]

    def set_broker(self, broker: Broker) -> None:
        if self.brokers is None:
            self.brokers = dict(self.base.brokers)
        self.brokers[broker.broker_id] = broker
        self.changed_brokers.add(broker.broker_id)

    def set_config(self, resource: tuple[int, str], name: str, value: str | None) -> None:
        if self.configs is None:
            self.configs = dict(self.base.configs)
        settings = dict(self.configs.get(resource, _EMPTY))
        settings.pop(name, None)
        if value is not None:
            settings[name] = value
        if settings:
            self.configs[resource] = settings
        else:
            self.configs.pop(resource, None)
        self.changed_configs.add(resource)

    def drop_configs(self, resource: tuple[int, str]) -> None:
        if resource in (self.configs if self.configs is not None else self.base.configs):
            if self.configs is None:
                self.configs = dict(self.base.configs)
            del self.configs[resource]

    def finish(self, offset: int, epoch: int) -> tuple[Image, Delta]:
        topics, topics_by_id, metric_names = (
            self.base.topics,
            self.base.topics_by_id,
            self.base.topics_by_metric_name,
        )
        changed: dict[str, Topic] = {}
        if self.topics or self.deleted:
            topics, topics_by_id, metric_names = dict(topics), dict(topics_by_id), dict(metric_names)
            for topic_id, old in self.deleted.items():
                topics.pop(old.name, None)
                topics_by_id.pop(topic_id, None)
                metric_names.pop(metric_name(old.name), None)
            for topic_id, (name, partitions) in self.topics.items():
                topic = Topic(name, topic_id, partitions)
                topics[name] = topics_by_id[topic_id] = changed[name] = topic
                if "." in name or "_" in name:
                    metric_names[metric_name(name)] = name
        image = Image(
            offset=offset,
            epoch=epoch,
            brokers=self.base.brokers if self.brokers is None else self.brokers,
            topics=topics,
            topics_by_id=topics_by_id,
            topics_by_metric_name=metric_names,
            configs=self.base.configs if self.configs is None else self.configs,
            features=self.base.features if self.features is None else self.features,
            next_producer_id=self.base.next_producer_id if self.next_producer_id < 0 else self.next_producer_id,
        )
        deleted = {old.name: old for old in self.deleted.values()}
        return image, Delta(changed, deleted, frozenset(self.changed_configs), frozenset(self.changed_brokers))


def _register_broker(draft: _Draft, record: RegisterBrokerRecord) -> None:
    draft.set_broker(
        Broker(
            record.broker_id,
            record.broker_epoch,
            record.incarnation_id,
            tuple(record.end_points),
            record.rack,
            record.fenced,
            record.in_controlled_shutdown,
            tuple(record.log_dirs),
        )
    )


def _change_broker(draft: _Draft, record: BrokerRegistrationChangeRecord) -> None:
    broker = (draft.brokers or draft.base.brokers)[record.broker_id]
    if record.fenced:
        broker = replace(broker, is_fenced=record.fenced > 0)
    if record.in_controlled_shutdown:
        broker = replace(broker, in_controlled_shutdown=record.in_controlled_shutdown > 0)
    if record.log_dirs:
        broker = replace(broker, directories=tuple(record.log_dirs))
    draft.set_broker(broker)


def _unregister_broker(draft: _Draft, record: UnregisterBrokerRecord) -> None:
    draft.brokers = dict(draft.base.brokers if draft.brokers is None else draft.brokers)
    draft.brokers.pop(record.broker_id, None)
    draft.changed_brokers.add(record.broker_id)


def _add_topic(draft: _Draft, record: TopicRecord) -> None:
    draft.topics[record.topic_id] = (record.name, {})


def _remove_topic(draft: _Draft, record: RemoveTopicRecord) -> None:
    drafted = draft.topics.pop(record.topic_id, None)
    old = draft.base.topics_by_id.get(record.topic_id)
    if old is not None:
        draft.deleted[record.topic_id] = old
    name = drafted[0] if drafted is not None else old.name if old is not None else None
    if name is not None:
        draft.drop_configs((ResourceType.TOPIC, name))


def _add_partition(draft: _Draft, record: PartitionRecord) -> None:
    draft.topic(record.topic_id)[record.partition_id] = PartitionState(
        replicas=tuple(record.replicas),
        isr=tuple(record.isr),
        leader=record.leader,
        leader_epoch=record.leader_epoch,
        partition_epoch=record.partition_epoch,
        adding_replicas=tuple(record.adding_replicas),
        removing_replicas=tuple(record.removing_replicas),
        directories=tuple(record.directories),
        eligible_leader_replicas=tuple(record.eligible_leader_replicas or ()),
        leader_recovery_state=record.leader_recovery_state,
    )


def _change_partition(draft: _Draft, record: PartitionChangeRecord) -> None:
    partitions = draft.topic(record.topic_id)
    partitions[record.partition_id] = partitions[record.partition_id].changed(record)


def _set_config(draft: _Draft, record: ConfigRecord) -> None:
    draft.set_config((record.resource_type, record.resource_name), record.name, record.value)


def _set_feature(draft: _Draft, record: FeatureLevelRecord) -> None:
    draft.features = dict(draft.base.features if draft.features is None else draft.features)
    draft.features.pop(record.name, None)
    if record.feature_level:
        draft.features[record.name] = record.feature_level


def _set_producer_ids(draft: _Draft, record: ProducerIdsRecord) -> None:
    draft.next_producer_id = record.next_producer_id


_APPLY: dict[type, Any] = {
    RegisterBrokerRecord: _register_broker,
    BrokerRegistrationChangeRecord: _change_broker,
    UnregisterBrokerRecord: _unregister_broker,
    TopicRecord: _add_topic,
    RemoveTopicRecord: _remove_topic,
    PartitionRecord: _add_partition,
    PartitionChangeRecord: _change_partition,
    ConfigRecord: _set_config,
    FeatureLevelRecord: _set_feature,
    ProducerIdsRecord: _set_producer_ids,
}


def snapshot_records(image: Image) -> Iterable[Any]:
    """Records that build this image from nothing."""
    for name, level in image.features.items():
        yield FeatureLevelRecord(name=name, feature_level=level)
    for broker in image.brokers.values():
        yield RegisterBrokerRecord(
            broker_id=broker.broker_id,
            incarnation_id=broker.incarnation_id,
            broker_epoch=broker.epoch,
            end_points=list(broker.endpoints),
            rack=broker.rack,
            fenced=broker.is_fenced,
            in_controlled_shutdown=broker.in_controlled_shutdown,
            log_dirs=list(broker.directories),
        )
    for topic in image.topics.values():
        yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for index, state in topic.partitions.items():
            yield partition_record(topic.topic_id, index, state)
    for (resource_type, resource_name), settings in image.configs.items():
        for name, value in settings.items():
            yield ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
    if image.next_producer_id:
        yield ProducerIdsRecord(broker_id=-1, next_producer_id=image.next_producer_id)


def partition_record(topic_id: bytes, index: int, state: PartitionState) -> PartitionRecord:
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=list(state.replicas),
        isr=list(state.isr),
        removing_replicas=list(state.removing_replicas),
        adding_replicas=list(state.adding_replicas),
        leader=state.leader,
        leader_recovery_state=state.leader_recovery_state,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        directories=list(state.directories),
        eligible_leader_replicas=list(state.eligible_leader_replicas) or None,
    )
