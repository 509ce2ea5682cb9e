"""A bare client of a whole cluster: it knows who leads what, speaks the versions that each broker speaks, and asks
again when something has moved.

For whoever needs raw requests to the right broker: Spark's planner and tasks. It blocks, and belongs to one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from penstock.client.connection import Connection, ConnectionLost, api_of
from penstock.client.errors import ConfigurationError, PenstockError
from penstock.client.partitions import TopicPartition
from penstock.wire.errors import ErrorCode
from penstock.wire.isolation import READ_UNCOMMITTED
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic

T = TypeVar("T")

EARLIEST = -2
LATEST = -1

_API_VERSIONS_VERSION = 3
_ONE_KEY_VERSION = 3  # of FindCoordinator: later ones take many keys
_RETRY_PAUSE_S = 0.1

# What is over in a moment: a leader has moved, a coordinator is being found, a broker is starting.
RETRIABLE = frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class Unreachable(PenstockError):
    """No broker answers."""


class Refused(PenstockError):
    """A broker answered with an error that will not go away by asking again."""

    def __init__(self, code: int, what: str, message: str | None = None) -> None:
        self.code = ErrorCode(code)
        super().__init__(
            f"cannot {what}: {message} ({self.code.name})" if message else f"cannot {what}: {self.code.name}"
        )


class Moved(Exception):
    """The request was sent to the wrong broker, or too early: worth another try."""

    def __init__(self, code: int) -> None:
        self.code = ErrorCode(code)
        super().__init__(self.code.name)


@dataclass(frozen=True)
class Topic:
    """A topic as the brokers describe it."""

    name: str
    topic_id: bytes
    leaders: Mapping[int, int]  # by partition; -1 if there is none at the moment
    is_internal: bool

    @property
    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, index) for index in sorted(self.leaders)]


class Cluster:
    """Connections to the brokers of one cluster. `timeout_s` is how long a call may take, with all its retries."""

    def __init__(self, bootstrap: str, *, client_id: str = "penstock", timeout_s: float = 60.0) -> None:
        self._bootstrap = [parse_address(address) for address in bootstrap.split(",") if address.strip()]
        if not self._bootstrap:
            raise ConfigurationError("no broker is named: give at least one as host:port")
        self._client_id = client_id
        self.timeout_s = timeout_s
        self._nodes: dict[int, tuple[str, int]] = {}
        self._topics: dict[str, Topic] = {}
        self._coordinators: dict[tuple[str, bool], tuple[str, int]] = {}  # by key, and whether it is a transaction's
        self._connections: dict[tuple[str, int], _Negotiated] = {}

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    # ---- asking again ----

    def retrying(self, what: str, attempt: Callable[[], T]) -> T:
        """The result of `attempt`, which is made again while brokers cannot be reached or leaders have moved."""
        deadline = time.monotonic() + self.timeout_s
        while True:
            try:
                return attempt()
            except (OSError, ConnectionLost, Moved) as error:
                self.forget()
                if time.monotonic() > deadline:
                    raise self._given_up(what, error) from None
                time.sleep(_RETRY_PAUSE_S)

    def _given_up(self, what: str, error: Exception) -> PenstockError:
        if isinstance(error, Moved):
            return Refused(error.code, what)
        brokers = ", ".join(f"{host}:{port}" for host, port in self._bootstrap)
        return Unreachable(f"cannot {what}: no answer from {brokers} within {self.timeout_s:g} s ({error})")

    def forget(self) -> None:
        """Drop connections and what was known of leaders and coordinators: all of it is found out again."""
        self.close()
        self._topics.clear()
        self._coordinators.clear()

    # ---- brokers ----

    def any_broker(self) -> _Negotiated:
        """A connection to whichever broker answers first."""
        failure: Exception | None = None
        for address in [*self._nodes.values(), *self._bootstrap]:
            try:
                return self._connect(address)
            except (OSError, ConnectionLost) as error:
                failure = error
        assert failure is not None
        raise failure

    def node(self, node_id: int) -> _Negotiated:
        if node_id not in self._nodes:
            raise Moved(ErrorCode.LEADER_NOT_AVAILABLE)
        return self._connect(self._nodes[node_id])

    def _connect(self, address: tuple[str, int]) -> _Negotiated:
        connection = self._connections.get(address)
        if connection is None:
            connection = self._connections[address] = _Negotiated(address, self._client_id, self.timeout_s)
        return connection

    def leader(self, partition: TopicPartition) -> _Negotiated:
        """A connection to the broker that leads a partition."""
        topic = self._topics.get(partition.topic) or self._describe([partition.topic])[partition.topic]
        if partition.partition not in topic.leaders:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"find {partition.topic}-{partition.partition}")
        return self.node(topic.leaders[partition.partition])

    def coordinator(self, key: str, *, is_transaction: bool = False) -> _Negotiated:
        """A connection to the broker that looks after a group or a transactional id."""
        address = self._coordinators.get((key, is_transaction))
        if address is None:
            request = FindCoordinatorRequest(key=key, key_type=int(is_transaction))
            found = self.any_broker().call(request, _ONE_KEY_VERSION)
            check(found.error_code, f"find the coordinator of {key}", found.error_message)
            address = self._coordinators[key, is_transaction] = (found.host, found.port)
        return self._connect(address)

    # ---- topics ----

    def topics(self, names: Iterable[str] | None = None) -> dict[str, Topic]:
        """The topics with these names that exist; all if there are no names."""
        wanted = None if names is None else list(names)
        return self.retrying("read the cluster's metadata", lambda: self._describe(wanted))

    def learn(self, names: Iterable[str]) -> None:
        """Know the leaders of topics. One attempt; nothing is asked if they are known.

        For whoever has requests under way on its connections: their answers must not meet that of a later question.
        """
        wanted = sorted(set(names))
        if not self._topics.keys() >= set(wanted):
            self._describe(wanted)

    def _describe(self, names: list[str] | None) -> dict[str, Topic]:
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        response = self.any_broker().call(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
        self._nodes = {broker.node_id: (broker.host, broker.port) for broker in response.brokers}
        found = {}
        for topic in response.topics:
            if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            check(topic.error_code, f"describe topic {topic.name}")
            leaders = {one.partition_index: one.leader_id for one in topic.partitions}
            found[topic.name] = Topic(topic.name, topic.topic_id, leaders, topic.is_internal)
        self._topics.update(found)
        return found

    def offsets(
        self, timestamps: Mapping[TopicPartition, int], isolation_level: int = READ_UNCOMMITTED
    ) -> dict[TopicPartition, int]:
        """The first offset at or after a timestamp (or EARLIEST, or LATEST) of each partition; -1 if there is none."""
        return self.retrying("list offsets", lambda: self._list_offsets(timestamps, isolation_level))

    def _list_offsets(
        self, timestamps: Mapping[TopicPartition, int], isolation_level: int
    ) -> dict[TopicPartition, int]:
        missing = {partition.topic for partition in timestamps} - self._topics.keys()
        if missing:
            self._describe(sorted(missing))
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for partition, timestamp in timestamps.items():
            topic = self._topics.get(partition.topic)
            if topic is None or partition.partition not in topic.leaders:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"find {partition.topic}-{partition.partition}")
            by_leader.setdefault(topic.leaders[partition.partition], {})[partition] = timestamp
        found: dict[TopicPartition, int] = {}
        for node_id, wanted in by_leader.items():
            response = self.node(node_id).call(_list_offsets_request(wanted, isolation_level))
            for topic_result in response.topics:
                for result in topic_result.partitions:
                    partition = TopicPartition(topic_result.name, result.partition_index)
                    check(result.error_code, f"list the offsets of {partition.topic}-{partition.partition}")
                    found[partition] = result.offset
        return found


class _Negotiated:
    """A connection that uses the newest version both sides know."""

    def __init__(self, address: tuple[str, int], client_id: str, timeout_s: float) -> None:
        self.connection = Connection(*address, client_id=client_id, timeout_s=timeout_s)
        request = ApiVersionsRequest(client_software_name="penstock", client_software_version="1")
        response = self.connection.call(request, _API_VERSIONS_VERSION)
        self._high: dict[int, int] = {api.api_key: api.max_version for api in response.api_keys}

    def version_of(self, request: Any, cap: int | None = None) -> int:
        """The newest version of a request's API that both sides know, and that is not above `cap`."""
        api = api_of(request)
        version = min(api.high, self._high.get(api.key, -1), api.high if cap is None else cap)
        if version < api.low:
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"use {api.name}: the broker is too old or too new for it")
        return version

    def call(self, request: Any, cap: int | None = None) -> Any:
        return self.connection.call(request, self.version_of(request, cap))

    def close(self) -> None:
        self.connection.close()


def _list_offsets_request(wanted: Mapping[TopicPartition, int], isolation_level: int) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for partition, timestamp in wanted.items():
        topic = topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic))
        topic.partitions.append(ListOffsetsPartition(partition_index=partition.partition, timestamp=timestamp))
    return ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=list(topics.values()))


def check(code: int, what: str, message: str | None = None) -> None:
    """Raise for an error code: Moved if it is worth another try, else Refused."""
    if code == ErrorCode.NONE:
        return
    if code in RETRIABLE:
        raise Moved(code)
    raise Refused(code, what, message)


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of "host:port", "[v6]:port" or "PLAINTEXT://host:port"."""
    host, colon, port = text.strip().rpartition("://")[2].rpartition(":")
    if not colon or not host or not port.isdigit():
        raise ConfigurationError(f"{text.strip()!r} is not an address: write host:port")
    return host.strip("[]"), int(port)
