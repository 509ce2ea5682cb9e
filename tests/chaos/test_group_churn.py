"""Members join and leave at random: no partition is owned twice, none is forgotten, no offset goes back."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest

from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.chaos.group_members import ClassicMember, ConsumerMember, Crowd, Member, Place, Promises, Writer
from tests.support.groups import wait_for_coordinator
from tests.support.systems import System

PARTITIONS = 60
SESSION_S = 5.0
OPTIONS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": str(int(SESSION_S * 1000)),
}
PROTOCOLS: dict[str, list[type[Member]]] = {
    "classic": [ClassicMember],
    "consumer": [ConsumerMember],
    "both": [ClassicMember, ConsumerMember],
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    running = System("penstock", tmp_path_factory.mktemp("churn") / "data", OPTIONS).start()
    wait_for_coordinator(running)
    yield running
    running.kill()


def create(system: System, topic: str, partitions: int) -> bytes:
    wish = CreatableTopic(name=topic, num_partitions=partitions, replication_factor=1)
    with system.connect() as connection:
        (result,) = connection.call(CreateTopicsRequest(topics=[wish], timeout_ms=30_000)).topics
    assert result.error_code == 0, result
    topic_id: bytes = result.topic_id
    return topic_id


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_keeps_its_promises_while_members_come_and_go(
    broker: System, request: pytest.FixtureRequest, seed: int, protocol: str
) -> None:
    is_short = request.config.getoption("--chaos") == "short"
    size, seconds, beat_s = (16, 5.0, 0.2) if is_short else (100, 120.0, 1.0)
    topic = f"churn-{protocol}"
    topic_id = create(broker, topic, PARTITIONS)
    place = Place(broker.port, f"group-{protocol}", topic, topic_id, PARTITIONS, beat_s, SESSION_S)

    async def run() -> None:
        crowd = Crowd(PROTOCOLS[protocol], place, size, random.Random(seed))
        writer = Writer(place)
        writing = asyncio.create_task(writer.run())
        for _ in range(size // 2):
            crowd.add()
        await crowd.churn(seconds, pause_s=0.5 if is_short else 1.0)
        writer.is_stopping = True
        await writing
        await crowd.rest(writer.ends)
        assert len(writer.ends) == PARTITIONS
        assert crowd.promises.moves > PARTITIONS, "too little happened"
        assert crowd.promises.read == writer.ends, "every record was read by someone"
        await crowd.close()
        crowd.check_alive()
        assert not crowd.promises.owners

    asyncio.run(run())


def test_broken_promises_are_noticed() -> None:
    place = Place(0, "group", "topic", b"", 2, 0.1, SESSION_S)
    promises = Promises()
    first, second = (ClassicMember(number, place, promises) for number in range(2))
    promises.take(first, 0)
    promises.take(second, 1)
    promises.see_read(first, 0, 0, 5)
    promises.see_acknowledged(0, 5)
    promises.see_committed(second, 0, 5)
    assert promises.faults == []
    promises.take(second, 0)
    promises.see_committed(second, 0, 4)
    promises.see_read(second, 0, 6, 7)
    second.generation = 4
    promises.see_generation(second)
    first.generation = 3
    promises.see_generation(first)
    assert [fault.split(")")[1] for fault in promises.faults] == [
        " was given partition 0 while member 0 (generation -1",
        " sees 4 committed for 0 after 5 was acknowledged",
        " reads 0 from 6, but 5 was not read by anyone",
        " is given an assignment after one of generation 4",
    ]
