"""The records of `__transaction_state`: Kafka's own, so that its tools read the topic and a directory can move."""

from __future__ import annotations

from typing import NamedTuple

from penstock.txn.transaction import State, TopicPartition, Transaction
from penstock.wire.errors import DecodeError
from penstock.wire.schema import codec, field, message, message_versions, struct
from penstock.wire.types import INT8, INT16, INT32, INT64, STRING, array


@message(versions="0")
class TransactionLogKey:
    transactional_id: str = field(STRING, "0", default="")


@struct
class PartitionsSchema:
    topic: str = field(STRING, default="")
    partition_ids: list[int] = field(array(INT32), factory=list)


@message(versions="0-1", flexible="1+")
class TransactionLogValue:
    producer_id: int = field(INT64, default=0)
    previous_producer_id: int = field(INT64, "1+", default=-1, tag=0)
    next_producer_id: int = field(INT64, "1+", default=-1, tag=1)
    producer_epoch: int = field(INT16, default=0)
    next_producer_epoch: int = field(INT16, "1+", default=-1, tag=3)
    transaction_timeout_ms: int = field(INT32, default=0)
    transaction_status: int = field(INT8, default=0)
    transaction_partitions: list[PartitionsSchema] | None = field(array(PartitionsSchema), nullable="0+", factory=list)
    transaction_last_update_timestamp_ms: int = field(INT64, default=0)
    transaction_start_timestamp_ms: int = field(INT64, default=0)
    client_transaction_version: int = field(INT16, "1+", default=0, tag=2)


class TxnRecord(NamedTuple):
    """What is to be known of a transactional id; None: that it is forgotten."""

    transactional_id: str
    transaction: Transaction | None


_KEY_TYPE = 0
_VERSION = 1  # the one with room for transaction version 2; Kafka reads it since 3.5


def encode_record(record: TxnRecord) -> tuple[bytes, bytes | None]:
    """A record's key and value as they are in the log."""
    key = _KEY_TYPE.to_bytes(2) + codec(TransactionLogKey, 0).encode(TransactionLogKey(record.transactional_id))
    if record.transaction is None:
        return key, None
    return key, _VERSION.to_bytes(2) + codec(TransactionLogValue, _VERSION).encode(_to_value(record.transaction))


def _to_value(txn: Transaction) -> TransactionLogValue:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(txn.partitions):
        topics.setdefault(topic, []).append(partition)
    return TransactionLogValue(
        producer_id=txn.producer_id,
        previous_producer_id=txn.previous_producer_id,
        next_producer_id=txn.next_producer_id,
        producer_epoch=txn.epoch,
        transaction_timeout_ms=txn.timeout_ms,
        transaction_status=txn.state,
        transaction_partitions=None
        if txn.state is State.EMPTY
        else [PartitionsSchema(topic, partitions) for topic, partitions in topics.items()],
        transaction_last_update_timestamp_ms=txn.update_ms,
        transaction_start_timestamp_ms=txn.start_ms,
        client_transaction_version=txn.client_version,
    )


def decode_record(key: bytes, value: bytes | None) -> TxnRecord | None:
    """The record in a log entry; None for types that are not known here."""
    if len(key) < 2:
        raise DecodeError("a transaction record needs a key that begins with its type")
    if int.from_bytes(key[:2]) != _KEY_TYPE:
        return None
    found, _ = codec(TransactionLogKey, 0).read(key, 2)
    if value is None:
        return TxnRecord(found.transactional_id, None)
    if len(value) < 2:
        raise DecodeError("a transaction record's value begins with its version")
    version = int.from_bytes(value[:2])
    if version not in message_versions(TransactionLogValue):
        raise DecodeError(f"TransactionLogValue in version {version}, which is not known here")
    content, _ = codec(TransactionLogValue, version).read(value, 2)
    return TxnRecord(found.transactional_id, _from_value(found.transactional_id, content))


def _from_value(transactional_id: str, value: TransactionLogValue) -> Transaction:
    try:
        state = State(value.transaction_status)
    except ValueError:
        raise DecodeError(
            f"transaction {transactional_id} is in the unknown state {value.transaction_status}"
        ) from None
    return Transaction(
        transactional_id=transactional_id,
        producer_id=value.producer_id,
        epoch=value.producer_epoch,
        timeout_ms=value.transaction_timeout_ms,
        state=state,
        partitions=frozenset(
            TopicPartition(entry.topic, partition)
            for entry in value.transaction_partitions or []
            for partition in entry.partition_ids
        ),
        start_ms=value.transaction_start_timestamp_ms,
        update_ms=value.transaction_last_update_timestamp_ms,
        previous_producer_id=value.previous_producer_id,
        next_producer_id=value.next_producer_id,
        client_version=value.client_transaction_version,
    )
