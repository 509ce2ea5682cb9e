"""Groups on the wire, request by request: the answers of real Kafka, written down.

First the classic protocol (JoinGroup and its relatives) at every version, then offsets, then the consumer protocol of
KIP-848, then both in one group.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.wire.api import APIS, ApiKey
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.consumer_group_heartbeat import TopicPartitions
from penstock.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.join_group import JoinGroupRequestProtocol
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from penstock.wire.messages.sync_group import SyncGroupRequest
from tests.compat.test_protocol import Client
from tests.support.groups import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ClassicMember,
    ConsumerMember,
    commit,
    committed,
    delete_group,
    describe,
    describe_consumer_group,
    listed,
    read_assignment,
    read_subscription,
    settle,
    subscription,
    wait_for_coordinator,
    wait_until,
)
from tests.support.systems import NODE_ID, System


class GroupClient(Client):
    """A client whose new topics are known to the coordinator of groups too, which hears of them a moment later."""

    def create(self, name: str, partitions: int = 1, **config: str) -> bytes:
        topic_id = super().create(name, partitions, **config)

        def is_known() -> bool:
            probe = ConsumerMember(self.system, f"probe-{uuid.uuid4()}", [name])
            probe.join()
            probe.leave()
            probe.close()
            assert delete_group(self, probe.group) == ErrorCode.NONE
            return topic_id in probe.target

        wait_until(is_known)
        return topic_id


def versions(key: ApiKey) -> range:
    return range(APIS[key].low, APIS[key].high + 1)


@pytest.fixture
def client(system: System) -> Iterator[Client]:
    wait_for_coordinator(system)
    made = GroupClient(system)
    yield made
    made.connection.close()


@pytest.fixture
def classic(client: Client, group: str) -> Iterator[Callable[..., ClassicMember]]:
    """Makes members of the test's group that speak the classic protocol."""
    made: list[ClassicMember] = []

    def make(*topics: str, group: str = group, **options: Any) -> ClassicMember:
        made.append(ClassicMember(client.system, group, topics, **options))
        return made[-1]

    yield make
    for member in made:
        member.close()


@pytest.fixture
def consumer(client: Client, group: str) -> Iterator[Callable[..., ConsumerMember]]:
    """Makes members of the test's group that speak the consumer protocol."""
    made: list[ConsumerMember] = []

    def make(*topics: str, group: str = group, **options: Any) -> ConsumerMember:
        made.append(ConsumerMember(client.system, group, topics or None, **options))
        return made[-1]

    yield make
    for member in made:
        member.close()


def add(first: ClassicMember, second: ClassicMember) -> None:
    """A second member joins a group of one, and the first one joins again for it."""
    second.take_id()
    second.send_join()
    wait_until(lambda: first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS)
    assert first.ask_to_join().error_code == ErrorCode.NONE
    assert second.receive_join().error_code == ErrorCode.NONE


def share(topic: str, count: int, *members: ClassicMember) -> None:
    """The leader deals the partitions out in turn; all sync."""
    (leader,) = [member for member in members if member.is_leader]
    wishes = {m.member_id: {topic: list(range(n, count, len(members)))} for n, m in enumerate(members)}
    assert leader.sync(wishes).error_code == ErrorCode.NONE
    for member in members:
        if member is not leader:
            assert member.sync().error_code == ErrorCode.NONE


def answer(response: Any) -> tuple[str, str | None]:
    return ErrorCode(response.error_code).name, response.error_message


# ---- finding the coordinator ----


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
def test_the_coordinator_of_a_group_is_found(client: Client, group: str, version: int) -> None:
    here = (ErrorCode.NONE, NODE_ID, "127.0.0.1", client.system.port)
    if version < 4:
        found = client.call(FindCoordinatorRequest(key=group), version)
        assert (found.error_code, found.node_id, found.host, found.port) == here
        assert found.error_message == ("NONE" if version >= 1 else None)
        return
    response = client.call(FindCoordinatorRequest(coordinator_keys=[group, "another"]), version)
    assert [found.key for found in response.coordinators] == [group, "another"]
    for found in response.coordinators:
        assert (found.error_code, found.node_id, found.host, found.port) == here
        assert found.error_message == ""


def test_a_coordinator_of_an_unknown_kind_is_refused(client: Client) -> None:
    (found,) = client.call(FindCoordinatorRequest(key_type=7, coordinator_keys=["x"])).coordinators
    assert (found.error_code, found.node_id, found.host, found.port) == (ErrorCode.INVALID_REQUEST, -1, "", -1)
    assert found.error_message  # Kafka's words are the same for every bad request
    old = client.call(FindCoordinatorRequest(key="x", key_type=7), 1)
    assert (old.error_code, old.node_id) == (ErrorCode.INVALID_REQUEST, -1)
    assert old.error_message


# ---- the classic protocol ----


@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_a_member_joins_syncs_beats_and_leaves_at_every_version(
    client: Client, topic: str, classic: Any, version: int
) -> None:
    member = classic(topic)
    first = member.ask_to_join(version)
    if version >= 4:  # a new member is sent back once, to come again with its id
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        assert (first.generation_id, first.leader, first.members) == (-1, "", [])
        assert (first.protocol_type, first.protocol_name) == (None, None if version >= 7 else "")
        given = first.member_id
        first = member.ask_to_join(version)
        assert first.member_id == given
    assert first.error_code == ErrorCode.NONE
    assert first.member_id.startswith("raw-")
    assert len(first.member_id) == len("raw-") + 36
    assert (first.generation_id, first.leader, first.protocol_name) == (1, first.member_id, "range")
    assert first.protocol_type == ("consumer" if version >= 7 else None)
    assert first.skip_assignment is False
    assert [(m.member_id, m.group_instance_id) for m in first.members] == [(first.member_id, None)]
    assert read_subscription(first.members[0].metadata) == [topic]

    sync_version = min(version, APIS[ApiKey.SYNC_GROUP].high)
    response = member.sync({member.member_id: {topic: [0, 1]}}, sync_version)
    assert response.error_code == ErrorCode.NONE
    named = ("consumer", "range") if sync_version >= 5 else (None, None)
    assert (response.protocol_type, response.protocol_name) == named
    assert member.owned == {topic: [0, 1]}

    assert member.heartbeat(min(version, APIS[ApiKey.HEARTBEAT].high)) == ErrorCode.NONE
    described = describe(client, member.group, min(version, APIS[ApiKey.DESCRIBE_GROUPS].high))
    assert (described.error_code, described.error_message) == (ErrorCode.NONE, None)
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    (seen,) = described.members
    assert (seen.member_id, seen.group_instance_id) == (member.member_id, None)
    assert (seen.client_id, seen.client_host) == ("raw", "/127.0.0.1")
    assert read_subscription(seen.member_metadata) == [topic]
    assert read_assignment(seen.member_assignment) == {topic: [0, 1]}

    assert member.leave(min(version, APIS[ApiKey.LEAVE_GROUP].high)) == ErrorCode.NONE
    described = describe(client, member.group)
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Empty", "consumer", "")
    assert described.members == []


REFUSED_JOINS: dict[str, tuple[dict[str, Any], ErrorCode]] = {
    "no group": ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
    "session too short": ({"session_timeout_ms": 10}, ErrorCode.INVALID_SESSION_TIMEOUT),
    "session too long": ({"session_timeout_ms": 9_999_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
    "no protocols": ({"protocols": []}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    "no protocol type": ({"protocol_type": ""}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
    "unknown member": ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
}


@pytest.mark.parametrize("case", REFUSED_JOINS)
def test_a_bad_join_is_refused(topic: str, classic: Any, case: str) -> None:
    changes, expected = REFUSED_JOINS[case]
    response = classic(topic).ask_to_join(**changes)
    assert response.error_code == expected
    assert (response.generation_id, response.leader, response.members) == (-1, "", [])
    assert (response.protocol_type, response.protocol_name) == (None, None)
    assert response.member_id == changes.get("member_id", "")


def test_a_group_without_members_knows_nobody(classic: Any) -> None:
    member = classic()
    assert member.heartbeat(generation_id=0, member_id="nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.sync(generation_id=0, member_id="nobody").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.leave() == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.leave(0) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_must_have_a_name(classic: Any) -> None:
    member = classic(group="")
    assert member.heartbeat() == ErrorCode.INVALID_GROUP_ID
    assert member.sync().error_code == ErrorCode.INVALID_GROUP_ID
    request = LeaveGroupRequest(group_id="", members=[MemberIdentity(member_id="nobody")])
    response = member.connection.call(request)
    assert (response.error_code, response.members) == (ErrorCode.INVALID_GROUP_ID, [])


def test_a_member_is_known_by_its_id_and_generation(topic: str, classic: Any) -> None:
    member = classic(topic).settle({topic: [0]})
    assert member.heartbeat() == ErrorCode.NONE
    for generation in (-1, 0, member.generation + 1):
        assert member.heartbeat(generation_id=generation) == ErrorCode.ILLEGAL_GENERATION
        assert member.sync(generation_id=generation).error_code == ErrorCode.ILLEGAL_GENERATION
    for name in ("", "nobody"):
        assert member.heartbeat(member_id=name) == ErrorCode.UNKNOWN_MEMBER_ID
        assert member.sync(member_id=name).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.heartbeat(group_instance_id="unknown") == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.sync(protocol_name="roundrobin").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert member.sync(protocol_type="connect").error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert member.sync().error_code == ErrorCode.NONE
    assert member.owned == {topic: [0]}, "a second sync repeats the assignment"


def test_a_member_must_share_a_protocol_with_the_others(topic: str, classic: Any) -> None:
    classic(topic).settle()
    stranger = classic(topic, protocols=["homemade"])
    assert stranger.ask_to_join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    worker = classic(topic)
    worker.protocol_type = "connect"
    assert worker.ask_to_join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_protocol_that_all_know_and_most_prefer_wins(topic: str, classic: Any) -> None:
    members = [
        classic(topic, protocols=["range", "roundrobin", "sticky"]),
        classic(topic, protocols=["sticky", "roundrobin", "range"]),
        classic(topic, protocols=["roundrobin", "range"]),
    ]
    members[0].settle()
    assert members[0].ask_to_join().protocol_name == "range"
    for member in members[1:]:
        member.take_id()
        member.send_join()
    wait_until(lambda: members[0].heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS)
    members[0].send_join()
    # Each votes for its first protocol among those that all know: range, roundrobin, roundrobin.
    assert {member.receive_join().protocol_name for member in members} == {"roundrobin"}


def test_a_pending_member_is_no_member_yet(client: Client, topic: str, classic: Any) -> None:
    first = classic(topic).settle({topic: [0]})
    second = classic(topic)
    second.take_id()
    described = describe(client, first.group)
    assert (described.group_state, len(described.members)) == ("Stable", 1)
    assert first.heartbeat() == ErrorCode.NONE
    assert second.heartbeat(generation_id=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert second.sync(generation_id=1).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert second.leave() == ErrorCode.NONE
    assert second.ask_to_join().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_second_member_causes_a_rebalance(client: Client, topic: str, classic: Any) -> None:
    client.create(topic, 4)
    first = classic(topic).settle({topic: [0, 1, 2, 3]})
    second = classic(topic)
    second.take_id()
    second.send_join()
    wait_until(lambda: describe(client, first.group).group_state == "PreparingRebalance")
    assert first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert first.sync().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert first.commit(topic, 3) == ErrorCode.NONE, "the last chance to commit"
    assert delete_group(client, first.group) == ErrorCode.NON_EMPTY_GROUP
    described = describe(client, first.group)
    assert (described.protocol_type, described.protocol_data) == ("consumer", "")
    assert all(member.member_metadata == b"" for member in described.members)
    assert {m.member_id: read_assignment(m.member_assignment) for m in described.members} == {
        first.member_id: {topic: [0, 1, 2, 3]},
        second.member_id: {},
    }

    leading = first.ask_to_join()
    following = second.receive_join()
    assert (leading.generation_id, following.generation_id) == (2, 2)
    assert leading.leader == following.leader == first.member_id, "the leader stays"
    assert {member.member_id for member in leading.members} == {first.member_id, second.member_id}
    assert following.members == [], "only the leader is told who is there"
    assert describe(client, first.group).group_state == "CompletingRebalance"
    assert first.heartbeat() == ErrorCode.NONE
    assert first.commit(topic, 3) == ErrorCode.REBALANCE_IN_PROGRESS
    assert second.commit(topic, 3) == ErrorCode.REBALANCE_IN_PROGRESS

    share(topic, 4, first, second)
    assert (first.owned, second.owned) == ({topic: [0, 2]}, {topic: [1, 3]})
    assert describe(client, first.group).group_state == "Stable"
    assert second.commit(topic, 3) == ErrorCode.NONE
    assert first.commit(topic, 3, generation=1) == ErrorCode.ILLEGAL_GENERATION


def test_followers_wait_for_the_leader_and_may_get_nothing(topic: str, classic: Any) -> None:
    first, second = classic(topic).settle(), classic(topic)
    add(first, second)
    request = SyncGroupRequest(
        group_id=second.group,
        generation_id=second.generation,
        member_id=second.member_id,
        protocol_type="consumer",
        protocol_name="range",
    )
    second.connection.send(request, 5)
    assert first.sync({first.member_id: {topic: [0, 1]}}).error_code == ErrorCode.NONE
    late = second.connection.receive(APIS[ApiKey.SYNC_GROUP], 5)
    assert (late.error_code, late.assignment) == (ErrorCode.NONE, b"")


def test_a_follower_that_rejoins_unchanged_disturbs_nobody_and_the_leader_does(topic: str, classic: Any) -> None:
    first, second = classic(topic).settle(), classic(topic)
    add(first, second)
    share(topic, 2, first, second)
    second.owned = {}  # what it owns is part of its subscription: nothing changes
    response = second.ask_to_join(protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription([topic], 1))])
    assert (response.error_code, response.generation_id, response.members) == (ErrorCode.NONE, 2, [])
    assert first.heartbeat() == ErrorCode.NONE
    first.send_join()
    wait_until(lambda: second.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS)
    assert second.ask_to_join().generation_id == 3
    assert first.receive_join().generation_id == 3


def test_a_follower_with_another_subscription_causes_a_rebalance(topic: str, classic: Any) -> None:
    first, second = classic(topic).settle(), classic(topic)
    add(first, second)
    share(topic, 2, first, second)
    second.topics = [topic, "another"]
    second.send_join()
    wait_until(lambda: first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS)
    leading = first.ask_to_join()
    second.receive_join()
    assert leading.generation_id == 3
    metadata = {member.member_id: read_subscription(member.metadata) for member in leading.members}
    assert metadata == {first.member_id: [topic], second.member_id: [topic, "another"]}


def test_the_next_member_leads_when_the_leader_has_left(topic: str, classic: Any) -> None:
    first, second = classic(topic).settle(), classic(topic)
    add(first, second)
    share(topic, 2, first, second)
    assert first.leave() == ErrorCode.NONE
    assert first.leave() == ErrorCode.UNKNOWN_MEMBER_ID
    assert second.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    response = second.ask_to_join()
    assert (response.generation_id, response.leader) == (3, second.member_id)
    assert [member.member_id for member in response.members] == [second.member_id]


def test_several_members_leave_in_one_request(client: Client, topic: str, classic: Any) -> None:
    member = classic(topic).settle()
    leaving = [
        MemberIdentity(member_id=member.member_id),
        MemberIdentity(member_id="nobody"),
        MemberIdentity(member_id="", group_instance_id="unknown"),
    ]
    response = client.call(LeaveGroupRequest(group_id=member.group, members=leaving))
    assert response.error_code == ErrorCode.NONE
    assert [(m.member_id, m.group_instance_id, m.error_code) for m in response.members] == [
        (member.member_id, None, ErrorCode.NONE),
        ("nobody", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", "unknown", ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    assert describe(client, member.group).group_state == "Empty"


def test_a_member_that_does_not_rejoin_in_time_is_out(topic: str, classic: Any) -> None:
    slow = classic(topic, rebalance_timeout_ms=300).settle()
    quick = classic(topic, rebalance_timeout_ms=300)
    quick.take_id()
    response = quick.ask_to_join()  # waits for the slow one, but not for ever
    assert (response.error_code, response.leader) == (ErrorCode.NONE, quick.member_id)
    assert [member.member_id for member in response.members] == [quick.member_id]
    assert slow.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert slow.ask_to_join().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_generations_go_on_counting_in_an_empty_group(topic: str, classic: Any) -> None:
    member = classic(topic).settle()
    assert member.generation == 1
    member.leave()
    assert classic(topic).settle().generation == 3, "becoming empty is a generation too"


# ---- static members of the classic protocol ----


def test_a_static_member_comes_back_to_its_assignment_without_a_rebalance(
    client: Client, topic: str, classic: Any
) -> None:
    first = classic(topic, instance="one")
    response = first.ask_to_join()
    assert response.error_code == ErrorCode.NONE, "a static member is not sent back for an id"
    assert first.member_id.startswith("one-")
    assert [member.group_instance_id for member in response.members] == ["one"]
    first.sync({first.member_id: {topic: [0, 1]}})
    again = classic(topic, instance="one")
    response = again.ask_to_join()
    assert response.error_code == ErrorCode.NONE
    assert again.member_id != first.member_id
    assert (response.generation_id, response.leader) == (first.generation, again.member_id)
    assert response.skip_assignment is True, "it leads, but there is nothing to assign"
    assert [member.member_id for member in response.members] == [again.member_id]
    assert again.sync().error_code == ErrorCode.NONE
    assert again.owned == {topic: [0, 1]}
    (seen,) = describe(client, first.group).members
    assert (seen.member_id, seen.group_instance_id) == (again.member_id, "one")


@pytest.mark.parametrize("version", [5, 6, 7, 8])
def test_older_static_leaders_are_told_that_they_follow_someone_gone(topic: str, classic: Any, version: int) -> None:
    first = classic(topic, instance="one").settle({topic: [0]})
    again = classic(topic, instance="one")
    response = again.ask_to_join(version)  # cannot be told to skip the assignment, so it must not feel like a leader
    assert (response.error_code, response.generation_id) == (ErrorCode.NONE, first.generation)
    assert (response.leader, response.members) == (first.member_id, [])
    again.sync()
    assert again.owned == {topic: [0]}


def test_the_former_holder_of_an_instance_id_is_fenced(topic: str, client: Client, classic: Any) -> None:
    client.create(topic)
    first = classic(topic, instance="one").settle({topic: [0]})
    again = classic(topic, instance="one")
    again.join()
    again.sync()
    assert first.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    assert first.sync().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert first.commit(topic, 1) == ErrorCode.FENCED_INSTANCE_ID
    assert first.leave() == ErrorCode.FENCED_INSTANCE_ID
    fenced = first.ask_to_join()
    assert (fenced.error_code, fenced.member_id) == (ErrorCode.FENCED_INSTANCE_ID, first.member_id)
    assert again.ask_to_join(member_id="nobody").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert again.ask_to_join(group_instance_id="unknown").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert again.heartbeat(group_instance_id="unknown") == ErrorCode.UNKNOWN_MEMBER_ID
    assert again.commit(topic, 1, instance="unknown") == ErrorCode.UNKNOWN_MEMBER_ID
    assert again.heartbeat(group_instance_id=None) == ErrorCode.NONE
    assert again.commit(topic, 1, instance=None) == ErrorCode.NONE


def test_a_static_member_can_be_removed_by_its_instance_id(client: Client, topic: str, classic: Any) -> None:
    member = classic(topic, instance="one").settle()
    identity = MemberIdentity(member_id="", group_instance_id="one")
    response = client.call(LeaveGroupRequest(group_id=member.group, members=[identity]))
    assert [(m.group_instance_id, m.error_code) for m in response.members] == [("one", ErrorCode.NONE)]
    assert describe(client, member.group).group_state == "Empty"
    assert member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


# ---- groups: describing, listing, deleting ----


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
def test_a_group_that_does_not_exist_is_dead(client: Client, group: str, version: int) -> None:
    described = describe(client, group, version)
    assert (described.group_state, described.protocol_type, described.members) == ("Dead", "", [])
    if version < 6:
        assert (described.error_code, described.error_message) == (ErrorCode.NONE, None)
    else:
        assert answer(described) == ("GROUP_ID_NOT_FOUND", f"Group {group} not found.")


def test_several_groups_are_described_at_once(client: Client, topic: str, classic: Any, group: str) -> None:
    classic(topic).settle()
    request = DescribeGroupsRequest(groups=["missing", group], include_authorized_operations=True)
    described = client.call(request).groups
    assert {one.group_id: one.group_state for one in described} == {"missing": "Dead", group: "Stable"}
    operations = {one.group_id: one.authorized_operations for one in described}
    assert operations[group] == sum(1 << code for code in (3, 6, 8, 10, 11))  # read, delete, describe, two for configs


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
def test_groups_are_listed_at_every_version(client: Client, topic: str, classic: Any, version: int) -> None:
    member = classic(topic).settle()
    found = listed(client, version)[member.group]
    assert found.protocol_type == "consumer"
    assert found.group_state == ("Stable" if version >= 4 else "")
    assert found.group_type == ("classic" if version >= 5 else "")


def test_groups_are_filtered_by_state_and_type(client: Client, topic: str, classic: Any, unique: Any) -> None:
    stable = classic(topic, group=unique("stable")).settle().group
    empty = unique("empty")
    client.create(topic)
    commit(client, empty, {(topic, 0): 1})
    modern = ConsumerMember(client.system, unique("modern"), [topic])
    modern.join()

    def found(**filters: list[str]) -> set[str]:
        return set(listed(client, **filters)) & {stable, empty, modern.group}

    assert found() == {stable, empty, modern.group}
    assert found(states_filter=["Stable"]) == found(states_filter=["stable"]) == {stable, modern.group}
    assert found(states_filter=["Empty"]) == {empty}
    assert found(states_filter=["Empty", "Stable"], types_filter=["classic"]) == {stable, empty}
    assert found(types_filter=["classic"]) == found(types_filter=["Classic"]) == {stable, empty}
    assert found(types_filter=["consumer"]) == {modern.group}
    assert found(states_filter=["nonsense"]) == found(types_filter=["nonsense"]) == set()
    response = client.call(ListGroupsRequest(states_filter=["Empty"]), 4)
    assert empty in {one.group_id for one in response.groups}
    modern.close()


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
def test_only_an_empty_group_can_be_deleted(client: Client, topic: str, classic: Any, version: int) -> None:
    client.create(topic)
    member = classic(topic).settle()
    assert delete_group(client, "missing", version) == ErrorCode.GROUP_ID_NOT_FOUND
    assert delete_group(client, member.group, version) == ErrorCode.NON_EMPTY_GROUP
    assert member.commit(topic, 7) == ErrorCode.NONE
    member.leave()
    assert delete_group(client, member.group, version) == ErrorCode.NONE
    assert delete_group(client, member.group, version) == ErrorCode.GROUP_ID_NOT_FOUND
    assert describe(client, member.group).group_state == "Dead"
    assert member.group not in listed(client)
    assert committed(client, member.group, {topic: [0]}) == {(topic, 0): (-1, "")}


def test_several_groups_are_deleted_at_once(client: Client, topic: str, unique: Any) -> None:
    client.create(topic)
    names = [unique("gone") for _ in range(3)]
    for name in names[:2]:
        commit(client, name, {(topic, 0): 1})
    results = client.call(DeleteGroupsRequest(groups_names=names)).results
    assert {result.group_id: result.error_code for result in results} == {
        names[0]: ErrorCode.NONE,
        names[1]: ErrorCode.NONE,
        names[2]: ErrorCode.GROUP_ID_NOT_FOUND,
    }


# ---- offsets ----


@pytest.mark.parametrize("version", range(2, 10))
def test_offsets_are_committed_and_fetched_by_name(client: Client, topic: str, group: str, version: int) -> None:
    client.create(topic, 2)
    done = commit(client, group, {(topic, 1): 40 + version}, version=version, metadata=f"of version {version}")
    assert done == {(topic, 1): ErrorCode.NONE}
    expected = {(topic, 0): (-1, ""), (topic, 1): (40 + version, f"of version {version}")}
    for fetching in range(2, 10):  # 1 has a test of its own
        assert committed(client, group, {topic: [0, 1]}, version=fetching) == expected
        assert committed(client, group, version=fetching) == {(topic, 1): expected[topic, 1]}, "all that have one"


def test_offsets_are_fetched_at_the_oldest_version(client: Client, topic: str, group: str) -> None:
    client.create(topic)
    commit(client, group, {(topic, 0): 5})
    wanted = [OffsetFetchRequestTopic(name=topic, partition_indexes=[0])]
    (found,) = client.call(OffsetFetchRequest(group_id=group, topics=wanted), 1).topics
    assert [(part.committed_offset, part.error_code) for part in found.partitions] == [(5, ErrorCode.NONE)]


def test_offsets_are_committed_and_fetched_by_topic_id(client: Client, topic: str, group: str) -> None:
    topic_id = client.create(topic, 2)
    stranger = b"x" * 16

    def wanted(topic_id: bytes) -> OffsetCommitRequestTopic:
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=10, committed_metadata="by id")
        return OffsetCommitRequestTopic(topic_id=topic_id, partitions=[part])

    request = OffsetCommitRequest(group_id=group, topics=[wanted(topic_id), wanted(stranger)])
    results = {done.topic_id: done.partitions[0].error_code for done in client.call(request, 10).topics}
    assert results == {topic_id: ErrorCode.NONE, stranger: ErrorCode.UNKNOWN_TOPIC_ID}
    asked = [
        OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0, 1, 9]),
        OffsetFetchRequestTopics(topic_id=stranger, partition_indexes=[0]),
    ]
    groups = [
        OffsetFetchRequestGroup(group_id=group, topics=asked),
        OffsetFetchRequestGroup(group_id=group, topics=None),
        OffsetFetchRequestGroup(group_id="missing", topics=None),
    ]
    some, every, missing = client.call(OffsetFetchRequest(groups=groups), 10).groups
    found = {
        (one.topic_id, part.partition_index): (part.committed_offset, part.metadata, ErrorCode(part.error_code))
        for one in some.topics
        for part in one.partitions
    }
    assert found == {
        (topic_id, 0): (10, "by id", ErrorCode.NONE),
        (topic_id, 1): (-1, "", ErrorCode.NONE),
        (topic_id, 9): (-1, "", ErrorCode.NONE),
        (stranger, 0): (-1, "", ErrorCode.UNKNOWN_TOPIC_ID),
    }
    assert [(one.topic_id, len(one.partitions)) for one in every.topics] == [(topic_id, 1)]
    assert (missing.error_code, missing.topics) == (ErrorCode.NONE, [])
    assert committed(client, group) == {(topic, 0): (10, "by id")}


def test_a_commit_from_outside_makes_a_group_that_is_empty(client: Client, topic: str, group: str) -> None:
    client.create(topic)
    assert commit(client, group, {(topic, 0): 3}) == {(topic, 0): ErrorCode.NONE}
    described = describe(client, group)
    assert (described.group_state, described.protocol_type) == ("Empty", "")
    found = listed(client)[group]
    assert (found.protocol_type, found.group_state, found.group_type) == ("", "Empty", "classic")


def test_commits_are_refused_with_the_reason(client: Client, topic: str, classic: Any) -> None:
    client.create(topic)
    member = classic(topic).settle({topic: [0]})
    refusals: list[tuple[dict[str, Any], ErrorCode]] = [
        ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": member.generation + 1}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": -1}, ErrorCode.ILLEGAL_GENERATION),
        ({"member_id": "nobody"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": ""}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": "", "generation": -1}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"metadata": "x" * 4097}, ErrorCode.OFFSET_METADATA_TOO_LARGE),
        ({"index": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]
    for changes, expected in refusals:
        assert member.commit(topic, 5, **changes) == expected, changes
    assert member.commit("missing", 5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert committed(client, member.group) == {}
    assert member.commit(topic, 5, metadata="é" * 4096) == ErrorCode.NONE, "characters count, not bytes"
    assert member.commit(topic, 6, metadata=None) == ErrorCode.NONE
    assert committed(client, member.group) == {(topic, 0): (6, "")}, "no metadata is empty metadata"


def test_one_commit_can_have_good_and_bad_partitions(client: Client, topic: str, group: str) -> None:
    client.create(topic, 2)
    assert commit(client, group, {(topic, 0): 1, (topic, 9): 2, ("missing", 0): 3, (topic, 1): 4}) == {
        (topic, 0): ErrorCode.NONE,
        (topic, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("missing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (topic, 1): ErrorCode.NONE,
    }
    assert committed(client, group) == {(topic, 0): (1, ""), (topic, 1): (4, "")}


def test_a_commit_for_a_generation_of_an_unknown_group(client: Client, topic: str, group: str) -> None:
    client.create(topic)
    offsets = {(topic, 0): 1}
    late = commit(client, group, offsets, generation=3, member_id="nobody", version=9)
    assert late == {(topic, 0): ErrorCode.GROUP_ID_NOT_FOUND}
    late = commit(client, group, offsets, generation=3, member_id="nobody", version=8)
    assert late == {(topic, 0): ErrorCode.ILLEGAL_GENERATION}, "older clients do not know the other error here"


def test_offsets_are_deleted_unless_the_group_reads_the_topic(
    client: Client, topic: str, classic: Any, unique: Any
) -> None:
    client.create(topic, 2)
    other = unique("other")
    client.create(other)

    def delete(group: str, partitions: dict[str, list[int]]) -> Any:
        topics = [
            OffsetDeleteRequestTopic(
                name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in indexes]
            )
            for name, indexes in partitions.items()
        ]
        response = client.call(OffsetDeleteRequest(group_id=group, topics=topics))
        found = {
            (done.name, part.partition_index): ErrorCode(part.error_code)
            for done in response.topics
            for part in done.partitions
        }
        return ErrorCode(response.error_code), found

    member = classic(topic).settle({topic: [0, 1]})
    for name in (topic, other):
        assert member.commit(name, 3) == ErrorCode.NONE
    assert delete("missing", {topic: [0]}) == (ErrorCode.GROUP_ID_NOT_FOUND, {})
    assert delete("", {topic: [0]}) == (ErrorCode.INVALID_GROUP_ID, {})
    assert delete(member.group, {topic: [0], other: [0]}) == (
        ErrorCode.NONE,
        {(topic, 0): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, (other, 0): ErrorCode.NONE},
    )
    assert committed(client, member.group) == {(topic, 0): (3, "")}
    member.leave()
    assert delete(member.group, {topic: [0, 1, 9], "missing": [0]}) == (
        ErrorCode.NONE,
        {
            (topic, 0): ErrorCode.NONE,
            (topic, 1): ErrorCode.NONE,
            (topic, 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ("missing", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        },
    )
    assert committed(client, member.group) == {}


def test_offsets_go_with_their_topic(client: Client, topic: str, group: str, unique: Any) -> None:
    other = unique("other")
    client.create(topic)
    client.create(other)
    commit(client, group, {(topic, 0): 5, (other, 0): 6})
    client.call(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=10_000))
    wait_until(lambda: committed(client, group) == {(other, 0): (6, "")})
    client.create(topic)
    assert committed(client, group, {topic: [0]}) == {(topic, 0): (-1, "")}, "a new topic of that name starts afresh"


# ---- the consumer protocol (KIP-848) ----


def test_a_member_joins_beats_and_leaves(client: Client, topic: str, consumer: Any) -> None:
    topic_id = client.create(topic, 4)
    member = consumer(topic)
    chosen = member.member_id
    response = member.join()
    assert response.member_id == chosen, "the member chooses its id"
    assert (response.member_epoch, response.heartbeat_interval_ms) == (2, 200)
    assert member.target == {topic_id: [0, 1, 2, 3]}
    assert member.confirm().assignment is None
    quiet = member.heartbeat()
    assert (quiet.member_epoch, quiet.assignment) == (2, None), "nothing new, nothing said"
    member.heartbeat(**member.full())
    assert member.target == {topic_id: [0, 1, 2, 3]}, "whoever says everything is told everything"
    left = member.leave()
    assert (left.member_id, left.member_epoch, left.assignment) == (chosen, LEAVE_EPOCH, None)
    assert left.heartbeat_interval_ms == 0
    assert answer(member.ask()) == ("UNKNOWN_MEMBER_ID", f"Member {chosen} is not a member of group {member.group}.")


def test_an_older_member_is_given_its_id(client: Client, topic: str, consumer: Any) -> None:
    client.create(topic)
    member = consumer(topic)
    member.member_id = ""
    assert len(member.join(0).member_id) == 22
    chosen = consumer(topic)
    given = chosen.member_id
    assert chosen.join(0).member_id == given


def test_a_consumer_group_is_described(client: Client, topic: str, consumer: Any) -> None:
    topic_id = client.create(topic, 2)
    member = consumer(topic, rack_id="r1", instance="one")
    member.join()
    member.confirm()
    described = describe_consumer_group(client, member.group)
    assert answer(described) == ("NONE", None)
    assert (described.group_state, described.assignor_name) == ("Stable", "uniform")
    assert (described.group_epoch, described.assignment_epoch) == (2, 2)
    (seen,) = described.members
    assert (seen.member_id, seen.instance_id, seen.rack_id) == (member.member_id, "one", "r1")
    assert (seen.member_epoch, seen.client_id, seen.client_host) == (2, "raw", "/127.0.0.1")
    assert (seen.subscribed_topic_names, seen.subscribed_topic_regex) == ([topic], "")
    for assigned in (seen.assignment, seen.target_assignment):
        assert [(t.topic_id, t.topic_name, t.partitions) for t in assigned.topic_partitions] == [
            (topic_id, topic, [0, 1])
        ]
    assert seen.member_type == 1
    assert describe_consumer_group(client, member.group, 0).members[0].member_type == -1
    found = listed(client)[member.group]
    assert (found.protocol_type, found.group_state, found.group_type) == ("consumer", "Stable", "consumer")
    member.leave()
    described = describe_consumer_group(client, member.group)
    assert (described.group_state, described.group_epoch, described.members) == ("Empty", 3, [])


def test_describing_the_wrong_kind_of_group_finds_nothing(
    client: Client, topic: str, classic: Any, consumer: Any, unique: Any
) -> None:
    old = classic(topic, group=unique("classic")).settle().group
    new = consumer(topic).group
    assert consumer(topic, group=new).join().error_code == ErrorCode.NONE
    not_found = "GROUP_ID_NOT_FOUND"
    assert answer(describe_consumer_group(client, old)) == (not_found, f"Group {old} is not a consumer group.")
    assert answer(describe_consumer_group(client, "missing")) == (not_found, "Group missing not found.")
    assert answer(describe_consumer_group(client, "")) == ("INVALID_GROUP_ID", None)
    described = describe(client, new)
    assert answer(described) == (not_found, f"Group {new} is not a classic group.")
    assert described.group_state == "Dead"
    assert describe(client, new, 5).error_code == ErrorCode.NONE
    assert describe(client, new, 5).group_state == "Dead"


ASSIGNORS = "Supported assignors: uniform, range."
INVALID_HEARTBEATS: dict[str, tuple[dict[str, Any], str, str]] = {
    "no group": ({"group_id": ""}, "INVALID_REQUEST", "GroupId can't be empty."),
    "blank group": ({"group_id": "  "}, "INVALID_REQUEST", "GroupId can't be empty."),
    "no member": ({"member_id": ""}, "INVALID_REQUEST", "MemberId can't be empty."),
    "blank member": ({"member_id": " "}, "INVALID_REQUEST", "MemberId can't be empty."),
    "empty instance": ({"instance_id": ""}, "INVALID_REQUEST", "InstanceId can't be empty."),
    "empty rack": ({"rack_id": ""}, "INVALID_REQUEST", "RackId can't be empty."),
    "no rebalance timeout": (
        {"rebalance_timeout_ms": -1},
        "INVALID_REQUEST",
        "RebalanceTimeoutMs must be provided in first request.",
    ),
    "partitions left out": (
        {"topic_partitions": None},
        "INVALID_REQUEST",
        "TopicPartitions must be empty when (re-)joining.",
    ),
    "partitions owned": (
        {"topic_partitions": [TopicPartitions(topic_id=b"x" * 16, partitions=[0])]},
        "INVALID_REQUEST",
        "TopicPartitions must be empty when (re-)joining.",
    ),
    "no subscription": (
        {"subscribed_topic_names": None},
        "INVALID_REQUEST",
        "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
    ),
    "epoch below all": ({"member_epoch": -3}, "INVALID_REQUEST", "MemberEpoch is invalid."),
    "static leave of a dynamic member": ({"member_epoch": -2}, "INVALID_REQUEST", "InstanceId can't be null."),
    "unknown assignor": (
        {"server_assignor": "homemade"},
        "UNSUPPORTED_ASSIGNOR",
        f"ServerAssignor homemade is not supported. {ASSIGNORS}",
    ),
    "empty assignor": (
        {"server_assignor": ""},
        "UNSUPPORTED_ASSIGNOR",
        f"ServerAssignor  is not supported. {ASSIGNORS}",
    ),
    "bad class in a regex": (
        {"subscribed_topic_regex": "[a-"},
        "INVALID_REGULAR_EXPRESSION",
        "SubscribedTopicRegex `[a-` is not a valid regular expression: missing closing ].",
    ),
    "bad parenthesis in a regex": (
        {"subscribed_topic_regex": "(a"},
        "INVALID_REGULAR_EXPRESSION",
        "SubscribedTopicRegex `(a` is not a valid regular expression: missing closing ).",
    ),
    "epoch of an unknown group": (
        {"member_epoch": 5},
        "GROUP_ID_NOT_FOUND",
        "Consumer group {group} not found.",
    ),
    "leaving an unknown group": ({"member_epoch": -1}, "GROUP_ID_NOT_FOUND", "Group {group} not found."),
}


@pytest.mark.parametrize("case", INVALID_HEARTBEATS)
def test_an_invalid_heartbeat_is_refused_with_the_reason(client: Client, topic: str, consumer: Any, case: str) -> None:
    changes, code, message = INVALID_HEARTBEATS[case]
    member = consumer(topic)
    response = member.ask(**{**member.full(), **changes})
    assert answer(response) == (code, message.format(group=member.group))
    assert (response.member_id, response.member_epoch, response.heartbeat_interval_ms) == (None, 0, 0)
    assert response.assignment is None
    assert member.group not in listed(client)


def test_heartbeats_that_look_odd_but_are_allowed(client: Client, topic: str, consumer: Any, unique: Any) -> None:
    topic_id = client.create(topic, 2)
    everything = {topic_id: [0, 1]}
    cases: list[tuple[dict[str, Any], Any]] = [
        ({"rebalance_timeout_ms": 0}, everything),
        ({"subscribed_topic_names": [topic, topic]}, everything),
        ({"subscribed_topic_names": []}, {}),
        ({"subscribed_topic_names": None, "subscribed_topic_regex": ""}, {}),
        ({"subscribed_topic_names": ["missing"]}, {}),
        ({"member_id": "m" * 200}, everything),
    ]
    for changes, expected in cases:
        member = consumer(topic, group=unique("odd"))
        member.member_id = changes.pop("member_id", member.member_id)
        member.join(**changes)
        assert member.target == expected, changes
    nothing = consumer(topic, group=unique("odd"))
    assert nothing.join(subscribed_topic_names=[]).member_epoch == 1


def test_a_wrong_epoch_fences_the_member(client: Client, topic: str, consumer: Any) -> None:
    client.create(topic, 2)
    member = consumer(topic)
    member.join()
    member.confirm()
    known = "the one known by the group coordinator (2). The member must abandon all its partitions and rejoin."
    assert answer(member.ask(member_epoch=1)) == (
        "FENCED_MEMBER_EPOCH",
        f"The consumer group member has a smaller member epoch (1) than {known}",
    )
    assert answer(member.ask(member_epoch=3)) == (
        "FENCED_MEMBER_EPOCH",
        f"The consumer group member has a greater member epoch (3) than {known}",
    )
    unknown = f"Member nobody is not a member of group {member.group}."
    assert answer(member.ask(member_id="nobody")) == ("UNKNOWN_MEMBER_ID", unknown)
    assert answer(member.ask(member_id="nobody", member_epoch=LEAVE_EPOCH)) == ("UNKNOWN_MEMBER_ID", unknown)
    assert answer(member.ask(instance_id="unknown")) == ("UNKNOWN_MEMBER_ID", "Instance id unknown is unknown.")
    assert answer(member.ask(instance_id="unknown", member_epoch=LEAVE_STATIC_EPOCH)) == (
        "UNKNOWN_MEMBER_ID",
        "Instance id unknown is unknown.",
    )
    member.heartbeat()
    assert member.join().member_epoch == 2, "joining again keeps the epoch when nothing has changed"
    assert list(member.target.values()) == [[0, 1]]


def test_the_previous_epoch_is_accepted_from_a_member_that_missed_an_answer(
    client: Client, topic: str, consumer: Any
) -> None:
    client.create(topic, 4)
    first, second = consumer(topic), consumer(topic)
    first.join()
    first.confirm()
    second.join()
    settle(first, second)
    assert first.epoch == 3
    assert first.ask(member_epoch=2, **first.full()).error_code == ErrorCode.NONE
    assert first.ask(member_epoch=2).error_code == ErrorCode.FENCED_MEMBER_EPOCH, "it must say what it owns"
    too_much = [TopicPartitions(topic_id=topic_id, partitions=[0, 1, 2, 3]) for topic_id in first.owned]
    refused = first.ask(member_epoch=2, **first.full(topic_partitions=too_much))
    assert refused.error_code == ErrorCode.FENCED_MEMBER_EPOCH, "and that must not be more than it has"


def test_a_partition_moves_only_after_its_owner_has_given_it_up(client: Client, topic: str, consumer: Any) -> None:
    topic_id = client.create(topic, 4)
    first, second = consumer(topic), consumer(topic)
    first.join()
    first.confirm()
    second.join()
    assert second.target == {}, "everything is still with the first"

    def must_give_up() -> bool:
        second.heartbeat()
        assert second.target == {}
        first.heartbeat()
        return len(first.target[topic_id]) == 2

    wait_until(must_give_up)
    assert first.epoch == 2, "its epoch goes up when it has given up what it must"
    kept = first.target[topic_id]
    described = describe_consumer_group(client, first.group)
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Reconciling", 3, 3)
    targets = {
        member.member_id: [p for t in member.target_assignment.topic_partitions for p in t.partitions]
        for member in described.members
    }
    assert sorted(targets[first.member_id] + targets[second.member_id]) == [0, 1, 2, 3]
    for _ in range(3):  # beating is not enough
        assert first.heartbeat().member_epoch == 2
        second.heartbeat()
        assert second.target == {}
    first.heartbeat(topic_partitions=[TopicPartitions(topic_id=topic_id, partitions=[0, 1, 2, 3])])
    second.heartbeat()
    assert second.target == {}, "nor is confirming what it still owns"

    assert first.confirm().member_epoch == 3
    second.heartbeat()
    assert sorted(kept + second.target[topic_id]) == [0, 1, 2, 3]
    assert second.epoch == 3
    second.confirm()
    assert describe_consumer_group(client, first.group).group_state == "Stable"

    second.leave()
    wait_until(lambda: first.heartbeat() and len(first.target[topic_id]) == 4)
    assert first.epoch > 3


def test_a_member_that_does_not_give_up_in_time_is_fenced(client: Client, topic: str, consumer: Any) -> None:
    topic_id = client.create(topic, 2)
    slow, quick = consumer(topic, rebalance_timeout_ms=500), consumer(topic)
    slow.join()
    slow.confirm()
    quick.join()
    wait_until(lambda: slow.heartbeat() and len(slow.target[topic_id]) == 1)  # told, but does not
    wait_until(lambda: quick.heartbeat() and quick.target.get(topic_id) == [0, 1])
    assert answer(slow.ask())[0] == "UNKNOWN_MEMBER_ID"


def test_members_share_the_partitions_evenly(client: Client, topic: str, consumer: Any) -> None:
    topic_id = client.create(topic, 7)
    members = [consumer(topic) for _ in range(3)]
    for member in members:
        member.join()
    settle(*members)
    owned = [member.owned.get(topic_id, []) for member in members]
    assert sorted(map(len, owned)) == [2, 2, 3]
    assert sorted(index for indexes in owned for index in indexes) == list(range(7))


def test_the_range_assignor_gives_neighbours(client: Client, topic: str, consumer: Any, unique: Any) -> None:
    other = unique("other")
    ids = [client.create(topic, 4), client.create(other, 4)]
    members = [consumer(topic, other, server_assignor="range") for _ in range(2)]
    for member in members:
        member.join()
    settle(*members)
    assert sorted(member.owned[ids[0]] for member in members) == [[0, 1], [2, 3]]
    for member in members:
        assert member.owned[ids[0]] == member.owned[ids[1]], "co-partitioned"
    assert describe_consumer_group(client, members[0].group).assignor_name == "range"


def test_most_members_choose_the_assignor(client: Client, topic: str, consumer: Any) -> None:
    client.create(topic, 4)
    members = [consumer(topic, server_assignor=name) for name in ("uniform", "range", "range")]
    for member in members:
        member.join()
    assert describe_consumer_group(client, members[0].group).assignor_name == "range"
    members[1].heartbeat(server_assignor="uniform")
    assert describe_consumer_group(client, members[0].group).assignor_name == "uniform"
    refused = members[1].ask(server_assignor="homemade")
    assert answer(refused) == ("UNSUPPORTED_ASSIGNOR", f"ServerAssignor homemade is not supported. {ASSIGNORS}")


def test_a_changed_subscription_changes_the_assignment(client: Client, topic: str, consumer: Any, unique: Any) -> None:
    other = unique("other")
    ids = [client.create(topic, 2), client.create(other, 2)]
    member = consumer(topic)
    member.join()
    member.confirm()
    member.heartbeat(subscribed_topic_names=[other])
    wait_until(lambda: member.heartbeat(**member.full(subscribed_topic_names=[other])) and ids[0] not in member.target)
    member.topics = [other]
    settle(member)
    assert member.owned == {ids[1]: [0, 1]}


def test_new_partitions_and_topics_are_noticed(client: Client, topic: str, consumer: Any) -> None:
    member = consumer(topic)
    assert member.join().member_epoch == 2
    assert member.target == {}
    topic_id = client.create(topic, 2)
    wait_until(lambda: member.heartbeat() and member.target == {topic_id: [0, 1]})
    member.confirm()
    wish = CreatePartitionsTopic(name=topic, count=3, assignments=None)
    (result,) = client.call(CreatePartitionsRequest(topics=[wish], timeout_ms=10_000)).results
    assert result.error_code == ErrorCode.NONE, result
    wait_until(lambda: member.heartbeat() and member.target == {topic_id: [0, 1, 2]})


def test_the_broker_matches_a_regular_expression(client: Client, unique: Any, consumer: Any) -> None:
    names = [unique(f"animal.{animal}") for animal in ("cat", "dog")]
    ids = {client.create(name): name for name in names}
    client.create(unique("not-an-animal.cat"))
    member = consumer(subscribed_topic_regex=r"animal\.(cat|dog|emu).*")
    response = member.join()
    assert response.member_epoch >= 1
    wait_until(lambda: member.heartbeat() and set(member.target) == set(ids))  # it must match the whole name
    member.confirm()
    (seen,) = describe_consumer_group(client, member.group).members
    assert (seen.subscribed_topic_names, seen.subscribed_topic_regex) == ([], r"animal\.(cat|dog|emu).*")
    refused = member.ask(subscribed_topic_regex="(")
    assert answer(refused) == (
        "INVALID_REGULAR_EXPRESSION",
        "SubscribedTopicRegex `(` is not a valid regular expression: missing closing ).",
    )
    (cat,) = [topic_id for topic_id, name in ids.items() if "cat" in name]
    member.heartbeat(subscribed_topic_names=[ids[cat]], subscribed_topic_regex="")
    (seen,) = describe_consumer_group(client, member.group).members
    assert (seen.subscribed_topic_names, seen.subscribed_topic_regex) == ([ids[cat]], "")
    wait_until(lambda: member.heartbeat() and set(member.target) == {cat})


# ---- static members of the consumer protocol ----


def test_a_static_member_may_return_to_what_it_had(client: Client, topic: str, consumer: Any) -> None:
    topic_id = client.create(topic, 4)
    first, again = consumer(topic, instance="one"), consumer(topic, instance="one")
    first.join()
    first.confirm()
    assert answer(again.ask(**again.full())) == (
        "UNRELEASED_INSTANCE_ID",
        f"Static member {again.member_id} with instance id one cannot join the group because the instance id is owned "
        f"by {first.member_id} member.",
    )
    gone = first.ask(member_epoch=LEAVE_STATIC_EPOCH)
    assert (gone.error_code, gone.member_epoch) == (ErrorCode.NONE, LEAVE_STATIC_EPOCH)
    described = describe_consumer_group(client, first.group)
    assert described.group_state == "Reconciling"
    (seen,) = described.members
    assert (seen.member_epoch, seen.instance_id) == (LEAVE_STATIC_EPOCH, "one")
    assert [t.partitions for t in seen.assignment.topic_partitions] == [[0, 1, 2, 3]], "kept for it"
    assert answer(first.ask()) == (
        "FENCED_MEMBER_EPOCH",
        "The consumer group member has a greater member epoch (2) than the one known by the group coordinator (-2). "
        "The member must abandon all its partitions and rejoin.",
    )
    assert again.join().member_epoch == 2, "no rebalance"
    assert again.target == {topic_id: [0, 1, 2, 3]}
    fenced = f"Static member {first.member_id} with instance id one was fenced by member {again.member_id}."
    assert answer(first.ask()) == ("FENCED_INSTANCE_ID", fenced)
    assert answer(first.ask(member_epoch=LEAVE_EPOCH)) == ("FENCED_INSTANCE_ID", fenced)
    assert again.ask(instance_id=None).error_code == ErrorCode.NONE
    assert again.leave().member_epoch == LEAVE_EPOCH
    assert describe_consumer_group(client, first.group).group_state == "Empty"


# ---- offsets of consumer groups ----


def test_offsets_of_a_consumer_group_need_the_right_epoch(client: Client, topic: str, consumer: Any) -> None:
    client.create(topic, 2)
    member = consumer(topic)
    member.join()
    member.confirm()

    def put(**changes: Any) -> ErrorCode:
        settings: dict[str, Any] = {"generation": member.epoch, "member_id": member.member_id, **changes}
        (code,) = commit(client, member.group, {(topic, 0): 3}, **settings).values()
        return code

    assert put(generation=member.epoch - 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert put(generation=member.epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert put(version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert put(member_id="nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    assert put(member_id="", generation=-1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(client, member.group) == {}
    assert put() == ErrorCode.NONE
    expected = {(topic, 0): (3, "")}

    def got(**who: Any) -> Any:
        wanted = OffsetFetchRequestGroup(
            group_id=member.group, topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])], **who
        )
        (found,) = client.call(OffsetFetchRequest(groups=[wanted]), 9).groups
        return ErrorCode(found.error_code)

    assert got(member_id=member.member_id, member_epoch=member.epoch) == ErrorCode.NONE
    assert got(member_id=member.member_id, member_epoch=member.epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert got(member_id="nobody", member_epoch=member.epoch) == ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(client, member.group, {topic: [0]}) == expected, "whoever is no member may ask"
    assert committed(client, member.group, {topic: [0]}, version=8) == expected
    assert delete_group(client, member.group) == ErrorCode.NON_EMPTY_GROUP
    part = OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    deleted = client.call(OffsetDeleteRequest(group_id=member.group, topics=[part]))
    assert deleted.topics[0].partitions[0].error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    member.leave()
    for version in (8, 9):
        assert put(member_id="", generation=-1, version=version) == ErrorCode.NONE, "the group is empty now"
    assert delete_group(client, member.group) == ErrorCode.NONE


# ---- both protocols in one group ----


def test_a_classic_group_is_converted_when_a_consumer_joins(
    client: Client, topic: str, classic: Any, consumer: Any
) -> None:
    topic_id = client.create(topic, 4)
    old = classic(topic, subscription_version=3).settle({topic: [0, 1, 2, 3]})
    assert old.commit(topic, 7) == ErrorCode.NONE
    new = consumer(topic)
    new.join()
    assert new.target == {}
    assert listed(client)[old.group].group_type == "consumer"
    assert committed(client, old.group) == {(topic, 0): (7, "")}
    assert old.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert old.commit(topic, 8) == ErrorCode.NONE
    described = describe_consumer_group(client, old.group)
    assert described.group_state == "Reconciling"
    assert {member.member_id: member.member_type for member in described.members} == {
        old.member_id: 0,
        new.member_id: 1,
    }
    kept = [t.partitions for m in described.members if m.member_type == 0 for t in m.target_assignment.topic_partitions]
    assert [len(partitions) for partitions in kept] == [2]

    # The classic member learns in JoinGroup and SyncGroup what it may keep, and tells so by joining once more.
    old.owned = {topic: kept[0]}
    response = old.join()
    assert (response.leader, response.members, response.protocol_name) == ("", [], "range")
    assert old.sync().error_code == ErrorCode.NONE
    assert old.owned == {topic: kept[0]}
    assert old.heartbeat() == ErrorCode.NONE
    wait_until(lambda: new.heartbeat() and len(new.target.get(topic_id, [])) == 2)
    assert sorted(new.target[topic_id] + kept[0]) == [0, 1, 2, 3]
    new.confirm()
    wait_until(lambda: describe_consumer_group(client, old.group).group_state == "Stable")


def test_a_group_is_classic_again_when_the_last_consumer_has_left(
    client: Client, topic: str, classic: Any, consumer: Any
) -> None:
    topic_id = client.create(topic, 2)
    new = consumer(topic)
    new.join()
    new.confirm()
    old = classic(topic, subscription_version=3)
    old.take_id()
    response = old.ask_to_join()
    assert (response.error_code, response.leader, response.members) == (ErrorCode.NONE, "", [])
    assert old.sync().error_code == ErrorCode.NONE
    assert old.owned == {}
    assert old.heartbeat() == ErrorCode.NONE
    wait_until(lambda: new.heartbeat() and len(new.target[topic_id]) == 1)
    new.confirm()
    wait_until(lambda: old.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS)
    old.join()
    old.sync()
    assert {topic: [0, 1]} == {topic: sorted(old.owned[topic] + new.owned[topic_id])}
    new.leave()
    found = listed(client)[old.group]
    assert (found.group_type, found.group_state) == ("classic", "PreparingRebalance")
    assert describe(client, old.group).error_code == ErrorCode.NONE
    response = old.join()
    assert (response.leader, len(response.members)) == (old.member_id, 1)
    old.sync({old.member_id: {topic: [0, 1]}})
    assert old.owned == {topic: [0, 1]}


def test_a_group_that_is_not_of_consumers_is_not_converted(
    client: Client, topic: str, classic: Any, consumer: Any
) -> None:
    worker = classic(topic)
    worker.protocol_type = "connect"
    worker.settle()
    member = consumer(topic)
    assert answer(member.ask(**member.full())) == (
        "GROUP_ID_NOT_FOUND",
        f"Cannot upgrade classic group {worker.group} to consumer group because the group does not use the consumer "
        "embedded protocol.",
    )
    assert worker.heartbeat() == ErrorCode.NONE


def test_a_worker_cannot_join_a_consumer_group(client: Client, topic: str, classic: Any, consumer: Any) -> None:
    consumer(topic).join()
    worker = classic(topic)
    worker.protocol_type = "connect"
    assert worker.ask_to_join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_classic_heartbeat_of_a_consumer_member_is_unknown(client: Client, topic: str, consumer: Any) -> None:
    client.create(topic)
    member = consumer(topic)
    member.join()
    stranger = ClassicMember(client.system, member.group, [topic])
    beat = stranger.heartbeat(member_id=member.member_id, generation_id=member.epoch)
    assert beat == ErrorCode.UNKNOWN_MEMBER_ID
    stranger.close()
