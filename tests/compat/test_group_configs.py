"""Settings of single groups, on both systems."""

from __future__ import annotations

import time
from typing import Any

import pytest

from penstock.wire.errors import ErrorCode
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResult,
)
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.wire.messages.list_config_resources import ListConfigResourcesRequest
from tests.compat.test_protocol import Client
from tests.support.groups import ConsumerMember, wait_for_coordinator, wait_until
from tests.support.java_tools import JavaTools
from tests.support.systems import System

GROUP = 32
SET, DELETE, APPEND = range(3)
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
DYNAMIC_GROUP, STATIC_BROKER, DEFAULT = 8, 4, 5


@pytest.fixture(autouse=True)
def coordinator(system: System) -> None:
    wait_for_coordinator(system)


def alter(client: Client, group: str, *changes: tuple[str, int, str | None]) -> tuple[int, str | None]:
    configs = [AlterableConfig(name=name, config_operation=what, value=value) for name, what, value in changes]
    resource = AlterConfigsResource(resource_type=GROUP, resource_name=group, configs=configs)
    (result,) = client.call(IncrementalAlterConfigsRequest(resources=[resource])).responses
    return result.error_code, result.error_message or None


def describe(client: Client, group: str) -> DescribeConfigsResult:
    wanted = DescribeConfigsResource(resource_type=GROUP, resource_name=group, configuration_keys=[SESSION, HEARTBEAT])
    (result,) = client.call(DescribeConfigsRequest(resources=[wanted], include_synonyms=True)).results
    found: DescribeConfigsResult = result
    return found


def value_of(client: Client, group: str, name: str) -> tuple[str | None, int]:
    (entry,) = (entry for entry in describe(client, group).configs if entry.name == name)
    return entry.value, entry.config_source


def test_a_group_has_what_the_broker_has_until_it_is_given_its_own(client: Client, group: str) -> None:
    assert value_of(client, group, SESSION) == ("45000", DEFAULT)
    assert value_of(client, group, HEARTBEAT) == ("200", STATIC_BROKER)
    assert alter(client, group, (SESSION, SET, "50000")) == (0, None)
    wait_until(lambda: value_of(client, group, SESSION) == ("50000", DYNAMIC_GROUP))
    (entry,) = (entry for entry in describe(client, group).configs if entry.name == SESSION)
    synonyms = [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms]
    assert synonyms == [(SESSION, "50000", DYNAMIC_GROUP), (f"group.{SESSION}", "45000", DEFAULT)]
    listed = client.call(ListConfigResourcesRequest(resource_types=[GROUP])).config_resources
    assert group in [found.resource_name for found in listed]
    assert alter(client, group, (SESSION, DELETE, None)) == (0, None)
    wait_until(lambda: value_of(client, group, SESSION) == ("45000", DEFAULT))


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        (SESSION, "1", f"{SESSION} must be greater than or equal to group.consumer.min.session.timeout.ms"),
        (SESSION, "99999999", f"{SESSION} must be less than or equal to group.consumer.max.session.timeout.ms"),
        (HEARTBEAT, "1", f"{HEARTBEAT} must be greater than or equal to group.consumer.min.heartbeat.interval.ms"),
        (HEARTBEAT, "99999999", f"{HEARTBEAT} must be less than or equal to group.consumer.max.heartbeat.interval.ms"),
        (SESSION, "soon", f"Invalid value soon for configuration {SESSION}: Not a number of type INT"),
        ("nonsense", "1", "Unknown group config name: nonsense"),
    ],
)
def test_what_a_group_cannot_have_is_refused(client: Client, group: str, name: str, value: str, problem: str) -> None:
    assert alter(client, group, (name, SET, value)) == (ErrorCode.INVALID_CONFIG, problem)


def test_changes_that_make_no_sense_are_refused(client: Client, group: str) -> None:
    missing = (ErrorCode.INVALID_REQUEST, f"Null value not supported for : {SESSION}")
    assert alter(client, group, (SESSION, SET, None)) == missing
    no_list = (ErrorCode.INVALID_CONFIG, f"Can't APPEND to key {SESSION} because its type is not LIST.")
    assert alter(client, group, (SESSION, APPEND, "5")) == no_list
    nameless = (ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    assert alter(client, "", (SESSION, SET, "50000")) == nameless
    result = describe(client, "")
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, "Group name must not be empty")


def test_members_are_asked_for_heartbeats_as_often_as_their_group_has_it(
    client: Client, topic: str, group: str
) -> None:
    client.create(topic)
    member = ConsumerMember(client.system, group, [topic])
    assert member.join().heartbeat_interval_ms == 200
    assert alter(client, group, (HEARTBEAT, SET, "1234")) == (0, None)
    deadline = time.monotonic() + 10
    while member.heartbeat().heartbeat_interval_ms != 1234:
        assert time.monotonic() < deadline
    member.leave()
    member.close()


@pytest.mark.java
def test_kafkas_own_tool_changes_and_shows_them(client: Client, system: System, java: JavaTools, group: str) -> None:
    def tool(*arguments: Any) -> str:
        at = ("--bootstrap-server", system.bootstrap, "--entity-type", "groups", "--entity-name", group)
        return java.tool("ConfigCommand", *at, *arguments).out

    tool("--alter", "--add-config", f"{SESSION}=55000")
    wait_until(lambda: f"{SESSION}=55000" in tool("--describe"))
    tool("--alter", "--delete-config", SESSION)
    wait_until(lambda: SESSION not in tool("--describe"))
