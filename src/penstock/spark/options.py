"""What a user asked of the source: Spark's own Kafka options, under their own names. Pure.

A job moves from `format("kafka")` by that one word, so whatever Spark's source knows is known here, with the same
meaning and the same defaults. What it does not know is refused, with the closest name that would be right.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from penstock.client.cluster import EARLIEST, LATEST, parse_address
from penstock.client.errors import ConfigurationError
from penstock.client.partitions import TopicPartition
from penstock.wire.isolation import READ_COMMITTED, READ_UNCOMMITTED

Offsets = Mapping[TopicPartition, int]

_ISOLATION_LEVELS = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
_UNIT_MS = {
    "ms": 1, "millisecond": 1, "s": 1000, "sec": 1000, "second": 1000, "m": 60_000, "min": 60_000, "minute": 60_000,
    "h": 3_600_000, "hour": 3_600_000, "d": 86_400_000, "day": 86_400_000,
}  # fmt: skip
_DURATION = re.compile(rf"\s*(\d+)\s*({'|'.join(_UNIT_MS)})?s?\s*$")


class Kind(Enum):
    """How a position is given."""

    OFFSETS = "offsets"  # by partition; EARLIEST and LATEST are offsets too
    TIME = "time"  # by partition, in ms
    EVERYWHERE = "everywhere"  # the same offset (EARLIEST or LATEST) for all
    EVERYWHERE_TIME = "everywhere by time"


@dataclass(frozen=True)
class Position:
    """Where reading begins or ends."""

    kind: Kind
    value: int = 0
    by_partition: Offsets | None = None

    @property
    def is_by_time(self) -> bool:
        return self.kind in (Kind.TIME, Kind.EVERYWHERE_TIME)


FROM_EARLIEST = Position(Kind.EVERYWHERE, EARLIEST)
FROM_LATEST = Position(Kind.EVERYWHERE, LATEST)


@dataclass(frozen=True)
class Topics:
    """What is read: topics by name or by pattern, or single partitions."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True)
class SourceOptions:
    """All that a source was told."""

    bootstrap: str
    topics: Topics
    starting: Position
    ending: Position
    latest_if_no_later: bool  # where nothing is as new as the starting time: begin at the end, instead of failing
    fail_on_data_loss: bool
    include_headers: bool
    isolation_level: int
    group: str | None
    offsets_max: int | None  # per trigger, as all below
    offsets_min: int | None
    bytes_max: int | None
    unlimited_topics: frozenset[str]  # which are read to the end, whatever the limits are
    delay_max_ms: int
    min_partitions: int | None
    partition_records_max: int | None
    timeout_s: float
    fetch_bytes: int


def parse(options: Mapping[str, str], *, is_streaming: bool) -> SourceOptions:
    """Read the options of a batch or a streaming read. Raises ConfigurationError with one clear line."""
    given = {name.lower(): value for name, value in options.items()}
    _check_names(options)
    bootstrap = given.get("kafka.bootstrap.servers", "")
    if not bootstrap.strip():
        raise ConfigurationError("option kafka.bootstrap.servers is missing: name at least one broker as host:port")
    for address in bootstrap.split(","):
        parse_address(address)
    if is_streaming:
        ends = [
            name for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp") if name.lower() in given
        ]
        if ends:
            raise ConfigurationError(f"option {ends[0]} is for batch reads: a streaming query has no end")
    return SourceOptions(
        bootstrap=bootstrap,
        topics=_topics(given),
        starting=_position(given, "starting", FROM_LATEST if is_streaming else FROM_EARLIEST, is_streaming),
        ending=_position(given, "ending", FROM_LATEST, is_streaming),
        latest_if_no_later=_one_of(
            given, "startingOffsetsByTimestampStrategy", {"error": False, "latest": True}, "error"
        ),
        fail_on_data_loss=_one_of(given, "failOnDataLoss", _BOOLEANS, "true"),
        include_headers=_one_of(given, "includeHeaders", _BOOLEANS, "false"),
        isolation_level=_one_of(given, "kafka.isolation.level", _ISOLATION_LEVELS, "read_uncommitted"),
        group=given.get("group") or given.get("kafka.group.id"),
        offsets_max=_count(given, "maxOffsetsPerTrigger"),
        offsets_min=_count(given, "minOffsetsPerTrigger"),
        bytes_max=_count(given, "maxBytesPerTrigger"),
        unlimited_topics=frozenset(
            name.strip() for name in given.get("unlimitedtopics", "").split(",") if name.strip()
        ),
        delay_max_ms=_duration_ms(given, "maxTriggerDelay", 15 * 60_000),
        min_partitions=_count(given, "minPartitions"),
        partition_records_max=_count(given, "maxRecordsPerPartition"),
        timeout_s=(_count(given, "kafkaConsumer.pollTimeoutMs") or 60_000) / 1000,
        fetch_bytes=_count(given, "kafka.max.partition.fetch.bytes") or 8 * 1024 * 1024,
    )


_BOOLEANS = {"true": True, "false": False}

_NAMES = (
    "subscribe", "subscribePattern", "assign", "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy", "endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp",
    "failOnDataLoss", "includeHeaders", "group", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxBytesPerTrigger",
    "unlimitedTopics", "maxTriggerDelay", "minPartitions", "maxRecordsPerPartition", "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "groupIdPrefix", "kafka.bootstrap.servers",
    "kafka.isolation.level", "kafka.group.id",
)  # fmt: skip
_KNOWN = {name.lower(): name for name in _NAMES}


def _check_names(options: Mapping[str, str]) -> None:
    for name in options:
        lower = name.lower()
        if lower in _KNOWN or lower == "path":
            continue
        if lower.startswith("kafka."):
            _check_kafka_setting(name, options[name])
            continue
        close = difflib.get_close_matches(lower, _KNOWN, 1)
        hint = f"; did you mean {_KNOWN[close[0]]}?" if close else ""
        raise ConfigurationError(f"there is no option {name}{hint}")


def check_security(name: str, value: str) -> None:
    """Who asks for an encrypted or an authenticated connection must not get a plain one."""
    lower = name.lower()
    if lower == "kafka.security.protocol" and value.upper() == "PLAINTEXT":
        return
    if lower.startswith(("kafka.security.", "kafka.sasl.", "kafka.ssl.")):
        raise ConfigurationError(f"option {name}: encrypted and authenticated connections are not there yet")


def _check_kafka_setting(name: str, value: str) -> None:
    """Settings of Kafka's consumer mostly have no meaning here. Those that promise something must not be ignored."""
    check_security(name, value)
    if name.lower() in (
        "kafka.auto.offset.reset",
        "kafka.interceptor.classes",
        "kafka.enable.auto.commit",
        "kafka.key.deserializer",
        "kafka.value.deserializer",
    ):
        raise ConfigurationError(f"option {name} is not for a source, as in Spark's own: it decides that by itself")


def _topics(given: Mapping[str, str]) -> Topics:
    named = [name for name in ("subscribe", "subscribePattern", "assign") if name.lower() in given]
    if len(named) != 1:
        what = "none is" if not named else " and ".join(named) + " are"
        raise ConfigurationError(
            f"exactly one of the options subscribe, subscribePattern and assign is needed; {what} given"
        )
    value = given[named[0].lower()]
    if named[0] == "subscribe":
        names = tuple(dict.fromkeys(name.strip() for name in value.split(",") if name.strip()))
        if not names:
            raise ConfigurationError("option subscribe is empty: name topics, separated by commas")
        return Topics(names=names)
    if named[0] == "subscribePattern":
        try:
            re.compile(value)
        except re.error as error:
            raise ConfigurationError(f"option subscribePattern: {value!r} is no regular expression ({error})") from None
        return Topics(pattern=value)
    return Topics(partitions=_assigned(value))


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    example = '{"orders": [0, 1]}'
    found = _json(text, "assign", example)
    partitions = []
    for topic, indexes in found.items():
        if not isinstance(indexes, list) or not all(isinstance(index, int) and index >= 0 for index in indexes):
            raise ConfigurationError(
                f"option assign: the partitions of {topic} must be a list of numbers, as in {example}"
            )
        partitions += [TopicPartition(topic, index) for index in indexes]
    if not partitions:
        raise ConfigurationError(f"option assign names no partition; write it as {example}")
    return tuple(dict.fromkeys(partitions))


def _position(given: Mapping[str, str], which: str, default: Position, is_streaming: bool) -> Position:
    """A time for all wins over times by partition, and these over offsets: as in Spark's own source."""
    if f"{which}timestamp" in given:
        return Position(Kind.EVERYWHERE_TIME, _number(given[f"{which}timestamp"], f"{which}Timestamp"))
    by_time = f"{which}OffsetsByTimestamp"
    if by_time.lower() in given:
        return Position(Kind.TIME, by_partition=_offsets(given[by_time.lower()], by_time))
    name = f"{which}Offsets"
    text = given.get(name.lower())
    if text is None:
        return default
    word = text.strip().lower()
    position = {"earliest": FROM_EARLIEST, "latest": FROM_LATEST}.get(word)
    if position is None:
        position = Position(Kind.OFFSETS, by_partition=_offsets(text, name))
    if not is_streaming:
        _check_batch_end(which, name, position)
    return position


def _check_batch_end(which: str, name: str, position: Position) -> None:
    """A batch read begins at something that is there, and ends at something that is there."""
    wrong, word = (LATEST, "latest") if which == "starting" else (EARLIEST, "earliest")
    values = [position.value] if position.by_partition is None else position.by_partition.values()
    if wrong in values:
        raise ConfigurationError(
            f"option {name}: a batch read cannot {'begin' if which == 'starting' else 'end'} at {word}"
        )


def _offsets(text: str, name: str) -> dict[TopicPartition, int]:
    example = '{"orders": {"0": 23, "1": -2}}'
    found: dict[TopicPartition, int] = {}
    for topic, by_partition in _json(text, name, example).items():
        if not isinstance(by_partition, dict):
            raise ConfigurationError(f"option {name}: give an offset for each partition of {topic}, as in {example}")
        for index, offset in by_partition.items():
            if not index.isdigit() or not isinstance(offset, int) or offset < EARLIEST:
                raise ConfigurationError(f"option {name}: {topic}, partition {index}: {offset!r} is no offset")
            found[TopicPartition(topic, int(index))] = offset
    return found


def _json(text: str, name: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise ConfigurationError(f"option {name}: {text!r} is not JSON of the form {example}")
    return found


def _number(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ConfigurationError(f"option {name}: {text!r} is not a number of milliseconds") from None


def _count(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    if not text.strip().isdigit() or int(text) == 0:
        raise ConfigurationError(f"option {name}: {text!r} is not a number above 0")
    return int(text)


def _duration_ms(given: Mapping[str, str], name: str, default_ms: int) -> int:
    text = given.get(name.lower())
    if text is None:
        return default_ms
    found = _DURATION.match(text.lower())
    if found is None:
        raise ConfigurationError(f"option {name}: {text!r} is no duration; write it as 30s, 5m or 1h")
    return int(found[1]) * _UNIT_MS[found[2] or "ms"]


def _one_of(given: Mapping[str, str], name: str, values: Mapping[str, Any], default: str) -> Any:
    text = given.get(name.lower(), default).strip().lower()
    if text not in values:
        raise ConfigurationError(f"option {name}: {text!r} is none of {', '.join(values)}")
    return values[text]
