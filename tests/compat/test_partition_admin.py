"""Leaders and replicas of single partitions, and what has settings: the protocol and Kafka's tools, on both systems."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.wire.errors import ErrorCode
from penstock.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from penstock.wire.messages.list_config_resources import ListConfigResourcesRequest
from penstock.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.compat.test_protocol import Client
from tests.support.java_tools import JavaTools
from tests.support.systems import NODE_ID, System

TOPIC, BROKER, BROKER_LOGGER, CLIENT_METRICS = 2, 4, 8, 16

Outcome = tuple[int, int, str | None]  # of a partition: its index, error, message


# ---- leaders ----


@pytest.fixture
def elect(client: Client) -> Callable[..., dict[str, list[Outcome]]]:
    def ask(wanted: dict[str, list[int]] | None, kind: int = 0, version: int = 2) -> dict[str, list[Outcome]]:
        partitions = None if wanted is None else [TopicPartitions(*item) for item in wanted.items()]
        answer = client.call(ElectLeadersRequest(election_type=kind, topic_partitions=partitions), version)
        assert answer.error_code == 0
        return {
            result.topic: [(one.partition_id, one.error_code, one.error_message) for one in result.partition_result]
            for result in answer.replica_election_results
        }

    return ask


@pytest.mark.parametrize("kind", [0, 1], ids=["preferred", "unclean"])
def test_who_leads_already_needs_no_election(
    client: Client, topic: str, elect: Callable[..., object], kind: int
) -> None:
    client.create(topic, 2)
    needless = (ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
    assert elect({topic: [1, 0]}, kind) == {topic: [(1, *needless), (0, *needless)]}
    assert elect({topic: [0]}, version=0) == {topic: [(0, *needless)]}


def test_an_election_in_all_partitions_tells_only_of_those_that_it_concerns(
    client: Client, topic: str, elect: Callable[..., dict[str, list[Outcome]]]
) -> None:
    client.create(topic, 2)
    answer = elect(None)
    assert answer[topic] == []
    assert not any(answer.values())


def test_there_is_no_election_in_what_does_not_exist(
    client: Client, topic: str, elect: Callable[..., object], unique: Callable[[str], str]
) -> None:
    client.create(topic)
    missing = unique("missing")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert elect({missing: [0]}) == {missing: [(0, unknown, f"No such topic as {missing}")]}
    assert elect({topic: [7]}) == {topic: [(7, unknown, f"No such partition as {topic}-7")]}


# ---- replicas ----


@pytest.fixture
def reassign(client: Client) -> Callable[..., list[Outcome]]:
    def ask(name: str, wanted: dict[int, list[int] | None], *, may_change_count: bool = True) -> list[Outcome]:
        partitions = [ReassignablePartition(*item) for item in wanted.items()]
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name, partitions)], allow_replication_factor_change=may_change_count
        )
        answer = client.call(request)
        assert (answer.error_code, answer.error_message) == (0, None)
        assert answer.allow_replication_factor_change is may_change_count
        (result,) = answer.responses
        assert result.name == name
        return [(one.partition_index, one.error_code, one.error_message) for one in result.partitions]

    return ask


def test_a_partition_stays_where_it_is(client: Client, topic: str, reassign: Callable[..., object]) -> None:
    client.create(topic, 2)
    assert reassign(topic, {0: [NODE_ID], 1: [NODE_ID]}) == [(0, 0, None), (1, 0, None)]


@pytest.mark.parametrize("replicas", [[], [NODE_ID, NODE_ID], [NODE_ID, 77], [-1]])
def test_replicas_that_cannot_be_are_refused(
    client: Client, topic: str, reassign: Callable[..., list[Outcome]], replicas: list[int]
) -> None:
    client.create(topic)
    ((index, code, message),) = reassign(topic, {0: replicas})
    assert (index, code) == (0, ErrorCode.INVALID_REPLICA_ASSIGNMENT)
    assert (message or "").startswith("The manual partition assignment includes")


def test_what_does_not_move_cannot_be_stopped(client: Client, topic: str, reassign: Callable[..., object]) -> None:
    client.create(topic)
    assert reassign(topic, {0: None}) == [(0, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None)]


def test_what_does_not_exist_cannot_move(
    client: Client, topic: str, reassign: Callable[..., object], unique: Callable[[str], str]
) -> None:
    client.create(topic)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    missing = unique("missing")
    assert reassign(missing, {0: [NODE_ID]}) == [(0, unknown, f"Unable to find a topic named {missing}.")]
    assert reassign(topic, {5: [NODE_ID]}) == [(5, unknown, f"Unable to find partition {topic}:5.")]


def test_nothing_is_on_its_way_to_other_brokers(client: Client, topic: str) -> None:
    client.create(topic)
    for topics in (None, [], [ListPartitionReassignmentsTopics(topic, [0, 9])]):
        answer = client.call(ListPartitionReassignmentsRequest(topics=topics))
        assert (answer.error_code, answer.error_message, answer.topics) == (0, None, [])


# ---- what has settings ----


def test_resources_with_settings_are_listed_by_kind(client: Client, topic: str) -> None:
    client.create(topic)

    def ask(*kinds: int, version: int = 1) -> set[tuple[int, str]]:
        answer = client.call(ListConfigResourcesRequest(resource_types=list(kinds)), version)
        assert answer.error_code == 0
        return {(found.resource_type, found.resource_name) for found in answer.config_resources}

    brokers = {(BROKER, str(NODE_ID)), (BROKER_LOGGER, str(NODE_ID))}
    assert ask(BROKER, BROKER_LOGGER) == brokers
    assert (TOPIC, topic) in ask(TOPIC)
    assert {(TOPIC, topic), *brokers} <= ask()
    assert ask(version=0) == ask(CLIENT_METRICS) == set()
    answer = client.call(ListConfigResourcesRequest(resource_types=[99]), 1)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION


# ---- Kafka's tools ----


@pytest.mark.java
def test_kafkas_leader_election_tool_finds_nothing_to_do(
    client: Client, system: System, java: JavaTools, topic: str
) -> None:
    client.create(topic)
    output = java.tool(
        "LeaderElectionCommand", "--bootstrap-server", system.bootstrap, "--election-type", "preferred",
        "--topic", topic, "--partition", "0",
    ).out  # fmt: skip
    assert f"Valid replica already elected for partitions {topic}-0" in output


@pytest.mark.java
def test_kafkas_reassignment_tool_moves_and_verifies(
    client: Client, system: System, java: JavaTools, topic: str, tmp_path: Path
) -> None:
    client.create(topic, 2)
    tool = "reassign.ReassignPartitionsCommand"
    plan = tmp_path / "plan.json"
    partitions = [{"topic": topic, "partition": index, "replicas": [NODE_ID]} for index in range(2)]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
    at = ("--bootstrap-server", system.bootstrap)
    assert "No partition reassignments found." in java.tool(tool, *at, "--list").out
    executed = java.tool(tool, *at, "--execute", "--reassignment-json-file", str(plan)).out
    assert "Successfully started partition reassignments" in executed
    verified = java.tool(tool, *at, "--verify", "--reassignment-json-file", str(plan)).out
    assert f"Reassignment of partition {topic}-1 is completed." in verified
