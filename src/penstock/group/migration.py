"""Between the two protocols: members that speak the classic one in a consumer group, and groups that change kind. Pure.

When the first member that speaks the consumer protocol joins a classic group, the group becomes a consumer group; its
other members go on with JoinGroup and SyncGroup, and get the target that the broker computed. When the last member that
speaks the consumer protocol goes, the group becomes a classic one again.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.group.assignors import Assigned
from penstock.group.change import Change
from penstock.group.classic import CONSUMER_PROTOCOL_TYPE, ClassicGroup, Join, Member, Protocol
from penstock.group.consumer import NOTHING, ConsumerGroup, ConsumerMember
from penstock.group.protocol import (
    ConsumerProtocolAssignment,
    TopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    subscription_version,
)
from penstock.group.reconcile import MemberState, Progress
from penstock.group.records import ClassicMemberMetadata, ClassicProtocol, GroupMetadataKey, GroupRecord
from penstock.metadata.image import Image
from penstock.wire.errors import ApiError, DecodeError, ErrorCode

# ---- a classic group becomes a consumer group ----


def upgrade(classic: ClassicGroup, change: Change, image: Image) -> None:
    """Write a classic group down as a consumer group. Its members have what they had."""
    change.records.append(GroupRecord(GroupMetadataKey(classic.group_id), None))
    try:
        for member in classic.members.values():
            _upgrade_member(member, classic, change, image)
    except DecodeError as error:
        raise ApiError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"Cannot upgrade the classic group {classic.group_id} to consumer group because the embedded consumer "
            f"protocol is malformed: {error}.",
        ) from None
    change.set_epoch(classic.generation)
    change.set_assignment_epoch(classic.generation)


def _upgrade_member(member: Member, classic: ClassicGroup, change: Change, image: Image) -> None:
    subscription = decode_subscription(member.metadata(classic.protocol) or member.protocols[0].metadata)
    assigned = _to_ids(decode_assignment(member.assignment).assigned_partitions, image)
    change.update_member(
        ConsumerMember(
            member.member_id,
            instance_id=member.instance_id,
            rack_id=subscription.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            topic_names=frozenset(subscription.topics),
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=_classic_metadata(member.session_timeout_ms, member.protocols),
        )
    )
    change.set_target(member.member_id, assigned)
    change.set_progress(
        member.member_id, Progress(classic.generation, classic.generation, MemberState.STABLE, assigned)
    )


def _classic_metadata(session_timeout_ms: int, protocols: tuple[Protocol, ...]) -> ClassicMemberMetadata:
    offered = [ClassicProtocol(protocol.name, protocol.metadata) for protocol in protocols]
    return ClassicMemberMetadata(session_timeout_ms, offered)


def _to_ids(partitions: list[TopicPartition], image: Image) -> Assigned:
    return {
        image.topics[owned.topic].topic_id: frozenset(owned.partitions)
        for owned in partitions
        if owned.topic in image.topics
    }


def _to_names(assigned: Assigned, image: Image) -> list[TopicPartition]:
    return [
        TopicPartition(image.topics_by_id[topic_id].name, sorted(partitions))
        for topic_id, partitions in assigned.items()
        if topic_id in image.topics_by_id
    ]


# ---- a consumer group becomes a classic group ----


def can_downgrade(group: ConsumerGroup, without: str) -> bool:
    """Whether only members that speak the classic protocol are left when one is gone."""
    others = [member for member_id, member in group.members.items() if member_id != without]
    return bool(others) and all(member.classic is not None for member in others)


def downgrade(group: ConsumerGroup, into: ClassicGroup, without: str, image: Image) -> None:
    """Fill a classic group with the members of a consumer group, all but one."""
    into.generation = group.epoch
    into.protocol_type = CONSUMER_PROTOCOL_TYPE
    members = [
        _downgraded(member, group.target.get(member_id, NOTHING), image)
        for member_id, member in group.members.items()
        if member_id != without
    ]
    into.take_members(members)


def _downgraded(member: ConsumerMember, target: Assigned, image: Image) -> Member:
    assert member.classic is not None
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        tuple(Protocol(offered.name, bytes(offered.metadata)) for offered in member.classic.supported_protocols),
        encode_for(member, target, image),
        is_new=False,
    )


def encode_for(member: ConsumerMember, assigned: Assigned, image: Image) -> bytes:
    """An assignment as a member that speaks the classic protocol reads it."""
    assert member.classic is not None
    version = subscription_version(bytes(member.classic.supported_protocols[0].metadata))
    return encode_assignment(ConsumerProtocolAssignment(_to_names(assigned, image)), version)


# ---- classic members of a consumer group ----


def find_classic_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    member = group.find(member_id, instance_id)
    if member.classic is None:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    return member


def check_protocols(group: ConsumerGroup, request: Join, member_id: str) -> None:
    """Whether a member that speaks the classic protocol has a protocol in common with all others that do."""
    common = {offered.name for offered in request.protocols}
    for other in group.members.values():
        if other.classic is not None and other.member_id != member_id:
            common &= {offered.name for offered in other.classic.supported_protocols}
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not common:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Member {member_id}'s protocols are not supported.")


def join(change: Change, request: Join, member_id: str, image: Image) -> ConsumerMember:
    """A JoinGroup to a consumer group: answered at once, the broker has the assignment."""
    group = change.group
    check_protocols(group, request, member_id)
    try:
        subscription = decode_subscription(request.protocols[0].metadata)
    except DecodeError as error:
        raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(error)) from None
    member = _joining_member(change, request, member_id)
    updated = replace(
        member,
        instance_id=request.instance_id if request.instance_id is not None else member.instance_id,
        rack_id=subscription.rack_id if subscription.rack_id is not None else member.rack_id,
        client_id=request.client_id,
        client_host=request.client_host,
        topic_names=frozenset(subscription.topics),
        regex="",
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        classic=_classic_metadata(request.session_timeout_ms, request.protocols),
    )
    change.follow_topics(has_changed=change.update_member(updated))
    change.assign()
    change.reconcile(member_id, _to_ids(subscription.owned_partitions, image))
    return group.members[member_id]


def _joining_member(change: Change, request: Join, member_id: str) -> ConsumerMember:
    group = change.group
    if request.instance_id is None:
        return group.members.get(member_id) or ConsumerMember(member_id)
    if request.member_id:
        return group.find_static(member_id, request.instance_id)
    known = group.instances.get(request.instance_id)
    return change.replace_member(group.members[known], member_id) if known is not None else ConsumerMember(member_id)


def needs_to_rejoin(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Whether a classic member has to join again to get what it should have, or to give up what it should not."""
    progress = member.progress
    if progress.epoch < group.epoch or progress.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    return progress.state is MemberState.UNRELEASED_PARTITIONS and not any(
        (topic_id, partition) in group.owners
        for topic_id, partitions in group.target.get(member.member_id, NOTHING).items()
        for partition in partitions - progress.assigned.get(topic_id, frozenset())
    )


def check_sync(
    group: ConsumerGroup, member: ConsumerMember, generation: int, protocol_type: str | None, protocol: str | None
) -> None:
    """Whether a classic member may fetch its assignment."""
    assert member.classic is not None
    check_generation(member, generation)
    offered = member.classic.supported_protocols[0].name
    if protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or protocol not in (None, offered):
        raise ApiError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"The protocol of member {member.member_id} is {offered}."
        )
    if group.epoch > member.epoch and member.progress.state is not MemberState.UNREVOKED_PARTITIONS:
        raise ApiError(ErrorCode.REBALANCE_IN_PROGRESS, f"Member {member.member_id} should rejoin to catch up.")


def check_generation(member: ConsumerMember, generation: int) -> None:
    if generation != member.epoch:
        raise ApiError(
            ErrorCode.ILLEGAL_GENERATION,
            f"The request generation id {generation} is not equal to the member epoch {member.epoch} of member "
            f"{member.member_id}.",
        )
