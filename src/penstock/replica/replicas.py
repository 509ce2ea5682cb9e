"""All partitions of this broker, kept in step with the metadata."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from penstock.background import Background
from penstock.config.broker import BrokerSettings
from penstock.config.topic import TopicConfig, topic_config
from penstock.log.directory import LogDirectory
from penstock.log.logs import Logs, PendingDeletion
from penstock.metadata.image import Delta, Image, ResourceType, Topic
from penstock.metadata.kraft import METADATA_TOPIC
from penstock.replica.partition import Partition
from penstock.wire.errors import ApiError, ErrorCode

logger = logging.getLogger(__name__)


class Replicas:
    """The partitions this broker has replicas of.

    Driven by the metadata alone: a topic is made, changed or removed here when the committed image says so.
    """

    def __init__(
        self, broker_id: int, logs: Logs, background: Background, settings: Callable[[], BrokerSettings]
    ) -> None:
        self._broker_id = broker_id
        self._logs = logs
        self._background = background
        self._settings = settings
        self._image = Image()
        self._partitions: dict[str, dict[int, Partition]] = {}
        self.by_key: dict[str | bytes, dict[int, Partition]] = {}  # the same, by name and by topic id
        self._unreadable: set[tuple[str, int]] = set()  # on a disk that was broken already at the start

    def __iter__(self) -> Iterator[Partition]:
        return (partition for topic in list(self._partitions.values()) for partition in list(topic.values()))

    # ---- finding ----

    def get(self, topic: str | bytes, index: int) -> Partition | None:
        """A partition of the topic with this name, or with this id."""
        partitions = self.by_key.get(topic)
        return partitions.get(index) if partitions is not None else None

    def find(self, topic: str | bytes, index: int) -> Partition:
        """The same, or the protocol's error for why it is not here."""
        partition = self.get(topic, index)
        if partition is not None:
            return partition
        if isinstance(topic, bytes):
            known = self._image.topics_by_id.get(topic)
            if known is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
            topic = known.name
        if (topic, index) in self._unreadable:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the disk that holds {topic}-{index} has failed")
        if self._image.partition(topic, index) is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic}-{index}")
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} is not on broker {self._broker_id}")

    # ---- following the metadata ----

    def load(self, image: Image, threads_per_directory: int) -> None:
        """Open the logs that are on disk and start with this image."""

        def is_expected(partition: tuple[str, int], topic_id: bytes | None) -> bool:
            topic = image.topics.get(partition[0])
            return topic is not None and partition[1] in topic.partitions and topic_id in (None, topic.topic_id)

        self._image = image
        self._logs.load(self._config_of, is_expected, threads_per_directory, except_for=frozenset({METADATA_TOPIC}))
        if len(self._logs.online_directories) < len(self._logs.directories):
            # What is not found now is on the disk that is missing: it must not begin anew somewhere else.
            self._unreadable = {
                (topic.name, index)
                for topic in image.topics.values()
                for index, state in topic.partitions.items()
                if self._broker_id in state.replicas and self._logs.get((topic.name, index)) is None
            }
        for topic in image.topics.values():
            self._update_topic(topic)

    def apply(self, image: Image, delta: Delta) -> None:
        """Follow a change of the metadata."""
        self._image = image
        for name, topic in delta.deleted_topics.items():
            self._remove_topic(name, topic)
        for topic in delta.changed_topics.values():
            self._update_topic(topic)
        if any(resource_type == ResourceType.BROKER for resource_type, _ in delta.changed_configs):
            changed = list(self._partitions)
        else:
            changed = [name for kind, name in delta.changed_configs if kind == ResourceType.TOPIC]
        for name in changed:
            self._reconfigure(name)

    def _config_of(self, topic: str) -> TopicConfig:
        return topic_config(self._settings().topic_defaults, self._image.config(ResourceType.TOPIC, topic))

    def _update_topic(self, topic: Topic) -> None:
        config: TopicConfig | None = None
        here = self._partitions.setdefault(topic.name, {})
        self.by_key[topic.name] = self.by_key[topic.topic_id] = here
        for index, state in topic.partitions.items():
            if self._broker_id not in state.replicas or (topic.name, index) in self._unreadable:
                continue
            partition = here.get(index)
            if partition is None:
                config = config or self._config_of(topic.name)
                partition = self._create(topic, index, config)
                if partition is None:
                    continue
                here[index] = partition
            partition.update(state)

    def _create(self, topic: Topic, index: int, config: TopicConfig) -> Partition | None:
        try:
            log = self._logs.create((topic.name, index), topic.topic_id, config)
        except ApiError as error:
            logger.error("cannot create %s-%d: %s", topic.name, index, error)
            return None
        return Partition(topic.name, index, topic.topic_id, self._broker_id, log, self._background)

    def _remove_topic(self, name: str, topic: Topic) -> None:
        self.by_key.pop(topic.topic_id, None)
        self.by_key.pop(name, None)
        self._unreadable -= {(name, index) for index in topic.partitions}
        partitions = self._partitions.pop(name, {})
        for partition in partitions.values():
            partition.close()
        for pending in self._logs.delete((name, index) for index in partitions):
            self.delete_later(pending)

    def _reconfigure(self, topic: str) -> None:
        config = self._config_of(topic)
        for partition in self._partitions.get(topic, {}).values():
            partition.log.reconfigure(config)

    # ---- disks ----

    def delete_later(self, pending: PendingDeletion) -> None:
        """Remove files after their delay, in the background."""
        self._background.later(pending.delay_ms, lambda: self._background.run_logged(pending.run, "deleting old files"))

    def directory_failed(self, directory: LogDirectory) -> None:
        """Stop serving what was on a disk that failed."""
        for partition in self:
            if partition.log.directory.startswith(directory.path + "/"):
                partition.go_offline()
