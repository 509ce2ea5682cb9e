"""Group records are Kafka's: its fields, its numbers, its versions; and any other bytes are refused."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.group import protocol, records
from penstock.group.offsets import Committed
from penstock.group.protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription, TopicPartition
from penstock.group.records import GroupRecord, OffsetCommitKey, OffsetCommitValue, decode_record, encode_record
from penstock.wire import schema
from penstock.wire.errors import DecodeError
from penstock.wire.schema import codec
from tests.support.maven import KAFKA_VERSION, definitions, kafka_jars
from tests.wire.samples import for_version, full_message, messages_of, versions_of
from tests.wire.test_definitions import Definition, kafka_versions, mismatches, new_messages, versions_to_compare

RECORD_KEYS = [key for key, _, _ in records._TYPES.values()]
RECORD_VALUES = [value for _, value, _ in records._TYPES.values()]
PROTOCOL_MESSAGES = [ConsumerProtocolSubscription, ConsumerProtocolAssignment]

every_record = pytest.mark.parametrize("cls", [*RECORD_KEYS, *RECORD_VALUES], ids=lambda cls: cls.__name__)
every_type = pytest.mark.parametrize("record_type", records._TYPES)
some = settings(deadline=None, max_examples=25)


@cache
def group_records() -> dict[str, Definition]:
    return definitions(kafka_jars() / f"kafka-group-coordinator-{KAFKA_VERSION}.jar", "common/message/")


def all_mismatches(cls: type, definition: Definition) -> str:
    found = [text for version in versions_to_compare(cls) for text in mismatches(cls, definition, version)]
    return "\n".join(found)


# ---- the same as Kafka's ----


@every_record
def test_every_version_of_a_group_record_has_kafkas_fields(cls: type) -> None:
    definition = group_records()[cls.__name__]
    assert not all_mismatches(cls, definition)
    assert schema.message_versions(cls) == kafka_versions(definition["validVersions"])


@every_type
def test_a_record_has_kafkas_type_number(record_type: int) -> None:
    for cls in records._TYPES[record_type][:2]:
        assert group_records()[cls.__name__]["apiKey"] == record_type


@every_type
def test_a_value_is_written_in_a_version_that_exists(record_type: int) -> None:
    _, value_class, version = records._TYPES[record_type]
    assert version in kafka_versions(group_records()[value_class.__name__]["validVersions"])


@pytest.mark.parametrize("cls", PROTOCOL_MESSAGES, ids=lambda cls: cls.__name__)
def test_the_embedded_protocol_has_kafkas_fields(cls: type) -> None:
    definition = new_messages()[cls.__name__]
    assert not all_mismatches(cls, definition)
    assert schema.message_versions(cls) == kafka_versions(definition["validVersions"])


# ---- there and back ----


@every_record
@given(data=st.data())
@some
def test_a_part_of_a_record_survives_encoding_in_every_version(cls: type, data: st.DataObject) -> None:
    message = data.draw(messages_of(cls))
    for version in versions_of(cls):
        encoded = codec(cls, version).encode(for_version(message, version, keeps_absent=True))
        assert codec(cls, version).read(encoded) == (for_version(message, version), len(encoded))


@every_type
@given(data=st.data())
@some
def test_a_record_survives_the_log(record_type: int, data: st.DataObject) -> None:
    key_class, value_class, version = records._TYPES[record_type]
    key = data.draw(messages_of(key_class))
    value = for_version(data.draw(messages_of(value_class)), version)
    assert decode_record(*encode_record(GroupRecord(key, value))) == GroupRecord(key, value)
    assert decode_record(*encode_record(GroupRecord(key, None))) == GroupRecord(key, None)


def test_an_offset_with_a_time_to_live_of_its_own_keeps_it() -> None:
    """Only version 1 has the field: Kafka writes that one then."""
    committed = Committed(7, 3, "m", 1000, expire_ms=2000)
    key, value = encode_record(committed.record("g", "t", 0))
    assert value is not None
    assert value[:2] == b"\0\1"
    found = decode_record(key, value)
    assert found is not None
    assert found.value.expire_timestamp == 2000
    assert encode_record(Committed(7, 3, "m", 1000).record("g", "t", 0))[1][:2] == b"\0\3"  # type: ignore[index]


def test_an_offset_of_the_oldest_type_is_read_like_a_new_one() -> None:
    key, value = encode_record(GroupRecord(OffsetCommitKey("g", "t", 1), OffsetCommitValue(5)))
    assert decode_record(b"\0\0" + key[2:], value) == decode_record(key, value)


def test_a_record_of_a_type_that_is_not_used_here_is_passed_over() -> None:
    for unused in (4, 9, 10, 15, 17, 0x7FFF):
        assert decode_record(unused.to_bytes(2) + b"whatever", b"\0\0") is None


@given(message=messages_of(ConsumerProtocolSubscription), version=st.integers(0, 3))
@some
def test_a_subscription_survives_encoding(message: Any, version: int) -> None:
    fitting = for_version(message, version)
    assert protocol.decode_subscription(protocol.encode_subscription(fitting, version)) == fitting


@given(message=messages_of(ConsumerProtocolAssignment), version=st.integers(0, 3))
@some
def test_an_assignment_survives_encoding(message: Any, version: int) -> None:
    assert protocol.decode_assignment(protocol.encode_assignment(message, version)) == message


def test_a_newer_subscription_is_read_as_far_as_it_is_known() -> None:
    newest = protocol.encode_subscription(ConsumerProtocolSubscription(["t"], rack_id="r"))
    future = b"\0\x09" + newest[2:] + b"more fields"
    assert protocol.subscription_version(future) == 9
    assert protocol.decode_subscription(future).rack_id == "r"


def test_an_assignment_for_a_newer_client_is_written_in_our_newest_version() -> None:
    encoded = protocol.encode_assignment(ConsumerProtocolAssignment([TopicPartition("t", [0])]), 9)
    assert encoded[:2] == b"\0\3"


def test_no_bytes_are_an_empty_assignment() -> None:
    assert protocol.decode_assignment(b"") == ConsumerProtocolAssignment()


# ---- hostile bytes ----


def check_is_record_or_refused(key: bytes, value: bytes | None) -> None:
    try:
        found = decode_record(key, value)
    except DecodeError:
        return
    assert found is None or isinstance(found, GroupRecord)


@given(key=st.binary(max_size=40), value=st.none() | st.binary(max_size=60))
@settings(deadline=None, max_examples=150)
def test_arbitrary_bytes_are_a_record_or_refused(key: bytes, value: bytes | None) -> None:
    check_is_record_or_refused(key, value)


@every_type
@given(data=st.data())
@some
def test_a_damaged_record_is_a_record_or_refused(record_type: int, data: st.DataObject) -> None:
    key_class, value_class, version = records._TYPES[record_type]
    whole = GroupRecord(full_message(key_class), for_version(full_message(value_class), version))
    key, value = encode_record(whole)
    assert value is not None
    at = data.draw(st.integers(0, len(value) - 1))
    check_is_record_or_refused(key, value[:at] + data.draw(st.binary(min_size=1, max_size=4)) + value[at + 1 :])
    check_is_record_or_refused(key[: data.draw(st.integers(0, len(key)))], value)
    with pytest.raises(DecodeError):
        decode_record(key, value[:at])


def test_a_value_in_an_unknown_version_is_refused() -> None:
    key, value = encode_record(GroupRecord(OffsetCommitKey("g", "t", 1), OffsetCommitValue(5)))
    assert value is not None
    for version in (b"\0\x05", b"\xff\xff"):
        with pytest.raises(DecodeError, match="version"):
            decode_record(key, version + value[2:])


@given(content=st.binary(max_size=60))
@settings(deadline=None, max_examples=150)
def test_arbitrary_bytes_are_an_embedded_message_or_refused(content: bytes) -> None:
    for decode in (protocol.decode_subscription, protocol.decode_assignment):
        try:
            decode(content)
        except DecodeError:
            continue
