"""A classic group to play with: time stands still until it is moved, and saving takes as long as the test wants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.group.classic import ClassicGroup, Join, Protocol, Saved, State, Timing
from penstock.group.records import GroupMetadataValue, GroupRecord, decode_record, encode_record
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.sync_group import SyncGroupResponse

T0 = 1_700_000_000_000
SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000


@dataclass
class Answer:
    """The answer to a request that may be held back. There is only one."""

    request: str = ""
    given: list[Any] = field(default_factory=list)

    def __call__(self, response: Any) -> None:
        assert not self.given, f"{self.request} is answered twice: {self.given[0]}, {response}"
        self.given.append(response)

    @property
    def is_held(self) -> bool:
        return not self.given

    @property
    def response(self) -> Any:
        assert self.given, f"{self.request} is not answered"
        return self.given[0]

    @property
    def error(self) -> ErrorCode:
        return ErrorCode(self.response.error_code)


def protocols_of(names: str) -> tuple[Protocol, ...]:
    """Protocols by name, the best first."""
    return tuple(Protocol(name, f"metadata of {name}".encode()) for name in names.split())


class ClassicScene:
    """A classic group, its clock and its disk."""

    def __init__(self, *, delay_ms: int = 0, size_max: int = 100) -> None:
        self.now_ms = 1_000
        self.timing = Timing(delay_ms, size_max=size_max)
        self.saves: list[tuple[GroupRecord, Saved]] = []
        self.saved: list[GroupRecord] = []  # what is on disk
        self.is_saving_slow = False
        self.save_error = ErrorCode.NONE
        self._ids = 0
        self.group = self._new_group()

    def _new_group(self) -> ClassicGroup:
        return ClassicGroup("g", lambda: self.timing, self._save, lambda: T0 + self.now_ms)

    # ---- the disk ----

    def _save(self, record: GroupRecord, saved: Saved) -> None:
        copy = decode_record(*encode_record(record))
        assert copy is not None
        self.saves.append((copy, saved))
        if not self.is_saving_slow:
            self.end_save(self.save_error)

    def end_save(self, error: ErrorCode = ErrorCode.NONE) -> None:
        record, saved = self.saves.pop(0)
        if not error:
            self.saved.append(record)
        saved(error, self.now_ms)

    def restart(self) -> None:
        """Another coordinator takes over what is on disk."""
        self.group.fail_waiting(ErrorCode.NOT_COORDINATOR)
        self.saves.clear()
        self.group = self._new_group()
        for record in self.saved:
            assert isinstance(record.value, GroupMetadataValue)
            self.group = self._new_group()
            self.group.restore(record.value)
        self.group.begin_sessions(self.now_ms)

    # ---- time ----

    def advance(self, duration_ms: int) -> None:
        """Let time pass; the group is looked at exactly when it asked for it."""
        end_ms = self.now_ms + duration_ms
        while self.group.wake_ms <= end_ms:
            self.now_ms = max(self.now_ms, self.group.wake_ms)
            self.group.expire(self.now_ms)
            assert self.group.wake_ms > self.now_ms, "the group wants to be looked at again and again"
        self.now_ms = end_ms

    # ---- requests ----

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: str = "range",
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        needs_known_id: bool = False,
        can_skip: bool = False,
    ) -> Answer:
        answer = Answer(f"join of {member_id or instance or 'somebody'}")
        request = Join(
            member_id,
            instance,
            "client",
            "/host",
            protocol_type,
            protocols_of(protocols),
            rebalance_ms,
            session_ms,
            needs_known_id,
            can_skip,
        )
        self.group.join(request, self._new_id, answer, self.now_ms)
        return answer

    def _new_id(self) -> str:
        self._ids += 1
        return f"id-{self._ids}"

    def sync(
        self,
        member_id: str,
        assignments: Mapping[str, bytes] | None = None,
        *,
        instance: str | None = None,
        generation: int | None = None,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> Answer:
        answer = Answer(f"sync of {member_id}")
        self.group.sync(
            member_id=member_id,
            instance_id=instance,
            generation=self.group.generation if generation is None else generation,
            protocol_type=protocol_type,
            protocol=protocol,
            assignments=assignments or {},
            reply=answer,
            now_ms=self.now_ms,
        )
        return answer

    def heartbeat(self, member_id: str, *, instance: str | None = None, generation: int | None = None) -> ErrorCode:
        generation = self.group.generation if generation is None else generation
        return self.group.heartbeat(member_id, instance, generation, self.now_ms)

    def leave(self, member_id: str = "", *, instance: str | None = None) -> ErrorCode:
        return self.group.leave(member_id, instance, self.now_ms)

    # ---- whole rounds ----

    def gather(self, count: int, **options: Any) -> list[str]:
        """Members that have joined for the first time, the leader first; nobody has synced."""
        timing, self.timing = self.timing, replace(self.timing, initial_delay_ms=1)
        answers = [self.join(**options) for _ in range(count)]
        self.advance(2)
        self.timing = timing
        assert self.group.state is State.COMPLETING_REBALANCE
        return [answer.response.member_id for answer in answers]

    def settle(self) -> dict[str, SyncGroupResponse]:
        """All members sync, the leader last."""
        assert self.group.leader is not None
        members = [member_id for member_id in self.group.members if member_id != self.group.leader]
        answers = {member_id: self.sync(member_id) for member_id in members}
        given = {member_id: f"share of {member_id}".encode() for member_id in self.group.members}
        answers[self.group.leader] = self.sync(self.group.leader, given)
        assert self.group.state is State.STABLE
        return {member_id: answer.response for member_id, answer in answers.items()}

    def stable(self, count: int, **options: Any) -> list[str]:
        """A stable group; the leader first."""
        ids = self.gather(count, **options)
        self.settle()
        return ids
