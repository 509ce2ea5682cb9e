"""Transactions frame by frame, against both systems: what real Kafka answers is what these tests expect."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.client.connection import Connection
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.api_versions import ApiVersionsRequest
from penstock.wire.messages.describe_transactions import DescribeTransactionsRequest
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.list_transactions import ListTransactionsRequest
from penstock.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from penstock.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.support import systems
from tests.support.systems import System
from tests.support.transactions import (
    GROUPS,
    NOT_READY,
    Txn,
    committed_offset,
    create_topic,
    find_coordinator,
    latest,
    producers_of,
    read,
    wait_out,
    wait_until,
    wait_until_stable,
)

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
EPOCH = ErrorCode.INVALID_PRODUCER_EPOCH
STATE = ErrorCode.INVALID_TXN_STATE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
ABORTABLE = ErrorCode.TRANSACTION_ABORTABLE
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING

QUICK = {
    "transaction_state_log_num_partitions": "3",
    "offsets_topic_num_partitions": "3",
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": "200",
}

both_versions = pytest.mark.parametrize("version", [1, 2])


@pytest.fixture(scope="module", params=["penstock", "kafka"])
def system(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    data = tmp_path_factory.mktemp(f"txn-{request.param}") / "data"
    running = systems.named(request.param, data, **QUICK).start()
    yield running
    running.kill()


@pytest.fixture
def topic(connection: Connection, unique: Callable[[str], str]) -> str:
    name = unique("txn-topic")
    create_topic(connection, name, 2)
    return name


@pytest.fixture
def txn(connection: Connection, unique: Callable[[str], str]) -> Callable[..., Txn]:
    """Makes transactional producers, each with an id of its own unless one is given."""

    def make(version: int = 2, name: str | None = None, **more: Any) -> Txn:
        return Txn(connection, name or unique("txn"), version=version, **more).claim()

    return make


Make = Callable[..., Txn]


# ---- what is announced ----


def test_transaction_version_2_is_announced(connection: Connection) -> None:
    response = connection.call(ApiVersionsRequest("test", "1"), 4)
    supported = {key.name: (key.min_version, key.max_version) for key in response.supported_features}
    finalized = {key.name: key.max_version_level for key in response.finalized_features}
    assert supported["transaction.version"] == (0, 2)
    assert finalized["transaction.version"] == 2
    spoken = {key.api_key: key.max_version for key in response.api_keys}
    assert {key: spoken[key] for key in (22, 24, 25, 26, 27, 28, 61, 65, 66)} == {
        22: 5, 24: 5, 25: 4, 26: 5, 27: 2, 28: 5, 61: 0, 65: 0, 66: 2,
    }  # fmt: skip


# ---- outcomes ----


@both_versions
def test_a_committed_transaction_is_seen_when_it_ends(
    connection: Connection, topic: str, txn: Make, version: int
) -> None:
    producer = txn(version)
    producer.write(topic, "a", "b")
    producer.write(topic, "c", partition=1)
    assert read(connection, topic) == []
    assert read(connection, topic, committed=False) == ["a", "b"]
    assert (latest(connection, topic), latest(connection, topic, committed=False)) == (0, 2)
    producer.commit()
    for partition in (0, 1):
        wait_until_stable(connection, topic, partition)
    assert read(connection, topic) == ["a", "b"]
    assert read(connection, topic, 1) == ["c"]
    assert latest(connection, topic) == 3  # the marker takes an offset


@both_versions
def test_an_aborted_transaction_is_never_seen(connection: Connection, topic: str, txn: Make, version: int) -> None:
    producer, other = txn(version), txn(version)
    producer.write(topic, "a")
    other.write(topic, "b")
    producer.abort()
    other.commit()
    wait_until_stable(connection, topic)
    assert read(connection, topic) == ["b"]
    assert read(connection, topic, committed=False) == ["a", "b"]
    producer.write(topic, "c")
    producer.commit()
    wait_until_stable(connection, topic)
    assert read(connection, topic) == ["b", "c"]


@both_versions
def test_an_open_transaction_holds_back_what_is_behind_it(
    connection: Connection, topic: str, txn: Make, version: int
) -> None:
    first, second = txn(version), txn(version)
    first.write(topic, "a")
    second.write(topic, "b")
    second.commit()
    second.wait_for_state("CompleteCommit")
    assert read(connection, topic) == []
    assert latest(connection, topic) == 0
    first.commit()
    wait_until_stable(connection, topic)
    assert read(connection, topic) == ["a", "b"]


# ---- epochs ----


def test_with_version_2_every_end_gives_a_new_epoch(topic: str, txn: Make) -> None:
    producer = txn()
    assert producer.epoch == 0
    for number, commit in enumerate([True, False, True]):
        producer.write(topic, "x")
        code = wait_out(lambda: producer.end(commit=commit), CONCURRENT)  # noqa: B023
        assert (code, producer.epoch) == (NONE, number + 1)


def test_with_the_old_rules_the_epoch_stays(topic: str, txn: Make) -> None:
    producer = txn(1)
    for _ in range(2):
        producer.write(topic, "x")
        producer.commit()
        assert producer.describe().producer_epoch == producer.epoch == 0


def test_an_abort_without_a_transaction_gives_a_new_epoch_only_with_version_2(txn: Make) -> None:
    old, new = txn(1), txn()
    assert old.end(commit=False) == STATE
    assert new.end(commit=True) == STATE
    new.abort()
    assert new.epoch == 1
    new.wait_for_state("CompleteAbort")
    assert new.end(commit=True) == STATE
    new.abort()
    assert new.epoch == 2


@both_versions
def test_a_new_claim_fences_the_old_producer(connection: Connection, topic: str, txn: Make, version: int) -> None:
    old = txn(version)
    old.write(topic, "lost")
    new = txn(version, name=old.id)
    assert new.epoch > old.epoch
    assert new.producer_id == old.producer_id
    assert old.end(commit=True) == FENCED
    assert old.add(topic, 1) == [FENCED]
    assert old.add(topic, 1, version=1) == [EPOCH]
    assert old.add_offsets("g") == FENCED
    assert old.add_offsets("g", version=1) == EPOCH
    assert old.end(commit=True, version=1) == EPOCH
    assert old.produce(topic, "late") == EPOCH
    wait_until_stable(connection, topic)
    assert read(connection, topic) == []
    new.write(topic, "kept")
    new.commit()
    wait_until_stable(connection, topic)
    assert read(connection, topic) == ["kept"]


def test_a_claim_while_a_transaction_is_open_is_asked_to_come_again(topic: str, txn: Make) -> None:
    old = txn()
    old.write(topic, "x")
    new = Txn(old.connection, old.id)
    assert new.init() == CONCURRENT
    assert not wait_out(new.init, CONCURRENT)
    assert new.epoch == old.epoch + 2  # one fenced the old producer, one is the new one's


def test_a_producer_that_says_who_it_is_keeps_its_id(txn: Make) -> None:
    """KIP-360: it recovers from an error, and an answer that was lost is given again."""
    producer = txn()
    first = (producer.producer_id, producer.epoch)
    assert producer.init(first) == NONE
    assert (producer.producer_id, producer.epoch) == (first[0], first[1] + 1)
    assert producer.init(first) == NONE
    assert (producer.producer_id, producer.epoch) == (first[0], first[1] + 1)
    assert producer.init((producer.producer_id, producer.epoch)) == NONE
    assert producer.epoch == first[1] + 2
    assert producer.init(first) == FENCED
    assert producer.init(first, version=3) == EPOCH
    assert producer.init((producer.producer_id + 1, 0)) == FENCED


@pytest.mark.parametrize(
    ("expected", "timeout_ms", "code"),
    [
        ((-1, -1), 0, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ((-1, -1), -1, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ((-1, -1), 900_001, ErrorCode.INVALID_TRANSACTION_TIMEOUT),
        ((-1, -1), 900_000, NONE),
        ((5, -1), 60_000, ErrorCode.INVALID_REQUEST),
        ((-1, 5), 60_000, ErrorCode.INVALID_REQUEST),
        ((5, 5), 60_000, NONE),  # an id that nobody knows: it recovers from being forgotten
    ],
)
def test_claims_are_checked(
    txn: Make, unique: Callable[[str], str], expected: tuple[int, int], timeout_ms: int, code: ErrorCode
) -> None:
    ready = txn()
    producer = Txn(ready.connection, unique("checked"), timeout_ms=timeout_ms)
    assert wait_out(lambda: producer.init(expected), *NOT_READY) == code


def test_an_empty_transactional_id_is_refused(connection: Connection, topic: str, txn: Make) -> None:
    txn()
    nobody = Txn(connection, "")
    assert nobody.init() == ErrorCode.INVALID_REQUEST
    assert nobody.end(commit=True) == ErrorCode.INVALID_REQUEST
    assert nobody.add(topic, 0) == [ErrorCode.INVALID_REQUEST]


def test_an_unknown_producer_has_no_transaction(connection: Connection, topic: str, txn: Make) -> None:
    known = txn()
    stranger = Txn(connection, known.id)
    stranger.producer_id, stranger.epoch = known.producer_id + 1000, 0
    assert stranger.end(commit=True) == MAPPING
    assert stranger.end(commit=True, version=4) == MAPPING
    assert stranger.add(topic, 0) == [MAPPING]
    assert stranger.add_offsets("g") == MAPPING
    assert stranger.produce(topic, "x") == MAPPING
    unknown = Txn(connection, known.id + "-unknown")
    assert unknown.add(topic, 0) in ([MAPPING], [ErrorCode.NOT_COORDINATOR])


# ---- what belongs to a transaction ----


@pytest.mark.parametrize(("version", "code"), [(9, STATE), (10, STATE), (11, ABORTABLE)])
def test_a_write_of_an_old_client_outside_of_its_transaction_is_refused(
    connection: Connection, topic: str, txn: Make, version: int, code: ErrorCode
) -> None:
    producer = txn(1)
    assert producer.produce(topic, "x", version=version) == code
    producer.write(topic, "y")
    assert producer.produce(topic, "z", partition=1, version=version) == code
    assert latest(connection, topic, 1, committed=False) == 0
    producer.commit()


def test_with_the_old_rules_a_late_write_does_not_begin_a_transaction_that_never_ends(
    connection: Connection, topic: str, txn: Make
) -> None:
    producer = txn(1)
    producer.write(topic, "x")
    producer.commit()
    wait_until_stable(connection, topic)
    code = wait_out(lambda: producer.produce(topic, "late"), ErrorCode.NOT_ENOUGH_REPLICAS)
    assert code == ABORTABLE
    assert latest(connection, topic) == latest(connection, topic, committed=False) == 2


def test_with_version_2_a_late_write_has_an_old_epoch(connection: Connection, topic: str, txn: Make) -> None:
    producer = txn()
    producer.write(topic, "x")
    old_epoch = producer.epoch
    producer.commit()
    wait_until_stable(connection, topic)
    assert producer.produce(topic, "late", epoch=old_epoch, sequence=1) == EPOCH
    assert latest(connection, topic) == latest(connection, topic, committed=False) == 2


def test_verification_tells_which_partitions_are_in_the_transaction(topic: str, txn: Make) -> None:
    producer = txn(1)
    assert producer.add_as_broker(topic, 0, verify=True) == [ABORTABLE]
    assert producer.add(topic, 0) == [NONE]
    assert producer.add_as_broker(topic, 0, 1, verify=True) == [NONE, ABORTABLE]
    assert producer.add_as_broker(topic, 0, 1, verify=True, version=4) == [NONE, ABORTABLE]
    assert producer.add_as_broker(topic, 1, verify=False) == [NONE]
    assert producer.add_as_broker(topic, 0, 1, verify=True) == [NONE, NONE]
    producer.epoch += 1
    assert producer.add_as_broker(topic, 0, verify=True) == [FENCED]
    producer.producer_id += 1000
    assert producer.add_as_broker(topic, 0, verify=True) == [MAPPING]


def test_an_unknown_partition_keeps_the_others_out_too(topic: str, txn: Make) -> None:
    producer = txn(1)
    assert producer.add(topic, 0, 7) == [ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert producer.describe().transaction_state == "Empty"


def test_a_producer_with_an_open_transaction_writes_within_it(topic: str, txn: Make) -> None:
    producer = txn()
    producer.write(topic, "x")
    assert producer.produce(topic, "y", sequence=1, transactional=False) == STATE
    assert producer.produce(topic, "y", sequence=5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.produce(topic, "x", sequence=0) == NONE  # sent again
    producer.commit()


def test_with_version_2_a_producer_begins_with_sequence_number_0(topic: str, txn: Make) -> None:
    producer = txn()
    assert producer.produce(topic, "x", sequence=3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    old = txn(1)
    assert old.add(topic, 0) == [NONE]
    assert old.produce(topic, "x", sequence=3) == NONE
    old.abort()


# ---- the late end ----


def test_with_the_old_rules_a_late_end_hits_the_next_transaction(connection: Connection, topic: str, txn: Make) -> None:
    """The hole that Jepsen found: nothing ties an EndTxn of version 4 to its transaction."""
    producer = txn(1)
    producer.write(topic, "first")
    producer.commit()
    producer.wait_for_state("CompleteCommit")
    producer.write(topic, "second, half")
    assert producer.end(commit=True, version=4) == NONE  # the one above, sent again and delayed
    wait_until_stable(connection, topic)
    assert read(connection, topic) == ["first", "second, half"]


def test_with_version_2_a_late_end_is_refused(connection: Connection, topic: str, txn: Make) -> None:
    producer = txn()
    producer.write(topic, "first")
    epoch = producer.epoch
    producer.commit()
    late = Txn(connection, producer.id)
    late.producer_id = producer.producer_id
    producer.wait_for_state("CompleteCommit")
    assert late.end(commit=True, epoch=epoch) == NONE  # sent again: it has been done
    assert late.epoch == producer.epoch
    assert late.end(commit=False, epoch=epoch) == STATE
    producer.write(topic, "second, half")
    assert late.end(commit=True, epoch=epoch) == FENCED
    assert late.end(commit=False, epoch=epoch) == FENCED
    assert producer.describe().transaction_state == "Ongoing"
    producer.abort()
    wait_until_stable(connection, topic)
    assert read(connection, topic) == ["first"]


@both_versions
def test_an_end_that_is_sent_again_gets_the_same_answer(topic: str, txn: Make, version: int) -> None:
    producer = txn(version)
    producer.write(topic, "x")
    epoch = producer.epoch
    assert producer.end(commit=True) == NONE
    assert wait_out(lambda: producer.end(commit=True, epoch=epoch), CONCURRENT) == NONE
    producer.wait_for_state("CompleteCommit")
    assert producer.end(commit=False, epoch=epoch) == STATE


# ---- time ----


@both_versions
def test_a_transaction_that_takes_too_long_is_aborted(
    connection: Connection, topic: str, txn: Make, version: int
) -> None:
    producer = txn(version, timeout_ms=300)
    producer.write(topic, "x")
    state = producer.wait_for_state("CompleteAbort")
    assert state.producer_epoch == producer.epoch + 1
    assert producer.end(commit=True, version=4) == FENCED
    wait_until_stable(connection, topic)
    assert read(connection, topic) == []
    assert producer.produce(topic, "late", sequence=1) == EPOCH


def test_with_version_2_the_end_of_a_transaction_that_timed_out_is_told_from_a_lost_answer(
    topic: str, txn: Make
) -> None:
    producer = txn(timeout_ms=300)
    producer.write(topic, "x")
    producer.wait_for_state("CompleteAbort")
    assert producer.end(commit=True) == STATE


def test_a_reader_of_what_is_committed_waits_for_the_end(
    system: System, connection: Connection, topic: str, txn: Make
) -> None:
    """A fetch that is parked hears of the marker."""
    producer = txn()
    producer.write(topic, "x")
    answers = []

    def fetch() -> None:
        with system.connect() as other:
            wanted = FetchTopic(topic, partitions=[FetchPartition(0, fetch_offset=0, partition_max_bytes=1 << 20)])
            answers.append(
                other.call(FetchRequest(max_wait_ms=20_000, min_bytes=1, isolation_level=1, topics=[wanted]), 11)
            )

    reader = threading.Thread(target=fetch)
    begun = time.monotonic()
    reader.start()
    reader.join(0.3)
    assert reader.is_alive()
    producer.commit()
    reader.join(15)
    assert not reader.is_alive()
    assert time.monotonic() - begun < 15
    assert answers[0].responses[0].partitions[0].records


# ---- offsets ----


def offsets_ready(producer: Txn, group: str) -> None:
    find_coordinator(producer.connection, group, GROUPS)
    wait_out(lambda: committed_offset(producer.connection, group, "none")[0], *NOT_READY)


@both_versions
@pytest.mark.parametrize("commit", [True, False])
def test_offsets_wait_for_the_end_of_their_transaction(
    connection: Connection, topic: str, txn: Make, unique: Callable[[str], str], version: int, commit: bool
) -> None:
    group = unique("txn-group")
    producer = txn(version)
    offsets_ready(producer, group)
    if version < 2:
        assert producer.commit_offset(group, topic, 7) == ABORTABLE
        assert producer.commit_offset(group, topic, 7, version=3) == STATE
        assert wait_out(lambda: producer.add_offsets(group), CONCURRENT) == NONE
    assert wait_out(lambda: producer.commit_offset(group, topic, 7), CONCURRENT) == NONE
    assert committed_offset(connection, group, topic) == (NONE, -1)
    assert committed_offset(connection, group, topic, stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    producer.commit() if commit else producer.abort()
    expected = (NONE, 7 if commit else -1)
    wait_until(lambda: committed_offset(connection, group, topic, stable=True), lambda found: found == expected)
    assert committed_offset(connection, group, topic) == expected


def test_offsets_of_a_stranger_are_refused(topic: str, txn: Make, unique: Callable[[str], str]) -> None:
    group = unique("txn-group")
    producer = txn()
    offsets_ready(producer, group)
    assert producer.commit_offset(group, topic, 1, generation_id=3, member_id="m") == ErrorCode.ILLEGAL_GENERATION
    assert producer.commit_offset(group, "unknown-topic", 1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.commit_offset("", topic, 1) == ErrorCode.INVALID_GROUP_ID
    producer.epoch += 1
    assert producer.commit_offset(group, topic, 1) == EPOCH


def test_deleting_an_offset_takes_what_is_pending_too(
    connection: Connection, topic: str, txn: Make, unique: Callable[[str], str]
) -> None:
    group = unique("txn-group")
    producer = txn()
    offsets_ready(producer, group)
    assert producer.commit_offset(group, topic, 7) == NONE
    wanted = OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(0)])
    response = connection.call(OffsetDeleteRequest(group, [wanted]))
    assert (response.error_code, response.topics[0].partitions[0].error_code) == (0, 0)
    assert committed_offset(connection, group, topic, stable=True) == (NONE, -1)
    producer.commit()
    producer.wait_for_state("CompleteCommit")
    assert committed_offset(connection, group, topic, stable=True) == (NONE, -1)


# ---- looking, and the administrator's way out ----


def test_transactions_are_described_and_listed(connection: Connection, topic: str, txn: Make) -> None:
    before = int(time.time() * 1000)
    producer = txn(timeout_ms=45_000)
    producer.write(topic, "x")
    producer.write(topic, "y", partition=1)
    state = producer.describe()
    assert (state.error_code, state.transaction_state, state.transaction_timeout_ms) == (0, "Ongoing", 45_000)
    assert (state.producer_id, state.producer_epoch) == (producer.producer_id, 0)
    assert state.transaction_start_time_ms >= before - 1000
    assert [(found.topic, sorted(found.partitions)) for found in state.topics] == [(topic, [0, 1])]
    response = connection.call(DescribeTransactionsRequest(["unheard-of", ""]))
    codes = [ErrorCode(found.error_code) for found in response.transaction_states]
    assert codes == [ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, ErrorCode.INVALID_REQUEST]

    def listed(**filters: Any) -> dict[str, str]:
        found = connection.call(ListTransactionsRequest(**filters))
        assert found.error_code == 0
        return {entry.transactional_id: entry.transaction_state for entry in found.transaction_states}

    assert listed()[producer.id] == "Ongoing"
    assert producer.id in listed(state_filters=["Ongoing", "Empty"])
    assert producer.id not in listed(state_filters=["Empty"])
    assert listed(producer_id_filters=[producer.producer_id]) == {producer.id: "Ongoing"}
    assert producer.id not in listed(duration_filter=3_600_000)
    assert producer.id in listed(duration_filter=0)
    assert listed(transactional_id_pattern=f"{producer.id[:-1]}.").get(producer.id) == "Ongoing"
    assert listed(transactional_id_pattern=producer.id[1:]) == {}
    bad = connection.call(ListTransactionsRequest(transactional_id_pattern="(("))
    assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    unknown = connection.call(ListTransactionsRequest(["Ongoing", "Dreaming"]))
    assert unknown.unknown_state_filters == ["Dreaming"]
    producer.abort()


def test_producers_are_described(connection: Connection, topic: str, txn: Make) -> None:
    producer = txn()
    producer.write(topic, "a", "b")
    found = producers_of(connection, topic)[producer.producer_id]
    assert (found.producer_epoch, found.last_sequence, found.current_txn_start_offset) == (0, 1, 0)
    assert found.coordinator_epoch == -1
    producer.commit()
    wait_until_stable(connection, topic)
    found = producers_of(connection, topic)[producer.producer_id]
    assert (found.producer_epoch, found.current_txn_start_offset) == (1, -1)
    assert found.coordinator_epoch >= 0


def test_an_administrator_can_end_what_hangs(connection: Connection, topic: str, txn: Make) -> None:
    producer = txn(1)
    producer.write(topic, "x")
    response = connection.call(
        WriteTxnMarkersRequest(
            [
                WritableTxnMarker(
                    producer.producer_id,
                    producer.epoch,
                    False,
                    [WritableTxnMarkerTopic(topic, [0]), WritableTxnMarkerTopic("unheard-of", [0])],
                    0,
                )
            ]
        ),
        1,
    )
    (marker,) = response.markers
    codes = {found.name: found.partitions[0].error_code for found in marker.topics}
    assert codes == {topic: 0, "unheard-of": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    wait_until_stable(connection, topic)
    assert read(connection, topic) == []
    producer.commit()


def test_a_marker_with_an_old_epoch_is_refused(connection: Connection, topic: str, txn: Make) -> None:
    producer = txn()
    producer.write(topic, "x")
    producer.commit()
    wait_until_stable(connection, topic)
    producer.write(topic, "y")

    def write(epoch: int, version: int, transaction_version: int = 0, coordinator_epoch: int = 1000) -> ErrorCode:
        wanted = WritableTxnMarker(
            producer.producer_id,
            epoch,
            False,
            [WritableTxnMarkerTopic(topic, [0])],
            coordinator_epoch,
            transaction_version,
        )
        (marker,) = connection.call(WriteTxnMarkersRequest([wanted]), version).markers
        return ErrorCode(marker.topics[0].partitions[0].error_code)

    assert write(0, 1) == EPOCH
    assert write(1, 2, transaction_version=2) == EPOCH  # it would be the marker of the transaction before, sent again
    assert write(1, 2, coordinator_epoch=-1) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert read(connection, topic) == ["x"]
    producer.abort()


# ---- what survives ----


@both_versions
def test_an_open_transaction_survives_a_restart(
    system: System, topic: str, unique: Callable[[str], str], version: int
) -> None:
    with system.connect() as connection:
        producer = Txn(connection, unique("txn"), version=version).claim()
        producer.write(topic, "before")
    system.restart()
    with system.connect() as connection:
        producer.connection = connection
        wait_out(lambda: ErrorCode(producer.describe().error_code), *NOT_READY)
        assert producer.describe().transaction_state == "Ongoing"
        assert read(connection, topic) == []
        producer.write(topic, "after")
        producer.commit()
        wait_until_stable(connection, topic)
        assert read(connection, topic) == ["before", "after"]


def test_an_idempotent_producer_needs_no_transactional_id(connection: Connection) -> None:
    response = wait_until(
        lambda: connection.call(InitProducerIdRequest(None, 0)), lambda found: found.error_code not in NOT_READY
    )
    assert (response.error_code, response.producer_epoch) == (0, 0)
