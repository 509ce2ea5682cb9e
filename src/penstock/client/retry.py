"""Retry and dead-letter topics: what is written there, and when it is due.

There is one retry topic per delay. All records of it wait equally long, so they fall due in the order in which they
lie there, and a partition whose first record is not due has none that is. A record goes through them in turn and ends
up in the dead-letter topic. Its key and value are kept as they are; what happened to it is in its headers:

    penstock.retry.attempts           how often it was tried
    penstock.retry.due                when it is to be tried again (milliseconds; not in the dead-letter topic)
    penstock.retry.group              who tried
    penstock.retry.topic .partition .offset .timestamp    where it first was
    penstock.retry.exception .message .stack              why it failed the last time (bounded)
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.client._records import Record
from penstock.client.errors import ConfigurationError, SerializationError
from penstock.client.records import Headers

AnyRecord = Record[Any, Any]

_PREFIX = "penstock.retry."
_MESSAGE_MAX = 1_000
_STACK_MAX = 8_000
_TOPIC_MAX = 249


@dataclass(frozen=True)
class Retry:
    """What to do with records whose handler raises.

    They are tried again after each of `delays` (in seconds), and then go to the topic `dead_letter`. Exceptions of the
    types in `not_for` are not worth trying again: such a record goes to the dead-letter topic at once, as does one that
    cannot be deserialized.

    The retry topics are `topic`.1, `topic`.2, ...; `topic` is by default the group's name with ".retry" behind it.
    Topics that are missing are created with `partitions` (by default as many as the first of the consumer's topics has)
    unless `create_topics` is off.
    """

    delays: Sequence[float]
    dead_letter: str
    topic: str | None = None
    not_for: tuple[type[Exception], ...] = ()
    create_topics: bool = True
    partitions: int | None = None
    replication_factor: int | None = None

    def __post_init__(self) -> None:
        if any(delay < 0 for delay in self.delays):
            raise ConfigurationError(f"a delay is below 0: {list(self.delays)}")
        if not self.dead_letter:
            raise ConfigurationError("dead_letter is empty: name the topic for records that cannot be handled")


class Schedule:
    """Where a record goes after each failed attempt, for one group."""

    def __init__(self, retry: Retry, group: str) -> None:
        self._retry = retry
        self._group = group
        prefix = retry.topic or re.sub(r"[^a-zA-Z0-9._-]", "-", group)[: _TOPIC_MAX - 10] + ".retry"
        self.retry_topics = [f"{prefix}.{number}" for number in range(1, len(retry.delays) + 1)]
        self.dead_letter = retry.dead_letter

    def next(self, record: AnyRecord, error: BaseException, now_ms: int) -> tuple[str, Headers]:
        """The topic that a record goes to after a failure, and the headers it gets there."""
        origin = Origin.of(record)
        attempts = origin.attempts + 1
        is_hopeless = isinstance(error, (*self._retry.not_for, SerializationError))
        if attempts > len(self.retry_topics) or is_hopeless:
            return self.dead_letter, self._headers(record, origin, attempts, error, None)
        due_ms = now_ms + round(self._retry.delays[attempts - 1] * 1000)
        return self.retry_topics[attempts - 1], self._headers(record, origin, attempts, error, due_ms)

    def _headers(
        self, record: AnyRecord, origin: Origin, attempts: int, error: BaseException, due_ms: int | None
    ) -> Headers:
        stack = "".join(traceback.format_exception(error))
        told = {
            "attempts": str(attempts),
            "due": None if due_ms is None else str(due_ms),
            "group": self._group,
            "topic": origin.topic,
            "partition": str(origin.partition),
            "offset": str(origin.offset),
            "timestamp": None if origin.timestamp is None else str(origin.timestamp),
            "exception": f"{type(error).__module__}.{type(error).__qualname__}",
            "message": str(error)[:_MESSAGE_MAX],
            "stack": stack[-_STACK_MAX:],
        }
        kept = [(name, value) for name, value in record.headers if not name.startswith(_PREFIX)]
        added = [(_PREFIX + name, text.encode(errors="replace")) for name, text in told.items() if text is not None]
        return (*kept, *added)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a record first was, and how often it was tried. Of a record that was never tried: itself, and 0."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    attempts: int
    due_ms: int

    @classmethod
    def of(cls, record: AnyRecord) -> Origin:
        told = {name.removeprefix(_PREFIX): value for name, value in record.headers if name.startswith(_PREFIX)}
        return cls(
            topic=(told.get("topic") or b"").decode(errors="replace") or record.topic,
            partition=_number(told.get("partition"), record.partition),
            offset=_number(told.get("offset"), record.offset),
            timestamp=record.timestamp if told.get("timestamp") is None else _number(told["timestamp"], 0),
            attempts=_number(told.get("attempts"), 0),
            due_ms=_number(told.get("due"), 0),
        )

    def restore(self, record: AnyRecord) -> AnyRecord:
        """A record of a retry topic as it was where it came from. Its headers tell of the attempts."""
        return replace(record, topic=self.topic, partition=self.partition, offset=self.offset, timestamp=self.timestamp)


def attempts(record: AnyRecord) -> int:
    """How often a record was tried before: 0 for the first time."""
    return Origin.of(record).attempts


def _number(text: bytes | None, otherwise: int) -> int:
    """A number of a header. Anybody may write to a topic: what is no number counts as missing."""
    return int(text) if text is not None and re.fullmatch(rb"\d{1,19}", text) else otherwise
