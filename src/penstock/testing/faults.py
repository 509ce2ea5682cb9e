"""Faults: how a broker for tests is made to misbehave.

    with broker.faults.error(api="Produce", code="NOT_LEADER_OR_FOLLOWER", times=2) as fault:
        producer.send("orders", b"...").result()     # retried until it succeeds
    assert fault.hits == 2

A fault is active from the call that makes it until it has struck `times` times, its `with` block ends, or it is ended
by hand. It is set up in the test's thread and strikes in the broker's.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.testing.refusals import error_code, refuse
from penstock.wire.api import APIS, Api
from penstock.wire.errors import ErrorCode

if TYPE_CHECKING:
    from penstock.broker.dispatch import Call

Proceed = Callable[[], Any]
Strike = Callable[["Fault", Api, Any, "Call", Proceed], Any]


class Fault:
    """One way to misbehave. Ends by itself after `times` requests, or with its `with` block, or by `end`."""

    def __init__(self, owner: Faults, api: str | None, times: int | None, strike: Strike) -> None:
        if times is not None and times < 1:
            raise ValueError(f"times is {times}: it must be at least 1, or None for every time")
        self._owner = owner
        self._api = _known(api)
        self._times = times
        self._strike = strike
        self._changed = threading.Condition()
        self._sleepers: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self.hits = 0
        """How many requests it has struck."""
        self.is_over = False

    def __enter__(self) -> Fault:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.end()

    def end(self) -> None:
        """Misbehave no longer. Answers that it holds back are sent at once."""
        self._owner.remove(self)
        with self._changed:
            self.is_over = True
            sleepers = list(self._sleepers)
        for loop, woken in sleepers:
            loop.call_soon_threadsafe(woken.set)

    def wait_for_hit(self, timeout: float = 10.0, *, hits: int = 1) -> None:
        """Wait until it has struck. Raises TimeoutError if it has not within `timeout` seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: self.hits >= hits, timeout):
                raise TimeoutError(f"{self.hits} requests were struck within {timeout:g} s, not {hits}")

    # ---- in the broker's thread ----

    def takes(self, api: Api) -> bool:
        """Whether it strikes a request of this API now; if so, that is counted."""
        if self._api is not None and self._api != api.name:
            return False
        with self._changed:
            if self.is_over or (self._times is not None and self.hits >= self._times):
                return False
            self.hits += 1
            self._changed.notify_all()
        if self.hits == self._times:
            self._owner.remove(self)
        return True

    def strike(self, api: Api, request: Any, call: Call, proceed: Proceed) -> Any:
        return self._strike(self, api, request, call, proceed)

    async def sleep(self, seconds: float) -> None:
        """Sleep, but not beyond the end of the fault."""
        sleeper = (asyncio.get_running_loop(), asyncio.Event())
        with self._changed:
            if self.is_over:
                return
            self._sleepers.add(sleeper)
        try:
            await asyncio.wait_for(sleeper[1].wait(), seconds)
        except TimeoutError:
            pass
        finally:
            with self._changed:
                self._sleepers.discard(sleeper)


class Faults:
    """The faults of one broker. `api` is the name of a request ("Fetch", "Produce", ...); None stands for all."""

    def __init__(self) -> None:
        self._faults: tuple[Fault, ...] = ()
        self._made: list[Fault] = []

    def delay(self, api: str | None = None, *, seconds: float, times: int | None = None) -> Fault:
        """Answer later. The request is carried out at once; what comes behind it on the connection waits with it."""
        return self._add(
            api, times, lambda fault, api, request, call, proceed: _late(fault, _begun(proceed()), seconds)
        )

    def drop(self, api: str | None = None, *, times: int | None = None, is_handled: bool = False) -> Fault:
        """Close the connection instead of answering. With `is_handled`, the request is carried out nevertheless."""

        def strike(fault: Fault, api: Api, request: Any, call: Call, proceed: Proceed) -> Any:
            result = _begun(proceed()) if is_handled else None
            return _drop_after(result, call) if asyncio.isfuture(result) else call.connection.close()

        return self._add(api, times, strike)

    def error(self, api: str | None = None, *, code: ErrorCode | int | str, times: int | None = None) -> Fault:
        """Answer with an error code, wherever the response has a place for one. Nothing is changed or written."""
        wanted = error_code(code)
        return self._add(
            api, times, lambda fault, api, request, call, proceed: refuse(api, request, call.version, wanted, proceed)
        )

    def clear(self) -> None:
        """End all faults."""
        for fault in self._made:
            fault.end()
        self._made.clear()

    def remove(self, fault: Fault) -> None:
        self._faults = tuple(one for one in self._faults if one is not fault)

    @property
    def is_active(self) -> bool:
        return bool(self._faults)

    def intercept(self, api: Api, request: Any, call: Call, proceed: Proceed) -> Any:
        """Serve a request of the broker: by the first fault that takes it, or as usual."""
        for fault in self._faults:
            if fault.takes(api):
                return fault.strike(api, request, call, proceed)
        return proceed()

    def _add(self, api: str | None, times: int | None, strike: Strike) -> Fault:
        fault = Fault(self, api, times, strike)
        self._faults = (*self._faults, fault)
        self._made.append(fault)
        return fault


def _begun(result: Any) -> Any:
    """What a handler returned; if that is a coroutine, it begins now."""
    return asyncio.ensure_future(result) if asyncio.iscoroutine(result) else result


async def _late(fault: Fault, result: Any, seconds: float) -> Any:
    await fault.sleep(seconds)
    return await result if asyncio.isfuture(result) else result


async def _drop_after(result: Any, call: Call) -> None:
    await result
    call.connection.close()


def _known(api: str | None) -> str | None:
    names = sorted(one.name for one in APIS.values())
    if api is not None and api not in names:
        raise ValueError(f"there is no API {api!r}; there are {', '.join(names)}")
    return api
