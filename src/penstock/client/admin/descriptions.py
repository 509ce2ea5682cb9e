"""What the admin client tells about a cluster: plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from penstock.client.partitions import TopicPartition


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. What is None is left to the broker: `num.partitions`, `default.replication.factor`."""

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    config: Mapping[str, str] = field(default_factory=dict)
    assignment: Sequence[Sequence[int]] | None = None
    """The brokers of each partition, the preferred leader first; instead of the two counts."""


@dataclass(frozen=True, slots=True)
class Node:
    """A broker, as clients reach it."""

    id: int
    host: str
    port: int
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """A partition's replicas by broker id. A partition without a leader has None."""

    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    topic_id: str
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: str | None
    controller: Node | None
    brokers: tuple[Node, ...]


class ResourceType(Enum):
    TOPIC = "topic"
    BROKER = "broker"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class Resource:
    """Something that has settings."""

    type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> Resource:
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, id: int) -> Resource:
        return cls(ResourceType.BROKER, str(id))

    @classmethod
    def all_brokers(cls) -> Resource:
        """The defaults that hold for every broker of the cluster."""
        return cls(ResourceType.BROKER, "")

    @classmethod
    def group(cls, name: str) -> Resource:
        return cls(ResourceType.GROUP, name)

    def __str__(self) -> str:
        return f"{self.type.value} {self.name!r}" if self.name else "all brokers"


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A setting and where its value comes from. A sensitive one has the value None."""

    name: str
    value: str | None
    source: str
    is_default: bool
    is_read_only: bool
    is_sensitive: bool


@dataclass(frozen=True, slots=True)
class GroupListing:
    group: str
    state: str
    type: str
    is_simple: bool


@dataclass(frozen=True, slots=True)
class MemberDescription:
    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    assignment: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group: str
    state: str
    type: str
    assignor: str
    coordinator: Node | None
    members: tuple[MemberDescription, ...]


@dataclass(frozen=True, slots=True)
class OffsetAndMetadata:
    """A committed offset: the next record that the group will read."""

    offset: int
    metadata: str | None = None
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group is behind in a partition. What it never committed is None."""

    topic: str
    partition: int
    committed: int | None
    end: int
    lag: int | None


@dataclass(frozen=True, slots=True)
class OffsetInfo:
    """A position in a partition, and the timestamp of the record there if one was searched for."""

    offset: int
    timestamp: int | None = None
    leader_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class ReplicaSize:
    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A data directory of a broker. Sizes of the disk are None if the broker does not tell."""

    broker: int
    path: str
    error: str | None
    total_bytes: int | None
    usable_bytes: int | None
    replicas: tuple[ReplicaSize, ...]


@dataclass(frozen=True, slots=True)
class TransactionListing:
    transactional_id: str
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id. Of one that is being ended, the partitions that have not heard of it."""

    transactional_id: str
    state: str
    coordinator: Node
    producer_id: int | None = None
    producer_epoch: int | None = None
    timeout_ms: int | None = None
    start_ms: int | None = None
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class OpenTransaction:
    """A transaction in one partition that has not ended there: readers of committed records see nothing behind it."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp: int
