"""The broker is killed while it looks after groups: they come back with their members, rules and offsets."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.wire.errors import ErrorCode
from tests.chaos.group_members import ClassicMember as BusyClassicMember
from tests.chaos.group_members import ConsumerMember as BusyConsumerMember
from tests.chaos.group_members import Crowd, Member, Place, Writer
from tests.chaos.test_group_churn import create
from tests.support.groups import (
    ClassicMember,
    ConsumerMember,
    commit,
    committed,
    delete_group,
    describe,
    describe_consumer_group,
    listed,
    settle,
    wait_for_coordinator,
    wait_until,
)
from tests.support.systems import System

SESSION_S = 30.0
OPTIONS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(int(SESSION_S * 1000)),
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[System]:
    running = System("penstock", tmp_path / "data", OPTIONS).start()
    wait_for_coordinator(running)
    yield running
    running.kill()


def kill_and_start(system: System, *members: Any) -> None:
    """Members get new connections; all else is as they know it."""
    system.kill()
    system.start()
    wait_for_coordinator(system)
    for member in members:
        member.connection.close()
        member.connection = system.connect(client_id="raw")


def test_groups_come_back_after_a_kill(broker: System) -> None:
    topic_id = create(broker, "topic", 4)
    with broker.connect() as connection:
        wait_until(lambda: commit(connection, "outside", {("topic", 3): 33}, metadata="kept")["topic", 3] == 0)
        commit(connection, "deleted", {("topic", 3): 33})
        assert delete_group(connection, "deleted") == ErrorCode.NONE

    steady = ClassicMember(broker, "steady", ["topic"]).settle({"topic": [0, 1, 2, 3]})
    steady.ask_to_join()
    steady.sync({steady.member_id: {"topic": [0, 1]}})
    assert steady.generation == 2
    assert steady.commit("topic", 7) == ErrorCode.NONE
    static = ClassicMember(broker, "static", ["topic"], instance="one").settle({"topic": [2]})
    empty = ClassicMember(broker, "empty", ["topic"]).settle()
    empty.leave()

    joining = ClassicMember(broker, "joining", ["topic"]).settle({"topic": [0]})
    newcomer = ClassicMember(broker, "joining", ["topic"])
    newcomer.take_id()
    newcomer.send_join()
    wait_until(lambda: joining.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS)
    syncing = ClassicMember(broker, "syncing", ["topic"]).settle({"topic": [0]})
    syncing.join()  # and never syncs
    assert syncing.generation == 2

    pair = [ConsumerMember(broker, "modern", ["topic"]) for _ in range(2)]
    for member in pair:
        member.join()
    settle(*pair)
    owned = [dict(member.owned) for member in pair]
    epoch = pair[0].epoch
    leaver = ConsumerMember(broker, "modern-static", ["topic"], instance="one")
    leaver.join()
    leaver.confirm()
    leaver.ask(member_epoch=-2)

    kill_and_start(broker, steady, static, empty, joining, newcomer, syncing, *pair, leaver)

    with broker.connect() as connection:
        assert committed(connection, "outside") == {("topic", 3): (33, "kept")}
        assert "deleted" not in listed(connection)
        assert committed(connection, "deleted") == {}
        assert committed(connection, "steady") == {("topic", 0): (7, "")}
        assert describe(connection, "steady").group_state == "Stable"
        assert describe(connection, "empty").group_state == "Empty"
    assert steady.heartbeat() == ErrorCode.NONE
    assert steady.sync().error_code == ErrorCode.NONE
    assert steady.owned == {"topic": [0, 1]}
    assert steady.commit("topic", 8) == ErrorCode.NONE
    assert steady.commit("topic", 6, generation=1) == ErrorCode.ILLEGAL_GENERATION
    assert steady.heartbeat(member_id="nobody") == ErrorCode.UNKNOWN_MEMBER_ID
    assert steady.join().generation_id == 3

    again = ClassicMember(broker, "static", ["topic"], instance="one")
    assert again.join().generation_id == 1
    again.sync()
    assert again.owned == {"topic": [2]}
    assert static.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    assert ClassicMember(broker, "empty", ["topic"]).settle().generation == 3

    # What was not finished is forgotten: the last assignment is in force.
    assert joining.heartbeat() == ErrorCode.NONE
    assert joining.commit("topic", 1) == ErrorCode.NONE
    assert newcomer.ask_to_join().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert syncing.heartbeat() == ErrorCode.ILLEGAL_GENERATION
    assert syncing.join().generation_id == 2
    assert syncing.sync({syncing.member_id: {"topic": [1]}}).error_code == ErrorCode.NONE

    for member, before in zip(pair, owned, strict=True):
        assert member.heartbeat().member_epoch == epoch
        member.heartbeat(**member.full())
        assert member.target == before
    assert pair[0].ask(member_epoch=epoch + 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    with broker.connect() as connection:
        described = describe_consumer_group(connection, "modern")
        assert (described.group_state, described.group_epoch) == ("Stable", epoch)
        (seen,) = describe_consumer_group(connection, "modern-static").members
        assert (seen.member_epoch, seen.instance_id) == (-2, "one")
    returned = ConsumerMember(broker, "modern-static", ["topic"], instance="one")
    returned.join()
    assert returned.target == {topic_id: [0, 1, 2, 3]}


PROTOCOLS: dict[str, list[type[Member]]] = {
    "classic": [BusyClassicMember],
    "consumer": [BusyConsumerMember],
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_groups_keep_their_promises_through_kills(
    broker: System, request: pytest.FixtureRequest, seed: int, protocol: str
) -> None:
    is_short = request.config.getoption("--chaos") == "short"
    kills = (4 if is_short else 40) if broker.is_penstock else (1 if is_short else 5)
    chance = random.Random(seed)
    partitions = 20
    topic_id = create(broker, "topic", partitions)
    place = Place(broker.port, "group", "topic", topic_id, partitions, 0.1, SESSION_S)

    async def run() -> None:
        crowd = Crowd(PROTOCOLS[protocol], place, 8, chance, crash_share=0.0)
        writer = Writer(place)
        writing = asyncio.create_task(writer.run())
        for _ in range(5):
            crowd.add()
        await crowd.rest({})
        for _ in range(kills):
            await crowd.churn(chance.uniform(1.5, 2.5), pause_s=0.2)  # in the middle of rebalances
            broker.kill()
            await asyncio.to_thread(broker.start)
            await crowd.rest(dict(writer.ends))
        writer.is_stopping = True
        await writing
        await crowd.rest(writer.ends)
        assert crowd.promises.moves > partitions, "too little happened"
        assert all(crowd.promises.read[partition] >= end for partition, end in writer.ends.items())
        await crowd.close()
        crowd.check_alive()

    asyncio.run(run())
