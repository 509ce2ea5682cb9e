"""A data folder that a command looks into or repairs while no broker uses it."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.cli.mistakes import Failure, Mistake
from penstock.clock import SystemClock
from penstock.config.topic import TopicConfig
from penstock.log import names
from penstock.log.directory import LOCK, META_PROPERTIES, LogDirectory
from penstock.log.recovery import open_log
from penstock.log.storage import Storage


@dataclass(frozen=True)
class DataFolder:
    """A data folder, and the folders of the partitions that a command is about."""

    path: str
    partitions: tuple[str, ...]

    @classmethod
    def at(cls, path: str) -> DataFolder:
        """The data folder at a path, or the one around it if the path is a partition's."""
        path = os.path.abspath(path)
        if not os.path.isdir(path):
            raise Mistake(f"{path} is no folder")
        if any(name.endswith(names.LOG) for name in os.listdir(path)):
            return cls(os.path.dirname(path), (path,))
        found = [
            os.path.join(path, name)
            for name in sorted(os.listdir(path))
            if names.parse_partition_directory(name) is not None and os.path.isdir(os.path.join(path, name))
        ]
        if not found and not os.path.exists(os.path.join(path, META_PROPERTIES)):
            raise Mistake(f"{path} is no data folder: it has neither {META_PROPERTIES} nor partitions")
        return cls(path, tuple(found))

    @contextmanager
    def opened(self) -> Iterator[LogDirectory]:
        """Locked, as a broker would lock it. If the last shutdown was clean, it still is afterwards."""
        directory = LogDirectory(Storage(), self.path, lambda _: None)
        try:
            directory.open()
            yield directory
            if directory.was_clean:
                directory.mark_clean(directory.broker_epoch)
        finally:
            directory.release()


def is_in_use(path: str) -> bool:
    """Whether a broker holds the folder's lock. Nothing is written."""
    try:
        fd = os.open(os.path.join(path, LOCK), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def repair_partition(directory: LogDirectory, path: str) -> None:
    """Have recovery go through a partition from its beginning, as after a crash."""
    partition = names.parse_partition_directory(os.path.basename(path))
    assert partition is not None

    def fail(error: OSError) -> None:
        raise Failure(f"cannot repair {path}: {error}")

    log = open_log(
        storage=Storage(),
        directory=path,
        config=TopicConfig(),
        clock=SystemClock(),
        is_clean=False,
        start_offset=directory.start_offsets.get(partition, 0),
        recovery_point=0,
        on_failure=fail,
    )
    log.close()
