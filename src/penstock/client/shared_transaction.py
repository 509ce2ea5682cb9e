"""One Kafka transaction, step by step, over a bare `Cluster`: for a writer whose parts are spread over many processes.

The one who decides (Spark's driver) has this object. Those who write (its tasks) get `identity`, and send batches with
it. It is plain protocol: InitProducerId, AddPartitionsToTxn, TxnOffsetCommit, EndTxn, in versions that every broker
since Kafka 2.5 knows. Every `begin` has a new epoch, so whatever an earlier transaction of this id still sends is
refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from penstock.client.cluster import Cluster, check
from penstock.client.partitions import TopicPartition
from penstock.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from penstock.wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from penstock.wire.messages.end_txn import EndTxnRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.offset_fetch import OffsetFetchRequest
from penstock.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

T = TypeVar("T")

# The newest versions in which clients add partitions themselves, and epochs do not change at the end.
_ADD_PARTITIONS_VERSION = 3
_ADD_OFFSETS_VERSION = 3
_COMMIT_OFFSETS_VERSION = 3
_END_VERSION = 3
_FETCH_OFFSETS_VERSION = 7  # the newest for one group


@dataclass(frozen=True)
class Identity:
    """Who writes: what a batch of the transaction carries."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


class Committed(NamedTuple):
    """An offset that a group has committed."""

    offset: int
    metadata: str


class SharedTransaction:
    """The transactions of one transactional id, one after the other."""

    def __init__(self, cluster: Cluster, transactional_id: str, timeout_ms: int = 60_000) -> None:
        self._cluster = cluster
        self._id = transactional_id
        self._timeout_ms = timeout_ms
        self._identity: Identity | None = None

    @property
    def identity(self) -> Identity:
        assert self._identity is not None, "begin comes first"
        return self._identity

    def begin(self) -> Identity:
        """Begin a transaction. One that was left open is aborted; one that was decided is brought to its end."""
        request = InitProducerIdRequest(transactional_id=self._id, transaction_timeout_ms=self._timeout_ms)
        response = self._ask("begin a transaction", request, None, lambda answer: [answer.error_code])
        self._identity = Identity(self._id, response.producer_id, response.producer_epoch)
        return self._identity

    def add(self, partitions: Iterable[TopicPartition]) -> None:
        """Make partitions part of the transaction, before anybody writes to them."""
        topics: dict[str, AddPartitionsToTxnTopic] = {}
        for topic, partition in partitions:
            topics.setdefault(topic, AddPartitionsToTxnTopic(name=topic)).partitions.append(partition)
        if not topics:
            return
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self.identity.producer_id,
            v3_and_below_producer_epoch=self.identity.producer_epoch,
            v3_and_below_topics=list(topics.values()),
        )
        self._ask("add partitions to a transaction", request, _ADD_PARTITIONS_VERSION, _codes_by_topic)

    def add_offsets(self, group: str, offsets: Mapping[TopicPartition, Committed]) -> None:
        """Commit offsets of a group with the transaction."""
        if not offsets:
            return
        identity = self.identity
        request = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            group_id=group,
        )
        what = f"commit offsets of group {group} in a transaction"
        self._ask(what, request, _ADD_OFFSETS_VERSION, lambda answer: [answer.error_code])
        commit = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=group,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            topics=_offsets_by_topic(offsets),
        )

        def attempt() -> None:
            answer = self._cluster.coordinator(group).call(commit, _COMMIT_OFFSETS_VERSION)
            for topic in answer.topics:
                for partition in topic.partitions:
                    check(partition.error_code, what)

        self._cluster.retrying(what, attempt)

    def committed(self, group: str) -> dict[TopicPartition, Committed]:
        """What a group has committed; waits for transactions that are about to decide it."""
        request = OffsetFetchRequest(group_id=group, topics=None, require_stable=True)

        def attempt() -> dict[TopicPartition, Committed]:
            answer = self._cluster.coordinator(group).call(request, _FETCH_OFFSETS_VERSION)
            check(answer.error_code, f"fetch the offsets of group {group}")
            found = {}
            for topic in answer.topics:
                for one in topic.partitions:
                    check(one.error_code, f"fetch the offsets of group {group}")
                    place = TopicPartition(topic.name, one.partition_index)
                    found[place] = Committed(one.committed_offset, one.metadata or "")
            return found

        return self._cluster.retrying(f"fetch the offsets of group {group}", attempt)

    def commit(self) -> None:
        self._end(is_commit=True)

    def abort(self) -> None:
        self._end(is_commit=False)

    def _end(self, *, is_commit: bool) -> None:
        identity = self.identity
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=identity.producer_id,
            producer_epoch=identity.producer_epoch,
            committed=is_commit,
        )
        what = f"{'commit' if is_commit else 'abort'} a transaction"
        self._ask(what, request, _END_VERSION, lambda answer: [answer.error_code])

    def _ask(self, what: str, request: Any, cap: int | None, codes_of: Callable[[Any], Iterable[int]]) -> Any:
        """Ask the coordinator until it knows an answer."""

        def attempt() -> Any:
            answer = self._cluster.coordinator(self._id, is_transaction=True).call(request, cap)
            for code in codes_of(answer):
                check(code, f"{what} of {self._id}")
            return answer

        return self._cluster.retrying(f"{what} of {self._id}", attempt)


def _codes_by_topic(answer: Any) -> Iterable[int]:
    for topic in answer.results_by_topic_v3_and_below:
        for partition in topic.results_by_partition:
            yield partition.partition_error_code


def _offsets_by_topic(offsets: Mapping[TopicPartition, Committed]) -> list[TxnOffsetCommitRequestTopic]:
    topics: dict[str, TxnOffsetCommitRequestTopic] = {}
    for (topic, partition), committed in offsets.items():
        topics.setdefault(topic, TxnOffsetCommitRequestTopic(name=topic)).partitions.append(
            TxnOffsetCommitRequestPartition(
                partition_index=partition, committed_offset=committed.offset, committed_metadata=committed.metadata
            )
        )
    return list(topics.values())
