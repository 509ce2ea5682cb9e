"""Groups on a broker with little patience: its limits on size and silence, and the delay before a first rebalance."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.wire.errors import ErrorCode
from tests.compat.test_groups_protocol import GroupClient
from tests.compat.test_protocol import Client
from tests.support.groups import (
    ClassicMember,
    ConsumerMember,
    commit,
    describe,
    describe_consumer_group,
    settle,
    wait_for_coordinator,
    wait_until,
)
from tests.support.systems import System

DELAY_S = 1.0
SESSION_S = 1.5
OPTIONS = {
    "group.max.size": "2",
    "group.consumer.max.size": "2",
    "group.initial.rebalance.delay.ms": str(int(DELAY_S * 1000)),
    "group.min.session.timeout.ms": "500",
    "group.max.session.timeout.ms": "60000",
    "group.consumer.min.session.timeout.ms": "500",
    "group.consumer.session.timeout.ms": str(int(SESSION_S * 1000)),
    "offset.metadata.max.bytes": "10",
}


@pytest.fixture(scope="module", params=["penstock", "kafka"])
def strict(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    running = System(request.param, tmp_path_factory.mktemp(f"strict-{request.param}") / "data", OPTIONS).start()
    wait_for_coordinator(running)
    yield running
    running.kill()


@pytest.fixture
def client(strict: System) -> Iterator[Client]:
    made = GroupClient(strict)
    yield made
    made.connection.close()


@pytest.fixture
def classic(strict: System, unique: Callable[[str], str]) -> Iterator[Callable[..., ClassicMember]]:
    made: list[ClassicMember] = []
    group = unique("strict")

    def make(*topics: str, **options: Any) -> ClassicMember:
        made.append(ClassicMember(strict, group, topics, **options))
        return made[-1]

    yield make
    for member in made:
        member.close()


@pytest.fixture
def consumer(strict: System, unique: Callable[[str], str]) -> Iterator[Callable[..., ConsumerMember]]:
    made: list[ConsumerMember] = []
    group = unique("strict")

    def make(*topics: str, **options: Any) -> ConsumerMember:
        made.append(ConsumerMember(strict, group, topics, **options))
        return made[-1]

    yield make
    for member in made:
        member.close()


def test_the_first_rebalance_waits_for_more_members(topic: str, classic: Any) -> None:
    first, second = classic(topic), classic(topic)
    first.take_id()
    second.take_id()
    began = time.monotonic()
    first.send_join()
    second.send_join()
    responses = [first.receive_join(), second.receive_join()]
    assert time.monotonic() - began >= DELAY_S * 0.9
    assert [response.generation_id for response in responses] == [1, 1], "one rebalance for both"
    leader, follower = (first, second) if first.is_leader else (second, first)
    leader.sync({first.member_id: {}, second.member_id: {}})
    follower.sync()
    began = time.monotonic()
    follower.leave()
    assert leader.ask_to_join().generation_id == 2
    assert time.monotonic() - began < DELAY_S * 0.9, "only the first one waits"


def test_a_full_classic_group_takes_no_more(client: Client, topic: str, classic: Any) -> None:
    members = [classic(topic) for _ in range(3)]
    for member in members[:2]:
        member.take_id()
        member.send_join()
    assert [member.receive_join().error_code for member in members[:2]] == [ErrorCode.NONE] * 2
    members[2].send_join(3)  # this version gets no id first
    assert members[2].receive_join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert members[2].ask_to_join(9).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len(describe(client, members[0].group).members) == 2
    members[1].leave()
    members[2].take_id()


def test_a_full_consumer_group_takes_no_more(client: Client, topic: str, consumer: Any) -> None:
    client.create(topic, 2)
    members = [consumer(topic) for _ in range(3)]
    for member in members[:2]:
        member.join()
    refused = members[2].ask(**members[2].full())
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refused.error_message == "The consumer group has reached its maximum capacity of 2 members."
    assert len(describe_consumer_group(client, members[0].group).members) == 2
    members[0].leave()
    assert members[2].join().error_code == ErrorCode.NONE


def test_a_silent_classic_member_is_removed_after_its_session(client: Client, topic: str, classic: Any) -> None:
    silent = classic(topic, session_timeout_ms=600)
    silent.settle({topic: [0]})
    began = time.monotonic()
    wait_until(lambda: describe(client, silent.group).group_state == "Empty")
    assert time.monotonic() - began >= 0.5
    assert silent.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_heartbeat_keeps_a_classic_member(topic: str, classic: Any) -> None:
    member = classic(topic, session_timeout_ms=600)
    member.settle({topic: [0]})
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        assert member.heartbeat() == ErrorCode.NONE
        time.sleep(0.1)


def test_a_commit_counts_as_a_sign_of_life(client: Client, topic: str, classic: Any) -> None:
    client.create(topic)
    member = classic(topic, session_timeout_ms=600)
    member.settle({topic: [0]})
    until = time.monotonic() + 1.5
    while time.monotonic() < until:
        assert member.commit(topic, 1) == ErrorCode.NONE
        time.sleep(0.1)


def test_a_member_that_took_an_id_and_never_came_is_forgotten(topic: str, classic: Any) -> None:
    member = classic(topic, session_timeout_ms=600)
    member.take_id()
    began = time.monotonic()
    other = classic(topic, session_timeout_ms=30_000)
    other.join()
    assert time.monotonic() - began < 10
    time.sleep(max(0.0, 1.0 - (time.monotonic() - began)))  # its session must be over
    assert member.ask_to_join().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_consumer_member_is_removed_after_the_session(client: Client, topic: str, consumer: Any) -> None:
    topic_id = client.create(topic, 2)
    silent, alive = consumer(topic), consumer(topic)
    silent.join()
    silent.confirm()
    alive.join()
    settle(silent, alive)
    began = time.monotonic()
    wait_until(lambda: alive.heartbeat() and alive.target == {topic_id: [0, 1]})
    assert time.monotonic() - began >= SESSION_S * 0.8
    assert silent.ask().error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_consumer_member_that_stays_away_is_removed(client: Client, topic: str, consumer: Any) -> None:
    client.create(topic)
    member = consumer(topic, instance="one")
    member.join()
    member.ask(member_epoch=-2)
    began = time.monotonic()
    wait_until(lambda: describe_consumer_group(client, member.group).group_state == "Empty")
    assert time.monotonic() - began >= SESSION_S * 0.8


def test_metadata_of_a_commit_is_limited(client: Client, topic: str, unique: Any) -> None:
    client.create(topic, 2)
    group = unique("wordy")
    too_large = ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert commit(client, group, {(topic, 0): 1}, metadata="x" * 11) == {(topic, 0): too_large}
    assert commit(client, group, {(topic, 0): 1}, metadata="x" * 10) == {(topic, 0): ErrorCode.NONE}
