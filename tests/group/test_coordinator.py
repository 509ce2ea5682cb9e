"""The coordinator in a real broker: what survives, what expires, what fails, and what each version hears."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from penstock.clock import ManualClock
from penstock.coordination.hashing import java_hash, partition_of
from penstock.group.classic import ClassicGroup, State
from penstock.group.consumer import ConsumerGroup
from penstock.group.coordinator import OFFSETS_TOPIC
from penstock.group.protocol import ConsumerProtocolSubscription, encode_subscription
from penstock.log.storage import Buffer, File, Storage
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from penstock.wire.messages.delete_groups import DeleteGroupsRequest
from penstock.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.wire.messages.describe_groups import DescribeGroupsRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.list_groups import ListGroupsRequest
from penstock.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from penstock.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.group.brokers import Host, host, loaded
from tests.log.samples import opened_as

DAY_MS = 24 * 60 * 60 * 1000
NONE = ErrorCode.NONE


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 60))


# ---- requests ----


def commit_of(
    running: Host,
    offset: int,
    *,
    group_id: str = "g",
    topic: str = "t",
    member_id: str = "",
    generation: int = -1,
    **more: Any,
) -> OffsetCommitRequest:
    found = running.broker.image.topics.get(topic)
    topic_id = found.topic_id if found is not None else bytes(16)
    partition = OffsetCommitRequestPartition(0, offset, committed_metadata="note")
    wanted = OffsetCommitRequestTopic(topic, topic_id, [partition])
    return OffsetCommitRequest(group_id, generation, member_id, topics=[wanted], **more)


async def commit(running: Host, offset: int, version: int | None = None, **options: Any) -> ErrorCode:
    response = await running.call(commit_of(running, offset, **options), version)
    return ErrorCode(response.topics[0].partitions[0].error_code)


async def committed(running: Host, group_id: str = "g", topic: str = "t") -> int:
    wanted = OffsetFetchRequestGroup(group_id, topics=[OffsetFetchRequestTopics(topic, partition_indexes=[0])])
    response = await running.call(OffsetFetchRequest(groups=[wanted]), 9)
    (group,) = response.groups
    assert group.error_code == 0
    return int(group.topics[0].partitions[0].committed_offset)


def join_of(member_id: str = "", *, group_id: str = "g", topics: tuple[str, ...] = ("t",), **more: Any) -> Any:
    metadata = encode_subscription(ConsumerProtocolSubscription(list(topics)))
    protocols = [JoinGroupRequestProtocol("range", metadata)]
    return JoinGroupRequest(group_id, 10_000, 60_000, member_id, None, "consumer", protocols, **more)


async def make_member(running: Host, group_id: str = "g") -> tuple[str, int]:
    """A classic group with one member, stable."""
    joined = await running.call(join_of(group_id=group_id), 3)
    assert joined.error_code == 0
    synced = await running.call(
        SyncGroupRequest(
            group_id,
            joined.generation_id,
            joined.member_id,
            assignments=[SyncGroupRequestAssignment(joined.member_id, b"share")],
        ),
        4,
    )
    assert (synced.error_code, bytes(synced.assignment)) == (0, b"share")
    return joined.member_id, joined.generation_id


def beat_of(member_id: str = "m", epoch: int = 0, **more: Any) -> ConsumerGroupHeartbeatRequest:
    if epoch == 0:
        more = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []} | more
    return ConsumerGroupHeartbeatRequest("g", member_id, epoch, **more)


async def listed(running: Host) -> dict[str, str]:
    response = await running.call(ListGroupsRequest())
    assert response.error_code == 0
    return {group.group_id: group.group_state for group in response.groups}


# ---- where a group lives ----


@pytest.mark.parametrize(
    ("name", "code", "partition"),
    [
        ("", 0, 0),
        ("a", 97, 47),
        ("group", 98629247, 47),
        ("my-group", -1906497762, 12),
        ("console-consumer-12345", 158455506, 6),
        ("polygenelubricants", -2147483648, 0),
        ("ü", 252, 2),
        ("水", 27700, 0),
        ("😀", 1772899, 49),
        ("gruppe-ä-水-😀", 798006711, 11),
    ],
)
def test_a_group_lives_where_java_puts_it(name: str, code: int, partition: int) -> None:
    assert java_hash(name) == code
    assert partition_of(name, 50) == partition


def test_the_topic_of_groups_is_made_once(tmp_path: Path) -> None:
    async def test() -> None:
        async with host(tmp_path, offsets_topic_num_partitions="7") as running:
            topic = running.broker.image.topics[OFFSETS_TOPIC]
            assert len(topic.partitions) == 7
            keys = [f"g{n}" for n in range(5)]
            calls = [running.begin(FindCoordinatorRequest(key=key), 3) for key in keys]
            calls.append(running.begin(FindCoordinatorRequest(coordinator_keys=keys)))
            for response in await asyncio.gather(*calls):
                assert all(found.error_code == 0 for found in response.coordinators or [response])
            assert running.broker.image.topics[OFFSETS_TOPIC] is topic
            other = await running.call(FindCoordinatorRequest(key="x", key_type=2), 3)
            assert other.error_code == ErrorCode.INVALID_REQUEST

    run(test)


def test_the_topic_of_groups_is_made_once_by_many_at_the_same_time(tmp_path: Path) -> None:
    async def test() -> None:
        async with host(tmp_path) as running:
            await running.call(DeleteTopicsRequest([DeleteTopicState(OFFSETS_TOPIC)], timeout_ms=10_000))
            assert OFFSETS_TOPIC not in running.broker.image.topics
            assert await commit(running, 5, version=9) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            calls = [running.begin(FindCoordinatorRequest(key=f"g{n}"), 3) for n in range(8)]
            codes = {response.error_code for response in await asyncio.gather(*calls)}
            assert codes <= {NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE}  # as in Kafka: ask again
            assert NONE in codes
            await running.find_coordinator()
            await running.make_topics(t=1)
            assert await commit(running, 5) is NONE

    run(test)


# ---- offsets ----


@pytest.mark.parametrize("version", range(2, 11))
def test_offsets_are_committed_and_fetched_in_every_version(tmp_path: Path, version: int) -> None:
    async def test() -> None:
        async with host(tmp_path) as running:
            await running.make_topics(t=1)
            topic_id = running.broker.image.topics["t"].topic_id
            assert await commit(running, 10 + version, version) is NONE
            assert await commit(running, 1, version, topic="missing") in (
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                ErrorCode.UNKNOWN_TOPIC_ID,
            )
            for asked in range(1, 11):
                if asked < 8:
                    old = [OffsetFetchRequestTopic("t", [0, 1])]
                    response = await running.call(OffsetFetchRequest("g", old), asked)
                    topics = response.topics
                else:
                    new = [OffsetFetchRequestTopics("t", topic_id, [0, 1])]
                    wanted = [OffsetFetchRequestGroup("g", topics=new), OffsetFetchRequestGroup("h", topics=new)]
                    response = await running.call(OffsetFetchRequest(groups=wanted), asked)
                    topics = response.groups[0].topics
                    assert [p.committed_offset for p in response.groups[1].topics[0].partitions] == [-1, -1]
                (topic,) = topics
                assert [(p.committed_offset, p.metadata, p.error_code) for p in topic.partitions] == [
                    (10 + version, "note", 0),
                    (-1, "", 0),
                ]
            everything = await running.call(OffsetFetchRequest("g", None), 7)
            assert [[p.committed_offset for p in topic.partitions] for topic in everything.topics] == [[10 + version]]

    run(test)


def test_a_commit_with_too_much_metadata_is_refused(tmp_path: Path) -> None:
    async def test() -> None:
        async with host(tmp_path, offset_metadata_max_bytes="3") as running:
            await running.make_topics(t=1)
            assert await commit(running, 1) is ErrorCode.OFFSET_METADATA_TOO_LARGE
            assert await listed(running) == {}

    run(test)


@pytest.mark.parametrize(("version", "error"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_member_of_a_group_that_is_not_there_cannot_commit(tmp_path: Path, version: int, error: ErrorCode) -> None:
    async def test() -> None:
        async with host(tmp_path) as running:
            await running.make_topics(t=1)
            assert await commit(running, 1, version, member_id="m", generation=3) is error
            assert await listed(running) == {}

    run(test)


def test_a_simple_commit_makes_a_group_that_has_only_offsets(tmp_path: Path) -> None:
    async def test() -> None:
        async with host(tmp_path) as running:
            await running.make_topics(t=1)
            assert await commit(running, 5) is NONE
            group = running.shard().groups["g"]
            assert isinstance(group, ClassicGroup)
            assert group.is_simple
            assert await listed(running) == {"g": "Empty"}
            described = await running.call(DescribeGroupsRequest(["g", "other"]))
            assert [(g.group_state, g.error_code) for g in described.groups] == [
                ("Empty", 0),
                ("Dead", ErrorCode.GROUP_ID_NOT_FOUND),
            ]

    run(test)


def test_offsets_go_with_their_topic(tmp_path: Path) -> None:
    async def test() -> None:
        async with host(tmp_path) as running:
            await running.make_topics(t=1, u=1)
            await commit(running, 5)
            await commit(running, 6, topic="u")
            await running.call(DeleteTopicsRequest([DeleteTopicState("t")], timeout_ms=10_000))
            assert running.shard().offsets.of("g").keys() == {"u"}
        async with host(tmp_path) as running:
            assert running.shard().offsets.of("g").keys() == {"u"}
            await running.make_topics(t=1)
            assert await committed(running) == -1

    run(test)


def test_offsets_of_topics_that_are_read_cannot_be_deleted(tmp_path: Path) -> None:
    async def test() -> None:
        async with host(tmp_path) as running:
            await running.make_topics(t=1, u=1)
            member_id, generation = await make_member(running)
            await commit(running, 5, member_id=member_id, generation=generation)
            await commit(running, 6, topic="u", member_id=member_id, generation=generation)
            wanted = [OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(0)]) for name in ("t", "u", "x")]
            response = await running.call(OffsetDeleteRequest("g", wanted))
            assert [topic.partitions[0].error_code for topic in response.topics] == [
                ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
                NONE,
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ]
            assert running.shard().offsets.of("g").keys() == {"t"}
            missing = await running.call(OffsetDeleteRequest("nobody", wanted))
            assert missing.error_code == ErrorCode.GROUP_ID_NOT_FOUND

    run(test)


# ---- expiry ----


def expire(running: Host) -> None:
    for shard in running.groups.shards:
        running.groups.commits.expire(shard)


def test_old_offsets_expire_and_their_group_with_them(tmp_path: Path) -> None:
    async def test() -> None:
        clock = ManualClock()
        async with host(tmp_path, clock, offsets_retention_minutes="1440") as running:
            await running.make_topics(t=1)
            await commit(running, 5)
            clock.advance_ms(DAY_MS - 1)
            expire(running)
            assert await committed(running) == 5
            clock.advance_ms(1)
            expire(running)
            assert await committed(running) == -1
            assert await listed(running) == {}
        async with host(tmp_path, clock) as running:
            assert await listed(running) == {}
            assert not running.shard().offsets

    run(test)


def test_an_offset_with_its_own_time_to_live_expires_by_that_also_after_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        clock = ManualClock()
        async with host(tmp_path, clock) as running:
            await running.make_topics(t=1)
            assert await commit(running, 5, 3, retention_time_ms=1000) is NONE
        async with host(tmp_path, clock) as running:
            clock.advance_ms(999)
            expire(running)
            assert await committed(running) == 5
            clock.advance_ms(1)
            expire(running)
            assert await committed(running) == -1

    run(test)


def test_offsets_that_are_read_do_not_expire_and_others_do(tmp_path: Path) -> None:
    async def test() -> None:
        clock = ManualClock()
        async with host(tmp_path, clock, offsets_retention_minutes="1440") as running:
            await running.make_topics(t=1, u=1)
            member_id, generation = await make_member(running)
            for topic in ("t", "u"):
                await commit(running, 5, topic=topic, member_id=member_id, generation=generation)
            clock.advance_ms(DAY_MS)
            assert running.groups.heartbeat("g", member_id, None, generation) is NONE
            expire(running)
            assert running.shard().offsets.of("g").keys() == {"t"}

    run(test)


def test_the_time_of_an_empty_group_begins_when_its_last_member_goes(tmp_path: Path) -> None:
    async def test() -> None:
        clock = ManualClock()
        async with host(tmp_path, clock, offsets_retention_minutes="1440") as running:
            await running.make_topics(t=1)
            member_id, generation = await make_member(running)
            await commit(running, 5, member_id=member_id, generation=generation)
            clock.advance_ms(DAY_MS - 1)
            running.groups.heartbeat("g", member_id, None, generation)
            left = await running.call(LeaveGroupRequest("g", members=[MemberIdentity(member_id)]))
            assert left.members[0].error_code == 0
        async with host(tmp_path, clock, offsets_retention_minutes="1440") as running:
            clock.advance_ms(DAY_MS - 1)
            expire(running)
            assert await committed(running) == 5
            clock.advance_ms(1)
            expire(running)
            assert await listed(running) == {}
        async with host(tmp_path, clock) as running:
            assert await listed(running) == {}

    run(test)


# ---- restarts ----


async def fill(running: Host) -> tuple[str, int]:
    await running.make_topics(t=3)
    member_id, generation = await make_member(running, "classic")
    await commit(running, 5, group_id="classic", member_id=member_id, generation=generation)
    await commit(running, 7, group_id="simple")
    beat = await running.call(beat_of())
    assert (beat.error_code, beat.member_epoch) == (0, 2)
    assert sorted(beat.assignment.topic_partitions[0].partitions) == [0, 1, 2]
    return member_id, generation


async def check_is_full(running: Host, member_id: str, generation: int) -> None:
    assert await listed(running) == {"classic": "Stable", "simple": "Empty", "g": "Stable"}
    assert await committed(running, "classic") == 5
    assert await committed(running, "simple") == 7
    heard = await running.call(HeartbeatRequest("classic", generation, member_id))
    assert heard.error_code == 0
    beat = await running.call(beat_of(epoch=2))
    assert (beat.error_code, beat.member_epoch, beat.assignment) == (0, 2, None)
    described = await running.call(ConsumerGroupDescribeRequest(["g"]))
    (group,) = described.groups
    assert (group.group_state, group.group_epoch, len(group.members)) == ("Stable", 2, 1)
    assert [t.topic_name for t in group.members[0].assignment.topic_partitions] == ["t"]


def test_groups_and_offsets_are_there_after_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        async with host(tmp_path) as running:
            member = await fill(running)
        async with host(tmp_path) as running:
            await check_is_full(running, *member)

    run(test)


def test_groups_and_offsets_are_there_after_a_crash(tmp_path: Path) -> None:
    async def test() -> None:
        async with host(tmp_path / "before") as running:
            member = await fill(running)
            shutil.copytree(tmp_path / "before", tmp_path / "after")
            async with host(tmp_path / "after") as successor:
                await check_is_full(successor, *member)

    run(test)


def test_a_log_that_is_longer_than_the_buffer_is_loaded_whole(tmp_path: Path) -> None:
    async def test() -> None:
        async with host(tmp_path) as running:
            await running.make_topics(t=1)
            for n in range(40):
                await commit(running, n, group_id=f"group-{n}")
        async with host(tmp_path, offsets_load_buffer_size="64") as running:
            assert len(await listed(running)) == 40
            assert [await committed(running, f"group-{n}") for n in range(40)] == list(range(40))

    run(test)


def test_while_groups_are_loaded_everyone_is_told_to_wait(tmp_path: Path) -> None:
    async def test() -> None:
        async with host(tmp_path) as running:
            member_id, generation = await fill(running)
            shard = running.shard("classic")
            shard.is_loaded = False
            loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert await commit(running, 9, group_id="classic") is loading
            assert (await running.call(ListGroupsRequest())).error_code == loading
            joined = await running.call(join_of(group_id="classic"), 3)
            assert joined.error_code == loading
            synced = await running.call(SyncGroupRequest("classic", generation, member_id), 4)
            assert synced.error_code == ErrorCode.REBALANCE_IN_PROGRESS
            heard = await running.call(HeartbeatRequest("classic", generation, member_id))
            assert heard.error_code == NONE
            fetched = await running.call(OffsetFetchRequest("classic", None), 7)
            assert fetched.error_code == loading
            old = await running.call(OffsetFetchRequest("classic", [OffsetFetchRequestTopic("t", [0])]), 1)
            assert old.topics[0].partitions[0].error_code == loading
            deleted = await running.call(DeleteGroupsRequest(["classic"]))
            assert deleted.results[0].error_code == loading
            shard.is_loaded = True

    run(test)


def test_a_deleted_group_stays_deleted(tmp_path: Path) -> None:
    async def test() -> None:
        async with host(tmp_path) as running:
            member_id, _ = await fill(running)
            response = await running.call(DeleteGroupsRequest(["classic", "simple", "g", "missing"]))
            assert [result.error_code for result in response.results] == [
                ErrorCode.NON_EMPTY_GROUP,
                NONE,
                ErrorCode.NON_EMPTY_GROUP,
                ErrorCode.GROUP_ID_NOT_FOUND,
            ]
            await running.call(LeaveGroupRequest("classic", members=[MemberIdentity(member_id)]))
            await running.call(beat_of(epoch=-1))
            assert await listed(running) == {"classic": "Empty", "g": "Empty"}
            response = await running.call(DeleteGroupsRequest(["classic", "g"]))
            assert [result.error_code for result in response.results] == [NONE, NONE]
            assert await listed(running) == {}
        async with host(tmp_path) as running:
            assert await listed(running) == {}
            assert not any(shard.offsets for shard in running.groups.shards)

    run(test)


# ---- time ----


async def ring(running: Host, group_id: str = "g") -> None:
    running.groups._ring(running.shard(group_id), group_id)


def test_a_silent_member_of_a_consumer_group_is_removed(tmp_path: Path) -> None:
    async def test() -> None:
        clock = ManualClock()
        async with host(tmp_path, clock) as running:
            await running.make_topics(t=2)
            await running.call(beat_of("a"))
            clock.advance_ms(44_999)
            await ring(running)
            assert await listed(running) == {"g": "Stable"}
            clock.advance_ms(1)
            await ring(running)
            assert await listed(running) == {"g": "Empty"}
            assert (await running.call(beat_of("a", 2))).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    run(test)


async def make_revoking_group(running: Host) -> ConsumerGroup:
    """A static member that has everything and must give a part of it to another one."""
    await running.make_topics(t=2)
    await running.call(beat_of("a", instance_id="i"))
    await running.call(beat_of("b"))
    await running.call(beat_of("a", 2, instance_id="i"))
    group = running.shard().consumer("g")
    assert group.members["a"].progress.revoking
    return group


def test_a_member_that_does_not_give_up_its_partitions_in_time_is_removed(tmp_path: Path) -> None:
    async def test() -> None:
        clock = ManualClock()
        async with host(tmp_path, clock) as running:
            await make_revoking_group(running)
            for _ in range(2):
                clock.advance_ms(30_000)
                for member in running.shard().consumer("g").members.values():
                    await running.call(beat_of(member.member_id, member.epoch, instance_id=member.instance_id))
            await ring(running)
            assert running.shard().consumer("g").members.keys() == {"b"}

    run(test)


def test_the_time_to_give_up_partitions_begins_anew_with_every_demand(tmp_path: Path) -> None:
    async def test() -> None:
        clock = ManualClock()
        async with host(tmp_path, clock) as running:
            await running.make_topics(t=6)
            topic_id = running.broker.image.topics["t"].topic_id
            await running.call(beat_of("a"))
            await running.call(beat_of("b"))
            await running.call(beat_of("a", 2))
            clock.advance_ms(40_000)
            await running.call(beat_of("c"))
            kept = sorted(running.shard().consumer("g").members["a"].progress.assigned[topic_id])
            assert len(kept) == 3
            answer = await running.call(beat_of("a", 2, topic_partitions=[TopicPartitions(topic_id, kept)]))
            assert answer.member_epoch == 2
            assert running.shard().consumer("g").members["a"].progress.revoking
            for _ in range(2):
                clock.advance_ms(15_000)
                for member_id, member in running.shard().consumer("g").members.items():
                    await running.call(beat_of(member_id, member.epoch))
            await ring(running)
            assert "a" in running.shard().consumer("g").members

    run(test)


def test_a_static_member_on_a_break_does_not_keep_the_coordinator_busy(tmp_path: Path) -> None:
    async def test() -> None:
        clock = ManualClock()
        async with host(tmp_path, clock, group_consumer_session_timeout_ms="60000") as running:
            await make_revoking_group(running)
            clock.advance_ms(30_000)
            await running.call(beat_of("b", 3))
            await running.call(beat_of("a", 2, instance_id="i"))
            away = await running.call(beat_of("a", -2, instance_id="i"))
            assert (away.error_code, away.member_epoch) == (0, -2)
            clock.advance_ms(30_000)
            await ring(running)
            group = running.shard().consumer("g")
            assert group.members["a"].epoch == -2
            assert group.timers.next_ms > clock.monotonic() * 1000

    run(test)


# ---- a disk that is slow, or fails ----


class OffsetsDisk(Storage):
    """A disk whose part for groups can be slow or broken."""

    def __init__(self) -> None:
        self.may_sync = threading.Event()
        self.may_sync.set()
        self.is_broken = False

    def open(self, path: str, *, create: bool = False) -> File:
        opened = super().open(path, create=create)
        if OFFSETS_TOPIC not in path or not path.endswith(".log"):
            return opened
        disk = self

        class Gated(File):
            def write_at(self, data: Buffer, position: int) -> None:
                if disk.is_broken:
                    raise OSError(5, "the disk is broken")
                super().write_at(data, position)

            def sync(self) -> None:
                disk.may_sync.wait(30)
                if disk.is_broken:
                    raise OSError(5, "the disk is broken")
                super().sync()

        return opened_as(Gated, opened)


def stays_in_office(running: Host) -> None:
    """Have a broker whose disk fails go on as coordinator, so that what it knows can be looked at."""
    running.broker._resign = lambda: None  # type: ignore[method-assign]


def test_what_cannot_be_written_has_not_happened(tmp_path: Path) -> None:
    async def test() -> None:
        disk = OffsetsDisk()
        async with host(tmp_path, storage=disk, offsets_topic_num_partitions="1") as running:
            member_id, generation = await fill(running)
            shard = running.shard()
            stays_in_office(running)
            disk.is_broken = True
            lost = ErrorCode.NOT_COORDINATOR
            assert await commit(running, 99, group_id="simple") is lost
            assert await commit(running, 99, group_id="new") is lost
            assert await commit(running, 99, group_id="classic", member_id=member_id, generation=generation) is lost
            assert (await running.call(beat_of("another"))).error_code == lost
            assert (await running.call(beat_of(epoch=-1))).error_code == lost
            wanted = [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])]
            assert (await running.call(OffsetDeleteRequest("simple", wanted))).error_code == lost
            assert (await running.call(DeleteGroupsRequest(["simple"]))).results[0].error_code == lost
            expire(running)
            assert shard.offsets.get("simple", "t", 0).offset == 7  # type: ignore[union-attr]
            assert shard.offsets.get("classic", "t", 0).offset == 5  # type: ignore[union-attr]
            assert shard.groups.keys() <= {"classic", "simple", "g"}
            assert shard.consumer("g").members.keys() == {"m"}

    run(test)


def test_an_offset_is_committed_when_it_is_durable_and_not_before(tmp_path: Path) -> None:
    async def test() -> None:
        disk = OffsetsDisk()
        async with host(tmp_path, storage=disk, log_flush_interval_messages="1") as running:
            await running.make_topics(t=1)
            assert await commit(running, 1) is NONE
            disk.may_sync.clear()
            pending = running.begin(commit_of(running, 2))
            await asyncio.sleep(0.02)
            assert not pending.done()
            assert await committed(running) == 1
            disk.may_sync.set()
            assert (await pending).topics[0].partitions[0].error_code == NONE
            assert await committed(running) == 2

    run(test)


def test_a_member_that_cannot_be_removed_is_tried_again_after_a_while(tmp_path: Path) -> None:
    async def test() -> None:
        clock, disk = ManualClock(), OffsetsDisk()
        async with host(tmp_path, clock, disk, group_consumer_session_timeout_ms="60000") as running:
            await make_revoking_group(running)
            clock.advance_ms(30_000)
            await running.call(beat_of("b", 3))
            await running.call(beat_of("a", 2, instance_id="i"))
            clock.advance_ms(30_000)
            disk.is_broken = True
            await ring(running)
            assert running.shard().consumer("g").members.keys() == {"a", "b"}
            assert running.groups._alarms["g"][0] == clock.monotonic() * 1000 + 1000

    run(test)


@pytest.mark.parametrize("what", ["commit", "beat", "delete group", "delete offsets"])
def test_a_sync_that_fails_is_told_as_a_lost_coordinator(tmp_path: Path, what: str) -> None:
    async def test() -> None:
        disk = OffsetsDisk()
        async with host(tmp_path, storage=disk, log_flush_interval_messages="1") as running:
            await running.make_topics(t=1)
            await commit(running, 1, group_id="simple")
            disk.may_sync.clear()
            wanted = [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])]
            request: Any = {
                "commit": commit_of(running, 2, group_id="simple"),
                "beat": beat_of(),
                "delete group": DeleteGroupsRequest(["simple"]),
                "delete offsets": OffsetDeleteRequest("simple", wanted),
            }[what]
            pending = running.begin(request)
            await asyncio.sleep(0.02)
            assert not pending.done()
            disk.is_broken = True
            disk.may_sync.set()
            response = await asyncio.wait_for(pending, 10)
            if what == "commit":
                code = response.topics[0].partitions[0].error_code
            elif what == "delete group":
                code = response.results[0].error_code
            else:
                code = response.error_code
            assert code == ErrorCode.NOT_COORDINATOR

    run(test)


def test_the_last_of_a_commit_and_a_deletion_counts_here_and_after_a_restart(tmp_path: Path) -> None:
    async def test() -> None:
        disk = OffsetsDisk()
        async with host(tmp_path, storage=disk, log_flush_interval_messages="1") as running:
            await running.make_topics(t=1)
            await commit(running, 1)
            disk.may_sync.clear()
            pending = running.begin(commit_of(running, 2))
            wanted = [OffsetDeleteRequestTopic("t", [OffsetDeleteRequestPartition(0)])]
            deletion = running.begin(OffsetDeleteRequest("g", wanted))
            await asyncio.sleep(0.02)
            disk.may_sync.set()
            await pending
            assert (await deletion).error_code == NONE
            here = await committed(running)
        async with host(tmp_path) as running:
            assert await committed(running) == here == -1

    run(test)


def test_a_classic_group_waits_for_the_disk_and_survives_its_failure(tmp_path: Path) -> None:
    async def test() -> None:
        disk = OffsetsDisk()
        async with host(tmp_path, storage=disk, log_flush_interval_messages="1") as running:
            await running.make_topics(t=1)
            joined = await running.call(join_of(), 3)
            disk.may_sync.clear()
            pending = running.begin(SyncGroupRequest("g", joined.generation_id, joined.member_id), 4)
            await asyncio.sleep(0.02)
            assert not pending.done()
            stays_in_office(running)
            disk.is_broken = True
            disk.may_sync.set()
            assert (await pending).error_code == ErrorCode.NOT_COORDINATOR
            group = running.shard().classic("g")
            assert group.state is State.PREPARING_REBALANCE
            assert running.groups._alarms["g"][0] <= group.wake_ms

    run(test)


# ---- both kinds of groups ----


def test_somebody_with_an_old_id_does_not_end_an_empty_consumer_group(tmp_path: Path) -> None:
    async def test() -> None:
        async with host(tmp_path) as running:
            await running.make_topics(t=1)
            await running.call(beat_of())
            await running.call(beat_of(epoch=-1))
            refused = await running.call(join_of("old"), 3)
            assert refused.error_code == ErrorCode.UNKNOWN_MEMBER_ID
            assert isinstance(running.shard().groups["g"], ConsumerGroup)
        async with host(tmp_path) as running:
            assert isinstance(running.shard().groups["g"], ConsumerGroup)

    run(test)


def test_an_empty_group_can_change_its_kind_and_keeps_its_offsets(tmp_path: Path) -> None:
    async def test() -> None:
        async with host(tmp_path) as running:
            await running.make_topics(t=1)
            await running.call(beat_of())
            assert await commit(running, 3, member_id="m", generation=2) is NONE
            assert await commit(running, 3, 8, member_id="m", generation=2) is ErrorCode.UNSUPPORTED_VERSION
            assert await commit(running, 3, member_id="m", generation=1) is ErrorCode.STALE_MEMBER_EPOCH
            await running.call(beat_of(epoch=-1))
            member_id, _ = await make_member(running)
            assert isinstance(running.shard().groups["g"], ClassicGroup)
            await running.call(LeaveGroupRequest("g", members=[MemberIdentity(member_id)]))
            again = await running.call(beat_of("n"))
            assert again.error_code == 0
            assert await committed(running) == 3
        async with host(tmp_path) as running:
            assert running.shard().consumer("g").members.keys() == {"n"}
            assert await committed(running) == 3

    run(test)


def test_members_that_wait_are_told_when_the_broker_stops(tmp_path: Path) -> None:
    async def test() -> None:
        async with host(tmp_path) as running:
            await running.make_topics(t=1)
            await make_member(running)
            waiting = running.begin(join_of(), 3)
            await asyncio.sleep(0)
            assert not waiting.done()
        assert waiting.done() or (await waiting).error_code == ErrorCode.NOT_COORDINATOR
        assert waiting.result().error_code == ErrorCode.NOT_COORDINATOR
        assert not running.groups._alarms

    run(test)


def test_members_that_wait_are_told_when_the_coordinator_loses_their_group(tmp_path: Path) -> None:
    async def test() -> None:
        async with host(tmp_path) as running:
            await running.make_topics(t=1)
            await make_member(running)
            waiting = running.begin(join_of(), 3)
            await asyncio.sleep(0)
            assert not waiting.done()
            running.groups.shards.unload(partition_of("g", 2))
            assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
            running.groups.follow()
            await loaded(running)
            assert running.shard().classic("g").state is State.STABLE

    run(test)
