"""kill -9 under load: what was acknowledged is there, once, in order."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.chaos.checker import check, read_partition
from tests.chaos.writers import Writer
from tests.compat.test_protocol import Client
from tests.support import systems
from tests.support.systems import System


def _writers(system: System, topic: str) -> list[Writer]:
    """Plain and idempotent ones, with acks=1 and acks=all, small batches and larger ones."""
    return [
        Writer(system.port, topic, 0, acks=1),
        Writer(system.port, topic, 1, acks=-1, batch_records=20, value_bytes=2000),
        Writer(system.port, topic, 2, acks=1, producer_id=5001),
        Writer(system.port, topic, 3, acks=-1, producer_id=5002, batch_records=7),
    ]


@pytest.mark.parametrize("settings", [{}, {"flush_messages": "1"}], ids=["page-cache", "synced"])
def test_every_acknowledged_record_survives_kill_9(
    tmp_path: Path, rounds: int, seed: int, settings: dict[str, str]
) -> None:
    chance = random.Random(seed)
    system = systems.penstock(tmp_path / "data").start()
    client = Client(system)
    client.create("t", 4, segment_bytes="300000", index_interval_bytes="1000", **settings)
    client.connection.close()
    writers = [writer.start() for writer in _writers(system, "t")]
    for _ in range(rounds):
        time.sleep(chance.uniform(0.05, 0.4))
        system.kill()
        system.start()
    time.sleep(0.3)
    for writer in writers:
        writer.finish()
    for writer in writers:
        assert writer.reconnects >= rounds // 2
        assert len(writer.acknowledged) > 100
        check(writer, read_partition(system.port, "t", writer.partition))
    assert system.stop() == 0
    assert "Traceback" not in system.log
    system.start()  # and once more after a clean shutdown
    for writer in writers:
        check(writer, read_partition(system.port, "t", writer.partition))
    system.stop()


def test_topics_and_settings_survive_kill_9(tmp_path: Path, rounds: int, seed: int) -> None:
    """An acknowledged change of the metadata is never lost, and one that was not is whole or not there at all."""
    from penstock.client.connection import ConnectionLost
    from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
    from penstock.wire.messages.metadata import MetadataRequest

    chance = random.Random(seed)
    system = systems.penstock(tmp_path / "data").start()
    acknowledged: dict[str, bytes] = {}
    number = 0
    for _ in range(rounds):
        connection = system.connect()
        until = time.monotonic() + chance.uniform(0.02, 0.15)
        under_way = []
        while time.monotonic() < until:
            name = f"topic-{number}"
            number += 1
            wish = CreatableTopic(name=name, num_partitions=3, replication_factor=1)
            under_way.append((name, connection.send(CreateTopicsRequest(topics=[wish], timeout_ms=1000), 7)))
            if len(under_way) > 3:
                name, _ = under_way.pop(0)
                (result,) = connection.receive(_create_topics_api(), 7).topics
                assert result.error_code == 0
                acknowledged[name] = result.topic_id
        system.kill()
        try:
            while under_way:
                name, _ = under_way.pop(0)
                (result,) = connection.receive(_create_topics_api(), 7).topics
                acknowledged[name] = result.topic_id
        except (ConnectionLost, OSError):
            pass
        connection.close()
        system.start()
    assert len(acknowledged) > rounds
    with system.connect() as connection:
        topics = {topic.name: topic for topic in connection.call(MetadataRequest(topics=None)).topics}
    for name, topic_id in acknowledged.items():
        assert topics[name].topic_id == topic_id
    assert all(len(topic.partitions) == 3 for topic in topics.values())
    assert all(partition.error_code == 0 for topic in topics.values() for partition in topic.partitions)
    system.stop()


def _create_topics_api():  # type: ignore[no-untyped-def]
    from penstock.wire.api import APIS, ApiKey

    return APIS[ApiKey.CREATE_TOPICS]
