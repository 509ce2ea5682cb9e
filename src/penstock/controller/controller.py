"""The controller: makes decisions, one after the other, and writes them into the metadata log."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from penstock.config.broker import BrokerSettings
from penstock.config.topic import TopicConfig
from penstock.controller import election, reassignment, topics
from penstock.controller.configs import Change, change_configs, replace_all
from penstock.controller.election import Election
from penstock.controller.topics import NewTopic
from penstock.metadata.image import Topic
from penstock.metadata.log import MetadataLog
from penstock.metadata.records import (
    BrokerEndpoint,
    BrokerFeature,
    FeatureLevelRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
)
from penstock.wire.errors import ApiError
from penstock.wire.types import random_uuid

# How many producer ids a broker takes at once.
PRODUCER_ID_BLOCK = 1000

# What the records and files are compatible with: metadata.version 4.3-IV0.
METADATA_VERSION = 30
TRANSACTION_VERSION = 2  # a new epoch for every transaction (KIP-890)
GROUP_VERSION = 1  # groups of the consumer protocol (KIP-848)
SUPPORTED_FEATURES: Mapping[str, tuple[int, int]] = {
    "group.version": (0, GROUP_VERSION),
    "metadata.version": (7, METADATA_VERSION),
    "transaction.version": (0, TRANSACTION_VERSION),
}
_FIRST_LEVELS = {
    "group.version": GROUP_VERSION,
    "metadata.version": METADATA_VERSION,
    "transaction.version": TRANSACTION_VERSION,
}


class Controller:
    """The current controller. Exists only where the controller is.

    A decision is made against `_ahead`: the committed image plus what was appended but is not committed yet. So
    decisions need not wait for each other, and each takes the earlier ones into account. An append that fails means
    that this controller was deposed or its disk failed; it then starts again from what is committed.
    """

    def __init__(
        self,
        log: MetadataLog,
        epoch: int,
        settings: Callable[[], BrokerSettings],
        next_offset: Callable[[], int],
    ) -> None:
        self._log = log
        self._epoch = epoch
        self._settings = settings
        self._next_offset = next_offset
        self._ahead = log.image

    async def _append(self, records: Sequence[Any]) -> None:
        if not records:
            return
        self._ahead, _ = self._ahead.apply(records, -1, self._epoch)
        try:
            await self._log.append(records, self._epoch)
        except Exception:
            self._ahead = self._log.image
            raise

    # ---- brokers ----

    async def register_broker(
        self,
        broker_id: int,
        endpoints: Sequence[BrokerEndpoint],
        rack: str | None,
        directories: Sequence[bytes],
        *,
        was_clean: bool,
    ) -> int:
        """Add a broker that starts, or starts again. Returns its epoch."""
        epoch = self._next_offset()
        records: list[Any] = []
        records += [
            FeatureLevelRecord(name=name, feature_level=level)
            for name, level in _FIRST_LEVELS.items()
            if name not in self._ahead.features
        ]
        records.append(
            RegisterBrokerRecord(
                broker_id=broker_id,
                incarnation_id=random_uuid(),
                broker_epoch=epoch,
                end_points=list(endpoints),
                features=[
                    BrokerFeature(name=name, min_supported_version=low, max_supported_version=high)
                    for name, (low, high) in SUPPORTED_FEATURES.items()
                ],
                rack=rack,
                fenced=False,
                log_dirs=list(directories),
            )
        )
        records += election.on_registration(self._ahead, broker_id, was_clean=was_clean)
        await self._append(records)
        return epoch

    # ---- topics ----

    async def create_topics(
        self, wishes: Iterable[NewTopic], *, is_dry_run: bool = False
    ) -> dict[str, tuple[Topic, TopicConfig] | ApiError]:
        """Create topics; the result of each is the topic with its settings, or why it was refused."""
        settings = self._settings()
        results: dict[str, tuple[Topic, TopicConfig] | ApiError] = {}
        records: list[Any] = []
        image = self._ahead
        for wish in wishes:
            try:
                topic, config, made = topics.create_topic(
                    image,
                    wish,
                    settings.broker,
                    settings.topic_defaults,
                    topic_id=random_uuid(),
                    start=random.randrange(1 << 16),
                )
            except ApiError as error:
                results[wish.name] = error
                continue
            results[wish.name] = (topic, config)
            records += made
            image, _ = image.apply(made, -1, self._epoch)
        if not is_dry_run:
            await self._append(records)
        return results

    async def add_partitions(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None, *, is_dry_run: bool
    ) -> None:
        records = topics.add_partitions(self._ahead, name, count, assignments, start=random.randrange(1 << 16))
        if not is_dry_run:
            await self._append(records)

    async def delete_topic(self, name: str | None, topic_id: bytes) -> Topic:
        topic, records = topics.delete_topic(self._ahead, name, topic_id)
        await self._append(records)
        return topic

    # ---- partitions ----

    async def elect_leader(self, name: str, index: int, kind: Election) -> None:
        await self._append(election.elect(self._ahead, name, index, kind))

    async def reassign(self, name: str, index: int, replicas: Sequence[int] | None, *, may_change_count: bool) -> None:
        records = reassignment.reassign(self._ahead, name, index, replicas, may_change_count=may_change_count)
        await self._append(records)

    # ---- settings ----

    async def alter_configs(self, resource_type: int, name: str, changes: list[Change], *, is_dry_run: bool) -> None:
        records = change_configs(self._ahead, self._settings(), resource_type, name, changes)
        if not is_dry_run:
            await self._append(records)

    async def replace_configs(
        self, resource_type: int, name: str, wanted: Sequence[tuple[str, str | None]], *, is_dry_run: bool
    ) -> None:
        current = self._ahead.configs.get((resource_type, name), {})
        await self.alter_configs(resource_type, name, replace_all(current, wanted), is_dry_run=is_dry_run)

    # ---- producer ids ----

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> range:
        """A block of producer ids that nobody else gets."""
        first = self._ahead.next_producer_id
        block = range(first, first + PRODUCER_ID_BLOCK)
        await self._append(
            [ProducerIdsRecord(broker_id=broker_id, broker_epoch=broker_epoch, next_producer_id=block.stop)]
        )
        return block
