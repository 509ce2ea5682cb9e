"""Where failed records go and what is written about them: no broker needed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client._records import Record
from penstock.client.errors import ConfigurationError, SerializationError
from penstock.client.retry import Origin, Retry, Schedule, attempts

HEADERS = st.lists(
    st.tuples(st.text(max_size=5).map(lambda name: f"x{name}"), st.none() | st.binary(max_size=5)), max_size=3
).map(tuple)


def failed(record: Record[Any, Any], schedule: Schedule, error: Exception, now_ms: int) -> Record[Any, Any]:
    """The record as it lies in the topic that it goes to."""
    topic, headers = schedule.next(record, error, now_ms)
    return Record(topic, 3, 99, now_ms, record.key, record.value, headers)


@given(
    st.lists(st.floats(0, 1000), max_size=5),
    HEADERS,
    st.integers(0, 2**60),
    st.none() | st.integers(0, 2**45),
    st.integers(0, 2**45),
)
def test_a_record_goes_through_all_delays_and_keeps_its_origin(
    delays: list[float], headers: Any, offset: int, timestamp: int | None, now_ms: int
) -> None:
    schedule = Schedule(Retry(delays, "dead"), "group")
    original = record = Record("orders", 7, offset, timestamp, b"k", b"v", headers)
    for number, delay in enumerate(delays, 1):
        record = failed(record, schedule, ValueError("no"), now_ms)
        assert record.topic == f"group.retry.{number}"
        assert Origin.of(record).due_ms == now_ms + round(delay * 1000)
        assert attempts(record) == number
    record = failed(record, schedule, ValueError("no"), now_ms)
    assert record.topic == "dead"
    assert attempts(record) == len(delays) + 1
    restored = Origin.of(record).restore(record)
    where = (restored.topic, restored.partition, restored.offset)
    assert where == (original.topic, original.partition, original.offset)
    assert timestamp is None or restored.timestamp == timestamp
    assert record.headers[: len(headers)] == headers
    names = [name for name, _ in record.headers[len(headers) :]]
    assert len(names) == len(set(names))


def test_what_is_told_about_an_error_is_bounded() -> None:
    schedule = Schedule(Retry([], "dead"), "group")
    try:
        raise ValueError("é" * 100_000)
    except ValueError as error:
        _, headers = schedule.next(Record("t"), error, 0)
    assert sum(len(value or b"") for _, value in headers) < 25_000
    assert dict(headers)["penstock.retry.exception"] == b"builtins.ValueError"


def test_hopeless_errors_skip_the_delays() -> None:
    schedule = Schedule(Retry([1, 2], "dead", not_for=(KeyError,)), "group")
    assert schedule.next(Record("t"), KeyError(), 0)[0] == "dead"
    assert schedule.next(Record("t"), SerializationError(), 0)[0] == "dead"
    assert schedule.next(Record("t"), ValueError(), 0)[0] == "group.retry.1"


@given(st.dictionaries(st.sampled_from(["attempts", "due", "topic", "partition", "offset", "timestamp"]), st.binary()))
def test_headers_that_others_wrote_do_no_harm(told: dict[str, bytes]) -> None:
    headers = tuple((f"penstock.retry.{name}", value) for name, value in told.items())
    origin = Origin.of(Record("t", 1, 2, 3, None, None, headers))
    assert origin.attempts >= 0
    assert origin.due_ms >= 0
    assert origin.partition >= 0


def test_names_of_groups_become_names_of_topics() -> None:
    assert Schedule(Retry([1], "d"), "my group/é").retry_topics == ["my-group--.retry.1"]
    assert Schedule(Retry([1, 1], "d", topic="again"), "g").retry_topics == ["again.1", "again.2"]
    with pytest.raises(ConfigurationError, match="below 0"):
        Retry([-1], "d")
    with pytest.raises(ConfigurationError, match="dead_letter is empty"):
        Retry([1], "")
