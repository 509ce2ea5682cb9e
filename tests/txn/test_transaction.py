"""The states of a transactional id: who may do what, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.txn import transaction as rules
from penstock.txn.records import TxnRecord, decode_record, encode_record
from penstock.txn.transaction import (
    EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    PREVIOUS,
    Identity,
    State,
    TopicPartition,
    Transaction,
)
from penstock.wire.errors import ApiError, ErrorCode

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
ME = Identity(7, 3)
SPARE = 99
NOW = 1_000
OLD, NEW = 0, 2


def txn(state: State = State.EMPTY, **more: Any) -> Transaction:
    partitions = frozenset({P0}) if state.is_open else frozenset()
    made = Transaction("id", *ME, 60_000, state, partitions, start_ms=10, update_ms=10)
    return replace(made, **more)


def code_of(call: Callable[[], Any]) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        call()
    return caught.value.code


def end(
    before: Transaction, who: Identity = ME, *, commit: bool = True, version: int = NEW, spare: int = SPARE
) -> Transaction:
    return rules.end(before, who, is_commit=commit, client_version=version, spare_producer_id=spare, now_ms=NOW)


# ---- ending: every state, both versions, both outcomes ----

INVALID, FENCED, BUSY = ErrorCode.INVALID_TXN_STATE, ErrorCode.PRODUCER_FENCED, ErrorCode.CONCURRENT_TRANSACTIONS
DONE = "done"

# The state -> what the owner hears who commits, and who aborts.
OLD_ENDS: dict[State, tuple[Any, Any]] = {
    State.EMPTY: (INVALID, INVALID),
    State.ONGOING: (State.PREPARE_COMMIT, State.PREPARE_ABORT),
    State.PREPARE_COMMIT: (BUSY, INVALID),
    State.PREPARE_ABORT: (INVALID, BUSY),
    State.COMPLETE_COMMIT: (DONE, INVALID),
    State.COMPLETE_ABORT: (INVALID, DONE),
}
# With its current epoch: that of a next transaction.
NEW_ENDS: dict[State, tuple[Any, Any]] = {
    State.EMPTY: (INVALID, State.PREPARE_ABORT),
    State.ONGOING: (State.PREPARE_COMMIT, State.PREPARE_ABORT),
    State.PREPARE_COMMIT: (FENCED, FENCED),
    State.PREPARE_ABORT: (FENCED, FENCED),
    State.COMPLETE_COMMIT: (INVALID, State.PREPARE_ABORT),
    State.COMPLETE_ABORT: (INVALID, State.PREPARE_ABORT),
}
# With the epoch before: sent again, or late.
NEW_ENDS_AGAIN: dict[State, tuple[Any, Any]] = {
    State.EMPTY: (FENCED, FENCED),
    State.ONGOING: (FENCED, FENCED),
    State.PREPARE_COMMIT: (BUSY, INVALID),
    State.PREPARE_ABORT: (INVALID, BUSY),
    State.COMPLETE_COMMIT: (DONE, INVALID),
    State.COMPLETE_ABORT: (INVALID, DONE),
}


def check_end(before: Transaction, who: Identity, version: int, commit: bool, expected: Any) -> None:
    if isinstance(expected, ErrorCode):
        assert code_of(lambda: end(before, who, commit=commit, version=version)) == expected
    elif expected is DONE:
        assert end(before, who, commit=commit, version=version) is before
    else:
        after = end(before, who, commit=commit, version=version)
        assert after.state is expected
        assert after.partitions == before.partitions
        assert after.epoch == before.epoch + (1 if version >= NEW else 0)


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("commit", [True, False])
def test_ends_by_the_old_rules(state: State, commit: bool) -> None:
    check_end(txn(state), ME, OLD, commit, OLD_ENDS[state][0 if commit else 1])


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("commit", [True, False])
def test_ends_with_version_2(state: State, commit: bool) -> None:
    check_end(txn(state), ME, NEW, commit, NEW_ENDS[state][0 if commit else 1])


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("commit", [True, False])
def test_ends_with_version_2_that_are_sent_again(state: State, commit: bool) -> None:
    check_end(txn(state), ME._replace(epoch=ME.epoch - 1), NEW, commit, NEW_ENDS_AGAIN[state][0 if commit else 1])


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("version", [OLD, NEW])
@pytest.mark.parametrize(
    ("who", "code"),
    [
        (Identity(8, 3), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (Identity(7, 1), FENCED),
        (Identity(7, 4), FENCED),
    ],
)
def test_strangers_end_nothing(state: State, version: int, who: Identity, code: ErrorCode) -> None:
    assert code_of(lambda: end(txn(state), who, version=version)) == code


def test_the_last_epoch_of_a_producer_is_followed_by_a_new_producer_id() -> None:
    last = txn(State.ONGOING, epoch=EPOCH_MAX - 1)
    prepared = end(last, last.identity)
    assert (prepared.identity, prepared.next_producer_id) == (Identity(7, EPOCH_MAX), SPARE)
    complete = rules.complete(prepared, NOW)
    assert complete.identity == Identity(SPARE, 0)
    assert complete.previous_producer_id == 7
    assert end(complete, last.identity) is complete  # its answer was lost
    assert code_of(lambda: end(complete, last.identity, commit=False)) == INVALID


def test_with_the_old_rules_the_producer_id_stays_until_the_next_claim() -> None:
    last = txn(State.ONGOING, epoch=EPOCH_MAX - 1)
    complete = rules.complete(end(last, last.identity, version=OLD), NOW)
    assert complete.identity == last.identity
    assert rules.needs_new_producer_id(complete, None)
    assert rules.claim(complete, 1, None, SPARE, NOW).identity == Identity(SPARE, 0)


def test_completing_leaves_nothing_of_the_transaction() -> None:
    for state in (State.PREPARE_COMMIT, State.PREPARE_ABORT):
        complete = rules.complete(txn(state), NOW)
        assert complete.state.value == state.value + 2
        assert (complete.partitions, complete.next_producer_id) == (frozenset(), NO_PRODUCER_ID)


# ---- claiming ----


@pytest.mark.parametrize("state", [State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT])
def test_a_claim_gives_the_next_epoch(state: State) -> None:
    claimed = rules.claim(txn(state), 5_000, None, NO_PRODUCER_ID, NOW)
    assert (claimed.state, claimed.identity, claimed.timeout_ms) == (State.EMPTY, Identity(7, 4), 5_000)
    assert (claimed.last_epoch, claimed.start_ms, claimed.update_ms) == (NO_EPOCH, -1, NOW)


@pytest.mark.parametrize("state", [State.PREPARE_COMMIT, State.PREPARE_ABORT])
def test_a_claim_waits_for_the_end(state: State) -> None:
    assert code_of(lambda: rules.check_claim(txn(state), None)) == BUSY


def test_the_first_claim_gives_epoch_0() -> None:
    new = rules.new("id", 7, 60_000, NOW)
    assert rules.claim(new, 60_000, None, NO_PRODUCER_ID, NOW).identity == Identity(7, 0)
    assert rules.claim(new, 60_000, Identity(3, 3), NO_PRODUCER_ID, NOW).identity == Identity(7, 0)


@pytest.mark.parametrize(
    ("expected", "outcome"),
    [
        (Identity(7, 3), Identity(7, 4)),
        (Identity(7, 2), Identity(7, 3)),  # the last answer was lost
        (Identity(7, 1), FENCED),
        (Identity(7, 4), FENCED),
        (Identity(6, 3), FENCED),
        (Identity(6, EPOCH_MAX - 1), FENCED),
    ],
)
def test_a_producer_that_says_who_it_is(expected: Identity, outcome: Identity | ErrorCode) -> None:
    before = txn(State.EMPTY, last_epoch=2)
    if isinstance(outcome, ErrorCode):
        assert code_of(lambda: rules.claim(before, 1, expected, NO_PRODUCER_ID, NOW)) == outcome
    else:
        assert rules.claim(before, 1, expected, NO_PRODUCER_ID, NOW).identity == outcome


def test_a_producer_whose_id_was_replaced_gets_its_answer_again() -> None:
    before = txn(State.EMPTY, epoch=EPOCH_MAX - 1)
    replaced = rules.claim(before, 1, before.identity, SPARE, NOW)
    assert replaced.identity == Identity(SPARE, 0)
    assert rules.claim(replaced, 1, before.identity, NO_PRODUCER_ID, NOW).identity == Identity(SPARE, 0)


# ---- adding and checking partitions ----


@pytest.mark.parametrize("state", [State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT])
def test_the_first_partition_begins_a_transaction(state: State) -> None:
    added = rules.add_partitions(txn(state), ME, frozenset({P1}), NEW, NOW)
    assert (added.state, added.partitions, added.start_ms) == (State.ONGOING, frozenset({P1}), NOW)
    assert added.client_version == NEW


def test_more_partitions_join_and_known_ones_change_nothing() -> None:
    before = txn(State.ONGOING)
    added = rules.add_partitions(before, ME, frozenset({P1}), NEW, NOW)
    assert (added.partitions, added.start_ms) == (frozenset({P0, P1}), 10)
    assert rules.add_partitions(before, ME, frozenset({P0}), NEW, NOW) is before


@pytest.mark.parametrize("state", State)
def test_strangers_add_nothing(state: State) -> None:
    wanted = frozenset({P0})
    for who, code in [
        (Identity(8, 3), ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (Identity(7, 2), FENCED),
        (Identity(7, 4), FENCED),
    ]:
        assert code_of(lambda who=who: rules.add_partitions(txn(state), who, wanted, NEW, NOW)) == code  # type: ignore[misc]
        assert code_of(lambda who=who: rules.check_partitions(txn(state), who, wanted)) == code  # type: ignore[misc]
    if state.is_prepared:
        assert code_of(lambda: rules.add_partitions(txn(state), ME, wanted, NEW, NOW)) == BUSY
        assert code_of(lambda: rules.check_partitions(txn(state), ME, wanted)) == BUSY


def test_a_partition_is_in_the_transaction_or_not() -> None:
    found = rules.check_partitions(txn(State.ONGOING), ME, frozenset({P0, P1}))
    assert found == {P0: ErrorCode.NONE, P1: ErrorCode.TRANSACTION_ABORTABLE}
    assert rules.check_partitions(txn(), ME, frozenset({P0})) == {P0: ErrorCode.TRANSACTION_ABORTABLE}


# ---- time ----


def test_only_an_open_transaction_times_out() -> None:
    for state in State:
        before = txn(state, start_ms=10, timeout_ms=100)
        assert not before.has_timed_out(110)
        assert before.has_timed_out(111) is (state is State.ONGOING)


def test_only_an_id_without_a_transaction_expires() -> None:
    for state in State:
        before = txn(state, update_ms=10)
        assert not before.has_expired(109, 100)
        assert before.has_expired(110, 100) is not state.is_open


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("epoch", [3, EPOCH_MAX - 2, EPOCH_MAX - 1])
def test_fencing_aborts_and_leaves_the_old_epoch_behind(version: int, epoch: int) -> None:
    before = txn(State.ONGOING, epoch=epoch)
    fenced = rules.fence(before, version, SPARE, NOW)
    assert (fenced.state, fenced.epoch, fenced.partitions) == (State.PREPARE_ABORT, epoch + 1, before.partitions)
    complete = rules.complete(fenced, NOW)
    assert complete.identity != before.identity
    assert complete.epoch <= EPOCH_MAX
    next_one = rules.claim(complete, 1, None, SPARE + 1, NOW)
    assert next_one.identity not in (before.identity, complete.identity)


# ---- records ----

transactions = st.builds(
    Transaction,
    transactional_id=st.text(max_size=20),
    producer_id=st.integers(0, 2**63 - 1),
    epoch=st.integers(0, EPOCH_MAX),
    timeout_ms=st.integers(1, 2**31 - 1),
    state=st.sampled_from([state for state in State if state is not State.EMPTY]),
    partitions=st.frozensets(st.builds(TopicPartition, st.text(max_size=5), st.integers(0, 2**31 - 1)), max_size=6),
    start_ms=st.integers(-1, 2**62),
    update_ms=st.integers(-1, 2**62),
    previous_producer_id=st.integers(-1, 2**63 - 1),
    next_producer_id=st.integers(-1, 2**63 - 1),
    client_version=st.integers(0, 2),
)


@given(before=transactions)
@settings(deadline=None)
def test_what_is_written_is_read_again(before: Transaction) -> None:
    record = decode_record(*encode_record(TxnRecord(before.transactional_id, before)))
    assert record == TxnRecord(before.transactional_id, before)


# ---- whatever happens ----


class OneId(RuleBasedStateMachine):
    """One transactional id, clients of all kinds, lost answers, timeouts and restarts."""

    def __init__(self) -> None:
        super().__init__()
        self.txn = rules.new("id", 1, 100, 0)
        self.log: list[Transaction] = []
        self.now_ms = 0
        self.next_producer_id = 2
        self.owners: list[Identity] = []  # all identities ever given out
        self.ended: set[Identity] = set()  # those that ended a transaction with version 2
        self._claim(None)

    def write(self, after: Transaction) -> None:
        before = self.txn
        assert not self.log or before.state in PREVIOUS[after.state]
        if after.state.is_prepared and after.client_version >= NEW:
            self.ended.add(before.identity)
        record = decode_record(*encode_record(TxnRecord("id", after)))
        assert record is not None
        assert record.transaction is not None
        assert replace(record.transaction, last_epoch=after.last_epoch) == after
        self.log.append(after)
        self.txn = after

    def spare(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id

    def _claim(self, expected: Identity | None) -> None:
        self.write(rules.claim(self.txn, 100, expected, self.spare(), self.now_ms))
        self.owners.append(self.txn.identity)

    def try_to(self, step: Callable[[], Transaction]) -> bool:
        try:
            after = step()
        except ApiError:
            return False
        if after is not self.txn:
            self.write(after)
        return True

    @rule(ms=st.integers(1, 90))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms

    @precondition(lambda self: self.txn.state in (State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT))
    @rule(data=st.data())
    def somebody_claims(self, data: st.DataObject) -> None:
        expected = data.draw(st.sampled_from([None, *self.owners[-3:]]))
        assume(not (self.txn.is_epoch_exhausted and expected is not None))
        try:
            self._claim(expected)
        except ApiError:
            return

    @rule(
        data=st.data(),
        partitions=st.frozensets(st.sampled_from([P0, P1]), min_size=1),
        version=st.sampled_from([OLD, NEW]),
    )
    def somebody_writes(self, data: st.DataObject, partitions: frozenset[TopicPartition], version: int) -> None:
        who = data.draw(st.sampled_from(self.owners[-4:]))
        is_current = who == self.txn.identity
        was_prepared = self.txn.state.is_prepared
        worked = self.try_to(lambda: rules.add_partitions(self.txn, who, partitions, version, self.now_ms))
        assert worked is (is_current and not was_prepared)

    @rule(data=st.data(), commit=st.booleans(), version=st.sampled_from([OLD, NEW]))
    def somebody_ends(self, data: st.DataObject, commit: bool, version: int) -> None:
        who = data.draw(st.sampled_from(self.owners[-4:]))
        before = self.txn
        worked = self.try_to(lambda: end(self.txn, who, commit=commit, version=version, spare=self.spare()))
        if worked and before.state is State.ONGOING:
            assert who == before.identity  # nobody but its producer decides an open transaction
        if worked and before.state is not State.ONGOING and self.txn is before:
            assert before.is_commit is commit  # told again what is true

    @precondition(lambda self: self.txn.has_timed_out(self.now_ms))
    @rule(version=st.sampled_from([OLD, NEW]))
    def the_coordinator_loses_patience(self, version: int) -> None:
        self.write(rules.fence(self.txn, version, self.spare(), self.now_ms))

    @precondition(lambda self: self.txn.state.is_prepared)
    @rule()
    def all_markers_are_written(self) -> None:
        was_new = self.txn.client_version >= NEW
        self.write(rules.complete(self.txn, self.now_ms))
        if was_new:
            self.owners.append(self.txn.identity)

    @rule()
    def the_coordinator_restarts(self) -> None:
        record = decode_record(*encode_record(TxnRecord("id", self.txn)))
        assert record is not None
        assert record.transaction is not None
        self.txn = record.transaction

    @rule()
    def epochs_run_out(self) -> None:
        if self.txn.state is State.EMPTY and self.txn.epoch < EPOCH_MAX - 3:
            self.write(replace(self.txn, epoch=EPOCH_MAX - 2))
            self.owners.append(self.txn.identity)

    @invariant()
    def identities_never_come_back(self) -> None:
        """Epochs of a producer id only grow, and a producer id that was left is never used again."""
        seen: dict[int, int] = {}
        last: int | None = None
        left: set[int] = set()
        for entry in self.log:
            if last is not None and entry.producer_id != last:
                left.add(last)
            assert entry.producer_id not in left
            assert entry.epoch >= seen.get(entry.producer_id, 0)
            seen[entry.producer_id] = entry.epoch
            last = entry.producer_id

    @invariant()
    def with_version_2_an_identity_ends_one_transaction(self) -> None:
        assert self.txn.identity not in self.ended

    @invariant()
    def what_is_decided_is_carried_out(self) -> None:
        for before, after in zip(self.log, self.log[1:], strict=False):
            if before.state.is_prepared:
                assert after.state.value == before.state.value + 2

    @invariant()
    def only_an_open_transaction_has_partitions(self) -> None:
        assert self.txn.state.is_open or not self.txn.partitions


OneId.TestCase.settings = settings(deadline=None, max_examples=150, stateful_step_count=30)
test_one_transactional_id_under_everything = OneId.TestCase
