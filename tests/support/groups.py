"""Members of groups that do exactly what a test tells them, one request at a time.

A `ClassicMember` speaks JoinGroup, SyncGroup, Heartbeat and LeaveGroup, a `ConsumerMember` ConsumerGroupHeartbeat
(KIP-848). Each has a connection of its own, for a broker holds back the answer to a JoinGroup until the others have
joined.
"""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Callable, Iterable
from typing import Any

from penstock.wire.api import APIS, ApiKey
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.systems import System

CONSUMER = "consumer"  # the protocol type of classic groups of consumers
JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
_OFFSETS_PARTITIONS = 50
_ready: set[int] = set()  # processes of brokers that were found ready

Owned = dict[str, list[int]]  # topic -> partitions


def wait_until(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Ask again until the answer is true, and return it."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {condition}"
        time.sleep(0.02)
    return answer


# ---- what classic members send one another: ConsumerProtocolSubscription and ConsumerProtocolAssignment ----


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def _topics(partitions: Owned) -> bytes:
    parts = [struct.pack(">i", len(partitions))]
    for topic, indexes in partitions.items():
        parts.append(_string(topic) + struct.pack(f">i{len(indexes)}i", len(indexes), *indexes))
    return b"".join(parts)


def subscription(topics: Iterable[str], version: int = 1, owned: Owned | None = None, generation: int = -1) -> bytes:
    """What a consumer tells its leader: the topics it wants and, from version 1, the partitions it has."""
    names = list(topics)
    parts = [struct.pack(">hi", version, len(names)), *map(_string, names), struct.pack(">i", -1)]
    if version >= 1:
        parts.append(_topics(owned or {}))
    if version >= 2:
        parts.append(struct.pack(">i", generation))
    if version >= 3:
        parts.append(struct.pack(">h", -1))
    return b"".join(parts)


def assignment(partitions: Owned) -> bytes:
    """What the leader tells a consumer: the partitions it may have."""
    return struct.pack(">h", 1) + _topics(partitions) + struct.pack(">i", -1)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 2  # behind the version

    def integer(self) -> int:
        (value,) = struct.unpack_from(">i", self.data, self.position)
        self.position += 4
        return int(value)

    def string(self) -> str:
        (size,) = struct.unpack_from(">h", self.data, self.position)
        self.position += 2 + size
        return self.data[self.position - size : self.position].decode()


def read_assignment(data: bytes) -> Owned:
    if not data:
        return {}
    reader = _Reader(data)
    owned: Owned = {}
    for _ in range(reader.integer()):
        topic = reader.string()
        owned[topic] = [reader.integer() for _ in range(reader.integer())]
    return owned


def read_subscription(data: bytes) -> list[str]:
    reader = _Reader(data)
    return [reader.string() for _ in range(reader.integer())]


# ---- members ----


class ClassicMember:
    """A member of a classic group. What it was told last is in `generation`, `member_id`, `leader`, `owned`."""

    def __init__(
        self,
        system: System,
        group: str,
        topics: Iterable[str] = (),
        *,
        instance: str | None = None,
        protocols: Iterable[str] = ("range",),
        session_timeout_ms: int = 30_000,
        rebalance_timeout_ms: int = 30_000,
        subscription_version: int = 1,
        client_id: str = "raw",
    ) -> None:
        self.connection = system.connect(client_id=client_id)
        self.group = group
        self.topics = list(topics)
        self.instance = instance
        self.protocols = list(protocols)
        self.session_timeout_ms = session_timeout_ms
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.subscription_version = subscription_version
        self.protocol_type = CONSUMER
        self.member_id = ""
        self.generation = -1
        self.leader = ""
        self.members: dict[str, bytes] = {}
        self.owned: Owned = {}

    @property
    def is_leader(self) -> bool:
        return self.leader == self.member_id

    def close(self) -> None:
        self.connection.close()

    def send_join(self, version: int = 9, **changes: Any) -> None:
        known = subscription(self.topics, self.subscription_version, self.owned, self.generation)
        settings: dict[str, Any] = {
            "group_id": self.group,
            "session_timeout_ms": self.session_timeout_ms,
            "rebalance_timeout_ms": self.rebalance_timeout_ms,
            "member_id": self.member_id,
            "group_instance_id": self.instance if version >= 5 else None,
            "protocol_type": self.protocol_type,
            "protocols": [JoinGroupRequestProtocol(name=name, metadata=known) for name in self.protocols],
            **changes,
        }
        self._join_version = version
        self.connection.send(JoinGroupRequest(**settings), version)

    def receive_join(self) -> Any:
        response = self.connection.receive(APIS[ApiKey.JOIN_GROUP], self._join_version)
        if response.error_code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED):
            self.member_id = response.member_id
        if response.error_code == ErrorCode.NONE:
            self.generation = response.generation_id
            self.leader = response.leader
            self.members = {member.member_id: member.metadata for member in response.members}
        return response

    def ask_to_join(self, version: int = 9, **changes: Any) -> Any:
        """One JoinGroup and its answer, whatever it is."""
        self.send_join(version, **changes)
        return self.receive_join()

    def take_id(self, version: int = 9) -> None:
        """The first JoinGroup of a dynamic member only gets it an id."""
        if self.instance is None and version >= 4 and not self.member_id:
            assert self.ask_to_join(version).error_code == ErrorCode.MEMBER_ID_REQUIRED

    def join(self, version: int = 9, **changes: Any) -> Any:
        """Join and wait until everyone has; nobody else may be needed for it."""
        self.take_id(version)
        response = self.ask_to_join(version, **changes)
        assert response.error_code == ErrorCode.NONE, ErrorCode(response.error_code).name
        return response

    def sync(self, assignments: dict[str, Owned] | None = None, version: int = 5, **changes: Any) -> Any:
        """SyncGroup; `assignments` by member id, from the leader."""
        given = [
            SyncGroupRequestAssignment(member_id=m, assignment=assignment(o)) for m, o in (assignments or {}).items()
        ]
        settings: dict[str, Any] = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance if version >= 3 else None,
            "protocol_type": self.protocol_type,
            "protocol_name": self.protocols[0],
            "assignments": given,
            **changes,
        }
        response = self.connection.call(SyncGroupRequest(**settings), version)
        if response.error_code == ErrorCode.NONE:
            self.owned = read_assignment(response.assignment)
        return response

    def settle(self, assignment_of_all: Owned | None = None) -> ClassicMember:
        """Join and sync as the only member."""
        self.join()
        assert self.sync({self.member_id: assignment_of_all or {}}).error_code == ErrorCode.NONE
        return self

    def heartbeat(self, version: int = 4, **changes: Any) -> ErrorCode:
        settings: dict[str, Any] = {
            "group_id": self.group,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self.instance if version >= 3 else None,
            **changes,
        }
        return ErrorCode(self.connection.call(HeartbeatRequest(**settings), version).error_code)

    def leave(self, version: int = 5) -> ErrorCode:
        if version < 3:
            request = LeaveGroupRequest(group_id=self.group, member_id=self.member_id)
            return ErrorCode(self.connection.call(request, version).error_code)
        identity = MemberIdentity(member_id=self.member_id, group_instance_id=self.instance)
        response = self.connection.call(LeaveGroupRequest(group_id=self.group, members=[identity]), version)
        return ErrorCode(response.error_code or response.members[0].error_code)

    def commit(self, topic: str, offset: int, index: int = 0, **changes: Any) -> ErrorCode:
        settings: dict[str, Any] = {
            "generation": self.generation,
            "member_id": self.member_id,
            "instance": self.instance,
            **changes,
        }
        return commit(self.connection, self.group, {(topic, index): offset}, **settings)[topic, index]


class ConsumerMember:
    """A member of a consumer group (KIP-848). What it was told last is in `epoch`, `owned` (by topic id)."""

    def __init__(self, system: System, group: str, topics: Iterable[str] | None = (), **settings: Any) -> None:
        self.connection = system.connect(client_id="raw")
        self.group = group
        self.topics = None if topics is None else list(topics)
        self.member_id = str(uuid.uuid4())
        self.instance: str | None = settings.pop("instance", None)
        self.rebalance_timeout_ms: int = settings.pop("rebalance_timeout_ms", 30_000)
        self.extra = settings  # of the first request: server_assignor, subscribed_topic_regex, rack_id
        self.epoch = JOIN_EPOCH
        self.owned: dict[bytes, list[int]] = {}
        self.target: dict[bytes, list[int]] = {}

    def close(self) -> None:
        self.connection.close()

    def ask(self, version: int = 1, **fields: Any) -> Any:
        """One heartbeat and its answer, whatever it is. Fields not given are left out: nothing has changed."""
        settings: dict[str, Any] = {
            "group_id": self.group,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "instance_id": self.instance,
            **fields,
        }
        return self.connection.call(ConsumerGroupHeartbeatRequest(**settings), version)

    def full(self, **changes: Any) -> dict[str, Any]:
        """The fields of a heartbeat that says everything."""
        return {
            "rebalance_timeout_ms": self.rebalance_timeout_ms,
            "subscribed_topic_names": self.topics,
            "topic_partitions": [TopicPartitions(topic_id=t, partitions=p) for t, p in self.owned.items()],
            **self.extra,
            **changes,
        }

    def join(self, version: int = 1, **changes: Any) -> Any:
        self.epoch = JOIN_EPOCH
        self.owned = {}
        return self.heard(self.ask(version, **self.full(**changes)))

    def heartbeat(self, **fields: Any) -> Any:
        return self.heard(self.ask(**fields))

    def confirm(self) -> Any:
        """Give up and take over what the last assignment says, and tell the coordinator."""
        self.owned = self.target
        owned = [TopicPartitions(topic_id=t, partitions=p) for t, p in self.owned.items()]
        return self.heartbeat(topic_partitions=owned)

    def heard(self, response: Any) -> Any:
        assert response.error_code == ErrorCode.NONE, (ErrorCode(response.error_code).name, response.error_message)
        self.member_id = response.member_id
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.target = {t.topic_id: sorted(t.partitions) for t in response.assignment.topic_partitions}
        return response

    def leave(self, epoch: int = LEAVE_EPOCH) -> Any:
        response = self.ask(member_epoch=epoch)
        assert response.error_code == ErrorCode.NONE, response
        return response


def settle(*members: ConsumerMember, seconds: float = 30.0) -> None:
    """Let members beat, each doing at once what it is told, until the group is stable and they all know it.

    Kafka waits a moment between assignments (`group.consumer.assignment.interval.ms`), so this takes up to a second.
    """
    deadline = time.monotonic() + seconds
    while True:
        for member in members:
            member.heartbeat()
            if member.target != member.owned:
                member.confirm()
        group = describe_consumer_group(members[0].connection, members[0].group)
        is_told = all(member.epoch == group.group_epoch and member.target == member.owned for member in members)
        if group.group_state == "Stable" and is_told:
            return
        assert time.monotonic() < deadline, f"the group does not settle: {group}"
        time.sleep(0.02)


# ---- one-off questions ----


def commit(
    connection: Any,
    group: str,
    offsets: dict[tuple[str, int], int],
    *,
    generation: int = -1,
    member_id: str = "",
    instance: str | None = None,
    metadata: str | None = "",
    version: int = 9,
) -> dict[tuple[str, int], ErrorCode]:
    """Commit offsets by topic and partition; the errors."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, index), offset in offsets.items():
        part = OffsetCommitRequestPartition(
            partition_index=index, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=metadata
        )
        topics.setdefault(topic, []).append(part)
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance if version >= 7 else None,
        topics=[OffsetCommitRequestTopic(name=name, partitions=parts) for name, parts in topics.items()],
    )
    response = connection.call(request, version)
    return {(t.name, p.partition_index): ErrorCode(p.error_code) for t in response.topics for p in t.partitions}


def committed(
    connection: Any, group: str, partitions: dict[str, list[int]] | None = None, **settings: Any
) -> dict[tuple[str, int], tuple[int, str | None]]:
    """Committed offsets with their metadata, of some partitions or of all that have one; each without an error."""
    version = settings.pop("version", 9)
    if version >= 8:
        wanted = (
            None
            if partitions is None
            else [
                OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name, indexes in partitions.items()
            ]
        )
        asked = OffsetFetchRequestGroup(group_id=group, topics=wanted, **settings)
        (answer,) = connection.call(OffsetFetchRequest(groups=[asked]), version).groups
    else:
        old = (
            None
            if partitions is None
            else [OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in partitions.items()]
        )
        answer = connection.call(OffsetFetchRequest(group_id=group, topics=old), version)
    assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code).name
    found = {}
    for topic in answer.topics:
        for part in topic.partitions:
            assert part.error_code == ErrorCode.NONE, part
            found[topic.name, part.partition_index] = (part.committed_offset, part.metadata)
    return found


def find_coordinator(connection: Any, group: str) -> Any:
    """Ask where the group is looked after until there is an answer: the first time, its topic must be created."""

    def ask() -> Any:
        (found,) = connection.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group])).coordinators
        assert found.error_code in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE), found
        return found if found.error_code == ErrorCode.NONE else None

    return wait_until(ask)


def wait_for_coordinator(system: System) -> None:
    """Until every group can be used: all partitions of `__consumer_offsets` are there and loaded."""
    if system.pid in _ready:
        return
    not_yet = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
    names: dict[int, str] = {}
    for number in range(1000):
        names.setdefault(offsets_partition_of(f"warm-up-{number}"), f"warm-up-{number}")
    with system.connect() as connection:
        find_coordinator(connection, "warm-up")
        for name in names.values():
            beat = HeartbeatRequest(group_id=name, generation_id=1, member_id="nobody")
            wait_until(lambda beat=beat: connection.call(beat).error_code not in not_yet)
    _ready.add(system.pid)


def offsets_partition_of(group: str) -> int:
    """The partition of `__consumer_offsets` that keeps a group: by the absolute value of Java's String.hashCode."""
    value = 0
    for character in group:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return abs(value - (1 << 32) if value >> 31 else value) % _OFFSETS_PARTITIONS


def describe(connection: Any, group: str, version: int = 6) -> Any:
    """DescribeGroups of one classic group."""
    (described,) = connection.call(DescribeGroupsRequest(groups=[group]), version).groups
    return described


def describe_consumer_group(connection: Any, group: str, version: int = 1) -> Any:
    (described,) = connection.call(ConsumerGroupDescribeRequest(group_ids=[group]), version).groups
    return described


def delete_group(connection: Any, group: str, version: int = 2) -> ErrorCode:
    (result,) = connection.call(DeleteGroupsRequest(groups_names=[group]), version).results
    assert result.group_id == group
    return ErrorCode(result.error_code)


def listed(connection: Any, version: int = 5, **filters: list[str]) -> dict[str, Any]:
    response = connection.call(ListGroupsRequest(**filters), version)
    assert response.error_code == ErrorCode.NONE
    return {group.group_id: group for group in response.groups}
