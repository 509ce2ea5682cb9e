"""The errors of the client library: one hierarchy, one line each, and what to do about it.

Everything that `Producer`, `Consumer` and `Admin` raise on purpose is a `PenstockError`. What a broker or librdkafka
answered keeps its Kafka code in `RequestFailed.code` and `.name`, so a program can tell cases apart without reading
the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

_UNKNOWN = -1


class PenstockError(Exception):
    """Base of all errors of the client library."""


class ConfigurationError(PenstockError, ValueError):
    """An argument or a setting that cannot be: a mistake in the calling program."""


class SerializationError(PenstockError):
    """A key or value that a serializer or deserializer could not handle."""


class Closed(PenstockError):
    """The client was used after it was closed."""


class BufferFull(PenstockError):
    """The producer's buffer stayed full for as long as `send` may block."""


class RequestFailed(PenstockError):
    """A broker, or librdkafka on its behalf, answered with an error."""

    def __init__(self, text: str, error: KafkaError | None = None) -> None:
        super().__init__(text)
        self.error = error

    @property
    def code(self) -> int:
        """Kafka's error code; librdkafka's own are below -1."""
        return self.error.code() if self.error is not None else _UNKNOWN

    @property
    def name(self) -> str:
        """The code's name, as in TOPIC_ALREADY_EXISTS."""
        return self.error.name() if self.error is not None else "UNKNOWN"

    @property
    def is_retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return self.error is not None and self.error.retriable()

    @property
    def is_fatal(self) -> bool:
        """Whether the client is of no more use and must be made anew."""
        return self.error is not None and self.error.fatal()


class DeliveryFailed(RequestFailed):
    """Records that were not delivered, or whose fate is unknown."""


class TopicExists(RequestFailed):
    """A topic of that name is there already."""


class UnknownTopic(RequestFailed):
    """There is no such topic or partition."""


class UnknownGroup(RequestFailed):
    """There is no such consumer group."""


class GroupNotEmpty(RequestFailed):
    """The group has members, and what was asked needs it to have none."""


class NotAuthorized(RequestFailed):
    """The broker knows who asks, and does not allow it."""


class AuthenticationFailed(RequestFailed):
    """The broker does not accept the credentials."""


class Unreachable(RequestFailed):
    """No broker answered in time."""


class Fenced(RequestFailed):
    """Another client took over this transactional id or group instance id; this one must stop."""


class NoOffset(RequestFailed):
    """There is no valid offset to start from, and `auto_offset_reset` says not to choose one."""


class TransactionFailed(RequestFailed):
    """A transaction could not be committed; it was or must be aborted."""


class SeveralFailed(PenstockError):
    """A request about several things of which some failed. `errors` has them by what they are about."""

    def __init__(self, errors: Mapping[Any, PenstockError]) -> None:
        super().__init__("; ".join(str(error) for error in errors.values()))
        self.errors = dict(errors)


def raise_failures(errors: Mapping[Any, PenstockError]) -> None:
    """Raise what failed, if anything: a single error as itself."""
    if len(errors) == 1:
        raise next(iter(errors.values()))
    if errors:
        raise SeveralFailed(errors)
