"""Incremental fetch sessions (KIP-227). Pure.

A consumer of many partitions need not name them all in every fetch: the broker remembers them. The first request of a
session names all its partitions; later ones name only what changed, and answers hold only partitions with news.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.fetch import FetchRequest, PartitionData

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1

# A session that was not used for so long may be forgotten when its slot is wanted.
_EVICT_AFTER_S = 120.0

# How many partitions all sessions together may hold.
_PARTITIONS_MAX = 200_000

# A topic is named by its id where the version allows it, else by its name.
TopicKey = str | bytes
PartitionKey = tuple[TopicKey, int]


@dataclass(slots=True)
class FetchTarget:
    """What a client wants of one partition, and what it was last told of it."""

    topic: TopicKey
    index: int
    fetch_offset: int
    bytes_max: int
    leader_epoch: int
    last_fetched_epoch: int
    told_high_watermark: int = -1
    told_start_offset: int = -1

    def has_news(self, data: PartitionData) -> bool:
        """Whether an incremental answer must hold this partition; takes note of what it says."""
        has_news = (
            bool(data.records)
            or data.error_code != 0
            or data.high_watermark != self.told_high_watermark
            or data.log_start_offset != self.told_start_offset
            or data.diverging_epoch is not None
        )
        if data.error_code != 0:
            # An error is told again and again until it is gone, and then the state is.
            self.told_high_watermark = -1
        else:
            self.told_high_watermark = data.high_watermark
            self.told_start_offset = data.log_start_offset
        return has_news


@dataclass(slots=True)
class FetchSession:
    session_id: int
    uses_topic_ids: bool
    targets: dict[PartitionKey, FetchTarget]
    epoch: int = INITIAL_EPOCH + 1
    last_used: float = 0.0

    def served(self, keys: Iterable[PartitionKey]) -> None:
        """Partitions that gave data go to the end of the queue, so that all get their turn."""
        for key in keys:
            target = self.targets.pop(key, None)
            if target is not None:
                self.targets[key] = target


@dataclass(slots=True)
class FetchPlan:
    """What one request fetches. With a session, the answer is incremental unless it is the session's first."""

    targets: list[FetchTarget]
    session: FetchSession | None = None
    is_incremental: bool = False

    @property
    def session_id(self) -> int:
        return self.session.session_id if self.session is not None else NO_SESSION


@dataclass
class FetchSessions:
    """All sessions of a broker. The number of sessions, and of partitions in them, is limited."""

    slots: int
    _sessions: dict[int, FetchSession] = field(default_factory=dict)
    _partition_count: int = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def plan(self, request: FetchRequest, *, uses_topic_ids: bool, now: float) -> FetchPlan:
        """What a request asks for. Raises ApiError if it refers to a session that does not exist like that."""
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._remove(request.session_id)
            targets = {(target.topic, target.index): target for target in _targets(request, uses_topic_ids)}
            session = None
            if request.session_epoch == INITIAL_EPOCH:
                session = self._maybe_create(targets, uses_topic_ids, now)
            return FetchPlan(list(targets.values()), session)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.uses_topic_ids != uses_topic_ids:
            raise ApiError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if session.epoch != request.session_epoch:
            raise ApiError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        added = sum((t.topic, t.index) not in session.targets for t in _targets(request, uses_topic_ids))
        if self._partition_count + added > _PARTITIONS_MAX:
            self._remove(session.session_id)
            raise ApiError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        self._update(session, request)
        if not session.targets:
            self._remove(session.session_id)
            return FetchPlan([])
        session.epoch = session.epoch + 1 if session.epoch < 2**31 - 1 else 1
        session.last_used = now
        return FetchPlan(list(session.targets.values()), session, is_incremental=True)

    def _update(self, session: FetchSession, request: FetchRequest) -> None:
        for target in _targets(request, session.uses_topic_ids):
            key = (target.topic, target.index)
            known = session.targets.get(key)
            if known is None:
                session.targets[key] = target
                self._partition_count += 1
            else:
                known.fetch_offset = target.fetch_offset
                known.bytes_max = target.bytes_max
                known.leader_epoch = target.leader_epoch
                known.last_fetched_epoch = target.last_fetched_epoch
        for forgotten in request.forgotten_topics_data:
            topic: TopicKey = forgotten.topic_id if session.uses_topic_ids else forgotten.topic
            for index in forgotten.partitions:
                if session.targets.pop((topic, index), None) is not None:
                    self._partition_count -= 1

    def _maybe_create(
        self, targets: dict[PartitionKey, FetchTarget], uses_topic_ids: bool, now: float
    ) -> FetchSession | None:
        """A new session, if there is room for it. Without one the client sends full requests: slower, never wrong."""
        if not targets or not self._make_room(len(targets), now):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = random.randrange(1, 2**31)
        session = FetchSession(session_id, uses_topic_ids, targets, last_used=now)
        self._sessions[session_id] = session
        self._partition_count += len(targets)
        return session

    def _make_room(self, partition_count: int, now: float) -> bool:
        while len(self._sessions) >= self.slots or self._partition_count + partition_count > _PARTITIONS_MAX:
            oldest = min(self._sessions.values(), key=lambda session: session.last_used, default=None)
            if oldest is None or now - oldest.last_used < _EVICT_AFTER_S:
                return False
            self._remove(oldest.session_id)
        return True

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partition_count -= len(session.targets)


def _targets(request: FetchRequest, uses_topic_ids: bool) -> Iterator[FetchTarget]:
    for topic in request.topics:
        key: TopicKey = topic.topic_id if uses_topic_ids else topic.topic
        for partition in topic.partitions:
            yield FetchTarget(
                key,
                partition.partition,
                partition.fetch_offset,
                partition.partition_max_bytes,
                partition.current_leader_epoch,
                partition.last_fetched_epoch,
            )
