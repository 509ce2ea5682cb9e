"""The aborted transactions of a segment, so that read_committed consumers can leave their records out."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from penstock.log.storage import Storage

_ENTRY = struct.Struct(">hqqqq")
_VERSION = 0


class AbortedTxn(NamedTuple):
    """A transaction of `producer_id` that wrote first at `first_offset` and whose abort marker is at `last_offset`.

    When it ended, everything before `last_stable_offset` was decided.
    """

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


def encode_aborted(txn: AbortedTxn) -> bytes:
    """An entry of the index."""
    return _ENTRY.pack(_VERSION, *txn)


class TxnIndex:
    """Entries of 34 bytes: version, then the fields of AbortedTxn, in the order of their markers.

    Most segments have no aborted transaction and no such file: it is made with the first entry.
    """

    def __init__(self, storage: Storage, path: str) -> None:
        self._storage = storage
        self.path = path
        self._entries: list[AbortedTxn] | None = None

    @property
    def entries(self) -> list[AbortedTxn]:
        if self._entries is None:
            self._entries = list(self._load())
        return self._entries

    def _load(self) -> Iterator[AbortedTxn]:
        try:
            content = self._storage.read(self.path)
        except FileNotFoundError:
            return
        if len(content) % _ENTRY.size:
            raise ValueError(f"{self.path} is corrupt: {len(content)} bytes are no whole number of entries")
        for version, *fields in _ENTRY.iter_unpack(content):
            if version != _VERSION:
                raise ValueError(f"{self.path} is corrupt: entry of version {version}")
            yield AbortedTxn(*fields)

    def append(self, txn: AbortedTxn) -> None:
        entries = self.entries
        if entries and entries[-1].last_offset >= txn.last_offset:
            raise ValueError(f"aborted transaction {txn} does not follow {entries[-1]}")
        file = self._storage.open(self.path, create=True)
        file.write_at(encode_aborted(txn), len(entries) * _ENTRY.size)
        entries.append(txn)

    def collect(self, fetch_offset: int, upper_bound: int) -> tuple[list[AbortedTxn], bool]:
        """The aborted transactions that reach into [fetch_offset, upper_bound), and whether the list is complete.

        It is complete when an entry proves that no later one can start before the upper bound.
        """
        found = []
        for txn in self.entries:
            if txn.last_offset >= fetch_offset and txn.first_offset < upper_bound:
                found.append(txn)
            if txn.last_stable_offset >= upper_bound:
                return found, True
        return found, False

    def truncate(self, offset: int) -> None:
        """Forget the transactions whose markers are at or above `offset`."""
        kept = [txn for txn in self.entries if txn.last_offset < offset]
        if len(kept) < len(self.entries):
            file = self._storage.open(self.path, create=True)
            file.truncate(len(kept) * _ENTRY.size)
            self._entries = kept

    def reset(self) -> None:
        self._storage.remove(self.path)
        self._entries = []

    def sync(self) -> None:
        self._storage.sync_path(self.path)
