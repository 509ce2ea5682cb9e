"""Spark as processes that can be killed: a driver, and a cluster of a master and workers.

Each is started in a session of its own, and whatever it starts stays in that session, even when its parent is dead: so
all of it is found, and nothing else.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyspark

from tests.support.maven import ROOT
from tests.support.systems import free_port

EXECUTOR = "CoarseGrainedExecutorBackend"
_GATEWAY = "org.apache.spark.deploy.SparkSubmit"  # the driver's JVM
_READY_S = 60.0


class Processes:
    """A process and all that came of it."""

    def __init__(self, command: list[str], log: Path, **environment: str) -> None:
        self._log = log
        with open(log, "ab") as output:
            self._process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, **environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def pids(self, name: str) -> list[int]:
        """Those whose command line has a name in it."""
        return [pid for pid in _session(self._process.pid) if name in _command_line(pid)]

    def kill(self, name: str) -> None:
        """Kill the process itself, and those of its descendants with a name; others are left alone."""
        for pid in (self._process.pid, *self.pids(name)):
            kill(pid)
        self._process.wait()

    def wait(self, timeout_s: float) -> int:
        """Its exit code, when it has ended."""
        return self._process.wait(timeout_s)

    def end(self) -> None:
        """Nothing is left of it."""
        while left := _session(self._process.pid):
            for pid in left:
                kill(pid)
            self._process.poll()
            time.sleep(0.05)
        self._process.wait()


def kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it has ended meanwhile


def _session(leader: int) -> list[int]:
    """The processes of a session that have not ended."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            state, _, _, session = (folder / "stat").read_text().rsplit(")", 1)[1].split()[:4]
        except OSError:
            continue  # it has ended meanwhile
        if int(session) == leader and state != "Z":
            found.append(int(folder.name))
    return found


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""  # it has ended meanwhile


class Driver:
    """A job's driver, started again when it was killed. What it leaves behind goes on as long as it likes."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command = command
        self._log = log
        self._runs: list[Processes] = []
        self.start()

    @property
    def starts(self) -> int:
        return len(self._runs)

    @property
    def is_alive(self) -> bool:
        return self._runs[-1].is_alive

    @property
    def log(self) -> str:
        return self._runs[-1].log

    def start(self) -> None:
        self._runs.append(Processes(self._command, self._log.with_suffix(f".{len(self._runs)}.log")))

    def executors(self) -> list[int]:
        return self._runs[-1].pids(EXECUTOR)

    def kill(self) -> None:
        self._runs[-1].kill(_GATEWAY)

    def end(self) -> None:
        for run in self._runs:
            run.end()


class StandaloneCluster:
    """A master and two workers, each with one core."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        spark_class = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
        self.url = f"spark://127.0.0.1:{free_port()}"
        self._master = Processes(
            [spark_class, "org.apache.spark.deploy.master.Master", *self._address(), "--webui-port", "0"],
            folder / "master.log",
            SPARK_MASTER_OPTS="-Dspark.deploy.maxExecutorRetries=-1",
        )
        worker = [spark_class, "org.apache.spark.deploy.worker.Worker", "--cores", "1", "--memory", "1g"]
        worker += ["--host", "127.0.0.1", "--webui-port", "0", self.url]
        self._workers = [
            Processes([*worker, "--work-dir", str(folder / f"worker-{n}")], folder / f"worker-{n}.log")
            for n in range(2)
        ]
        _wait_until(lambda: len(re.findall("Registering worker", self._master.log)) == 2, self._master)

    def _address(self) -> list[str]:
        host, port = self.url.removeprefix("spark://").split(":")
        return ["--host", host, "--port", port]

    def executors(self) -> list[int]:
        return [pid for worker in self._workers for pid in worker.pids(EXECUTOR)]

    def end(self) -> None:
        for processes in (*self._workers, self._master):
            processes.end()


def _wait_until(is_true: Callable[[], bool], processes: Processes) -> None:
    deadline = time.monotonic() + _READY_S
    while not is_true():
        assert processes.is_alive, processes.log[-4000:]
        assert time.monotonic() < deadline, processes.log[-4000:]
        time.sleep(0.1)
