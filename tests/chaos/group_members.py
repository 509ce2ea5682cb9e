"""Members of a group that come and go under fire, hundreds of them in one event loop, and what they see.

A member reads and commits what it owns, and answers at once. It counts as the owner of a partition from the moment it
hears of it until just before it tells the coordinator, or nobody any more, that it has given it up. What all of them
see is held against the `Promises`:

- no partition has two owners (unless the first one's session is over, and it only does not know yet);
- a committed offset is never seen to go back;
- no record is passed over: whoever takes a partition goes on where all before it were read;
- generations and epochs only grow.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

from penstock.wire.api import ApiKey
from penstock.wire.batch import batches_in, encode_batch
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from penstock.wire.record import Record
from tests.support.groups import assignment, read_assignment, subscription
from tests.support.wire import Broken, Wire

REBALANCE_S = 10.0
_NOT_NOW = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REQUEST_TIMED_OUT,
}


@dataclass
class Promises:
    """What must hold of a group's only topic, and the faults found."""

    faults: list[str] = field(default_factory=list)
    owners: dict[int, Member] = field(default_factory=dict)
    acknowledged: dict[int, int] = field(default_factory=dict)  # partition -> the highest commit that was acknowledged
    read: dict[int, int] = field(default_factory=dict)  # partition -> every record below was received by someone
    generation: int = 0
    moves: int = 0

    def take(self, member: Member, partition: int) -> None:
        owner = self.owners.get(partition, member)
        if owner is not member and not owner.is_expired:
            self.faults.append(f"{member} was given partition {partition} while {owner} had it")
        self.owners[partition] = member
        self.moves += 1

    def give_up(self, member: Member, partition: int) -> None:
        if self.owners.get(partition) is member:
            del self.owners[partition]

    def see_committed(self, member: Member, partition: int, offset: int) -> None:
        if offset < self.acknowledged.get(partition, 0):
            was = self.acknowledged[partition]
            self.faults.append(f"{member} sees {offset} committed for {partition} after {was} was acknowledged")

    def see_acknowledged(self, partition: int, offset: int) -> None:
        self.acknowledged[partition] = max(offset, self.acknowledged.get(partition, 0))

    def see_read(self, member: Member, partition: int, first: int, end: int) -> None:
        known = self.read.get(partition, 0)
        if first > known:
            self.faults.append(f"{member} reads {partition} from {first}, but {known} was not read by anyone")
        self.read[partition] = max(known, end)

    def see_generation(self, member: Member) -> None:
        """A generation counts when it has an assignment: only then does it survive the coordinator's death."""
        if member.generation < self.generation and not member.is_expired:
            self.faults.append(f"{member} is given an assignment after one of generation {self.generation}")
        self.generation = max(self.generation, member.generation)


@dataclass(frozen=True)
class Place:
    """Where the members meet."""

    port: int
    group: str
    topic: str
    topic_id: bytes
    partitions: int
    beat_s: float
    session_s: float


class Member(ABC):
    """A member of either kind. Subclasses say how one stays in a group."""

    def __init__(self, number: int, place: Place, promises: Promises) -> None:
        self.number = number
        self.place = place
        self.promises = promises
        self.wire = Wire(place.port)
        self.positions: dict[int, int] = {}  # of the partitions it owns
        self.generation = -1
        self.member_id = ""
        self.is_stopping = False
        self.crashes = False
        self.heard_at = time.monotonic()
        self.task: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        return f"member {self.number} (generation {self.generation})"

    @property
    def is_expired(self) -> bool:
        """It has not been heard of for so long that the coordinator may have given it up."""
        return time.monotonic() - self.heard_at > self.place.session_s * 0.9

    def start(self) -> None:
        self.task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        while not self.is_stopping:
            try:
                await self.live()
            except Broken:
                await asyncio.sleep(0.05)  # the broker is away; it owns what it owned
        self.give_up(list(self.positions))
        while not self.crashes:
            with contextlib.suppress(*Broken):
                await self.leave()
                break
            await asyncio.sleep(0.05)
        self.wire.close()

    @abstractmethod
    async def live(self) -> None:
        """Take part until something breaks or it is told to stop."""

    @abstractmethod
    async def leave(self) -> None: ...

    async def call(self, request: Any, key: ApiKey, version: int) -> Any:
        return await self.wire.call(request, key, version)

    def give_up(self, partitions: list[int]) -> None:
        for partition in partitions:
            del self.positions[partition]
            self.promises.give_up(self, partition)

    async def take(self, partitions: list[int]) -> None:
        """Own more partitions, and find out where to go on."""
        for partition in partitions:
            self.promises.take(self, partition)
            self.positions[partition] = -1
        await self.find_positions()

    async def find_positions(self) -> None:
        unknown = [partition for partition, offset in self.positions.items() if offset < 0]
        if not unknown:
            return
        wanted = OffsetFetchRequestTopics(name=self.place.topic, partition_indexes=unknown)
        asked = OffsetFetchRequestGroup(group_id=self.place.group, topics=[wanted])
        (found,) = (await self.call(OffsetFetchRequest(groups=[asked]), ApiKey.OFFSET_FETCH, 9)).groups
        if found.error_code in _NOT_NOW:
            return
        assert found.error_code == ErrorCode.NONE, ErrorCode(found.error_code).name
        for part in found.topics[0].partitions:
            assert part.error_code == ErrorCode.NONE, part
            offset = max(0, part.committed_offset)
            self.promises.see_committed(self, part.partition_index, offset)
            self.positions[part.partition_index] = offset

    async def work(self) -> None:
        """Read what it owns and commit it."""
        await self.find_positions()
        known = {partition: offset for partition, offset in self.positions.items() if offset >= 0}
        if not known:
            return
        wanted = [FetchPartition(partition=p, fetch_offset=o, partition_max_bytes=1 << 16) for p, o in known.items()]
        topics = [FetchTopic(topic=self.place.topic, partitions=wanted)]
        request = FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=-1, topics=topics)
        moved = {}
        for topic in (await self.call(request, ApiKey.FETCH, 12)).responses:
            for data in topic.partitions:
                if data.error_code or data.partition_index not in self.positions:
                    continue  # not led again yet, after the broker was killed
                content = bytes(data.records or b"")
                end = max((batch.last_offset + 1 for batch in batches_in(content)), default=0)
                if end > known[data.partition_index]:
                    self.promises.see_read(self, data.partition_index, known[data.partition_index], end)
                    self.positions[data.partition_index] = moved[data.partition_index] = end
        if moved:
            await self.commit(moved)

    async def commit(self, offsets: dict[int, int]) -> None:
        parts = [OffsetCommitRequestPartition(partition_index=p, committed_offset=o) for p, o in offsets.items()]
        request = OffsetCommitRequest(
            group_id=self.place.group,
            generation_id_or_member_epoch=self.generation,
            member_id=self.member_id,
            topics=[OffsetCommitRequestTopic(name=self.place.topic, partitions=parts)],
        )
        for topic in (await self.call(request, ApiKey.OFFSET_COMMIT, 9)).topics:
            for part in topic.partitions:
                if part.error_code == ErrorCode.NONE:
                    self.promises.see_acknowledged(part.partition_index, offsets[part.partition_index])


class ClassicMember(Member):
    """Eager: it gives everything up before it joins again."""

    async def live(self) -> None:
        while not self.is_stopping:
            if self.generation < 0:
                await self.join()
                continue
            sent_at = time.monotonic()
            beat = HeartbeatRequest(group_id=self.place.group, generation_id=self.generation, member_id=self.member_id)
            code = (await self.call(beat, ApiKey.HEARTBEAT, 4)).error_code
            if code == ErrorCode.NONE:
                self.heard_at = sent_at
                await self.work()
                await asyncio.sleep(self.place.beat_s)
            elif code == ErrorCode.REBALANCE_IN_PROGRESS:
                self.heard_at = sent_at
                await self.work()  # the last chance to commit
                self.fall_out()
            elif code in _NOT_NOW:
                await asyncio.sleep(0.05)
            else:
                self.fall_out(forgotten=code == ErrorCode.UNKNOWN_MEMBER_ID)

    def fall_out(self, forgotten: bool = False) -> None:
        self.give_up(list(self.positions))
        self.generation = -1
        if forgotten:
            self.member_id = ""

    async def join(self) -> None:
        request = JoinGroupRequest(
            group_id=self.place.group,
            session_timeout_ms=int(self.place.session_s * 1000),
            rebalance_timeout_ms=int(REBALANCE_S * 1000),
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription([self.place.topic]))],
        )
        response = await self.call(request, ApiKey.JOIN_GROUP, 9)
        if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
        elif response.error_code == ErrorCode.NONE:
            self.heard_at = time.monotonic()
            self.member_id = response.member_id
            await self.sync(response)
        elif response.error_code in _NOT_NOW:
            await asyncio.sleep(0.05)
        else:
            self.fall_out(forgotten=True)

    async def sync(self, joined: Any) -> None:
        names = sorted(member.member_id for member in joined.members)
        dealt = {
            name: {self.place.topic: list(range(n, self.place.partitions, len(names)))} for n, name in enumerate(names)
        }
        request = SyncGroupRequest(
            group_id=self.place.group,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=n, assignment=assignment(o)) for n, o in dealt.items()],
        )
        sent_at = time.monotonic()
        response = await self.call(request, ApiKey.SYNC_GROUP, 5)
        if response.error_code == ErrorCode.NONE:
            self.heard_at = sent_at
            self.generation = joined.generation_id
            self.promises.see_generation(self)
            await self.take(read_assignment(response.assignment).get(self.place.topic, []))
        elif response.error_code != ErrorCode.REBALANCE_IN_PROGRESS:
            self.fall_out(forgotten=response.error_code == ErrorCode.UNKNOWN_MEMBER_ID)

    async def leave(self) -> None:
        if self.member_id:
            leaving = [MemberIdentity(member_id=self.member_id)]
            await self.call(LeaveGroupRequest(group_id=self.place.group, members=leaving), ApiKey.LEAVE_GROUP, 5)


class ConsumerMember(Member):
    """KIP-848: it gives up what it must and keeps the rest."""

    def __init__(self, number: int, place: Place, promises: Promises) -> None:
        super().__init__(number, place, promises)
        self.member_id = str(uuid.uuid4())
        self.generation = 0

    async def live(self) -> None:
        await self.beat(is_full=True)  # after a break the last answer may be lost: say everything
        while not self.is_stopping:
            await self.work()
            await asyncio.sleep(self.place.beat_s)
            await self.beat()

    async def beat(self, is_full: bool = False) -> None:
        owned: list[TopicPartitions] | None = None
        if self.generation == 0:
            owned = []
        elif is_full:
            owned = self._owned()
        while True:
            heard = await self._ask(owned)
            if heard is None or heard.assignment is None:
                return
            target = {p for topic in heard.assignment.topic_partitions for p in topic.partitions}
            revoked = [partition for partition in self.positions if partition not in target]
            if revoked:
                await self.work()  # commits them for the last time
                self.give_up(revoked)
            added = [partition for partition in target if partition not in self.positions]
            await self.take(added)
            if not revoked and not added:
                return
            owned = self._owned()

    def _owned(self) -> list[TopicPartitions]:
        mine = sorted(self.positions)
        return [TopicPartitions(topic_id=self.place.topic_id, partitions=mine)] if mine else []

    async def _ask(self, owned: list[TopicPartitions] | None) -> Any:
        is_joining = self.generation == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.place.group,
            member_id=self.member_id,
            member_epoch=self.generation,
            rebalance_timeout_ms=int(REBALANCE_S * 1000) if is_joining else -1,
            subscribed_topic_names=[self.place.topic] if is_joining else None,
            topic_partitions=owned,
        )
        sent_at = time.monotonic()
        response = await self.call(request, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1)
        if response.error_code == ErrorCode.NONE:
            self.heard_at = sent_at
            if response.member_epoch < self.generation:
                self.promises.faults.append(f"{self} is told epoch {response.member_epoch}")
            self.generation = response.member_epoch
            return response
        if response.error_code in _NOT_NOW:
            await asyncio.sleep(0.05)
            return None
        assert response.error_code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID), response
        self.give_up(list(self.positions))
        self.generation = 0
        return None

    async def leave(self) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.place.group, member_id=self.member_id, member_epoch=-1, topic_partitions=None
        )
        await self.call(request, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1)


class Writer:
    """Appends a record to every partition, again and again."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._wire = Wire(place.port)
        self.ends: dict[int, int] = {}  # partition -> offset behind the last acknowledged record
        self.is_stopping = False

    async def run(self) -> None:
        while not self.is_stopping:
            try:
                await self._write()
            except Broken:
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.2)
        self._wire.close()

    async def _write(self) -> None:
        data = []
        for partition in range(self._place.partitions):
            records = encode_batch([Record(0, int(time.time() * 1000), None, b"x" * 50)])
            data.append(PartitionProduceData(index=partition, records=records))
        topics = [TopicProduceData(name=self._place.topic, partition_data=data)]
        request = ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=topics)
        for topic in (await self._wire.call(request, ApiKey.PRODUCE, 9)).responses:
            for part in topic.partition_responses:
                if part.error_code == ErrorCode.NONE:
                    self.ends[part.index] = part.base_offset + 1


class Crowd:
    """Members that come and go."""

    def __init__(
        self, kinds: list[type[Member]], place: Place, size: int, chance: random.Random, crash_share: float = 0.15
    ) -> None:
        self.crash_share = crash_share
        self.place = place
        self.promises = Promises()
        self.members: list[Member] = []
        self._kinds = kinds
        self._size = size
        self._chance = chance
        self._count = 0
        self._gone: list[Member] = []

    def add(self) -> None:
        member = self._chance.choice(self._kinds)(self._count, self.place, self.promises)
        self._count += 1
        self.members.append(member)
        member.start()

    def remove(self) -> None:
        member = self.members.pop(self._chance.randrange(len(self.members)))
        member.crashes = self._chance.random() < self.crash_share
        member.is_stopping = True
        self._gone.append(member)

    async def churn(self, seconds: float, pause_s: float) -> None:
        """Members join and leave; about half of the size stays."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            share = len(self.members) / self._size
            for _ in range(self._chance.randint(1, max(1, self._size // 10))):
                if self.members and self._chance.random() < share:
                    self.remove()
                else:
                    self.add()
            self.check_alive()
            await asyncio.sleep(self._chance.uniform(0.2, 1.8) * pause_s)

    def check_alive(self) -> None:
        """A member that failed is a failure of the test."""
        for member in [*self.members, *self._gone]:
            if member.task is not None and member.task.done() and (error := member.task.exception()):
                raise error
        assert not self.promises.faults, self.promises.faults[:5]

    async def rest(self, ends: dict[int, int], seconds: float = 90.0) -> None:
        """Nobody comes or goes any more: every partition finds an owner, who reads and commits all that is there."""
        if not self.members:
            self.add()
        deadline = time.monotonic() + seconds
        promises = self.promises
        while True:
            self.check_alive()
            owned = set(promises.owners) == set(range(self.place.partitions))
            by_members = {member.number for member in promises.owners.values()} <= {m.number for m in self.members}
            done = all(promises.acknowledged.get(partition, 0) >= end for partition, end in ends.items())
            if owned and by_members and done:
                return
            assert time.monotonic() < deadline, (
                f"not at rest: {self.place.partitions - len(promises.owners)} partitions without an owner, "
                f"everything committed: {done}"
            )
            await asyncio.sleep(0.05)

    async def close(self) -> None:
        for member in self.members:
            member.is_stopping = True
        tasks = [member.task for member in [*self.members, *self._gone] if member.task is not None]
        await asyncio.wait_for(asyncio.gather(*tasks), 60)
