"""Records that were fetched and wait to be handed over, and how far handing over has come.

A batch is a list, and `waiting` a plain iterator over it. The program takes records from the iterator directly, at the
speed of C; how many it took is known from the iterator's length hint, so nothing needs to be counted per record.
Records that are taken out (their partition was paused, revoked, or sought elsewhere) leave the list in place, so that a
`for` loop that is under way goes on with what is left.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from operator import length_hint
from typing import Any

from penstock.client._records import Record, positions_of

AnyRecord = Record[Any, Any]
Positions = dict[tuple[str, int], int]


class Prefetch:
    def __init__(self) -> None:
        self._returned: list[AnyRecord] = []
        self.load([])

    def load(self, batch: list[AnyRecord]) -> None:
        """Have a new batch wait. The one before must have been handed over."""
        self._batch = batch
        self._settled = 0
        self._sought = 0
        self.waiting: Iterator[AnyRecord] = iter(batch)

    def load_returned(self) -> bool:
        """Have the records wait that were put back; False if there are none."""
        if not self._returned:
            return False
        self.load(self._returned)
        self._returned = []
        return True

    @property
    def handed_over(self) -> int:
        """How many records of the batch the program has taken."""
        return len(self._batch) - length_hint(self.waiting)

    def handed(self) -> list[AnyRecord]:
        """The records of the batch that the program has taken."""
        return self._batch[: self.handed_over]

    def peek(self) -> AnyRecord | None:
        """The record that comes next."""
        index = self.handed_over
        return self._batch[index] if index < len(self._batch) else None

    def settle(self) -> Positions:
        """Positions behind what was handed over since this was last asked."""
        stop = self.handed_over
        start, self._settled = self._settled, stop
        return positions_of(self._batch, start, stop)

    def finished(self) -> Positions:
        """Positions behind all records of the batch but the last one taken, which may not be done with."""
        return positions_of(self._batch, self._sought, max(self.handed_over - 1, self._sought))

    def forget_finished(self) -> None:
        """What was handed over until now no longer tells where the program is: it sought another place."""
        self._sought = self.handed_over

    def take_out(self, partitions: Collection[tuple[str, int]]) -> list[AnyRecord]:
        """Remove the waiting records of some partitions, and return them."""
        index = self.handed_over
        kept: list[AnyRecord] = []
        taken: list[AnyRecord] = []
        for record in self._batch[index:]:
            (taken if (record.topic, record.partition) in partitions else kept).append(record)
        self._batch[index:] = kept
        returned, self._returned = self._returned, []
        for record in returned:
            (taken if (record.topic, record.partition) in partitions else self._returned).append(record)
        return taken

    def put_back(self, records: list[AnyRecord]) -> None:
        """Have records wait that were taken out, before those that wait now."""
        index = self.handed_over
        if index < len(self._batch):
            self._batch[index:index] = records
        else:
            self._returned = records + self._returned
