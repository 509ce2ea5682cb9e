"""What a transactional id is in, and what leads from one state to the next. Pure.

Every question is a function: the transaction as it is and what is wanted in, the transaction as it will be out. It
becomes true when its record is committed. The same object back means that there is nothing to write. What is refused
is an ApiError with the protocol's code.

Transaction version 2 (KIP-890) gives a producer a new epoch whenever a transaction ends. So whatever arrives late, a
write or the end of an earlier transaction, carries an old epoch and is refused. With the older rules (versions 0 and 1)
an end and its transaction are not tied together: a late EndTxn can hit the next transaction.

Behaviour follows Kafka's TransactionMetadata and TransactionCoordinator.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import NamedTuple

from penstock.wire.errors import ApiError, ErrorCode

NO_PRODUCER_ID = -1
NO_EPOCH = -1
NO_TIME = -1
EPOCH_MAX = 0x7FFF
VERSION_2 = 2  # the first with a new epoch for every transaction


class State(IntEnum):
    """Kafka's numbers, as they are in the log."""

    EMPTY = 0  # claimed, and nothing written yet; a first partition makes it ONGOING
    ONGOING = 1  # partitions are being written to; ends by EndTxn, a timeout, or a new claim
    PREPARE_COMMIT = 2  # decided: markers are being written, and nothing can change it
    PREPARE_ABORT = 3  # the same with the other outcome
    COMPLETE_COMMIT = 4  # all markers are written; a first partition begins the next transaction
    COMPLETE_ABORT = 5  # the same

    @property
    def label(self) -> str:
        """The name that the protocol uses."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        return self in (State.PREPARE_COMMIT, State.PREPARE_ABORT)

    @property
    def is_open(self) -> bool:
        """Whether there is a transaction that has not ended."""
        return self is State.ONGOING or self.is_prepared


# From where each state may be reached. A record that says otherwise is a mistake of ours.
PREVIOUS: dict[State, frozenset[State]] = {
    State.EMPTY: frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}),
    State.ONGOING: frozenset({State.EMPTY, State.ONGOING, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}),
    State.PREPARE_COMMIT: frozenset({State.ONGOING}),
    # With version 2 an abort with nothing to abort gives the producer its new epoch.
    State.PREPARE_ABORT: frozenset({State.ONGOING, State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT}),
    State.COMPLETE_COMMIT: frozenset({State.PREPARE_COMMIT}),
    State.COMPLETE_ABORT: frozenset({State.PREPARE_ABORT}),
}


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class Identity(NamedTuple):
    """A producer id and its epoch."""

    producer_id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Transaction:
    """All that is known of a transactional id.

    While the outcome is being written to the partitions (PREPARE_*), `producer_id` and `epoch` are those of the
    markers; `next_producer_id` is the one that takes over afterwards if the epochs of this one are used up.
    """

    transactional_id: str
    producer_id: int
    epoch: int
    timeout_ms: int
    state: State = State.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIME
    update_ms: int = NO_TIME
    last_epoch: int = NO_EPOCH  # the one before, if its owner may ask again for what it did not hear; not in the log
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    client_version: int = 0

    @property
    def identity(self) -> Identity:
        return Identity(self.producer_id, self.epoch)

    @property
    def is_epoch_exhausted(self) -> bool:
        return is_exhausted(self.epoch)

    @property
    def is_commit(self) -> bool:
        return self.state in (State.PREPARE_COMMIT, State.COMPLETE_COMMIT)

    def has_timed_out(self, now_ms: int) -> bool:
        return self.state is State.ONGOING and self.start_ms + self.timeout_ms < now_ms

    def has_expired(self, now_ms: int, expiration_ms: int) -> bool:
        """Whether nobody has used the id for so long that it may be forgotten."""
        return not self.state.is_open and self.update_ms <= now_ms - expiration_ms


def is_exhausted(epoch: int) -> bool:
    """Whether this epoch is the last that a producer may have. One more is needed to fence it."""
    return epoch >= EPOCH_MAX - 1


def _refuse(code: ErrorCode, txn: Transaction, why: str) -> ApiError:
    return ApiError(code, f"transactional id {txn.transactional_id}: {why}")


def _moved(txn: Transaction, **changes: object) -> Transaction:
    """The transaction after a step: whoever had the id before is noted."""
    return replace(txn, previous_producer_id=txn.producer_id, **changes)  # type: ignore[arg-type]


def new(transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    """An id that nobody has used. Its first epoch is given by `claim`."""
    return Transaction(transactional_id, producer_id, NO_EPOCH, timeout_ms, update_ms=now_ms)


# ---- InitProducerId ----


def check_claim(txn: Transaction, expected: Identity | None) -> None:
    """Whether someone who knows the producer as `expected` may claim the id; None: someone who begins anew."""
    if expected is not None and not _is_owner(txn, expected):
        raise _refuse(ErrorCode.PRODUCER_FENCED, txn, f"producer {expected.producer_id} is not its producer any more")
    if txn.state.is_prepared:
        raise _refuse(ErrorCode.CONCURRENT_TRANSACTIONS, txn, "its last transaction is being ended")


def _is_owner(txn: Transaction, expected: Identity) -> bool:
    """The epoch is looked at later, except where the id was replaced and its owner may not have heard of it."""
    if txn.epoch == NO_EPOCH or expected.producer_id == txn.producer_id:
        return True
    return expected.producer_id == txn.previous_producer_id and is_exhausted(expected.epoch)


def needs_new_producer_id(txn: Transaction, expected: Identity | None) -> bool:
    """Whether a claim takes a new producer id: all epochs of this one are used up."""
    return txn.is_epoch_exhausted and (expected is None or expected.epoch == txn.epoch)


def claim(
    txn: Transaction, timeout_ms: int, expected: Identity | None, spare_producer_id: int, now_ms: int
) -> Transaction:
    """A producer takes over the id: the next epoch is its, and older ones are fenced.

    An open transaction must have been ended before. A producer that says who it is (KIP-360) keeps its identity's line:
    if it did not hear the answer to its last claim, it gets the same answer again.
    """
    check_claim(txn, expected)
    assert txn.state is not State.ONGOING
    fresh = {
        "state": State.EMPTY,
        "timeout_ms": timeout_ms,
        "partitions": frozenset(),
        "start_ms": NO_TIME,
        "update_ms": now_ms,
    }
    if needs_new_producer_id(txn, expected):
        last_epoch = txn.epoch if expected is not None else NO_EPOCH
        return _moved(txn, producer_id=spare_producer_id, epoch=0, last_epoch=last_epoch, **fresh)
    if expected is None:
        return _moved(txn, epoch=txn.epoch + 1, last_epoch=NO_EPOCH, **fresh)
    if txn.epoch in (NO_EPOCH, expected.epoch):
        return _moved(txn, epoch=txn.epoch + 1, last_epoch=txn.epoch, **fresh)
    if expected.epoch == txn.last_epoch:
        return _moved(txn, **fresh)
    raise _refuse(ErrorCode.PRODUCER_FENCED, txn, f"epoch {expected.epoch} is older than {txn.epoch}")


# ---- AddPartitionsToTxn, AddOffsetsToTxn, and what adds partitions by itself ----


def _check_writer(txn: Transaction, who: Identity) -> None:
    if txn.producer_id != who.producer_id:
        raise _refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING, txn, f"producer {who.producer_id} is not its producer")
    if txn.epoch != who.epoch:
        raise _refuse(ErrorCode.PRODUCER_FENCED, txn, f"epoch {who.epoch} is not the current {txn.epoch}")
    if txn.state.is_prepared:
        raise _refuse(ErrorCode.CONCURRENT_TRANSACTIONS, txn, "its last transaction is being ended")


def add_partitions(
    txn: Transaction, who: Identity, partitions: frozenset[TopicPartition], client_version: int, now_ms: int
) -> Transaction:
    """Partitions are about to be written to; the first ones begin a transaction."""
    _check_writer(txn, who)
    if txn.state is State.ONGOING:
        if partitions <= txn.partitions:
            return txn
        start_ms, known = txn.start_ms, txn.partitions
    else:
        start_ms, known = now_ms, frozenset()
    return _moved(
        txn,
        state=State.ONGOING,
        partitions=known | partitions,
        start_ms=start_ms,
        update_ms=now_ms,
        client_version=client_version,
    )


def check_partitions(
    txn: Transaction, who: Identity, partitions: frozenset[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Whether partitions are in the transaction: a write to one that is not would never be decided."""
    _check_writer(txn, who)
    return {
        partition: ErrorCode.NONE if partition in txn.partitions else ErrorCode.TRANSACTION_ABORTABLE
        for partition in partitions
    }


# ---- EndTxn ----


def end(
    txn: Transaction, who: Identity, *, is_commit: bool, client_version: int, spare_producer_id: int, now_ms: int
) -> Transaction:
    """The producer ends its transaction. The same object back: that has been done before."""
    if client_version >= VERSION_2:
        return _end_with_new_epoch(txn, who, is_commit, client_version, spare_producer_id, now_ms)
    return _end_with_old_epoch(txn, who, is_commit, now_ms)


def _end_with_old_epoch(txn: Transaction, who: Identity, is_commit: bool, now_ms: int) -> Transaction:
    if txn.producer_id != who.producer_id:
        raise _refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING, txn, f"producer {who.producer_id} is not its producer")
    if txn.epoch != who.epoch:
        raise _refuse(ErrorCode.PRODUCER_FENCED, txn, f"epoch {who.epoch} is not the current {txn.epoch}")
    if txn.state is State.ONGOING:
        return _prepared(txn, is_commit, 0, NO_PRODUCER_ID, now_ms)
    return _ended_before(txn, is_commit)


def _end_with_new_epoch(
    txn: Transaction, who: Identity, is_commit: bool, client_version: int, spare_producer_id: int, now_ms: int
) -> Transaction:
    was_replaced = (
        txn.previous_producer_id == who.producer_id and who.epoch == EPOCH_MAX - 1 and txn.epoch == 0
    )  # its epochs were used up when it ended, and it did not hear of it
    is_retry = txn.epoch == who.epoch + 1 or was_replaced
    if txn.producer_id != who.producer_id and not was_replaced:
        raise _refuse(ErrorCode.INVALID_PRODUCER_ID_MAPPING, txn, f"producer {who.producer_id} is not its producer")
    if not _is_epoch_of_end(txn, who.epoch, is_retry=is_retry):
        raise _refuse(ErrorCode.PRODUCER_FENCED, txn, f"epoch {who.epoch} does not go with the current {txn.epoch}")
    if txn.state is State.ONGOING:
        return _prepared(txn, is_commit, client_version, spare_producer_id, now_ms)
    if is_retry:
        return _ended_before(txn, is_commit)
    if is_commit:
        raise _refuse(ErrorCode.INVALID_TXN_STATE, txn, "there is no transaction to commit")
    return _prepared(
        replace(txn, partitions=frozenset(), start_ms=now_ms), False, client_version, spare_producer_id, now_ms
    )


def _is_epoch_of_end(txn: Transaction, epoch: int, *, is_retry: bool) -> bool:
    if txn.state.is_prepared:
        return txn.epoch == epoch + 1
    if txn.state in (State.COMPLETE_COMMIT, State.COMPLETE_ABORT):
        return is_retry or epoch == txn.epoch
    return epoch == txn.epoch


def _ended_before(txn: Transaction, is_commit: bool) -> Transaction:
    """The producer asks again how a transaction ended."""
    if txn.state is State.EMPTY or is_commit != txn.is_commit:
        outcome = "commit" if is_commit else "abort"
        raise _refuse(ErrorCode.INVALID_TXN_STATE, txn, f"it is {txn.state.label}: there is nothing to {outcome}")
    if txn.state.is_prepared:
        raise _refuse(ErrorCode.CONCURRENT_TRANSACTIONS, txn, "its transaction is being ended")
    return txn


def _prepared(
    txn: Transaction, is_commit: bool, client_version: int, spare_producer_id: int, now_ms: int
) -> Transaction:
    """The outcome is decided. With version 2 the markers carry the next epoch already: they fence what comes late."""
    changes: dict[str, object] = {}
    if client_version >= VERSION_2:
        changes = {"epoch": min(txn.epoch + 1, EPOCH_MAX), "last_epoch": txn.epoch}
        if txn.is_epoch_exhausted:
            changes["next_producer_id"] = spare_producer_id
    return _moved(
        txn,
        state=State.PREPARE_COMMIT if is_commit else State.PREPARE_ABORT,
        update_ms=now_ms,
        client_version=client_version,
        **changes,
    )


def fence(txn: Transaction, server_version: int, spare_producer_id: int, now_ms: int) -> Transaction:
    """Abort a transaction whose producer is gone or too slow. It gets a new epoch by that: its producer is fenced."""
    assert txn.state is State.ONGOING
    if server_version >= VERSION_2:
        return _prepared(txn, False, server_version, spare_producer_id, now_ms)
    fenced = replace(txn, epoch=min(txn.epoch + 1, EPOCH_MAX), last_epoch=NO_EPOCH)
    return _prepared(fenced, False, 0, NO_PRODUCER_ID, now_ms)


def complete(txn: Transaction, now_ms: int) -> Transaction:
    """All markers are written."""
    assert txn.state.is_prepared
    changes: dict[str, object] = {}
    if txn.client_version >= VERSION_2 and txn.next_producer_id != NO_PRODUCER_ID:
        changes = {"producer_id": txn.next_producer_id, "epoch": 0}
    return _moved(
        txn,
        state=State.COMPLETE_COMMIT if txn.is_commit else State.COMPLETE_ABORT,
        next_producer_id=NO_PRODUCER_ID,
        partitions=frozenset(),
        update_ms=now_ms,
        **changes,
    )
