"""The partitions of an internal topic that this broker leads, each loaded into memory.

A shard is the sum of its partition's records. It is loaded when this broker becomes the leader, and dropped when it
is not any more. What a record means is the shard's business.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from penstock.background import Background
from penstock.coordination.hashing import partition_of
from penstock.log.storage import FileSlice
from penstock.metadata.image import Image
from penstock.replica.partition import Partition
from penstock.replica.replicas import Replicas
from penstock.wire.batch import batches_in, decode_records
from penstock.wire.errors import ApiError, DecodeError, ErrorCode, WireError
from penstock.wire.record import decode_end_txn_marker

_LOAD_AGAIN_MS = 10_000  # after which a shard is loaded that could not be loaded

NO_PRODUCER = -1

logger = logging.getLogger(__name__)

Decode = Callable[[bytes, bytes | None], Any]


class Entry(NamedTuple):
    """One record of the log, or the end of a transaction (an EndTxnMarker).

    `producer_id` is set if the record waits for the end of its producer's transaction.
    """

    offset: int
    producer_id: int
    record: Any


class LoadableShard(Protocol):
    """What is kept of one partition."""

    partition: Partition
    leader_epoch: int
    is_loaded: bool

    def replay(self, entries: Sequence[Entry]) -> None: ...

    def finish_loading(self) -> None: ...


S = TypeVar("S", bound=LoadableShard)


class Shards(Generic[S]):
    """The shards of one internal topic. Owned by the event loop."""

    def __init__(
        self,
        topic: str,
        *,
        replicas: Replicas,
        image: Callable[[], Image],
        background: Background,
        buffer_bytes: Callable[[], int],
        decode: Decode,
        make: Callable[[Partition], S],
        loaded: Callable[[S], None],
        unloaded: Callable[[S], None],
    ) -> None:
        """`decode` runs in a thread; `loaded` and `unloaded` are told of every shard that comes and goes."""
        self._topic = topic
        self._replicas = replicas
        self._image = image
        self._background = background
        self._buffer_bytes = buffer_bytes
        self._decode = decode
        self._make = make
        self._loaded = loaded
        self._unloaded = unloaded
        self._by_index: dict[int, S] = {}
        self.loading: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[S]:
        return iter(list(self._by_index.values()))

    # ---- finding ----

    def partition_of(self, key: str) -> int:
        """The partition that a group or a transactional id belongs to."""
        topic = self._image().topics.get(self._topic)
        if topic is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        return partition_of(key, len(topic.partitions))

    def of(self, key: str) -> S:
        """The shard that something lives in, if that is here and loaded."""
        shard = self._by_index.get(self.partition_of(key))
        if shard is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        if not shard.is_loaded:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        return shard

    def get(self, index: int) -> S | None:
        """The shard of a partition, if it is here and loaded."""
        shard = self._by_index.get(index)
        return shard if shard is not None and shard.is_loaded else None

    def has(self, shard: S) -> bool:
        """Whether this is still what is kept of its partition."""
        return self._by_index.get(shard.partition.index) is shard

    # ---- leading ----

    def follow(self) -> None:
        """Keep what this broker leads now, and nothing else."""
        led = self._led()
        for index, shard in list(self._by_index.items()):
            partition = led.get(index)
            if partition is not shard.partition or shard.leader_epoch != partition.leader_epoch:
                self.unload(index)
        for index, partition in led.items():
            if index not in self._by_index:
                self._begin(index, partition)

    def _led(self) -> dict[int, Partition]:
        topic = self._image().topics.get(self._topic)
        found = (self._replicas.get(self._topic, index) for index in topic.partitions) if topic is not None else ()
        return {partition.index: partition for partition in found if partition is not None and partition.is_leader}

    def _begin(self, index: int, partition: Partition) -> None:
        shard = self._by_index[index] = self._make(partition)
        if partition.log.end_offset == partition.log.start_offset:
            shard.finish_loading()
            return
        task = asyncio.get_running_loop().create_task(self._load(index, shard))
        self.loading.add(task)
        task.add_done_callback(self.loading.discard)

    async def _load(self, index: int, shard: S) -> None:
        """Read the whole partition; the decoding is done in a thread."""
        log = shard.partition.log
        offset, end_offset = log.start_offset, log.end_offset
        try:
            while offset < end_offset and self._by_index.get(index) is shard:
                part = log.read(offset, self._buffer_bytes(), end_offset)
                if part is None:
                    break
                entries, offset = await self._background.run(partial(decode_part, part, offset, self._decode))
                shard.replay(entries)
        except (OSError, ApiError, WireError):
            logger.exception("cannot load %s-%d: what lives there is not available; trying again", self._topic, index)
            if self._by_index.get(index) is shard:
                del self._by_index[index]
                self._background.later(_LOAD_AGAIN_MS, self.follow)
            return
        if self._by_index.get(index) is shard:
            shard.finish_loading()
            self._loaded(shard)

    def unload(self, index: int) -> None:
        self._unloaded(self._by_index.pop(index))

    def stop(self) -> None:
        for index in list(self._by_index):
            self.unload(index)


def decode_part(part: FileSlice, start_offset: int, decode: Decode) -> tuple[list[Entry], int]:
    """The entries of a part of the log, and the offset behind them. Runs in a thread."""
    content = part.read()
    found = []
    next_offset = start_offset
    for batch in batches_in(content):
        next_offset = batch.next_offset
        producer_id = batch.producer_id if batch.is_transactional else NO_PRODUCER
        for entry in decode_records(content, batch):
            if entry.offset < start_offset or entry.key is None:
                continue
            if batch.is_control:
                record = decode_end_txn_marker(entry)
            else:
                record = decode(bytes(entry.key), None if entry.value is None else bytes(entry.value))
            if record is not None:
                found.append(Entry(entry.offset, producer_id, record))
    if next_offset == start_offset:
        raise DecodeError(f"no whole batch at offset {start_offset}")
    return found, next_offset
