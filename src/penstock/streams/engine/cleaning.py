"""Deleting records of repartition topics that every query has done with.

A query has done with a record when Spark has committed the batch that it was in: until then a batch may be run again,
even if what it wrote is there already. So it is the checkpoint that says it, not the group. Topics of which a table is
read again after a restart are left alone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from penstock.client.admin import Admin
from penstock.client.errors import PenstockError
from penstock.client.partitions import TopicPartition
from penstock.spark.checkpoints import source_offsets
from penstock.streams.nodes import Lookup
from penstock.streams.pieces import Pieces

logger = logging.getLogger(__name__)

INTERVAL_S = 30.0  # as Kafka Streams has it: repartition.purge.interval.ms

Offsets = Mapping[TopicPartition, int]


def done_with(pieces: Pieces, committed: Callable[[str], Offsets]) -> dict[TopicPartition, int]:
    """Up to where the records of each partition may be deleted. `committed` says how far a query is."""
    found: dict[TopicPartition, int] = {}
    for node, topic in pieces.internal.items():
        readers = [piece for piece in pieces.pieces if node in piece.inputs]
        is_table = any(
            node in pieces.needed_for(table)
            for one in readers
            if isinstance(one.stateful, Lookup)
            for table in one.stateful.tables
        )
        if topic.is_cleaned and readers and not is_table:
            offsets = [committed(piece.name) for piece in readers]
            common = set.intersection(*(set(one) for one in offsets))
            found |= {one: min(read[one] for read in offsets) for one in common if one.topic == topic.name}
    return found


def committed_offsets(folder: Path, query: str) -> dict[TopicPartition, int]:
    """How far a query has read with its last batch that Spark has committed; nothing before its first."""
    batches = [int(one.name) for one in (folder / query / "commits").glob("[0-9]*") if one.name.isdigit()]
    if not batches:
        return {}
    return source_offsets((folder / query / "offsets" / str(max(batches))).read_text(encoding="utf-8"))


class Cleaner:
    """Deletes such records now and then, until it is closed."""

    def __init__(self, pieces: Pieces, folder: Path, bootstrap: str, client_id: str, interval_s: float) -> None:
        self._pieces = pieces
        self._folder = folder
        self._bootstrap = bootstrap
        self._client_id = client_id
        self._interval_s = interval_s
        self._deleted: dict[TopicPartition, int] = {}
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"cleaner-{client_id}", daemon=True)

    def __enter__(self) -> Cleaner:
        if any(topic.is_cleaned for topic in self._pieces.internal.values()):
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._is_closing.set()
        if self._thread.is_alive():
            self._thread.join()

    def clean(self) -> None:
        """Delete what can be deleted now. What goes wrong is tried again the next time."""
        try:
            ends = done_with(self._pieces, lambda query: committed_offsets(self._folder, query))
            new = {one: end for one, end in ends.items() if end > self._deleted.get(one, 0)}
            if new:
                with Admin(self._bootstrap, client_id=self._client_id) as admin:
                    admin.delete_records(new)
                self._deleted |= new
        except (PenstockError, OSError) as error:
            logger.warning("records of repartition topics are kept for now: %s", error)

    def _run(self) -> None:
        while not self._is_closing.wait(self._interval_s):
            self.clean()
