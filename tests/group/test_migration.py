"""Between the two protocols: groups that change their kind and back, and groups of both kinds of members."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.group import migration
from penstock.group.classic import CONSUMER_PROTOCOL_TYPE, ClassicGroup, Join, Protocol, State, Timing
from penstock.group.consumer import ConsumerGroup
from penstock.group.protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from penstock.group.reconcile import MemberState
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from penstock.wire.messages.heartbeat import HeartbeatRequest
from penstock.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from penstock.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from penstock.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.group.brokers import Host, host
from tests.group.consumers import Client, Coordinator, Topics, compacted, facts, flat, replayed
from tests.group.samples import T0, Answer, ClassicScene

# ---- pure ----


def subscription(*topics: str, owned: dict[str, list[int]] | None = None, version: int = 3) -> bytes:
    partitions = [TopicPartition(name, indexes) for name, indexes in (owned or {}).items()]
    return encode_subscription(ConsumerProtocolSubscription(list(topics), owned_partitions=partitions), version)


def join_of(
    member_id: str = "", *, names: str = "range", metadata: bytes | None = None, instance: str | None = None
) -> Join:
    offered = tuple(Protocol(name, subscription("t") if metadata is None else metadata) for name in names.split())
    return Join(member_id, instance, "client", "/host", CONSUMER_PROTOCOL_TYPE, offered, 60_000, 10_000)


class MixedGroup(Coordinator):
    """A consumer group that members of both kinds join."""

    def __init__(self) -> None:
        topics = Topics()
        topics.set("t", 4)
        super().__init__(topics)

    def join(self, request: Join, member_id: str) -> Any:
        change = self.change()
        member = migration.join(change, request, member_id, self.topics.image)
        self.commit(change)
        return member

    def check_log(self) -> None:
        for log in (self.log, compacted(self.log)):
            assert facts(replayed(log).consumer("g")) == facts(self.group)


def stable_classic() -> tuple[ClassicScene, list[str]]:
    """A classic group of two, each with half of the topic."""
    scene = ClassicScene()
    answers = []
    scene.timing = Timing(1)
    for _ in range(2):
        answers.append(Answer("join"))
        scene.group.join(join_of(), scene._new_id, answers[-1], scene.now_ms)
    scene.advance(2)
    ids = [answer.response.member_id for answer in answers]
    shares = {
        member_id: encode_assignment(ConsumerProtocolAssignment([TopicPartition("t", half)]), 3)
        for member_id, half in zip(ids, ([0, 1], [2, 3]), strict=True)
    }
    scene.sync(ids[0], shares)
    scene.sync(ids[1])
    assert scene.group.state is State.STABLE
    return scene, ids


def test_an_upgraded_group_has_the_members_and_partitions_it_had() -> None:
    mixed = MixedGroup()
    scene, ids = stable_classic()
    change = mixed.change()
    migration.upgrade(scene.group, change, mixed.topics.image)
    mixed.log += scene.saved
    mixed.commit(change)
    group = mixed.group
    assert (group.epoch, group.assignment_epoch, group.state) == (1, 1, "Stable")
    topic_id = mixed.topics.id_of("t")
    assert {m: flat(group.members[m].progress.assigned) for m in ids} == {
        ids[0]: {(topic_id, 0), (topic_id, 1)},
        ids[1]: {(topic_id, 2), (topic_id, 3)},
    }
    mixed.check_log()


def test_a_group_that_is_upgraded_and_downgraded_is_the_group_it_was() -> None:
    mixed = MixedGroup()
    scene, ids = stable_classic()
    change = mixed.change()
    migration.upgrade(scene.group, change, mixed.topics.image)
    mixed.commit(change)
    new = Client("new", frozenset({"t"}))
    new.hear(*mixed.beat(new.request()))
    assert migration.can_downgrade(mixed.group, "new")
    assert not migration.can_downgrade(mixed.group, ids[0])
    again = ClassicGroup("g", lambda: Timing(0), lambda record, saved: None, lambda: T0)
    migration.downgrade(mixed.group, again, "new", mixed.topics.image)
    assert again.state is State.STABLE
    assert again.generation == mixed.group.epoch > scene.group.generation
    assert again.protocol == "range"
    for member_id in ids:
        was, now = scene.group.members[member_id], again.members[member_id]
        assert (now.protocols, now.session_timeout_ms, now.client_id) == (
            was.protocols,
            was.session_timeout_ms,
            was.client_id,
        )
        assert set(decode_assignment(now.assignment).assigned_partitions[0].partitions) <= {0, 1, 2, 3}


def test_a_group_that_talks_about_something_else_cannot_be_upgraded() -> None:
    scene = ClassicScene()
    scene.stable(1)
    mixed = MixedGroup()
    with pytest.raises(ApiError) as refused:
        migration.upgrade(scene.group, mixed.change(), mixed.topics.image)
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_classic_member_gives_up_before_it_takes() -> None:
    mixed = MixedGroup()
    topic_id = mixed.topics.id_of("t")
    member = mixed.join(join_of(), "old")
    assert flat(member.progress.assigned) == {(topic_id, p) for p in range(4)}
    new = Client("new", frozenset({"t"}))
    new.hear(*mixed.beat(new.request()))
    assert new.owned == set()
    assert migration.needs_to_rejoin(mixed.group, mixed.group.members["old"])
    member = mixed.join(join_of("old", metadata=subscription("t", owned={"t": [0, 1, 2, 3]})), "old")
    assert member.progress.state is MemberState.UNREVOKED_PARTITIONS
    kept = sorted(member.progress.assigned[topic_id])
    assert len(kept) == 2
    migration.check_sync(mixed.group, member, member.epoch, CONSUMER_PROTOCOL_TYPE, "range")
    member = mixed.join(join_of("old", metadata=subscription("t", owned={"t": kept})), "old")
    assert not migration.needs_to_rejoin(mixed.group, member)
    new.says_all = True
    new.hear(*mixed.beat(new.request()))
    assert new.owned == {(topic_id, p) for p in range(4) if p not in kept}
    assert mixed.group.state == "Stable"
    mixed.check_log()


def test_a_member_that_says_nothing_of_what_it_owns_has_given_up_everything() -> None:
    mixed = MixedGroup()
    mixed.join(join_of(), "old")
    new = Client("new", frozenset({"t"}))
    mixed.beat(new.request())
    member = mixed.join(join_of("old", metadata=subscription("t", version=0)), "old")
    assert member.progress.state is MemberState.STABLE
    encoded = migration.encode_for(
        mixed.join(join_of("old", metadata=subscription("t", version=1)), "old"),
        member.progress.assigned,
        mixed.topics.image,
    )
    assert encoded[:2] == b"\0\1"


@pytest.mark.parametrize("names", ["a c", "d"])
def test_all_classic_members_have_a_protocol_in_common(names: str) -> None:
    mixed = MixedGroup()
    mixed.join(join_of(names="a b"), "one")
    mixed.join(join_of(names="b c"), "two")
    with pytest.raises(ApiError) as refused:
        mixed.join(join_of(names=names), "three")
    assert refused.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    mixed.join(join_of(names="c b"), "three")


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\3\0\0\0\7"])
def test_a_classic_member_that_talks_about_something_else_is_refused(metadata: bytes) -> None:
    mixed = MixedGroup()
    with pytest.raises(ApiError) as refused:
        mixed.join(join_of(metadata=metadata), "old")
    assert refused.value.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_static_member_can_come_back_with_the_other_protocol() -> None:
    mixed = MixedGroup()
    mixed.join(join_of(instance="i"), "old")
    topic_id = mixed.topics.id_of("t")
    new = Client("new", frozenset({"t"}), instance="i")
    new.hear(*mixed.beat(new.request()))
    assert mixed.group.members.keys() == {"new"}
    assert new.owned == {(topic_id, p) for p in range(4)}
    back = mixed.join(join_of(instance="i"), "back")
    assert mixed.group.members.keys() == {"back"}
    assert back.classic is not None
    with pytest.raises(ApiError) as refused:
        migration.find_classic_member(mixed.group, "old", "i")
    assert refused.value.code is ErrorCode.FENCED_INSTANCE_ID
    mixed.check_log()


def test_a_member_that_takes_another_instance_id_gives_back_its_first() -> None:
    mixed = MixedGroup()
    mixed.join(join_of(instance="i"), "m")
    change = mixed.change()
    change.update_member(replace(mixed.group.members["m"], instance_id="j"))
    mixed.commit(change)
    assert mixed.group.instances == {"j": "m"}
    mixed.fence("m")
    assert mixed.group.instances == {}


# ---- in a broker ----


def request_of(member_id: str = "", owned: dict[str, list[int]] | None = None) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol("range", subscription("t", owned=owned))]
    return JoinGroupRequest("g", 10_000, 60_000, member_id, None, "consumer", protocols)


async def make_classic(running: Host) -> tuple[str, int]:
    joined = await running.call(request_of(), 3)
    share = encode_assignment(ConsumerProtocolAssignment([TopicPartition("t", [0, 1])]), 3)
    given = [SyncGroupRequestAssignment(joined.member_id, share)]
    synced = await running.call(SyncGroupRequest("g", joined.generation_id, joined.member_id, assignments=given), 4)
    assert synced.error_code == 0
    return joined.member_id, joined.generation_id


def beat_of(epoch: int, owned: list[TopicPartitions] | None = None) -> ConsumerGroupHeartbeatRequest:
    if epoch:
        return ConsumerGroupHeartbeatRequest("g", "new", epoch, topic_partitions=owned)
    return ConsumerGroupHeartbeatRequest(
        "g", "new", 0, rebalance_timeout_ms=60_000, subscribed_topic_names=["t"], topic_partitions=[]
    )


def test_a_group_goes_to_the_new_protocol_and_back(tmp_path: Path) -> None:
    async def test() -> None:
        async with host(tmp_path, group_consumer_migration_policy="bidirectional") as running:
            await running.make_topics(t=2)
            old, generation = await make_classic(running)
            beat = await running.call(beat_of(0))
            assert (beat.error_code, beat.assignment.topic_partitions) == (0, [])
            assert running.shard().consumer("g").members.keys() == {old, "new"}
            heard = await running.call(HeartbeatRequest("g", generation, old))
            assert heard.error_code == ErrorCode.REBALANCE_IN_PROGRESS
            joined = await running.call(request_of(old, {"t": [0, 1]}), 3)
            assert joined.error_code == 0
            synced = await running.call(SyncGroupRequest("g", joined.generation_id, old), 4)
            (kept,) = decode_assignment(bytes(synced.assignment)).assigned_partitions
            assert len(kept.partitions) == 1
            joined = await running.call(request_of(old, {"t": kept.partitions}), 3)
            beat = await running.call(beat_of(beat.member_epoch))
            assert [len(t.partitions) for t in beat.assignment.topic_partitions] == [1]
            assert joined.generation_id == beat.member_epoch
        async with host(tmp_path, group_consumer_migration_policy="bidirectional") as running:
            assert running.shard().consumer("g").members.keys() == {old, "new"}
            left = await running.call(beat_of(-1))
            assert left.error_code == 0
            classic = running.shard().classic("g")
            assert classic.members.keys() == {old}
            heard = await running.call(HeartbeatRequest("g", classic.generation, old))
            assert heard.error_code == ErrorCode.REBALANCE_IN_PROGRESS
            joined = await running.call(request_of(old), 3)
            assert (joined.error_code, joined.leader) == (0, old)
        async with host(tmp_path) as running:
            assert running.shard().classic("g").members.keys() == {old}

    asyncio.run(asyncio.wait_for(test(), 60))


def test_without_leave_of_the_settings_a_classic_group_stays_classic(tmp_path: Path) -> None:
    async def test() -> None:
        async with host(tmp_path, group_consumer_migration_policy="disabled") as running:
            await running.make_topics(t=2)
            await make_classic(running)
            assert (await running.call(beat_of(0))).error_code == ErrorCode.GROUP_ID_NOT_FOUND
            assert running.shard().classic("g").state is State.STABLE

    asyncio.run(asyncio.wait_for(test(), 60))


def test_the_last_classic_member_leaves_a_consumer_group(tmp_path: Path) -> None:
    async def test() -> None:
        async with host(tmp_path) as running:
            await running.make_topics(t=2)
            old, _ = await make_classic(running)
            await running.call(beat_of(0))
            wrong = await running.call(LeaveGroupRequest("g", members=[MemberIdentity("new")]))
            assert wrong.members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
            left = await running.call(LeaveGroupRequest("g", members=[MemberIdentity(old)]))
            assert left.members[0].error_code == 0
            group = running.shard().groups["g"]
            assert isinstance(group, ConsumerGroup)
            assert group.members.keys() == {"new"}

    asyncio.run(asyncio.wait_for(test(), 60))
