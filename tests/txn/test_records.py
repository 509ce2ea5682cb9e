"""Transaction records are Kafka's: its fields, its versions; and any other bytes are refused."""

from __future__ import annotations

from functools import cache

import pytest

from penstock.txn.records import (
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
    TxnRecord,
    decode_record,
    encode_record,
)
from penstock.txn.transaction import State, TopicPartition, Transaction
from penstock.wire import schema
from penstock.wire.errors import DecodeError
from penstock.wire.schema import codec
from tests.support.maven import KAFKA_VERSION, definitions, kafka_jars
from tests.wire.test_definitions import Definition, kafka_versions, mismatches, versions_to_compare

ONGOING = Transaction("id", 7, 3, 60_000, State.ONGOING, frozenset({TopicPartition("t", 0)}), 10, 20)


@cache
def kafka_records() -> dict[str, Definition]:
    return definitions(kafka_jars() / f"kafka-transaction-coordinator-{KAFKA_VERSION}.jar", "common/message/")


@pytest.mark.parametrize("cls", [TransactionLogKey, TransactionLogValue], ids=lambda cls: cls.__name__)
def test_every_version_of_a_transaction_record_has_kafkas_fields(cls: type) -> None:
    definition = _with_versions(kafka_records()[cls.__name__])
    found = [text for version in versions_to_compare(cls) for text in mismatches(cls, definition, version)]
    assert not found, "\n".join(found)
    assert schema.message_versions(cls) == kafka_versions(definition["validVersions"])
    assert definition["apiKey"] == 0


def _with_versions(definition: Definition) -> Definition:
    """Kafka leaves out the versions of fields that are only ever tagged."""
    fields = [{**row, "versions": row.get("versions", row.get("taggedVersions"))} for row in definition["fields"]]
    return {**definition, "fields": fields}


def test_an_unused_id_has_no_list_of_partitions() -> None:
    """As Kafka writes it."""
    _, value = encode_record(TxnRecord("id", Transaction("id", 7, 3, 60_000)))
    assert value is not None
    assert codec(TransactionLogValue, 1).read(value, 2)[0].transaction_partitions is None
    assert decode_record(*encode_record(TxnRecord("id", Transaction("id", 7, 3, 60_000)))) is not None


def test_a_forgotten_id_has_no_value() -> None:
    key, value = encode_record(TxnRecord("id", None))
    assert value is None
    assert decode_record(key, None) == TxnRecord("id", None)


def test_records_of_older_brokers_are_read() -> None:
    old = TransactionLogValue(
        producer_id=7,
        producer_epoch=3,
        transaction_timeout_ms=60_000,
        transaction_status=1,
        transaction_partitions=[PartitionsSchema("t", [0])],
        transaction_last_update_timestamp_ms=20,
        transaction_start_timestamp_ms=10,
    )
    key, _ = encode_record(TxnRecord("id", None))
    assert decode_record(key, bytes(2) + codec(TransactionLogValue, 0).encode(old)) == TxnRecord("id", ONGOING)


def test_other_types_of_records_are_left_alone() -> None:
    key, value = encode_record(TxnRecord("id", ONGOING))
    assert decode_record(b"\x00\x01" + key[2:], value) is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", None),
        (b"\x00", None),
        (b"\x00\x00", None),
        (b"\x00\x00\x00\x05id", None),
        (None, b""),
        (None, b"\x00"),
        (None, b"\x00\x02"),
        (None, b"\x00\x01short"),
    ],
)
def test_other_bytes_are_refused(key: bytes | None, value: bytes | None) -> None:
    with pytest.raises(DecodeError):
        decode_record(encode_record(TxnRecord("id", None))[0] if key is None else key, value)


def test_an_unknown_state_is_refused() -> None:
    for status in (-1, 6, 7, 8):
        value = TransactionLogValue(transaction_status=status)
        encoded = b"\x00\x01" + codec(TransactionLogValue, 1).encode(value)
        with pytest.raises(DecodeError, match="unknown state"):
            decode_record(encode_record(TxnRecord("id", None))[0], encoded)
