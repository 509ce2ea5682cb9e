from __future__ import annotations

import struct

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.log import producer_state
from penstock.log.producer_state import CorruptSnapshot, Origin, ProducerState
from penstock.log.txn_index import AbortedTxn
from penstock.wire.batch import Batch, parse_header
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.record import EndTxnMarker
from tests.log.samples import T0, data_batch, marker_batch

SEQUENCE_MAX = 2**31 - 1
DAY_MS = 86_400_000


def batch(
    producer: int = 1,
    sequence: int = 0,
    count: int = 1,
    *,
    offset: int = 0,
    epoch: int = 0,
    timestamp: int = T0,
    is_transactional: bool = False,
) -> Batch:
    return parse_header(
        data_batch(
            *[b"v"] * count,
            timestamp=timestamp,
            producer=producer,
            epoch=epoch,
            sequence=sequence,
            base_offset=offset,
            is_transactional=is_transactional,
        )
    )


def marker(producer: int = 1, *, offset: int, epoch: int = 0, timestamp: int = T0) -> Batch:
    data = marker_batch(producer, is_commit=True, epoch=epoch, timestamp=timestamp)
    data[0:8] = struct.pack(">q", offset)
    return parse_header(data)


def end(state: ProducerState, producer: int, offset: int, *, is_commit: bool, epoch: int = 0) -> AbortedTxn | None:
    return state.marker_appended(marker(producer, offset=offset, epoch=epoch), EndTxnMarker(is_commit, 0))


def after(*batches: Batch) -> ProducerState:
    state = ProducerState()
    for one in batches:
        state.check(one, Origin.CLIENT)
        state.appended(one)
    return state


def refusal(state: ProducerState, refused: Batch, origin: Origin = Origin.CLIENT) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        state.check(refused, origin)
    return caught.value.code


# ---- sequence numbers ----


def test_the_next_sequence_number_is_accepted() -> None:
    state = after(batch(sequence=0, count=3), batch(sequence=3, count=2, offset=3))
    state.check(batch(sequence=5), Origin.CLIENT)
    assert state.producers[1].last_sequence == 4


@pytest.mark.parametrize("sequence", [0, 3, 4, 6, 100])
def test_any_other_sequence_number_is_out_of_order(sequence: int) -> None:
    state = after(batch(sequence=0, count=5))
    assert refusal(state, batch(sequence=sequence)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_an_unknown_producer_may_begin_with_any_sequence_number() -> None:
    after(batch(sequence=17)).check(batch(producer=2, sequence=99), Origin.CLIENT)


def test_each_of_the_last_five_batches_is_recognised_when_it_comes_again() -> None:
    state = after(*[batch(sequence=2 * n, count=2, offset=100 + 2 * n) for n in range(5)])
    for n in range(5):
        found = state.find_duplicate(batch(sequence=2 * n, count=2))
        assert found is not None
        assert (found.first_offset, found.last_offset) == (100 + 2 * n, 101 + 2 * n)


def test_the_sixth_last_batch_is_forgotten_and_out_of_order() -> None:
    state = after(*[batch(sequence=n, offset=n) for n in range(6)])
    assert state.find_duplicate(batch(sequence=0)) is None
    assert refusal(state, batch(sequence=0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert state.find_duplicate(batch(sequence=1)) is not None


def test_a_batch_that_only_overlaps_an_earlier_one_is_no_duplicate() -> None:
    state = after(batch(sequence=0, count=3))
    assert state.find_duplicate(batch(sequence=0, count=2)) is None
    assert state.find_duplicate(batch(sequence=1, count=2)) is None
    assert refusal(state, batch(sequence=0, count=2)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_of_another_epoch_or_producer_is_no_duplicate() -> None:
    state = after(batch(sequence=0, count=3))
    assert state.find_duplicate(batch(sequence=0, count=3, epoch=1)) is None
    assert state.find_duplicate(batch(producer=2, sequence=0, count=3)) is None


def test_sequence_numbers_wrap_to_zero() -> None:
    state = after(batch(sequence=SEQUENCE_MAX - 1, count=2), batch(sequence=0, offset=2))
    state.check(batch(sequence=1), Origin.CLIENT)


def test_a_batch_may_lie_across_the_wrap() -> None:
    state = after(batch(sequence=SEQUENCE_MAX - 1, count=4, offset=50))
    assert state.producers[1].last_sequence == 1
    state.check(batch(sequence=2), Origin.CLIENT)
    assert refusal(state, batch(sequence=0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    duplicate = state.find_duplicate(batch(sequence=SEQUENCE_MAX - 1, count=4))
    assert duplicate is not None
    assert duplicate.first_offset == 50


def test_zero_is_no_successor_of_anything_but_the_largest_sequence_number() -> None:
    assert refusal(after(batch(sequence=7)), batch(sequence=0)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_new_epoch_must_begin_with_sequence_number_zero() -> None:
    state = after(batch(sequence=0, count=3))
    assert refusal(state, batch(sequence=3, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    state.check(batch(sequence=0, epoch=1), Origin.CLIENT)


def test_a_new_epoch_makes_the_batches_of_the_old_one_unknown() -> None:
    state = after(batch(sequence=0, count=3), batch(sequence=0, epoch=1, offset=3))
    assert len(state.producers[1].batches) == 1
    state.check(batch(sequence=1, epoch=1), Origin.CLIENT)


def test_an_old_epoch_is_refused() -> None:
    state = after(batch(sequence=0, epoch=4))
    assert refusal(state, batch(sequence=1, epoch=3)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(state, batch(sequence=1, epoch=3), Origin.COORDINATOR) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_coordinators_batches_need_no_sequence_numbers() -> None:
    state = after(batch(sequence=5))
    state.check(batch(sequence=-1), Origin.COORDINATOR)


@settings(deadline=None)
@given(st.integers(0, SEQUENCE_MAX), st.lists(st.integers(1, 5), min_size=1, max_size=12))
def test_a_producer_that_keeps_to_the_rules_is_never_refused_and_its_last_five_are_known(
    first: int, counts: list[int]
) -> None:
    state, sequence, offset, sent = ProducerState(), first, 0, []
    for count in counts:
        one = batch(sequence=sequence, count=count, offset=offset)
        assert state.find_duplicate(one) is None
        state.check(one, Origin.CLIENT)
        state.appended(one)
        sent.append(one)
        sequence, offset = (sequence + count) % (SEQUENCE_MAX + 1), offset + count
        for known in sent[-5:]:
            duplicate = state.find_duplicate(known)
            assert duplicate is not None
            assert duplicate.first_offset == known.base_offset
    assert state.end_offset == offset
    for forgotten in sent[:-5]:
        assert state.find_duplicate(forgotten) is None


# ---- transactions ----


def test_a_transaction_begins_with_its_first_batch_and_ends_with_its_marker() -> None:
    state = after(batch(offset=10, is_transactional=True), batch(sequence=1, offset=11, is_transactional=True))
    assert state.producers[1].txn_first_offset == 10
    assert state.first_unstable_offset == 10
    assert end(state, 1, 12, is_commit=True) is None
    assert state.producers[1].txn_first_offset == -1
    assert state.end_offset == 13


def test_an_aborted_transaction_is_reported_for_the_index() -> None:
    state = after(batch(offset=10, is_transactional=True))
    assert end(state, 1, 12, is_commit=False) == AbortedTxn(1, 10, 12, 13)


def test_an_aborted_transaction_is_stable_only_up_to_the_first_that_is_still_open() -> None:
    state = after(
        batch(1, offset=10, is_transactional=True),
        batch(2, offset=11, is_transactional=True),
        batch(3, offset=12, is_transactional=True),
    )
    assert end(state, 3, 13, is_commit=False) == AbortedTxn(3, 12, 13, 10)
    assert end(state, 1, 14, is_commit=False) == AbortedTxn(1, 10, 14, 11)
    assert end(state, 2, 15, is_commit=False) == AbortedTxn(2, 11, 15, 16)


def test_a_marker_without_a_transaction_leaves_nothing_to_hide() -> None:
    state = ProducerState()
    assert end(state, 1, 5, is_commit=False) is None
    assert state.first_unstable_offset is None
    assert state.end_offset == 6


def test_a_marker_with_a_new_epoch_makes_the_producer_begin_at_zero() -> None:
    state = after(batch(sequence=7, is_transactional=True))
    end(state, 1, 1, is_commit=True, epoch=1)
    assert refusal(state, batch(sequence=8, epoch=0)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert refusal(state, batch(sequence=8, epoch=1)) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    state.check(batch(sequence=0, epoch=1), Origin.CLIENT)


def test_a_marker_of_the_same_epoch_keeps_the_sequence() -> None:
    state = after(batch(sequence=7, is_transactional=True))
    end(state, 1, 1, is_commit=True)
    state.check(batch(sequence=8, is_transactional=True), Origin.CLIENT)


def test_a_marker_of_an_old_producer_epoch_is_refused() -> None:
    state = after(batch(epoch=3, is_transactional=True))
    with pytest.raises(ApiError) as caught:
        state.check_marker(marker(offset=1, epoch=2), EndTxnMarker(True, 0))
    assert caught.value.code is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_marker_of_an_old_coordinator_is_refused() -> None:
    state = after(batch(is_transactional=True))
    state.marker_appended(marker(offset=1), EndTxnMarker(True, 5))
    with pytest.raises(ApiError) as caught:
        state.check_marker(marker(offset=2), EndTxnMarker(True, 4))
    assert caught.value.code is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    state.check_marker(marker(offset=2), EndTxnMarker(True, 5))


def marker_refusal(state: ProducerState, epoch: int) -> ErrorCode | None:
    """Of a marker of transaction version 2."""
    try:
        state.check_marker(marker(offset=9, epoch=epoch), EndTxnMarker(True, 0), Origin.NEW_EPOCH_MARKER)
    except ApiError as error:
        return error.code
    return None


def test_a_marker_of_version_2_has_a_newer_epoch_than_what_it_ends() -> None:
    state = after(batch(epoch=3, is_transactional=True))
    assert marker_refusal(state, 2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert marker_refusal(state, 3) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert marker_refusal(state, 4) is None


def test_a_marker_of_version_2_that_is_sent_again_is_accepted_until_the_next_transaction_begins() -> None:
    state = after(batch(epoch=3, is_transactional=True))
    end(state, 1, 1, is_commit=True, epoch=4)
    assert marker_refusal(state, 4) is None
    state.appended(batch(offset=2, epoch=4, is_transactional=True))
    assert marker_refusal(state, 4) == ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_largest_epoch_ends_its_own_transaction() -> None:
    """There is no newer one; the next transaction has another producer id."""
    assert marker_refusal(after(batch(epoch=32767, is_transactional=True)), 32767) is None


def test_a_producer_is_in_a_transaction_with_the_epoch_that_began_it() -> None:
    state = after(batch(epoch=3, is_transactional=True))
    assert state.is_in_transaction(batch(sequence=1, epoch=3))
    assert not state.is_in_transaction(batch(epoch=4))
    assert not state.is_in_transaction(batch(producer=2, epoch=3))
    end(state, 1, 1, is_commit=True, epoch=3)
    assert not state.is_in_transaction(batch(sequence=1, epoch=3))


def first_refusal(state: ProducerState, first: Batch) -> ErrorCode | None:
    try:
        state.check_first(first)
    except ApiError as error:
        return error.code
    return None


def test_a_producer_of_version_2_begins_with_sequence_number_0() -> None:
    assert first_refusal(ProducerState(), batch()) is None
    assert first_refusal(ProducerState(), batch(sequence=1)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    state = after(batch(epoch=3, is_transactional=True))
    assert first_refusal(state, batch(sequence=5, epoch=3)) is None  # its sequence is checked as always
    assert first_refusal(state, batch(epoch=2)) == ErrorCode.INVALID_PRODUCER_EPOCH
    end(state, 1, 1, is_commit=True, epoch=4)
    assert first_refusal(state, batch(sequence=1, epoch=4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert first_refusal(state, batch(epoch=4)) is None


def test_a_marker_for_an_unknown_producer_is_accepted() -> None:
    ProducerState().check_marker(marker(offset=1), EndTxnMarker(False, 0))


def test_a_batch_outside_of_its_producers_open_transaction_is_refused() -> None:
    state = after(batch(is_transactional=True))
    assert refusal(state, batch(sequence=1)) is ErrorCode.INVALID_TXN_STATE


def test_the_first_unstable_offset_is_where_the_oldest_undecided_transaction_begins() -> None:
    state = after(batch(1, offset=10, is_transactional=True), batch(2, offset=11, is_transactional=True))
    end(state, 1, 12, is_commit=True)
    assert state.first_unstable_offset == 10  # decided, but the marker is not replicated yet
    state.high_watermark_reached(12)
    assert state.first_unstable_offset == 10
    state.high_watermark_reached(13)
    assert state.first_unstable_offset == 11
    assert not state.has_unreplicated_txns
    end(state, 2, 13, is_commit=False)
    assert state.has_unreplicated_txns
    state.high_watermark_reached(14)
    assert state.first_unstable_offset is None
    assert not state.has_unreplicated_txns


# ---- forgetting ----


def test_a_silent_producer_expires() -> None:
    state = after(batch(1, timestamp=T0), batch(2, timestamp=T0 + 1))
    state.remove_expired(T0 + DAY_MS - 1, DAY_MS)
    assert set(state.producers) == {1, 2}
    state.remove_expired(T0 + DAY_MS, DAY_MS)
    assert set(state.producers) == {2}


def test_a_marker_counts_as_a_sign_of_life() -> None:
    state = after(batch(1, is_transactional=True))
    state.marker_appended(marker(1, offset=1, timestamp=T0 + 5), EndTxnMarker(True, 0))
    state.remove_expired(T0 + DAY_MS, DAY_MS)
    assert set(state.producers) == {1}


def test_a_producer_with_an_open_transaction_never_expires() -> None:
    state = after(batch(1, is_transactional=True))
    state.remove_expired(T0 + 1000 * DAY_MS, DAY_MS)
    assert set(state.producers) == {1}


def test_beyond_the_limit_the_producer_that_is_here_longest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "PRODUCERS_MAX", 3)
    state = after(*[batch(n) for n in range(3)])
    state.appended(batch(0, sequence=1))
    state.appended(batch(3))
    assert set(state.producers) == {1, 2, 3}
    state.check(batch(0, sequence=99), Origin.CLIENT)  # as one that was never seen


def test_the_limit_spares_producers_with_open_transactions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_state, "PRODUCERS_MAX", 2)
    state = after(batch(1, is_transactional=True), batch(2), batch(3, is_transactional=True))
    assert set(state.producers) == {1, 3}
    state.appended(batch(4))
    assert set(state.producers) == {1, 3, 4}
    assert state.first_unstable_offset == 0


# ---- snapshots ----


def test_a_snapshot_is_kafkas() -> None:
    state = after(batch(producer=77, sequence=4, count=3, offset=100, epoch=2, is_transactional=True))
    content = state.encode()
    entry = struct.pack(">qhiqiqiq", 77, 2, 6, 102, 2, T0, -1, 100)
    assert len(entry) == 46
    counted = struct.pack(">i", 1) + entry
    assert content == struct.pack(">hI", 1, crc32c(counted)) + counted


def test_a_producer_without_batches_is_written_with_kafkas_placeholders() -> None:
    state = ProducerState()
    state.marker_appended(marker(9, offset=3, epoch=1), EndTxnMarker(True, 8))
    assert state.encode()[10:] == struct.pack(">qhiqiqiq", 9, 1, -1, -1, 0, T0, 8, -1)
    again = ProducerState.decode(state.encode(), 4)
    assert again.producers == state.producers


def test_an_empty_state_has_a_snapshot_too() -> None:
    content = ProducerState().encode()
    assert len(content) == 10
    state = ProducerState.decode(content, 55)
    assert state.producers == {}
    assert state.end_offset == 55
    assert state.first_unstable_offset is None


@st.composite
def states(draw: st.DrawFn) -> ProducerState:
    state, offset = ProducerState(), draw(st.integers(0, 2**40))
    sequences: dict[int, int] = {}
    for _ in range(draw(st.integers(0, 15))):
        producer = draw(st.integers(0, 4))
        if draw(st.integers(0, 3)) == 0:
            state.marker_appended(marker(producer, offset=offset), EndTxnMarker(draw(st.booleans()), 3))
            offset += 1
            continue
        count = draw(st.integers(1, 4))
        sequence = sequences.get(producer, draw(st.sampled_from([0, 5, SEQUENCE_MAX - 2])))
        is_open = producer in state.producers and state.producers[producer].txn_first_offset >= 0
        state.appended(
            batch(
                producer,
                sequence,
                count,
                offset=offset,
                timestamp=T0 + draw(st.integers(0, 100)),
                is_transactional=is_open or draw(st.booleans()),
            )
        )
        sequences[producer] = (sequence + count) % (SEQUENCE_MAX + 1)
        offset += count
    return state


@settings(deadline=None)
@given(states())
def test_a_snapshot_gives_back_each_producer_with_its_last_batch(state: ProducerState) -> None:
    again = ProducerState.decode(state.encode(), state.end_offset)
    assert again.end_offset == state.end_offset
    assert list(again.producers) == list(state.producers)
    for producer_id, producer in state.producers.items():
        loaded = again.producers[producer_id]
        last = producer.batches[-1:]
        assert [b[:4] for b in loaded.batches] == [b[:4] for b in last]
        assert loaded.epoch == producer.epoch
        assert loaded.coordinator_epoch == producer.coordinator_epoch
        assert loaded.last_timestamp == producer.last_timestamp
        assert loaded.txn_first_offset == producer.txn_first_offset
        assert loaded.last_sequence == producer.last_sequence
    open_firsts = [p.txn_first_offset for p in state.producers.values() if p.txn_first_offset >= 0]
    assert again.first_unstable_offset == min(open_firsts, default=None)
    assert again.encode() == state.encode()


@settings(deadline=None)
@given(st.data())
def test_a_flipped_bit_in_a_snapshot_is_noticed(data: st.DataObject) -> None:
    content = bytearray(after(batch(1), batch(2, is_transactional=True)).encode())
    at = data.draw(st.integers(0, len(content) * 8 - 1))
    content[at // 8] ^= 1 << at % 8
    with pytest.raises(CorruptSnapshot):
        ProducerState.decode(bytes(content), 0)


def test_a_snapshot_of_any_other_length_is_noticed() -> None:
    content = after(batch(1), batch(2)).encode()
    for size in range(len(content)):
        with pytest.raises(CorruptSnapshot):
            ProducerState.decode(content[:size], 0)
    with pytest.raises(CorruptSnapshot):
        ProducerState.decode(content + b"\0", 0)


def test_a_snapshot_that_counts_wrongly_is_noticed() -> None:
    entry = after(batch(1)).encode()[10:]
    for count in (0, 2, 2**31):
        counted = struct.pack(">I", count) + entry
        with pytest.raises(CorruptSnapshot):
            ProducerState.decode(struct.pack(">hI", 1, crc32c(counted)) + counted, 0)


@pytest.mark.parametrize("version", [0, 2, -1])
def test_a_snapshot_of_another_version_is_noticed(version: int) -> None:
    content = after(batch(1)).encode()
    with pytest.raises(CorruptSnapshot):
        ProducerState.decode(struct.pack(">h", version) + content[2:], 0)
