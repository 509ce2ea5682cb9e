"""Between librdkafka's objects and ours: its errors become `errors`, its partitions `partitions`.

Whoever needs only the protocol, as the tasks of a Spark job do, never loads librdkafka.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from penstock.client.errors import (
    AuthenticationFailed,
    ConfigurationError,
    DeliveryFailed,
    Fenced,
    GroupNotEmpty,
    NoOffset,
    NotAuthorized,
    PenstockError,
    RequestFailed,
    TopicExists,
    UnknownGroup,
    UnknownTopic,
    Unreachable,
)
from penstock.client.partitions import PartitionLike, TopicPartition

# ---- errors ----

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


def _text(error: KafkaError, doing: str, more: str | None, advice: str) -> str:
    reason = error.str().rstrip(".")
    text = f"cannot {doing}: {reason} ({error.name()})"
    if more:
        text += f": {more}"
    return f"{text}; {advice}" if advice else text


# ---- partitions ----


def to_rdkafka(partitions: Iterable[PartitionLike]) -> list[confluent_kafka.TopicPartition]:
    """As librdkafka wants them, without offsets."""
    return [confluent_kafka.TopicPartition(topic, partition) for topic, partition in partitions]


def offsets_to_rdkafka(
    offsets: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int],
) -> list[confluent_kafka.TopicPartition]:
    return [confluent_kafka.TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]


def from_rdkafka(partition: Any) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)
