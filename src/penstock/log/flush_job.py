"""A sync of one log, to be run in a thread."""

from __future__ import annotations

import os
from dataclasses import dataclass

from penstock.log.segment import Segment
from penstock.log.storage import Storage


@dataclass(frozen=True)
class FlushJob:
    """What has to be synced so that everything below `end_offset` is durable. `run` may be called in a thread."""

    end_offset: int
    _storage: Storage
    _directory: str
    _inactive: tuple[Segment, ...]
    _active: Segment
    _small_files: tuple[str, ...]
    _has_new_names: bool
    truncations: int
    _failure: OSError | None  # what is not written cannot be synced

    def run(self) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            self._sync()
        except FileNotFoundError:
            if self._storage.exists(self._directory):
                raise
            # The log was deleted meanwhile: there is nothing left that must last.

    def _sync(self) -> None:
        for segment in self._inactive:
            segment.sync_files(with_indexes=True)
        for path in self._small_files:
            self._storage.sync_path(path)
        self._active.sync_files(with_indexes=False)
        if self._has_new_names:
            self._storage.sync_directory(self._directory)
            self._storage.sync_directory(os.path.dirname(self._directory))
