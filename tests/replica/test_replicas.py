from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.background import Background
from penstock.clock import ManualClock
from penstock.config.broker import BrokerSettings
from penstock.log.directory import HIGH_WATERMARKS, RECOVERY_POINTS
from penstock.log.logs import Logs
from penstock.log.storage import Storage
from penstock.log.validation import own_batch
from penstock.metadata.image import Image, ResourceType
from penstock.metadata.records import (
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from penstock.replica.replicas import Replicas
from penstock.wire.errors import ApiError, ErrorCode
from tests.log.samples import T0, data_batch, values_from

ID, OTHER_ID = bytes(range(16)), bytes(range(1, 17))


def topic(name: str = "t", topic_id: bytes = ID, count: int = 1, replicas: tuple[int, ...] = (1,)) -> list[Any]:
    return [
        TopicRecord(name=name, topic_id=topic_id),
        *[partition(index, topic_id, replicas) for index in range(count)],
    ]


def partition(index: int, topic_id: bytes = ID, replicas: tuple[int, ...] = (1,)) -> PartitionRecord:
    return PartitionRecord(
        topic_id=topic_id,
        partition_id=index,
        replicas=list(replicas),
        isr=list(replicas),
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
    )


def config(name: str, value: str | None, *, kind: int = ResourceType.TOPIC, resource: str = "t") -> ConfigRecord:
    return ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)


class Stage:
    """The replicas of broker 1, and a metadata image that they follow."""

    def __init__(self, paths: list[Path], background: Background, image: Image) -> None:
        self.image = image
        self.settings = BrokerSettings.resolve({"log.index.size.max.bytes": "4096"})
        self.logs = Logs(Storage(), ManualClock(T0), [str(path) for path in paths], self._directory_failed)
        self.replicas = Replicas(1, self.logs, background, lambda: self.settings)
        self.logs.open_directories()
        self.logs.write_identity("cluster", 1)
        self.replicas.load(image, 1)

    def _directory_failed(self, directory: Any) -> None:
        self.replicas.directory_failed(directory)

    def apply(self, *records: Any) -> None:
        self.image, delta = self.image.apply(records, self.image.offset + len(records), 1)
        self.replicas.apply(self.image, delta)

    def append(self, value: bytes, name: str = "t", index: int = 0) -> None:
        self.replicas.find(name, index).append(own_batch(data_batch(value)), 1)

    def values(self, name: str = "t", index: int = 0) -> list[bytes | None]:
        return values_from(self.replicas.find(name, index).log, 0)

    def code(self, name: str | bytes, index: int) -> ErrorCode:
        with pytest.raises(ApiError) as caught:
            self.replicas.find(name, index)
        return caught.value.code

    def write_checkpoints(self) -> None:
        for name in (RECOVERY_POINTS, HIGH_WATERMARKS):
            for checkpoint in self.logs.checkpoints(name):
                checkpoint.run()


def run(*scenarios: Callable[[Stage], Awaitable[None] | None], paths: list[Path]) -> None:
    """Each scenario is one run of the broker; the metadata goes on, and the files do."""

    async def main() -> None:
        image = Image()
        for scenario in scenarios:
            background = Background(asyncio.get_running_loop(), 2)
            stage = Stage(paths, background, image)
            try:
                result = scenario(stage)
                if result is not None:
                    await result
            finally:
                background.close()
                for directory in stage.logs.directories:
                    directory.release()
            image = stage.image

    asyncio.run(asyncio.wait_for(main(), 60))


def test_partitions_appear_with_the_metadata(tmp_path: Path) -> None:
    def scenario(stage: Stage) -> None:
        assert list(stage.replicas) == []
        stage.apply(*topic(count=2))
        assert [p.name for p in stage.replicas] == ["t-0", "t-1"]
        assert stage.replicas.get("t", 1) is stage.replicas.get(ID, 1) is stage.replicas.find(ID, 1)
        assert all(p.is_leader for p in stage.replicas)
        stage.apply(partition(2))
        assert stage.replicas.find("t", 2).is_leader
        assert (tmp_path / "t-2" / "partition.metadata").exists()

    run(scenario, paths=[tmp_path])


def test_what_is_not_here_is_refused_with_the_protocols_reason(tmp_path: Path) -> None:
    def scenario(stage: Stage) -> None:
        stage.apply(*topic(), *topic("elsewhere", OTHER_ID, replicas=(2,)))
        assert stage.code("missing", 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert stage.code("t", 7) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert stage.code(bytes(16), 0) is ErrorCode.UNKNOWN_TOPIC_ID
        assert stage.code("elsewhere", 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert stage.code(OTHER_ID, 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert stage.code(OTHER_ID, 1) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert stage.replicas.get("missing", 0) is None
        assert not (tmp_path / "elsewhere-0").exists()

    run(scenario, paths=[tmp_path])


def test_leadership_follows_the_metadata(tmp_path: Path) -> None:
    def scenario(stage: Stage) -> None:
        stage.apply(*topic(replicas=(1, 2)))
        found = stage.replicas.find("t", 0)
        stage.apply(PartitionChangeRecord(topic_id=ID, partition_id=0, leader=2))
        assert not found.is_leader
        assert found.leader_epoch == 1
        stage.apply(PartitionChangeRecord(topic_id=ID, partition_id=0, leader=1))
        assert found.is_leader
        assert found.leader_epoch == 2
        assert stage.replicas.find("t", 0) is found

    run(scenario, paths=[tmp_path])


def test_a_deleted_topic_is_gone(tmp_path: Path) -> None:
    def scenario(stage: Stage) -> None:
        stage.apply(*topic(count=2))
        found = stage.replicas.find("t", 0)
        stage.apply(RemoveTopicRecord(topic_id=ID))
        assert stage.code("t", 0) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert stage.code(ID, 0) is ErrorCode.UNKNOWN_TOPIC_ID
        assert list(stage.replicas) == []
        assert not found.is_leader
        assert not (tmp_path / "t-0").exists()

    run(scenario, paths=[tmp_path])


def test_a_topic_that_is_made_anew_at_once_is_empty(tmp_path: Path) -> None:
    def scenario(stage: Stage) -> None:
        stage.apply(*topic())
        stage.append(b"old")
        stage.apply(RemoveTopicRecord(topic_id=ID), *topic(topic_id=OTHER_ID))
        assert stage.values() == []
        stage.append(b"new")
        assert stage.replicas.find(OTHER_ID, 0).topic_id == OTHER_ID

    run(scenario, paths=[tmp_path])


def test_settings_of_topics_and_brokers_reach_the_logs(tmp_path: Path) -> None:
    def scenario(stage: Stage) -> None:
        stage.apply(*topic(count=2), config("retention.ms", "77"))
        logs = [p.log for p in stage.replicas]
        assert [log.config.retention_ms for log in logs] == [77, 77]
        stage.apply(config("retention.ms", "78"), config("segment.bytes", "1000"))
        assert [(log.config.retention_ms, log.config.segment_bytes) for log in logs] == [(78, 1000)] * 2
        stage.settings = stage.settings.with_dynamic({"log.retention.ms": "9", "log.flush.interval.ms": "5"}, {})
        stage.apply(config("log.retention.ms", "9", kind=ResourceType.BROKER, resource=""))
        assert [(log.config.retention_ms, log.config.flush_ms) for log in logs] == [(78, 5)] * 2
        stage.apply(config("retention.ms", None))
        assert [log.config.retention_ms for log in logs] == [9, 9]

    run(scenario, paths=[tmp_path])


def test_what_was_written_is_there_after_a_restart(tmp_path: Path) -> None:
    def first(stage: Stage) -> None:
        stage.apply(*topic(count=2))
        stage.append(b"a")
        stage.append(b"b", index=1)

    def second(stage: Stage) -> None:
        assert stage.values() == [b"a"]
        assert stage.values(index=1) == [b"b"]
        assert all(p.is_leader for p in stage.replicas)
        assert stage.replicas.find("t", 0).high_watermark == 1

    run(first, second, paths=[tmp_path])


def test_folders_of_topics_that_are_gone_are_set_aside_at_the_start(tmp_path: Path) -> None:
    def first(stage: Stage) -> None:
        stage.apply(*topic(), *topic("u", OTHER_ID))
        stage.append(b"a")
        stage.image, _ = stage.image.apply([RemoveTopicRecord(topic_id=ID)], 9, 1)  # the broker crashed before it knew

    def second(stage: Stage) -> None:
        assert [p.name for p in stage.replicas] == ["u-0"]
        assert len([entry for entry in tmp_path.iterdir() if entry.name.endswith("-stray")]) == 1

    run(first, second, paths=[tmp_path])


def test_a_folder_of_an_older_topic_of_the_same_name_is_set_aside(tmp_path: Path) -> None:
    def first(stage: Stage) -> None:
        stage.apply(*topic())
        stage.append(b"old")
        records = [RemoveTopicRecord(topic_id=ID), *topic(topic_id=OTHER_ID)]
        stage.image, _ = stage.image.apply(records, 9, 1)

    def second(stage: Stage) -> None:
        assert stage.values() == []

    run(first, second, paths=[tmp_path])


def test_a_disk_that_fails_takes_its_partitions_offline_and_no_others(tmp_path: Path) -> None:
    def scenario(stage: Stage) -> None:
        stage.apply(*topic(count=4))
        broken = stage.logs.directories[0]
        lost = [p for p in stage.replicas if stage.logs.directory_of(("t", p.index)) is broken]
        kept = [p for p in stage.replicas if p not in lost]
        assert (len(lost), len(kept)) == (2, 2)
        broken.fail(OSError(errno.EIO, "gone"))
        assert all(p.is_offline for p in lost)
        for p in kept:
            stage.append(b"a", index=p.index)
        for p in lost:
            with pytest.raises(ApiError) as caught:
                stage.append(b"a", index=p.index)
            assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR

    run(scenario, paths=[tmp_path / "a", tmp_path / "b"])


def test_a_partition_on_a_failed_disk_stays_offline_when_its_topic_grows(tmp_path: Path) -> None:
    def scenario(stage: Stage) -> None:
        stage.apply(*topic(count=2))
        stage.logs.directories[0].fail(OSError(errno.EIO, "gone"))
        [lost] = [p for p in stage.replicas if p.is_offline]
        stage.apply(partition(2))
        stage.append(b"a", index=2)
        with pytest.raises(ApiError) as caught:
            stage.append(b"a", index=lost.index)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR

    run(scenario, paths=[tmp_path / "a", tmp_path / "b"])


def test_what_is_on_a_disk_that_is_missing_does_not_begin_anew_elsewhere(tmp_path: Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]

    def first(stage: Stage) -> None:
        stage.apply(*topic(count=2))
        for index in range(2):
            stage.append(b"a", index=index)
        lost_index.append(next(n for n in range(2) if (tmp_path / "a" / f"t-{n}").exists()))

    def second(stage: Stage) -> None:
        lost = lost_index[0]
        assert stage.code("t", lost) is ErrorCode.KAFKA_STORAGE_ERROR
        assert stage.values(index=1 - lost) == [b"a"]
        stage.apply(partition(2))
        assert stage.replicas.find("t", 2).is_leader
        assert stage.code("t", lost) is ErrorCode.KAFKA_STORAGE_ERROR
        assert not (tmp_path / "b" / f"t-{lost}").exists()

    def third(stage: Stage) -> None:
        assert stage.values(index=lost_index[0]) == [b"a"]

    lost_index: list[int] = []

    async def main() -> None:
        image = Image()
        for scenario in (first, second, third):
            if scenario is second:
                (tmp_path / "a").rename(tmp_path / "unplugged")
                (tmp_path / "a").write_bytes(b"")  # what cannot be read
            if scenario is third:
                (tmp_path / "a").unlink()
                (tmp_path / "unplugged").rename(tmp_path / "a")
            background = Background(asyncio.get_running_loop(), 2)
            stage = Stage(paths, background, image)
            scenario(stage)
            background.close()
            image = stage.image

    asyncio.run(main())


def test_a_restart_keeps_the_high_watermark(tmp_path: Path) -> None:
    def first(stage: Stage) -> None:
        stage.apply(*topic(replicas=(1,)))
        stage.append(b"a")
        stage.write_checkpoints()
        stage.append(b"b")

    def second(stage: Stage) -> None:
        # A leader alone has everything that it finds.
        assert stage.replicas.find("t", 0).high_watermark == 2

    run(first, second, paths=[tmp_path])
