"""The transactional ids of one partition of `__transaction_state`: the sum of its records."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.coordination.shards import Entry
from penstock.replica.partition import Partition
from penstock.txn.transaction import TopicPartition, Transaction
from penstock.wire.errors import ApiError, ErrorCode


class TxnShard:
    """What is kept of one partition.

    An id is `pending` while a record of it is appended but not committed: then nothing else may happen to it.
    `unmarked` are the partitions that still wait for the marker of a transaction whose outcome is decided.
    """

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.is_loaded = False
        self.transactions: dict[str, Transaction] = {}
        self.pending: set[str] = set()
        self.unmarked: dict[str, set[TopicPartition]] = {}

    def replay(self, entries: Sequence[Entry]) -> None:
        """Take over what a part of the log says."""
        for entry in entries:
            self.apply(entry.record.transactional_id, entry.record.transaction)

    def apply(self, transactional_id: str, transaction: Transaction | None) -> None:
        if transaction is None:
            self.transactions.pop(transactional_id, None)
        else:
            self.transactions[transactional_id] = transaction

    def finish_loading(self) -> None:
        self.is_loaded = True

    def check_not_pending(self, transactional_id: str) -> None:
        if transactional_id in self.pending:
            raise ApiError(
                ErrorCode.CONCURRENT_TRANSACTIONS, f"transactional id {transactional_id}: a change of it is under way"
            )

    def partitions_of(self, transaction: Transaction) -> frozenset[TopicPartition]:
        """The partitions of a transaction; of one that is being ended, those without a marker."""
        if transaction.state.is_prepared and transaction.transactional_id in self.unmarked:
            return frozenset(self.unmarked[transaction.transactional_id])
        return transaction.partitions
