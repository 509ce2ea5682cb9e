"""What a query reads next: asks the brokers, and decides. One planner per query; Spark calls it on the driver."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping

from penstock.client.cluster import EARLIEST, LATEST, Cluster
from penstock.client.errors import ConfigurationError
from penstock.client.partitions import TopicPartition
from penstock.spark.group_offsets import commit_offsets
from penstock.spark.options import Kind, Position, SourceOptions
from penstock.spark.ranges import DataLoss, OffsetRange, Offsets, backlog, limited, split
from penstock.wire.batch import batches_in
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic

logger = logging.getLogger(__name__)

_SAMPLE_BYTES = 64 * 1024
_BY_NAME_VERSION = 12  # of Fetch


class Planner:
    """Which offsets are there, and which of them are read now."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._cluster = Cluster(options.bootstrap, client_id="penstock-spark", timeout_s=options.timeout_s)
        self._last_batch_s = time.monotonic()

    def close(self) -> None:
        self._cluster.close()

    # ---- what there is ----

    def partitions(self) -> list[TopicPartition]:
        """The partitions that the user asked for, as they are now."""
        wanted = self._options.topics
        if wanted.pattern is not None:
            pattern = re.compile(wanted.pattern)
            topics = [
                topic
                for topic in self._cluster.topics().values()
                if pattern.fullmatch(topic.name) and not topic.is_internal
            ]
            return [partition for topic in topics for partition in topic.partitions]
        names = wanted.names or tuple(dict.fromkeys(partition.topic for partition in wanted.partitions))
        found = self._cluster.topics(names)
        missing = [name for name in names if name not in found]
        if missing:
            raise ConfigurationError(f"there is no topic {', '.join(missing)}")
        if wanted.names:
            return [partition for name in names for partition in found[name].partitions]
        for partition in wanted.partitions:
            if partition.partition not in found[partition.topic].leaders:
                raise ConfigurationError(
                    f"option assign: {partition.topic} has {len(found[partition.topic].leaders)} partitions, "
                    f"counted from 0; there is no partition {partition.partition}"
                )
        return list(wanted.partitions)

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._cluster.offsets(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where readers of this isolation level find the end."""
        return self._cluster.offsets(dict.fromkeys(partitions, LATEST), self._options.isolation_level)

    # ---- where to begin and to end ----

    def starting(self) -> dict[TopicPartition, int]:
        return self._resolve(self._options.starting, "startingOffsets", otherwise=EARLIEST)

    def ending(self) -> dict[TopicPartition, int]:
        return self._resolve(self._options.ending, "endingOffsets", otherwise=LATEST)

    def _resolve(self, position: Position, name: str, otherwise: int) -> dict[TopicPartition, int]:
        partitions = self.partitions()
        if position.kind is Kind.EVERYWHERE:
            return self._at(dict.fromkeys(partitions, position.value))
        if position.kind is Kind.EVERYWHERE_TIME:
            return self._at_times(dict.fromkeys(partitions, position.value), name)
        given = position.by_partition or {}
        unknown = [f"{topic}-{index}" for topic, index in given if (topic, index) not in set(partitions)]
        missing = [f"{topic}-{index}" for topic, index in partitions if TopicPartition(topic, index) not in given]
        if unknown:
            raise ConfigurationError(f"option {name} names {', '.join(unknown)}, which is not read")
        if missing and not position.is_by_time:
            raise ConfigurationError(f"option {name} says nothing of {', '.join(missing)}: name all partitions")
        if position.is_by_time:
            found = self._at(dict.fromkeys((one for one in partitions if one not in given), otherwise))
            return found | self._at_times(given, name)
        return self._at(given)

    def _at(self, wanted: Offsets) -> dict[TopicPartition, int]:
        """Real offsets in place of EARLIEST and LATEST."""
        first = self.earliest([partition for partition, offset in wanted.items() if offset == EARLIEST])
        last = self.latest([partition for partition, offset in wanted.items() if offset == LATEST])
        return {**wanted, **first, **last}

    def _at_times(self, timestamps: Mapping[TopicPartition, int], name: str) -> dict[TopicPartition, int]:
        found = self._cluster.offsets(timestamps, self._options.isolation_level)
        too_new = [partition for partition, offset in found.items() if offset < 0]
        if too_new and name == "startingOffsets" and not self._options.latest_if_no_later:
            topic, index = too_new[0]
            raise ConfigurationError(
                f"{topic}-{index} has no record as new as {timestamps[too_new[0]]}; "
                "set startingOffsetsByTimestampStrategy to latest to begin at its end"
            )
        return {**found, **self.latest(too_new)}

    def first_not_older(self, partitions: Iterable[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        """The first offset as new as a time; the end of a partition that has none.

        Before that offset everything is older, but behind it not everything is as new: timestamps may go back.
        """
        found = self._cluster.offsets(dict.fromkeys(partitions, timestamp_ms))
        return {**found, **self.latest([partition for partition, offset in found.items() if offset < 0])}

    # ---- a batch of a stream ----

    def next_end(self, start: Offsets, latest: Offsets, records_max: int | None) -> dict[TopicPartition, int]:
        """Where a micro-batch ends that begins at `start`. Equal to `start` where there is too little to begin one."""
        self.check_nothing_is_lost(start, latest)
        begin = {**self.new_partitions(start, latest), **start}
        waiting = sum(backlog(begin, latest).values())
        now_s = time.monotonic()
        has_waited = (now_s - self._last_batch_s) * 1000 >= self._options.delay_max_ms
        if waiting == 0 or (self._options.offsets_min and waiting < self._options.offsets_min and not has_waited):
            return dict(start)
        self._last_batch_s = now_s
        limits = [limit for limit in (records_max, self._records_for_bytes(begin, latest)) if limit is not None]
        if not limits:
            return dict(latest)
        shared = {one: end for one, end in latest.items() if one.topic not in self._options.unlimited_topics}
        return {**latest, **limited(begin, shared, min(limits))}

    def new_partitions(self, start: Offsets, end: Offsets) -> dict[TopicPartition, int]:
        """Partitions that came later are read from their beginning."""
        return self.earliest([partition for partition in end if partition not in start])

    def _records_for_bytes(self, start: Offsets, end: Offsets) -> int | None:
        """How many records about `maxBytesPerTrigger` are, by the size of the next ones of each partition."""
        if self._options.bytes_max is None:
            return None
        samples = [self._sample(partition, start[partition]) for partition in backlog(start, end)]
        size, count = (sum(values) for values in zip(*samples, strict=True)) if samples else (0, 0)
        return max(int(self._options.bytes_max * count / size), 1) if size else None

    def _sample(self, partition: TopicPartition, offset: int) -> tuple[int, int]:
        """(bytes, records) of the first batches behind an offset."""
        wanted = FetchPartition(partition=partition.partition, fetch_offset=offset, partition_max_bytes=_SAMPLE_BYTES)
        request = FetchRequest(
            min_bytes=0, max_bytes=_SAMPLE_BYTES, topics=[FetchTopic(topic=partition.topic, partitions=[wanted])]
        )
        response = self._cluster.retrying(
            "look at the next records", lambda: self._cluster.leader(partition).call(request, _BY_NAME_VERSION)
        )
        found = list(batches_in(response.responses[0].partitions[0].records or b"", is_verified=False))
        return sum(batch.size for batch in found), sum(batch.last_offset_delta + 1 for batch in found)

    # ---- tasks ----

    def all_at_once(self) -> list[OffsetRange]:
        """What the tasks of a batch read that is not part of a stream read."""
        start, end = self.starting(), self.ending()
        for partition, offset in start.items():
            if offset > end[partition]:
                name = f"{partition.topic}-{partition.partition}"
                raise ConfigurationError(f"{name} is to be read from {offset}, but only up to {end[partition]}")
        return self.tasks(start, end)

    def tasks(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """What the tasks of a batch read."""
        begin = {**self.new_partitions(start, end), **start}
        ranges = [OffsetRange(partition, begin[partition], end_offset) for partition, end_offset in end.items()]
        return split(ranges, self._options.min_partitions, self._options.partition_records_max)

    def check_nothing_is_lost(self, start: Offsets, end: Offsets) -> None:
        """What was read must still be before what is there now."""
        for partition, offset in start.items():
            name = f"{partition.topic}-{partition.partition}"
            if partition not in end:
                self._report_loss(f"{name} is gone: its topic was deleted")
            elif end[partition] < offset:
                self._report_loss(
                    f"{name} ends at {end[partition]}, but {offset} was read already: the topic was deleted and made "
                    "again, or lost records"
                )

    def _report_loss(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{what}. Set failOnDataLoss=false to go on with what is left")
        logger.warning("%s", what)

    # ---- the group ----

    def commit(self, offsets: Offsets) -> None:
        """Tell a consumer group how far the query is: so every tool shows its lag."""
        if self._options.group is not None:
            commit_offsets(self._cluster, self._options.group, offsets)
