"""The committed offsets of groups: committed, deleted, expired, forgotten with their topic.

They count when their records are committed, and follow the records in the order of the log.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from penstock.clock import Clock
from penstock.config.broker import BrokerConfig
from penstock.coordination.appends import Committing, append, when_good
from penstock.coordination.shards import Shards
from penstock.group.classic import ClassicGroup
from penstock.group.offsets import Committed, Place, is_expired, located, tombstone
from penstock.group.records import GroupRecord, OffsetCommitKey, encode_record
from penstock.group.shard import Group, Shard, is_without_members, topics_read_by
from penstock.wire.batch import encode_batch
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.record import Record

_TELLS_MISSING_GROUP = 9  # the version of OffsetCommit from which on clients know GROUP_ID_NOT_FOUND

logger = logging.getLogger(__name__)


class TxnProducer(NamedTuple):
    """Whose transaction an offset is committed in."""

    producer_id: int
    epoch: int


def append_records(
    shard: Shard, records: Sequence[GroupRecord], now_ms: int, timeout_ms: int, producer: TxnProducer | None = None
) -> tuple[int, Committing]:
    """Append records as one batch; returns the offset of the first, and when they are committed. Raises ApiError."""
    entries = [Record(n, now_ms, *encode_record(record)) for n, record in enumerate(records)]
    if producer is None:
        encoded = encode_batch(entries)
    else:
        encoded = encode_batch(
            entries, is_transactional=True, producer_id=producer.producer_id, producer_epoch=producer.epoch
        )
    return append(shard.partition, encoded, timeout_ms)


class OffsetCommits:
    """What changes committed offsets. Owned by the event loop."""

    def __init__(
        self,
        shards: Shards[Shard],
        config: Callable[[], BrokerConfig],
        clock: Clock,
        now_ms: Callable[[], int],
        group_tombstones: Callable[[Group], list[GroupRecord]],
        forget_group: Callable[[Shard, str], None],
    ) -> None:
        """Groups that are left without members and offsets end here: the last two arguments are how."""
        self._shards = shards
        self._config = config
        self._clock = clock
        self._now_ms = now_ms
        self._group_tombstones = group_tombstones
        self._forget_group = forget_group

    def _append(
        self, shard: Shard, records: Sequence[GroupRecord], producer: TxnProducer | None = None
    ) -> tuple[int, Committing]:
        timeout_ms = self._config().offsets_commit_timeout_ms
        return append_records(shard, records, self._clock.time_ms(), timeout_ms, producer)

    # ---- committing ----

    def check(self, group_id: str, member_id: str, instance_id: str | None, generation: int, version: int) -> Shard:
        """Whether someone may commit offsets of a group. Returns where to."""
        shard = self._shards.of(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            if generation >= 0:
                raise ApiError(
                    ErrorCode.GROUP_ID_NOT_FOUND if version >= _TELLS_MISSING_GROUP else ErrorCode.ILLEGAL_GENERATION
                )
        elif isinstance(group, ClassicGroup):
            group.check_commit(member_id, instance_id, generation)
            group.touch(member_id, self._now_ms())
        else:
            group.check_commit(member_id, instance_id, generation, version)
        return shard

    def check_in_transaction(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int, version: int
    ) -> Shard:
        """The same for offsets that are committed within a transaction. Its errors know no epochs of members."""
        shard = self._shards.of(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            if generation >= 0:
                raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        elif isinstance(group, ClassicGroup):
            group.check_commit(member_id, instance_id, generation, in_txn=True)
        else:
            try:
                group.check_commit(member_id, instance_id, generation, version, in_txn=True)
            except ApiError as error:
                if error.code == ErrorCode.STALE_MEMBER_EPOCH:
                    raise ApiError(ErrorCode.ILLEGAL_GENERATION, error.message) from None
                raise
        return shard

    def commit(
        self,
        shard: Shard,
        group_id: str,
        offsets: Sequence[tuple[str, int, Committed]],
        producer: TxnProducer | None = None,
    ) -> Committing:
        """Commit offsets, as (topic, partition, offset).

        They count when the future is done (None: at once), those of a transaction when that is committed.
        """
        records = [committed.record(group_id, topic, partition) for topic, partition, committed in offsets]
        base_offset, future = self._append(shard, records, producer)
        placed = {
            (group_id, topic, partition): located(committed, base_offset + n)
            for n, (topic, partition, committed) in enumerate(offsets)
        }
        if producer is None:
            when_good(future, lambda: self._committed(shard, group_id, placed))
        else:  # noted at once, so that a marker behind it never comes before
            self._pending(shard, group_id, placed, producer)
        return future

    def _committed(self, shard: Shard, group_id: str, placed: Mapping[Place, Committed]) -> None:
        for place, committed in placed.items():
            shard.offsets.maybe_set(place, committed)
        if group_id not in shard.groups:
            shard.make_classic(group_id)

    def _pending(self, shard: Shard, group_id: str, placed: Mapping[Place, Committed], producer: TxnProducer) -> None:
        for place, committed in placed.items():
            shard.offsets.set_pending(producer.producer_id, place, committed)
        if group_id not in shard.groups:
            shard.make_classic(group_id)

    # ---- deleting ----

    def _remove(self, shard: Shard, records: Sequence[GroupRecord]) -> Committing:
        """Append tombstones, and follow what they say of offsets in the order of the log: when they are committed."""
        _, future = self._append(shard, records)
        offsets = [record for record in records if type(record.key) is OffsetCommitKey]
        when_good(future, lambda: shard.load(offsets))
        return future

    def remove_group(self, shard: Shard, group: Group, records: Sequence[GroupRecord]) -> Committing:
        """End a group, and what these records name of its offsets."""
        future = self._remove(shard, [*records, *self._group_tombstones(group)])
        self._forget_group(shard, group.group_id)
        return future

    def delete(
        self, group_id: str, partitions: Sequence[tuple[str, int]]
    ) -> tuple[dict[tuple[str, int], ErrorCode], Committing]:
        """Delete offsets of topics that the group does not read, those that are pending too."""
        if not group_id:
            raise ApiError(ErrorCode.INVALID_GROUP_ID)
        shard = self._shards.of(group_id)
        group = shard.groups.get(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND)
        read = topics_read_by(group)
        if read is None:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)
        results = {
            (topic, partition): ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topic in read else ErrorCode.NONE
            for topic, partition in partitions
        }
        gone = [
            (topic, partition)
            for (topic, partition), code in results.items()
            if not code and shard.offsets.has(group_id, topic, partition)
        ]
        future = self._remove(shard, [tombstone(group_id, *where) for where in gone]) if gone else None
        return results, future

    # ---- forgetting ----

    def expire_all(self) -> None:
        for shard in self._shards:
            if shard.is_loaded:
                self.expire(shard)

    def expire(self, shard: Shard) -> None:
        """Forget offsets that are too old, and groups that have neither members nor offsets."""
        for group in list(shard.groups.values()):
            try:
                self._expire_group(shard, group)
            except ApiError as error:
                logger.warning("group %s: cannot forget old offsets: %s", group.group_id, error)
                return

    def _expire_group(self, shard: Shard, group: Group) -> None:
        group_id = group.group_id
        gone = self._expired(shard, group)
        records = [tombstone(group_id, *where) for where in gone]
        has_left = sum(len(partitions) for partitions in shard.offsets.of(group_id).values()) > len(gone)
        if not has_left and not shard.offsets.has_pending(group_id) and is_without_members(group):
            self.remove_group(shard, group, records)
        elif records:
            self._remove(shard, records)

    def _expired(self, shard: Shard, group: Group) -> list[tuple[str, int]]:
        """Offsets that are old enough to go; one that an open transaction may change stays."""
        retention_ms = self._config().offsets_retention_minutes * 60_000
        now_ms = self._clock.time_ms()
        read = topics_read_by(group)
        idle_since_ms = group.changed_wall_ms if isinstance(group, ClassicGroup) else None
        return [
            (topic, partition)
            for topic, partitions in shard.offsets.of(group.group_id).items()
            if read is not None and topic not in read
            for partition, committed in partitions.items()
            if is_expired(committed, idle_since_ms, retention_ms, now_ms)
            and not shard.offsets.is_pending(group.group_id, topic, partition)
        ]

    def forget_topics(self, names: set[str]) -> None:
        """Offsets of a topic go with it, also those that are pending."""
        for shard in self._shards:
            gone = {place for place in shard.offsets.pending_places() if place[1] in names}
            gone |= {
                (group_id, topic, partition)
                for group_id in shard.offsets.groups()
                for topic in names & shard.offsets.of(group_id).keys()
                for partition in shard.offsets.of(group_id)[topic]
            }
            if not gone or not shard.is_loaded:
                continue
            try:
                self._remove(shard, [tombstone(*place) for place in sorted(gone)])
            except ApiError as error:
                logger.warning("cannot forget the offsets of %s: %s", ", ".join(sorted(names)), error)
