"""Which applications run on this machine: a small file in the folder of each, locked by the process that runs it.

The lock ends with the process, however it ends. So a file that nobody has locked is a leftover, and an application
cannot be started twice with one folder.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType

from penstock.client.errors import ConfigurationError

FILE = "running.json"
_ATTEMPTS = 20  # to read what is just being written
_PAUSE_S = 0.05


@dataclass(frozen=True)
class Running:
    """A process that runs an application. `http` is where its stores answer, as host:port."""

    application: str
    pid: int
    bootstrap: str
    started_at: int
    http: str | None = None


class Presence:
    """The file of this process, from `claim` until `release`."""

    def __init__(self, path: Path, file: int, running: Running) -> None:
        self._path = path
        self._file = file
        self._running = running

    @classmethod
    def claim(cls, folder: Path, application: str, bootstrap: str) -> Presence:
        """Say that this process runs the application. Refused if another does."""
        folder.mkdir(parents=True, exist_ok=True)
        file = _locked(folder / FILE)
        if file is None:
            other = running_in(folder)
            who = f"as process {other.pid}" if other is not None else "already"
            raise ConfigurationError(
                f"application {application} runs {who} with {folder}: stop it with 'penstock stream stop "
                f"{application}', or give this one another state_dir and another id"
            )
        made = cls(folder / FILE, file, Running(application, os.getpid(), bootstrap, time.time_ns() // 1_000_000))
        made._write()
        return made

    def __enter__(self) -> Presence:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()

    def tell_http(self, address: str | None) -> None:
        """Say where stores answer."""
        self._running = replace(self._running, http=address)
        self._write()

    def release(self) -> None:
        """The application runs no longer."""
        self._path.unlink(missing_ok=True)
        os.close(self._file)

    def _write(self) -> None:
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps(asdict(self._running)).encode(), 0)


def running_in(folder: Path) -> Running | None:
    """Who runs the application of a folder; None if nobody does."""
    for _ in range(_ATTEMPTS):
        try:
            file = os.open(folder / FILE, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return None
        except BlockingIOError:
            with suppress(ValueError):
                return Running(**json.loads(os.read(file, 65536)))
        finally:
            os.close(file)
        time.sleep(_PAUSE_S)
    return None


def _locked(path: Path) -> int | None:
    """The file, locked; None if somebody else has locked it."""
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            return None
        with suppress(FileNotFoundError):
            if os.stat(path).st_ino == os.fstat(file).st_ino:
                return file
        os.close(file)  # it was released, and so deleted, meanwhile
