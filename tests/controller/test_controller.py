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
from penstock.controller.configs import Change, Operation
from penstock.controller.controller import PRODUCER_ID_BLOCK, Controller
from penstock.controller.topics import NewTopic
from penstock.metadata.file_log import FileMetadataLog
from penstock.metadata.image import ResourceType
from penstock.metadata.records import BrokerEndpoint
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.types import ZERO_UUID
from tests.log.gated import GatedStorage
from tests.log.samples import T0

SETTINGS = BrokerSettings.resolve({"num.partitions": "3"})


class Stage:
    def __init__(self, path: Path, background: Background) -> None:
        self.storage = GatedStorage()
        self.log = FileMetadataLog(
            storage=self.storage,
            directory=str(path),
            node_id=1,
            clock=ManualClock(T0),
            background=background,
            bytes_between_snapshots=10**9,
        )
        self.controller = Controller(self.log, self.log.begin_term(), lambda: SETTINGS, lambda: self.log.next_offset)

    async def register(self, *, was_clean: bool = True) -> int:
        endpoints = [BrokerEndpoint(name="PLAINTEXT", host="h", port=9092)]
        return await self.controller.register_broker(1, endpoints, "rack", [bytes(16)], was_clean=was_clean)


def run(path: Path, scenario: Callable[[Stage], Awaitable[None]], *, is_gated: bool = False) -> None:
    """With `is_gated`, no sync ends after the broker's registration unless the test lets it."""

    async def main() -> None:
        background = Background(asyncio.get_running_loop(), 2)
        stage = Stage(path, background)
        try:
            stage.storage.let_sync_end(1 if is_gated else 1000)
            await stage.register()
            if is_gated:
                await stage.storage.sync_begins()
            await scenario(stage)
        finally:
            stage.storage.let_sync_end(1000)
            background.close()

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_registered_broker_is_in_the_image_with_an_epoch_that_grows(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        broker = stage.log.image.brokers[1]
        assert (broker.rack, broker.is_fenced, broker.directories) == ("rack", False, (bytes(16),))
        assert stage.log.image.features["metadata.version"] >= 7
        epoch = await stage.register()
        assert epoch > broker.epoch
        assert stage.log.image.brokers[1].epoch == epoch
        assert stage.log.image.brokers[1].incarnation_id != broker.incarnation_id

    run(tmp_path, scenario)


def test_topics_are_created_each_with_its_own_result(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        results = await stage.controller.create_topics(
            [NewTopic("a"), NewTopic("b", 1, 9), NewTopic("a_b", 2, 1), NewTopic("a.b", 1, 1)]
        )
        assert set(stage.log.image.topics) == {"a", "a_b"}
        assert len(stage.log.image.topics["a"].partitions) == 3
        made = results["a"]
        assert not isinstance(made, ApiError)
        assert made[0] == stage.log.image.topics["a"]
        codes = {name: result.code for name, result in results.items() if isinstance(result, ApiError)}
        assert codes == {
            "b": ErrorCode.INVALID_REPLICATION_FACTOR,
            "a.b": ErrorCode.INVALID_TOPIC_EXCEPTION,  # collides with one of the same request
        }

    run(tmp_path, scenario)


def test_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        controller, image = stage.controller, stage.log.image
        await controller.create_topics([NewTopic("a")], is_dry_run=True)
        assert stage.log.image is image
        await controller.create_topics([NewTopic("a")])
        image = stage.log.image
        await controller.add_partitions("a", 9, None, is_dry_run=True)
        change = [Change("retention.ms", Operation.SET, "5")]
        await controller.alter_configs(ResourceType.TOPIC, "a", change, is_dry_run=True)
        assert stage.log.image is image
        with pytest.raises(ApiError):
            await controller.add_partitions("a", 1, None, is_dry_run=True)

    run(tmp_path, scenario)


def test_a_decision_sees_those_that_are_not_durable_yet(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        controller = stage.controller
        first = asyncio.ensure_future(controller.create_topics([NewTopic("a")]))
        await stage.storage.sync_begins()
        assert stage.log.image.topics == {}
        second = asyncio.ensure_future(controller.create_topics([NewTopic("a")]))
        await asyncio.sleep(0)
        stage.storage.let_sync_end(1000)
        assert not isinstance((await first)["a"], ApiError)
        refused = (await second)["a"]
        assert isinstance(refused, ApiError)
        assert refused.code is ErrorCode.TOPIC_ALREADY_EXISTS

    run(tmp_path, scenario, is_gated=True)


def test_a_failed_append_leaves_no_phantoms(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        controller = stage.controller
        task = asyncio.ensure_future(controller.create_topics([NewTopic("a")]))
        await stage.storage.sync_begins()
        stage.storage.error = OSError(errno.EIO, "I/O error")
        stage.storage.let_sync_end(1000)
        with pytest.raises(ApiError) as caught:
            await task
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(ApiError) as unknown:
            await controller.delete_topic("a", ZERO_UUID)
        assert unknown.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(tmp_path, scenario, is_gated=True)


def test_partitions_settings_and_topics_change_the_image(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        controller = stage.controller
        await controller.create_topics([NewTopic("a", 1, 1, configs={"segment.ms": "7"})])
        await controller.add_partitions("a", 4, None, is_dry_run=False)
        assert len(stage.log.image.topics["a"].partitions) == 4
        change = [Change("retention.ms", Operation.SET, "5")]
        await controller.alter_configs(ResourceType.TOPIC, "a", change, is_dry_run=False)
        assert stage.log.image.config(ResourceType.TOPIC, "a") == {"segment.ms": "7", "retention.ms": "5"}
        await controller.replace_configs(ResourceType.TOPIC, "a", [("flush.ms", "9")], is_dry_run=False)
        assert stage.log.image.config(ResourceType.TOPIC, "a") == {"flush.ms": "9"}
        deleted = await controller.delete_topic("a", ZERO_UUID)
        assert deleted.name == "a"
        assert stage.log.image.topics == {}
        assert stage.log.image.configs == {}

    run(tmp_path, scenario)


def test_blocks_of_producer_ids_never_overlap(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        blocks = await asyncio.gather(*[stage.controller.allocate_producer_ids(1, 5) for _ in range(5)])
        taken = [producer_id for block in blocks for producer_id in block]
        assert len(taken) == len(set(taken)) == 5 * PRODUCER_ID_BLOCK
        assert stage.log.image.next_producer_id == 5 * PRODUCER_ID_BLOCK

    run(tmp_path, scenario)


def test_a_crashed_broker_leads_its_partitions_in_a_new_epoch(tmp_path: Path) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.controller.create_topics([NewTopic("a", 1, 1)])
        await stage.register(was_clean=True)
        assert _epoch(stage) == 0
        await stage.register(was_clean=False)
        assert _epoch(stage) == 1

    def _epoch(stage: Stage) -> Any:
        state = stage.log.image.partition("a", 0)
        return state and state.leader_epoch

    run(tmp_path, scenario)
