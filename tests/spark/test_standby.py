"""The process that sources of streaming queries are forked from, with the test in the place of Spark."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.spark import session, standby

_TASK_PYTHON = Path(session.__code__.co_filename).with_name("task_python")
_RUNNER = "pyspark.sql.streaming.python_streaming_source_runner"
_PATIENCE_S = 30.0


@pytest.fixture
def on_standby(monkeypatch: pytest.MonkeyPatch) -> Iterator[subprocess.Popen[bytes]]:
    monkeypatch.setenv("PENSTOCK_PYTHON", sys.executable)
    monkeypatch.setenv("PENSTOCK_STANDBY", "")
    process = standby.start.__wrapped__(sys.executable)
    _wait_until(lambda: Path(os.environ["PENSTOCK_STANDBY"]).exists())
    yield process
    process.communicate()
    assert not Path(os.environ["PENSTOCK_STANDBY"]).parent.exists(), "nothing is left of it"


@dataclass
class Source:
    """What Spark knows of the process of a source: what it has started, a pid, and a connection."""

    started: subprocess.Popen[bytes]
    pid: int
    connection: socket.socket

    @property
    def parent(self) -> int:
        return int(Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[1])

    @property
    def is_alive(self) -> bool:
        return Path(f"/proc/{self.pid}").exists()


@pytest.fixture
def begin() -> Iterator[Callable[[], Source]]:
    """Start a source as Spark does: with an address in its environment, to which it connects."""
    sources: list[Source] = []

    def begun() -> Source:
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
            listener.settimeout(_PATIENCE_S)
            listener.bind(f"{folder}/spark")
            listener.listen()
            environment = {**os.environ, "PYTHON_UNIX_DOMAIN_ENABLED": "True"}
            environment["PYTHON_WORKER_FACTORY_SOCK_PATH"] = f"{folder}/spark"
            started = subprocess.Popen([str(_TASK_PYTHON), "-m", _RUNNER], env=environment)
            connection, _ = listener.accept()
        (pid,) = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))
        sources.append(Source(started, pid, connection))
        return sources[-1]

    yield begun
    for source in sources:
        source.connection.close()
        source.started.kill()
        source.started.wait()


def _wait_until(is_true: Callable[[], Any]) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_sources_are_forked(on_standby: subprocess.Popen[bytes], begin: Callable[[], Source]) -> None:
    sources = [begin() for _ in range(3)]
    assert [source.parent for source in sources] == [on_standby.pid] * 3
    assert len({source.pid for source in sources}) == 3


def test_a_source_ends_when_what_spark_started_is_killed(
    on_standby: subprocess.Popen[bytes], begin: Callable[[], Source]
) -> None:
    killed, other = begin(), begin()
    killed.started.terminate()
    _wait_until(lambda: not killed.is_alive)
    assert other.is_alive


def test_what_spark_started_ends_with_the_source(
    on_standby: subprocess.Popen[bytes], begin: Callable[[], Source]
) -> None:
    source = begin()
    source.connection.close()  # as when the JVM has ended
    source.started.wait(_PATIENCE_S)
    assert not source.is_alive


def test_without_a_process_on_standby_a_source_is_an_interpreter_of_its_own(
    on_standby: subprocess.Popen[bytes], begin: Callable[[], Source]
) -> None:
    on_standby.send_signal(signal.SIGKILL)
    on_standby.wait()
    source = begin()
    assert source.pid == source.started.pid
    Path(os.environ["PENSTOCK_STANDBY"]).unlink()
    Path(os.environ["PENSTOCK_STANDBY"]).parent.rmdir()


def test_ctrl_c_is_not_for_the_process_on_standby(
    on_standby: subprocess.Popen[bytes], begin: Callable[[], Source]
) -> None:
    on_standby.send_signal(signal.SIGINT)
    assert begin().parent == on_standby.pid
