"""How admin operations wait, so that each is written once for both `Admin` and `AsyncAdmin`.

An operation is a coroutine that awaits only `Session.wait`, which hands futures of `concurrent.futures` to whoever
drives it: `run` blocks until they are done, `run_async` lets the event loop go on meanwhile.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from typing import Any, TypeVar

from confluent_kafka.admin import AdminClient

from penstock.client.connection import Connection, api_of
from penstock.client.errors import ConfigurationError, PenstockError, raise_failures
from penstock.client.rdkafka import from_exception
from penstock.client.settings import Bootstrap, Config, LastError, make, settings
from penstock.wire.messages.api_versions import ApiVersionsRequest

Future = concurrent.futures.Future[Any]
K = TypeVar("K")
R = TypeVar("R")
Operation = Coroutine[list[Future], None, R]

_API_VERSIONS_VERSION = 3


class _Done:
    """Awaiting it hands the futures to the driver, which comes back when all are done."""

    def __init__(self, futures: list[Future]) -> None:
        self._futures = futures

    def __await__(self) -> Generator[list[Future], None, None]:
        yield self._futures


class Session:
    """A connection to a cluster for admin operations: librdkafka's, and one of our own for what it lacks."""

    def __init__(self, bootstrap: Bootstrap, timeout: float, client_id: str | None, config: Config | None) -> None:
        if timeout <= 0:
            raise ConfigurationError(f"timeout is {timeout}: it must be above 0 seconds")
        self.timeout = timeout
        self._last_error = LastError()
        arguments = {"client.id": client_id, "error_cb": self._last_error}
        merged = settings(bootstrap, arguments, config)
        self.is_plaintext = str(merged.get("security.protocol", "plaintext")).lower() == "plaintext"
        self.client = make(AdminClient, merged)
        self._thread: concurrent.futures.ThreadPoolExecutor | None = None

    def close(self) -> None:
        if self._thread is not None:
            self._thread.shutdown(wait=True)

    async def one(self, call: Callable[..., Future], *arguments: Any, doing: str, **options: Any) -> Any:
        """The result of a call that returns one future."""
        results = await self.each(lambda: {None: call(*arguments, request_timeout=self.timeout, **options)}, doing)
        return results[None]

    async def each(self, call: Callable[[], Mapping[K, Future]], doing: str | Callable[[K], str]) -> dict[K, Any]:
        """The results of a call that returns a future for each of several things; raises what failed of them."""
        try:
            futures = call()
        except Exception as exception:
            raise from_exception(exception, doing if isinstance(doing, str) else "ask the cluster") from None
        await _Done(list(futures.values()))
        self.client.poll(0)
        results: dict[K, Any] = {}
        errors: dict[K, PenstockError] = {}
        for key, future in futures.items():
            failure = future.exception()
            if failure is None:
                results[key] = future.result()
            else:
                what = doing if isinstance(doing, str) else doing(key)
                errors[key] = from_exception(failure, what, more=self._last_error.text)
        raise_failures(errors)
        return results

    async def blocking(self, call: Callable[[], R], doing: str) -> R:
        """The result of something that blocks, done in this session's one thread."""
        if self._thread is None:
            self._thread = concurrent.futures.ThreadPoolExecutor(1, "penstock-admin")
        thread = self._thread
        results: dict[None, R] = await self.each(lambda: {None: thread.submit(call)}, doing)
        return results[None]

    async def ask(self, host: str, port: int, request: Any, doing: str) -> Any:
        """Send a request that librdkafka cannot, over a connection of our own."""
        if not self.is_plaintext:
            raise ConfigurationError(f"cannot {doing}: this works over plaintext connections only")
        return await self.blocking(lambda: _ask(host, port, request, self.timeout), doing)


def _ask(host: str, port: int, request: Any, timeout: float) -> Any:
    with Connection(host, port, client_id="penstock-admin", timeout_s=timeout) as connection:
        hello = ApiVersionsRequest(client_software_name="penstock", client_software_version="1")
        ranges = {api.api_key: api for api in connection.call(hello, _API_VERSIONS_VERSION).api_keys}
        api = api_of(request)
        if api.key not in ranges:
            raise ConfigurationError(f"the broker at {host}:{port} does not know {api.name}")
        return connection.call(request, min(api.high, ranges[api.key].max_version))


def run(operation: Operation[R]) -> R:
    """Carry an operation out, blocking."""
    try:
        while True:
            concurrent.futures.wait(operation.send(None))
    except StopIteration as stop:
        result: R = stop.value
        return result
    finally:
        operation.close()


async def run_async(operation: Operation[R]) -> R:
    """Carry an operation out while the event loop goes on."""
    try:
        while True:
            futures = operation.send(None)
            if futures:
                await asyncio.wait([asyncio.wrap_future(future) for future in futures])
    except StopIteration as stop:
        result: R = stop.value
        return result
    finally:
        operation.close()


def by_name(names: Iterable[str], what: str) -> list[str]:
    """A list of names, each once. A single string in place of a list is a slip that is easy to make."""
    if isinstance(names, str):
        raise ConfigurationError(f"{what} must be a list of names, not the string {names!r}")
    return list(dict.fromkeys(names))
