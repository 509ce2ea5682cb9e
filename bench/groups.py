"""What groups cost, for one system at a time: heartbeats, rebalances, commits. Each scenario returns named numbers.

The members speak the protocol themselves and answer at once, so that what is measured is the broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import statistics
import time
import uuid
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

from bench.scenarios import Numbers, new_topic
from penstock.wire.api import APIS, ApiKey
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.support.groups import assignment, subscription, wait_for_coordinator
from tests.support.systems import System
from tests.support.wire import Wire

_Result = TypeVar("_Result")

_groups = itertools.count()
_SESSION_MS = 60_000
_COMMIT_VERSION = 9
_LISTEN_BACKLOG = 40  # who connects faster than a broker accepts waits a second for the next attempt


def _new_group(system: System) -> str:
    wait_for_coordinator(system)
    return f"bench-{next(_groups)}"


def _run(work: Coroutine[Any, Any, _Result]) -> _Result:
    return uvloop.run(work)


class Member:
    """A member of a classic group. It does nothing by itself."""

    def __init__(self, system: System, group: str, topic: str) -> None:
        self.wire = Wire(system.port, "bench")
        self.group = group
        self.topic = topic
        self.member_id = ""
        self.generation = -1
        self.size = 0  # members of the generation, if this one leads it

    async def take_id(self) -> None:
        response = await self._join()
        if response.error_code != ErrorCode.MEMBER_ID_REQUIRED:
            raise RuntimeError(f"JoinGroup was answered with error {response.error_code}")
        self.member_id = response.member_id

    async def _join(self) -> Any:
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=_SESSION_MS,
            rebalance_timeout_ms=_SESSION_MS,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription([self.topic]))],
        )
        return await self.wire.call(request, ApiKey.JOIN_GROUP, 9)

    async def join(self) -> bool:
        """One round of JoinGroup and SyncGroup; false if another round has begun meanwhile."""
        joined = await self._join()
        if joined.error_code:
            raise RuntimeError(f"JoinGroup was answered with error {joined.error_code}")
        self.size = len(joined.members)
        dealt = [
            SyncGroupRequestAssignment(member_id=member.member_id, assignment=assignment({self.topic: [0]}))
            for member in joined.members
        ]
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=dealt,
        )
        code = (await self.wire.call(request, ApiKey.SYNC_GROUP, 5)).error_code
        if code not in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS):
            raise RuntimeError(f"SyncGroup was answered with error {code}")
        self.generation = joined.generation_id
        return bool(code == ErrorCode.NONE)

    async def beat(self) -> ErrorCode:
        request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
        return ErrorCode((await self.wire.call(request, ApiKey.HEARTBEAT, 4)).error_code)

    async def leave(self) -> None:
        identity = MemberIdentity(member_id=self.member_id)
        await self.wire.call(LeaveGroupRequest(group_id=self.group, members=[identity]), ApiKey.LEAVE_GROUP, 5)
        self.wire.close()


async def _connect(members: list[Member]) -> list[Member]:
    for start in range(0, len(members), _LISTEN_BACKLOG):
        await asyncio.gather(*(member.wire.connect() for member in members[start : start + _LISTEN_BACKLOG]))
    return members


async def _settle(members: list[Member]) -> None:
    """All join; each goes on joining until one generation holds them all."""
    await asyncio.gather(*(member.take_id() for member in members))
    settled = asyncio.Event()

    async def stay(member: Member) -> None:
        while not settled.is_set():
            if not await member.join():
                continue
            if member.size == len(members):
                settled.set()
            while await member.beat() == ErrorCode.NONE:
                with contextlib.suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(settled.wait(), 0.25)
                    return

    await asyncio.gather(*(stay(member) for member in members))
    if len({member.generation for member in members}) != 1:
        raise RuntimeError("the members do not agree on the generation")


# ---- a thousand members ----


def thousand_members(system: System) -> Numbers:
    """The time a group of a thousand takes to settle, and then the cost of a heartbeat, one per member and second."""
    group, topic = _new_group(system), new_topic(system)

    async def run() -> Numbers:
        members = await _connect([Member(system, group, topic) for _ in range(1000)])
        cpu = system.cpu_seconds()
        began = time.perf_counter()
        await _settle(members)
        settle_s = time.perf_counter() - began
        settle_cpu_s = system.cpu_seconds() - cpu

        async def beat(member: Member, number: int) -> int:
            await asyncio.sleep(number / len(members))
            count = 0
            while time.perf_counter() < until:
                code = await member.beat()
                if code != ErrorCode.NONE:
                    raise RuntimeError(f"a heartbeat was answered with {code.name}")
                count += 1
                await asyncio.sleep(1.0)
            return count

        cpu = system.cpu_seconds()
        until = time.perf_counter() + 8.0
        beats = sum(await asyncio.gather(*(beat(member, number) for number, member in enumerate(members))))
        beats_cpu_s = system.cpu_seconds() - cpu
        for member in members:
            member.wire.close()
        return {
            "settle_s": settle_s,
            "settle_cpu_s": settle_cpu_s,
            "cpu_us_per_heartbeat": beats_cpu_s / beats * 1e6,
        }

    return _run(run())


# ---- one joins a group of fifty ----


def rebalance(system: System, size: int = 50, rounds: int = 10) -> Numbers:
    """From the JoinGroup of one more member until all have their new assignment; everyone knows of it at once."""
    group, topic = _new_group(system), new_topic(system, 64)

    async def run() -> Numbers:
        members = await _connect([Member(system, group, topic) for _ in range(size)])
        await _settle(members)
        times = []
        cpu = system.cpu_seconds()
        for _ in range(rounds):
            newcomer = Member(system, group, topic)
            await newcomer.take_id()
            began = time.perf_counter()
            joining = asyncio.create_task(newcomer.join())
            while await members[0].beat() == ErrorCode.NONE:
                pass
            if not all(await asyncio.gather(joining, *(member.join() for member in members))):
                raise RuntimeError("the rebalance was disturbed")
            times.append(time.perf_counter() - began)
            await newcomer.leave()
            await asyncio.gather(*(member.join() for member in members))
        cpu_s = system.cpu_seconds() - cpu
        for member in members:
            member.wire.close()
        return {"median_ms": statistics.median(times) * 1e3, "cpu_ms_per_rebalance": cpu_s / rounds / 2 * 1e3}

    return _run(run())


class ConsumerMember:
    """A member of a consumer group (KIP-848) of a topic with one id."""

    def __init__(self, system: System, group: str, topic: str) -> None:
        self.wire = Wire(system.port, "bench")
        self.group = group
        self.topic = topic
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self.owned: dict[bytes, list[int]] = {}

    async def beat(self) -> bool:
        """One heartbeat; if it changes something, another one that confirms it. Whether something changed."""
        is_joining = self.epoch == 0
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=_SESSION_MS if is_joining else -1,
            subscribed_topic_names=[self.topic] if is_joining else None,
            topic_partitions=[] if is_joining else None,
        )
        if not await self._ask(request):
            return False
        while await self._ask(self._confirmation()):  # the answer may ask for more
            pass
        return True

    def _confirmation(self) -> ConsumerGroupHeartbeatRequest:
        owned = [TopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in self.owned.items()]
        return ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=self.epoch, topic_partitions=owned
        )

    async def _ask(self, request: ConsumerGroupHeartbeatRequest) -> bool:
        response = await self.wire.call(request, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1)
        if response.error_code:
            raise RuntimeError(f"a heartbeat was answered with error {response.error_code}: {response.error_message}")
        self.epoch = response.member_epoch
        if response.assignment is None:
            return False
        self.owned = {topic.topic_id: sorted(topic.partitions) for topic in response.assignment.topic_partitions}
        return True

    @property
    def count(self) -> int:
        return sum(map(len, self.owned.values()))

    async def leave(self) -> None:
        request = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=-1)
        await self.wire.call(request, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1)
        self.wire.close()


def consumer_rebalance(system: System, size: int = 50, rounds: int = 5) -> Numbers:
    """The same with the consumer protocol: until the newcomer has its partitions. Each member beats ten times a second.

    Kafka waits up to a second between two assignments (`group.consumer.assignment.interval.ms`).
    """
    partitions = 2 * (size + 1)
    group, topic = _new_group(system), new_topic(system, partitions)

    async def run() -> Numbers:
        members = [ConsumerMember(system, group, topic) for _ in range(size)]

        async def beat_until_shared(all_members: list[ConsumerMember], smallest: int) -> None:
            while sum(m.count for m in all_members) != partitions or min(m.count for m in all_members) < smallest:
                await asyncio.gather(*(member.beat() for member in all_members))
                await asyncio.sleep(0.1)

        await beat_until_shared(members, 2)
        times = []
        cpu = system.cpu_seconds()
        for _ in range(rounds):
            newcomer = ConsumerMember(system, group, topic)
            began = time.perf_counter()
            await newcomer.beat()
            await beat_until_shared([*members, newcomer], 2)
            times.append(time.perf_counter() - began)
            await newcomer.leave()
            await beat_until_shared(members, 2)
        cpu_s = system.cpu_seconds() - cpu
        for member in members:
            member.wire.close()
        return {"median_ms": statistics.median(times) * 1e3, "cpu_ms_per_rebalance": cpu_s / rounds / 2 * 1e3}

    return _run(run())


# ---- commits ----


class Committer(asyncio.BufferedProtocol):
    """One connection that sends the same commit again as soon as it is answered."""

    def __init__(self, frame: bytes, round_trips: list[float]) -> None:
        self._frame = frame
        self._round_trips = round_trips
        self._buffer = bytearray(4096)
        self._received = 0
        self._response_bytes = 0
        self._sent_at = 0.0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send()

    def _send(self) -> None:
        self._sent_at = time.perf_counter()
        self._transport.write(self._frame)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._received :]

    def buffer_updated(self, count: int) -> None:
        self._received += count
        if not self._response_bytes:
            self._check_first_response()
        if self._received < self._response_bytes:
            return
        self._received = 0
        self._round_trips.append(time.perf_counter() - self._sent_at)
        self._send()

    def _check_first_response(self) -> None:
        self._response_bytes = 4 + int.from_bytes(self._buffer[:4], "big")
        codec = APIS[ApiKey.OFFSET_COMMIT].response_codec(_COMMIT_VERSION)
        response, _ = codec.read(bytes(self._buffer[: self._response_bytes]), 9)
        code = response.topics[0].partitions[0].error_code
        if code:
            raise SystemExit(f"the broker answered with error {code}")


def commits(system: System, clients: int = 50, seconds: float = 4.0) -> Numbers:
    """Fifty clients commit one offset each, for a group of their own, one commit after the other."""
    topic = new_topic(system)
    api = APIS[ApiKey.OFFSET_COMMIT]

    def frame() -> bytes:
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="")
        topics = [OffsetCommitRequestTopic(name=topic, partitions=[part])]
        request = OffsetCommitRequest(group_id=_new_group(system), topics=topics)
        return api.request_codec(_COMMIT_VERSION).encode_request(
            ApiKey.OFFSET_COMMIT, _COMMIT_VERSION, 1, "bench", True, request
        )

    frames = [frame() for _ in range(clients)]

    async def run() -> Numbers:
        round_trips: list[float] = []
        loop = asyncio.get_running_loop()
        transports = []
        for one in frames:
            transport, _ = await loop.create_connection(
                lambda one=one: Committer(one, round_trips), "127.0.0.1", system.port
            )
            transports.append(transport)
        await asyncio.sleep(2.0)  # warms up
        round_trips.clear()
        cpu = system.cpu_seconds()
        began = time.perf_counter()
        await asyncio.sleep(seconds)
        elapsed = time.perf_counter() - began
        cpu_s = system.cpu_seconds() - cpu
        ordered = sorted(round_trips)
        for transport in transports:
            transport.abort()
        return {
            "per_second": len(ordered) / elapsed,
            "p50_ms": ordered[len(ordered) // 2] * 1e3,
            "p99_ms": ordered[int(len(ordered) * 0.99)] * 1e3,
            "cpu_us_per_commit": cpu_s / len(ordered) * 1e6,
        }

    return _run(run())
