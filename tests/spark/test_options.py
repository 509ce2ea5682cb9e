"""Options mean what they mean to Spark's own Kafka source, and mistakes are told in one line."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.client.cluster import EARLIEST, LATEST
from penstock.client.errors import ConfigurationError
from penstock.client.partitions import TopicPartition
from penstock.spark.options import FROM_EARLIEST, FROM_LATEST, Kind, SourceOptions, parse

MINIMUM = {"kafka.bootstrap.servers": "one:9092,two:9093", "subscribe": "orders"}


def parsed(is_streaming: bool = False, **options: str) -> SourceOptions:
    return parse(
        {**MINIMUM, **{name.replace("_", "."): value for name, value in options.items()}}, is_streaming=is_streaming
    )


def refused(options: dict[str, str], is_streaming: bool = False) -> str:
    with pytest.raises(ConfigurationError) as caught:
        parse(options, is_streaming=is_streaming)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_defaults_are_sparks() -> None:
    batch, stream = parsed(), parsed(is_streaming=True)
    assert (batch.starting, batch.ending) == (FROM_EARLIEST, FROM_LATEST)
    assert stream.starting == FROM_LATEST
    assert batch.fail_on_data_loss
    assert not batch.include_headers
    assert batch.isolation_level == 0
    assert stream.delay_max_ms == 900_000


def test_names_are_written_in_any_case() -> None:
    found = parse(
        {"KAFKA.bootstrap.Servers": "b:1", "SUBSCRIBE": "a, b ,a", "FailOnDataLoss": "FALSE"}, is_streaming=False
    )
    assert found.topics.names == ("a", "b")
    assert not found.fail_on_data_loss


def test_offsets_by_partition() -> None:
    text = json.dumps({"orders": {"0": 23, "1": -2}, "bills": {"0": 5}})
    found = parsed(is_streaming=True, startingOffsets=text).starting
    assert found.kind is Kind.OFFSETS
    assert found.by_partition == {
        TopicPartition("orders", 0): 23, TopicPartition("orders", 1): EARLIEST, TopicPartition("bills", 0): 5,
    }  # fmt: skip
    assert parsed(is_streaming=True, startingOffsets='{"orders":{"0":-1}}').starting.by_partition == {
        TopicPartition("orders", 0): LATEST
    }


def test_a_time_for_all_wins_over_times_by_partition_and_these_over_offsets() -> None:
    by_partition = '{"orders": {"0": 1000}}'
    all_three = {"startingOffsets": "latest", "startingOffsetsByTimestamp": by_partition, "startingTimestamp": "5000"}
    assert parsed(True, **all_three).starting.kind is Kind.EVERYWHERE_TIME
    del all_three["startingTimestamp"]
    assert parsed(True, **all_three).starting.kind is Kind.TIME


@pytest.mark.parametrize(
    ("text", "expected"),
    [("500", 500), ("20s", 20_000), ("5 minutes", 300_000), ("2m", 120_000), ("1 hour", 3_600_000), ("10ms", 10)],
)
def test_durations(text: str, expected: int) -> None:
    assert parsed(is_streaming=True, maxTriggerDelay=text).delay_max_ms == expected


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "option kafka.bootstrap.servers is missing"),
        ({"kafka.bootstrap.servers": "nowhere", "subscribe": "a"}, "'nowhere' is not an address: write host:port"),
        ({"kafka.bootstrap.servers": "b:1"}, "exactly one of the options subscribe, subscribePattern and assign"),
        ({**MINIMUM, "assign": "{}"}, "subscribe and assign are given"),
        ({**MINIMUM, "subscribe": " , "}, "option subscribe is empty"),
        ({**MINIMUM, "startingOfsets": "latest"}, "there is no option startingOfsets; did you mean startingOffsets?"),
        ({**MINIMUM, "startingOffsets": "latest"}, "a batch read cannot begin at latest"),
        ({**MINIMUM, "endingOffsets": "earliest"}, "a batch read cannot end at earliest"),
        ({**MINIMUM, "startingOffsets": "first"}, "option startingOffsets: 'first' is not JSON of the form"),
        ({**MINIMUM, "startingOffsets": '{"a": {"0": -7}}'}, "partition 0: -7 is no offset"),
        ({**MINIMUM, "startingTimestamp": "noon"}, "'noon' is not a number of milliseconds"),
        ({**MINIMUM, "maxOffsetsPerTrigger": "0"}, "option maxOffsetsPerTrigger: '0' is not a number above 0"),
        ({**MINIMUM, "failOnDataLoss": "maybe"}, "'maybe' is none of true, false"),
        ({**MINIMUM, "maxTriggerDelay": "soon"}, "'soon' is no duration"),
        ({**MINIMUM, "kafka.isolation.level": "x"}, "'x' is none of read_uncommitted, read_committed"),
        ({**MINIMUM, "kafka.sasl.mechanism": "PLAIN"}, "not there yet"),
        ({**MINIMUM, "kafka.auto.offset.reset": "earliest"}, "is not for a source"),
        ({"kafka.bootstrap.servers": "b:1", "subscribePattern": "("}, "is no regular expression"),
        ({"kafka.bootstrap.servers": "b:1", "assign": '{"a": 1}'}, "must be a list of numbers"),
    ],
)
def test_mistakes(options: dict[str, Any], says: str) -> None:
    assert says in refused(options)


def test_a_stream_has_no_end() -> None:
    assert "a streaming query has no end" in refused({**MINIMUM, "endingOffsets": "latest"}, is_streaming=True)


def test_settings_of_kafkas_consumer_that_promise_nothing_are_let_through() -> None:
    parsed(kafka_session_timeout_ms="10000", kafka_security_protocol="PLAINTEXT")
