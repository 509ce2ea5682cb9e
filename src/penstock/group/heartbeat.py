"""What a ConsumerGroupHeartbeat changes. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from penstock.group.assignors import Assigned
from penstock.group.change import Change, compiled_regex
from penstock.group.consumer import LEAVE_FOR_A_WHILE, NOTHING, ConsumerGroup, ConsumerMember
from penstock.group.reconcile import is_subset
from penstock.metadata.image import Image
from penstock.wire.errors import ApiError, ErrorCode


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A ConsumerGroupHeartbeat request. None means: as before."""

    member_id: str
    epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_timeout_ms: int  # -1: as before
    topic_names: frozenset[str] | None
    regex: str | None
    server_assignor: str | None
    owned: Assigned | None
    client_id: str
    client_host: str

    @property
    def is_full(self) -> bool:
        """Whether it says everything: then it is answered with everything."""
        return self.epoch == 0 or (
            self.rebalance_timeout_ms != -1
            and (self.topic_names is not None or self.regex is not None)
            and self.owned is not None
        )

    def says_nothing_new(self, member: ConsumerMember) -> bool:
        return (
            self.topic_names in (None, member.topic_names)
            and self.regex in (None, member.regex)
            and self.server_assignor in (None, member.server_assignor)
            and self.rebalance_timeout_ms in (-1, member.rebalance_timeout_ms)
            and self.rack_id in (None, member.rack_id)
            and self.client_id == member.client_id
            and self.client_host == member.client_host
        )


def is_settled(group: ConsumerGroup, beat: Heartbeat, image: Image) -> bool:
    """Whether there is nothing to do: the member is where it should be and says nothing new. The common case."""
    member = group.members.get(beat.member_id)
    return (
        member is not None
        and member.classic is None
        and beat.epoch == member.epoch
        and (beat.instance_id is None or group.instances.get(beat.instance_id) == beat.member_id)
        and group.checked_image is image
        and group.epoch == group.assignment_epoch
        and member.progress.is_reconciled_to(group.assignment_epoch)
        and beat.says_nothing_new(member)
    )


def beat(change: Change, beat: Heartbeat) -> ConsumerMember:
    """Work out what a heartbeat changes. Returns the member as it is then."""
    group = change.group
    member = _find_or_subscribe(change, beat)
    updated = replace(
        member,
        instance_id=beat.instance_id if beat.instance_id is not None else member.instance_id,
        rack_id=beat.rack_id if beat.rack_id is not None else member.rack_id,
        rebalance_timeout_ms=beat.rebalance_timeout_ms
        if beat.rebalance_timeout_ms != -1
        else member.rebalance_timeout_ms,
        server_assignor=beat.server_assignor if beat.server_assignor is not None else member.server_assignor,
        topic_names=beat.topic_names if beat.topic_names is not None else member.topic_names,
        regex=beat.regex if beat.regex is not None else member.regex,
        client_id=beat.client_id,
        client_host=beat.client_host,
        classic=None,
    )
    if updated.regex and updated.regex != member.regex:
        compiled_regex(updated.regex)
    change.follow_topics(has_changed=change.update_member(updated))
    change.assign()
    change.reconcile(updated.member_id, beat.owned)
    return group.members[updated.member_id]


def _find_or_subscribe(change: Change, beat: Heartbeat) -> ConsumerMember:
    group = change.group
    if beat.instance_id is None:
        member = group.members.get(beat.member_id) if beat.epoch == 0 else group.find_member(beat.member_id)
        if member is None:
            return ConsumerMember(beat.member_id)
        _check_epoch(member, beat)
        return member
    if beat.epoch != 0:
        member = group.find_static(beat.member_id, beat.instance_id)
        _check_epoch(member, beat)
        return member
    known = group.instances.get(beat.instance_id)
    if known is None:
        return ConsumerMember(beat.member_id)
    member = group.members[known]
    if member.classic is None and member.epoch != LEAVE_FOR_A_WHILE:
        raise ApiError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {beat.member_id} with instance id {beat.instance_id} cannot join the group because the "
            f"instance id is owned by {known} member.",
        )
    return change.replace_member(member, beat.member_id)


def _check_epoch(member: ConsumerMember, beat: Heartbeat) -> None:
    if beat.epoch in (0, member.epoch):
        return  # 0: it was fenced, gave everything up and joins again
    if (
        beat.epoch == member.progress.previous_epoch < member.epoch
        and beat.owned is not None
        and is_subset(beat.owned, member.progress.assigned)
    ):
        return  # the answer that told it of its new epoch was lost
    word = "greater" if beat.epoch > member.epoch else "smaller"
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {word} member epoch ({beat.epoch}) than the one known by the group "
        f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def take_a_break(change: Change, member_id: str, instance_id: str | None) -> None:
    """A static member goes but will be back: it keeps its place and its partitions."""
    member = change.group.find(member_id, instance_id)
    change.set_progress(member_id, replace(member.progress, epoch=LEAVE_FOR_A_WHILE, revoking=NOTHING))
