"""Transactions, as compaction comes across them: what of them can go, and when. Pure (Kafka's
CleanedTransactionMetadata)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.log.txn_index import AbortedTxn
from penstock.wire.record import ControlType


@dataclass
class _Aborted:
    txn: AbortedTxn
    has_records: bool = False  # some of its batches are still in the log


class CleanedTransactions:
    """Follows a log batch by batch, in order.

    The records of aborted transactions can go at once. A marker can go when nothing of its transaction is left before
    it; until then, an aborted transaction stays in the index of its marker's segment.
    """

    def __init__(self, aborted: Iterable[AbortedTxn]) -> None:
        self._to_come = deque(sorted(aborted, key=lambda txn: txn.first_offset))
        self._aborted: dict[int, _Aborted] = {}  # by producer id, as long as they go on
        self._committed: set[int] = set()
        self._retained: list[AbortedTxn] = []

    def is_aborted(self, producer_id: int, last_offset: int) -> bool:
        """Whether a transactional batch belongs to an aborted transaction."""
        self._begin_up_to(last_offset)
        aborted = self._aborted.get(producer_id)
        if aborted is None:
            self._committed.add(producer_id)
            return False
        aborted.has_records = True
        return True

    def is_marker_obsolete(self, producer_id: int, last_offset: int, control_type: int | None) -> bool:
        """Whether nothing is left that a control batch says something about. Type None: it was emptied before."""
        self._begin_up_to(last_offset)
        if control_type is None:
            return True
        if control_type == ControlType.ABORT:
            aborted = self._aborted.pop(producer_id, None)
            if aborted is None or not aborted.has_records:
                return True
            self._retained.append(aborted.txn)
            return False
        if control_type == ControlType.COMMIT:
            had_records = producer_id in self._committed
            self._committed.discard(producer_id)
            return not had_records
        return False

    def take_retained(self) -> list[AbortedTxn]:
        """The aborted transactions whose markers came by since the last call, and that are still needed."""
        retained, self._retained = self._retained, []
        return retained

    def _begin_up_to(self, offset: int) -> None:
        while self._to_come and self._to_come[0].first_offset <= offset:
            txn = self._to_come.popleft()
            self._aborted.setdefault(txn.producer_id, _Aborted(txn))
