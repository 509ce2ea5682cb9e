"""A change of a consumer group in the making: its records, and the group as it will be. Pure.

What is decided here is decided on a copy of the group, to which each record is applied as it is emitted. If the records
can be appended, the copy becomes the group; if not, nothing has happened.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from penstock.group.assignors import ASSIGNORS, Assigned, Reader
from penstock.group.consumer import NOTHING, ConsumerGroup, ConsumerMember
from penstock.group.reconcile import Progress, next_step
from penstock.group.records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupRecord,
    TopicPartition,
    TopicPartitions,
)
from penstock.metadata.image import Image
from penstock.wire.errors import ApiError, ErrorCode


class Change:
    """The records so far, and the group as it is after them."""

    def __init__(self, group: ConsumerGroup, image: Image, now_wall_ms: int, default_assignor: str = "uniform") -> None:
        self.group = group.draft()
        self.records: list[GroupRecord] = []
        self._image = image
        self._now_wall_ms = now_wall_ms
        self._default_assignor = default_assignor

    def emit(self, key: Any, value: Any) -> None:
        record = GroupRecord(key, value)
        self.group.apply(record)
        self.records.append(record)

    # ---- members ----

    def update_member(self, member: ConsumerMember) -> bool:
        """Write a member down if it is new or different. Returns whether it reads something else now."""
        old = self.group.members.get(member.member_id)
        if old is not None and old == member:
            return False
        value = ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.topic_names),
            subscribed_topic_regex=member.regex or None,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            classic_member_metadata=member.classic,
        )
        self.emit(ConsumerGroupMemberMetadataKey(self.group.group_id, member.member_id), value)
        old = old or ConsumerMember(member.member_id)
        return old.topic_names != member.topic_names or old.regex != member.regex

    def remove_member(self, member_id: str) -> None:
        group_id = self.group.group_id
        self.emit(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None)
        self.emit(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None)
        self.emit(ConsumerGroupMemberMetadataKey(group_id, member_id), None)

    def replace_member(self, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """Let a static member live on under another id; it has to catch up from the beginning."""
        target = self.group.target.get(old.member_id, NOTHING)
        self.remove_member(old.member_id)
        progress = replace(old.progress, epoch=0, previous_epoch=0)
        self.update_member(replace(old, member_id=member_id, progress=Progress()))
        self.set_target(member_id, target)
        self.set_progress(member_id, progress)
        return self.group.members[member_id]

    def set_target(self, member_id: str, target: Assigned) -> None:
        value = ConsumerGroupTargetAssignmentMemberValue([TopicPartition(t, sorted(p)) for t, p in target.items()])
        self.emit(ConsumerGroupTargetAssignmentMemberKey(self.group.group_id, member_id), value)

    def set_progress(self, member_id: str, progress: Progress) -> None:
        value = ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=progress.epoch,
            previous_member_epoch=progress.previous_epoch,
            state=progress.state,
            assigned_partitions=[TopicPartitions(t, sorted(p)) for t, p in progress.assigned.items()],
            partitions_pending_revocation=[TopicPartitions(t, sorted(p)) for t, p in progress.revoking.items()],
        )
        self.emit(ConsumerGroupCurrentMemberAssignmentKey(self.group.group_id, member_id), value)

    def set_epoch(self, epoch: int) -> None:
        value = ConsumerGroupMetadataValue(epoch=epoch, metadata_hash=self._hash_topics())
        self.emit(ConsumerGroupMetadataKey(self.group.group_id), value)

    def set_assignment_epoch(self, epoch: int) -> None:
        value = ConsumerGroupTargetAssignmentMetadataValue(epoch, self._now_wall_ms)
        self.emit(ConsumerGroupTargetAssignmentMetadataKey(self.group.group_id), value)

    # ---- epochs ----

    def follow_topics(self, *, has_changed: bool) -> None:
        """Let the group's epoch grow if its members or the topics they read have changed."""
        self._resolve_regexes()
        if has_changed or self._hash_topics() != self.group.metadata_hash:
            self.set_epoch(self.group.epoch + 1)
        self.group.checked_image = self._image

    def _resolve_regexes(self) -> None:
        group = self.group
        used = {member.regex for member in group.members.values() if member.regex}
        for pattern in set(group.regexes) - used:
            self.emit(ConsumerGroupRegularExpressionKey(group.group_id, pattern), None)
        for pattern in sorted(used):
            known = group.regexes.get(pattern)
            if known is not None and group.checked_image is self._image:
                continue
            matches = compiled_regex(pattern)
            topics = frozenset(name for name in self._image.topics if matches(name))
            if known is None or known.topics != topics:
                value = ConsumerGroupRegularExpressionValue(sorted(topics), self._image.offset, self._now_wall_ms)
                self.emit(ConsumerGroupRegularExpressionKey(group.group_id, pattern), value)

    def _hash_topics(self) -> int:
        """A number that is different when a topic comes, goes or grows that the group reads."""
        names = {name for member in self.group.members.values() for name in self.group.subscribed_topics(member)}
        digest = hashlib.blake2b(digest_size=8)
        for name in sorted(names):
            topic = self._image.topics.get(name)
            if topic is not None:
                digest.update(f"{name}:{len(topic.partitions)}:".encode() + topic.topic_id)
        return int.from_bytes(digest.digest(), signed=True) if names else 0

    def assign(self) -> None:
        """Compute the target anew if the group has moved on."""
        group = self.group
        if group.epoch <= group.assignment_epoch:
            return
        topics = self._image.topics
        readers = [
            Reader(
                member.member_id,
                member.instance_id,
                frozenset(topics[name].topic_id for name in group.subscribed_topics(member) if name in topics),
                group.target.get(member.member_id, NOTHING),
            )
            for member in group.members.values()
        ]
        wanted = set().union(*(reader.topics for reader in readers)) if readers else set()
        counts = {
            topic_id: len(self._image.topics_by_id[topic_id].partitions)
            for topic_id in sorted(wanted, key=lambda topic_id: self._image.topics_by_id[topic_id].name)
        }
        target = ASSIGNORS[group.preferred_assignor(self._default_assignor)](readers, counts)
        for member_id, assigned in target.items():
            if group.target.get(member_id) != assigned:
                self.set_target(member_id, assigned)
        self.set_assignment_epoch(group.epoch)

    def reconcile(self, member_id: str, owned: Assigned | None) -> None:
        """Bring a member one step closer to its target."""
        group = self.group
        progress = group.members[member_id].progress
        after = next_step(progress, group.assignment_epoch, group.target.get(member_id, NOTHING), owned, group.owners)
        if after != progress:
            self.set_progress(member_id, after)

    def fence(self, member_id: str) -> None:
        """Remove a member; the others will get its partitions."""
        self.remove_member(member_id)
        self._resolve_regexes()
        self.set_epoch(self.group.epoch + 1)

    def tombstones(self) -> None:
        """Remove the whole group."""
        group, group_id = self.group, self.group.group_id
        for member_id in list(group.members):
            self.emit(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None)
        for member_id in list(group.target):
            self.emit(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None)
        self.emit(ConsumerGroupTargetAssignmentMetadataKey(group_id), None)
        for member_id in list(group.members):
            self.emit(ConsumerGroupMemberMetadataKey(group_id, member_id), None)
        for pattern in list(group.regexes):
            self.emit(ConsumerGroupRegularExpressionKey(group_id, pattern), None)
        self.emit(ConsumerGroupMetadataKey(group_id), None)


_REGEX_CACHE_MAX = 100
_regexes: dict[str, Callable[[str], Any]] = {}


def compiled_regex(pattern: str) -> Callable[[str], Any]:
    """A function that tells whether a topic's whole name matches. In linear time, whatever the pattern."""
    matches = _regexes.get(pattern)
    if matches is None:
        import re2

        options = re2.Options()
        options.log_errors = False
        try:
            matches = re2.compile(pattern, options).fullmatch
        except re2.error as error:
            raise ApiError(
                ErrorCode.INVALID_REGULAR_EXPRESSION,
                f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {_reason(error)}.",
            ) from None
        if len(_regexes) >= _REGEX_CACHE_MAX:
            _regexes.clear()
        _regexes[pattern] = matches
    return matches


def _reason(error: Exception) -> str:
    """Why RE2 refuses a pattern; it says so in bytes, and repeats the pattern."""
    reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
    return reason.split(": ")[0].replace("missing ", "missing closing ")
