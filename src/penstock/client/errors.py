"""The errors of the client library: one hierarchy, one line each, and what to do about it.

Everything that `Producer`, `Consumer` and `Admin` raise on purpose is a `PenstockError`. What a broker or librdkafka
answered keeps its Kafka code in `RequestFailed.code` and `.name`, so a program can tell cases apart without reading
the text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException


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
        return self.error.code() if self.error is not None else KafkaError.UNKNOWN

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


_E = KafkaError

_KINDS: dict[int, tuple[type[RequestFailed], str]] = {
    _E.TOPIC_ALREADY_EXISTS: (TopicExists, "choose another name, or use the topic that is there"),
    _E.UNKNOWN_TOPIC_OR_PART: (UnknownTopic, "check the name, or create the topic first"),
    _E._UNKNOWN_TOPIC: (UnknownTopic, "check the name, or create the topic first"),
    _E._UNKNOWN_PARTITION: (UnknownTopic, "check how many partitions the topic has"),
    _E.GROUP_ID_NOT_FOUND: (UnknownGroup, "check the group's name"),
    _E._UNKNOWN_GROUP: (UnknownGroup, "check the group's name"),
    _E.NON_EMPTY_GROUP: (GroupNotEmpty, "stop its consumers first"),
    _E.GROUP_SUBSCRIBED_TO_TOPIC: (GroupNotEmpty, "stop its consumers first"),
    _E.TOPIC_AUTHORIZATION_FAILED: (NotAuthorized, "ask for access to the topic"),
    _E.GROUP_AUTHORIZATION_FAILED: (NotAuthorized, "ask for access to the group"),
    _E.CLUSTER_AUTHORIZATION_FAILED: (NotAuthorized, "ask for access to the cluster"),
    _E.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: (NotAuthorized, "ask for access to the transactional id"),
    _E.SASL_AUTHENTICATION_FAILED: (AuthenticationFailed, "check user name and password"),
    _E._AUTHENTICATION: (AuthenticationFailed, "check user name and password"),
    _E._TRANSPORT: (Unreachable, "check the address and that the broker runs"),
    _E._RESOLVE: (Unreachable, "check the host name"),
    _E._ALL_BROKERS_DOWN: (Unreachable, "check the address and that the broker runs"),
    _E._TIMED_OUT: (Unreachable, "check the address and that the broker runs"),
    _E._TIMED_OUT_QUEUE: (Unreachable, "check the address and that the broker runs"),
    _E.REQUEST_TIMED_OUT: (Unreachable, "try again, or allow it more time"),
    _E._FENCED: (Fenced, "use an id of its own for each client"),
    _E.PRODUCER_FENCED: (Fenced, "use a transactional id of its own for each producer"),
    _E.INVALID_PRODUCER_EPOCH: (Fenced, "use a transactional id of its own for each producer"),
    _E.FENCED_INSTANCE_ID: (Fenced, "use an instance id of its own for each consumer"),
    _E._AUTO_OFFSET_RESET: (NoOffset, "seek to an offset, or set auto_offset_reset to earliest or latest"),
    _E.OFFSET_OUT_OF_RANGE: (NoOffset, "ask for an offset that the partition still has"),
    _E._NO_OFFSET: (NoOffset, "there is nothing to commit yet"),
}


def from_kafka(error: KafkaError, doing: str, *, more: str | None = None) -> RequestFailed:
    """The error of ours for one of librdkafka's. `doing` says what was tried: "create topic 'orders'"."""
    kind, advice = _KINDS.get(error.code(), (RequestFailed, ""))
    return kind(_text(error, doing, more, advice), error)


def from_exception(exception: BaseException, doing: str, *, more: str | None = None) -> PenstockError:
    """The error of ours for whatever a confluent-kafka call raised."""
    if isinstance(exception, PenstockError):
        return exception
    if isinstance(exception, KafkaException) and exception.args and isinstance(exception.args[0], KafkaError):
        return from_kafka(exception.args[0], doing, more=more)
    if isinstance(exception, (TypeError, ValueError)):
        return ConfigurationError(f"cannot {doing}: {exception}")
    return RequestFailed(f"cannot {doing}: {exception}")


def delivery_failure(error: KafkaError, topic: str) -> DeliveryFailed:
    """The error of a record that was not delivered."""
    _, advice = _KINDS.get(error.code(), (RequestFailed, ""))
    if error.code() == KafkaError._MSG_TIMED_OUT:
        advice = "check that the broker runs, or allow more time with delivery_timeout"
    return DeliveryFailed(_text(error, f"deliver a record to {topic!r}", None, advice), error)


def raise_failures(errors: Mapping[Any, PenstockError]) -> None:
    """Raise what failed, if anything: a single error as itself."""
    if len(errors) == 1:
        raise next(iter(errors.values()))
    if errors:
        raise SeveralFailed(errors)


def _text(error: KafkaError, doing: str, more: str | None, advice: str) -> str:
    reason = error.str().rstrip(".")
    text = f"cannot {doing}: {reason} ({error.name()})"
    if more:
        text += f": {more}"
    return f"{text}; {advice}" if advice else text
