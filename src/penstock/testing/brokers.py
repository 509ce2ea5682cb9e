"""Brokers that tests start and stop: in a thread of this process, or as a process of their own."""

from __future__ import annotations

import asyncio
import logging
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import uvloop

from penstock.broker.broker import Broker
from penstock.testing.faults import Faults

if TYPE_CHECKING:
    from penstock.clock import Clock
    from penstock.log.storage import Storage

logger = logging.getLogger(__name__)

_START_TIMEOUT_S = 30.0
_STOP_TIMEOUT_S = 30.0

# Tests should not wait for patience that only matters in production, nor for topics that are larger than they need.
_DEFAULTS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "1",
}


def broker(
    *,
    data: str | Path | None = None,
    as_process: bool = False,
    port: int = 0,
    storage: Storage | None = None,
    clock: Clock | None = None,
    **settings: object,
) -> RunningBroker:
    """A broker for tests; use it in a `with` statement, or call `start` and `stop`.

    Settings are the broker's own, with underscores for dots: `broker(auto_create_topics_enable=False)`. Data is kept in
    a temporary folder that goes at the end of the `with` statement (else with this object), or in the folder `data`,
    which stays. The port is a free one unless `port` names it.

    The broker runs in a thread of this process, where `faults` make it misbehave and `storage` and `clock` replace the
    disk and the time; or, with `as_process`, as a child that can also be killed.
    """
    wanted = _DEFAULTS | {name.replace("_", "."): _text(value) for name, value in settings.items()}
    if not as_process:
        return InProcessBroker(wanted, data, port, storage, clock)
    if storage is not None or clock is not None:
        raise ValueError("storage and clock are objects of this process: leave out as_process to use them")
    return ChildBroker(wanted, data, port)


class RunningBroker(ABC):
    """A broker on this machine. It keeps its port and its data when it is stopped and started again."""

    def __init__(self, settings: dict[str, str], data: str | Path | None, port: int) -> None:
        self.settings = settings
        self.port = port
        self._temporary = tempfile.TemporaryDirectory(prefix="penstock-", ignore_cleanup_errors=True)
        self.data = Path(self._temporary.name) if data is None else Path(data)
        """The folder with the broker's data."""

    @property
    def bootstrap(self) -> str:
        """What clients are given: "127.0.0.1:port"."""
        return f"127.0.0.1:{self.port}"

    @property
    @abstractmethod
    def faults(self) -> Faults:
        """How to make it misbehave."""

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self._forget()
            raise

    def __exit__(self, *exc_info: object) -> None:
        try:
            self.stop()
        finally:
            self._forget()

    def start(self) -> Self:
        """Start it, and return when it answers."""
        self._start()
        return self

    def restart(self) -> Self:
        """Stop it in good order and start it again, with its data, on the same port."""
        self.stop()
        return self.start()

    @abstractmethod
    def stop(self) -> None:
        """Have it end in good order; returns when it has. Does nothing to one that does not run."""

    @abstractmethod
    def _start(self) -> None: ...

    def _properties(self) -> dict[str, str]:
        return {
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "log.dirs": str(self.data),
            "node.id": "1",
            **self.settings,
        }

    def _forget(self) -> None:
        self._temporary.cleanup()


class InProcessBroker(RunningBroker):
    """A broker in a thread, with an event loop of its own."""

    def __init__(
        self,
        settings: dict[str, str],
        data: str | Path | None,
        port: int,
        storage: Storage | None,
        clock: Clock | None,
    ) -> None:
        super().__init__(settings, data, port)
        self._parts: dict[str, Any] = {"storage": storage, "clock": clock}
        self._faults = Faults()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None

    @property
    def faults(self) -> Faults:
        return self._faults

    def _start(self) -> None:
        if self._thread is not None:
            raise RuntimeError("this broker runs already")
        self._failure = None
        is_ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(is_ready,), name="penstock-broker", daemon=True)
        self._thread.start()
        if not is_ready.wait(_START_TIMEOUT_S):
            raise TimeoutError(f"the broker was not ready after {_START_TIMEOUT_S:g} s")
        if self._failure is not None:
            self._thread.join()
            self._thread = None
            raise self._failure

    def _run(self, is_ready: threading.Event) -> None:
        try:
            uvloop.run(self._serve(is_ready))
        except BaseException as failure:
            if is_ready.is_set():
                logger.exception("the broker for tests failed")
            self._failure = failure
            is_ready.set()

    async def _serve(self, is_ready: threading.Event) -> None:
        broker = Broker(self._properties(), **self._parts, interceptor=self._faults)
        await broker.start()
        self.port = broker.addresses[0].port
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        is_ready.set()
        await self._end.wait()
        await broker.stop()

    def stop(self) -> None:
        if self._thread is None:
            return
        self._faults.clear()
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(_STOP_TIMEOUT_S)
        if self._thread.is_alive():
            raise TimeoutError(f"the broker did not stop within {_STOP_TIMEOUT_S:g} s")
        self._thread = None
        if self._failure is not None:
            raise self._failure


class ChildBroker(RunningBroker):
    """A broker in a process of its own, started as users start it."""

    def __init__(self, settings: dict[str, str], data: str | Path | None, port: int) -> None:
        super().__init__(settings, data, port)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def faults(self) -> Faults:
        raise RuntimeError("faults work in process only: leave out as_process to use them")

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("this broker does not run")
        return self._process.pid

    def _start(self) -> None:
        if self._process is not None:
            raise RuntimeError("this broker runs already")
        command = [sys.executable, "-m", "penstock.cli.main", "broker"]
        for name, value in self._properties().items():
            command += ["-o", f"{name}={value}"]
        with tempfile.TemporaryFile() as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
            )
            address = _first_line(self._process).rpartition(" ")[2]
            if not address:
                self.kill()
                errors.seek(0)
                raise RuntimeError(f"the broker did not start:\n{errors.read().decode(errors='replace')[-4000:]}")
        self.port = int(address.rpartition(":")[2])

    def stop(self) -> None:
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_STOP_TIMEOUT_S)
        finally:
            self.kill()

    def kill(self) -> None:
        """End it without any warning."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
            self._process = None


def _first_line(process: subprocess.Popen[bytes]) -> str:
    """What a broker says when it is ready; empty if it ends, or takes too long."""
    assert process.stdout is not None
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        return process.stdout.readline().decode().strip() if selector.select(_START_TIMEOUT_S) else ""


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
