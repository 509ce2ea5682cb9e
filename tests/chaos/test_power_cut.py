"""Power cuts under load: with `flush.messages=1`, what was acknowledged is there although the disk forgets the rest."""

from __future__ import annotations

import random
import time
from pathlib import Path

import penstock.testing
from penstock.client.connection import Connection
from penstock.testing import RunningBroker
from penstock.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from tests.chaos.checker import check_acknowledged, read_partition
from tests.chaos.writers import Writer
from tests.log.forgetful import ForgetfulStorage

SETTINGS = {"flush.messages": "1", "segment.bytes": "60000", "index.interval.bytes": "1000"}


def _doomed(data: Path) -> tuple[RunningBroker, ForgetfulStorage]:
    """A broker on a disk that forgets what was not synced."""
    storage = ForgetfulStorage(data)
    return penstock.testing.broker(data=data, storage=storage).start(), storage


def _create(port: int, topic: str) -> None:
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in SETTINGS.items()]
    wanted = CreatableTopic(name=topic, num_partitions=3, replication_factor=1, configs=configs)
    with Connection("127.0.0.1", port) as connection:
        (result,) = connection.call(CreateTopicsRequest(topics=[wanted], timeout_ms=30_000)).topics
    assert result.error_code == 0, result


def test_every_acknowledged_record_survives_power_cuts(tmp_path: Path, rounds: int, seed: int) -> None:
    chance = random.Random(seed)
    broker, storage = _doomed(tmp_path / "0")
    told: list[tuple[str, int, dict[int, int], int]] = []
    for number in range(1, rounds + 1):
        topic = f"t{number}"
        _create(broker.port, topic)
        writers = [
            Writer(broker.port, topic, 0, acks=1).start(),
            Writer(broker.port, topic, 1, acks=-1, batch_records=20, value_bytes=2000).start(),
            Writer(broker.port, topic, 2, acks=-1, producer_id=7000 + number, batch_records=7).start(),
        ]
        time.sleep(chance.uniform(0.05, 0.3))
        before_the_cut = [dict(writer.acknowledged) for writer in writers]
        storage.crash_to(tmp_path / str(number), chance if number % 2 else None)
        for writer, acknowledged in zip(writers, before_the_cut, strict=True):
            writer.finish()
            told.append((topic, writer.partition, acknowledged, writer.attempted))
        broker.stop()
        broker, storage = _doomed(tmp_path / str(number))
    assert sum(len(acknowledged) for _, _, acknowledged, _ in told) > 20 * rounds
    for topic, partition, acknowledged, attempted in told:
        check_acknowledged(acknowledged, attempted, read_partition(broker.port, topic, partition))
    broker.stop()
