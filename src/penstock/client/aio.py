"""The clients for asyncio. They never block the event loop.

`AsyncProducer` needs no thread besides the producer's own, which wakes the loop once for many delivery reports.
`AsyncConsumer` has one thread: it fetches a batch there and hands its records over in the loop.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from penstock.client._records import Record
from penstock.client.consumer import Consumer
from penstock.client.delivery import Delivery
from penstock.client.errors import Closed, PenstockError
from penstock.client.producer import Producer
from penstock.client.records import Delivered

AnyRecord = Record[Any, Any]
P = ParamSpec("P")
R = TypeVar("R")

_ROOM_S = 0.01
_PATIENCE_S = 0.5


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A record that could not be sent at once: for want of room, or because its topic must be asked about first."""

    topic: str
    prepare: Callable[[], dict[str, Any]]
    prepared: dict[str, Any] | None
    delivery: Delivery
    future: asyncio.Future[Delivered]
    deadline: float


class AsyncProducer:
    """`Producer` for asyncio. Takes the same arguments.

        async with AsyncProducer("localhost:9092") as producer:
            delivered = await producer.send("orders", b"...")

    `send` returns a future at once: await it to know that the record is delivered, or go on and have `flush` or the end
    of the `async with` block wait for all of them.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._producer = Producer(*arguments, **options)
        self._loop = asyncio.get_running_loop()
        self._reports: deque[tuple[asyncio.Future[Delivered], Delivered | None, PenstockError | None]] = deque()
        self._lock = threading.Lock()
        self._is_waking = False
        self._thread = ThreadPoolExecutor(1, "penstock-producer-calls")
        self._sending: set[asyncio.Future[Delivered]] = set()
        self._backlog: deque[_Waiting] = deque()
        self._sender: asyncio.Task[None] | None = None

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def send(self, topic: str, value: Any = None, **options: Any) -> asyncio.Future[Delivered]:
        """Send a record. Takes the arguments of `Producer.send`, without `on_delivery`. The result is awaitable.

        A failure that nobody awaits is logged by asyncio; `flush` and `close` raise those of records still under way.
        """
        arguments = {"key": None, "headers": None, "partition": None, "timestamp": None, **options}
        future: asyncio.Future[Delivered] = self._loop.create_future()
        delivery = Delivery(
            topic, lambda delivered, error: self._report(future, delivered, error), self._producer._failures
        )

        def prepare() -> dict[str, Any]:
            return self._producer._arguments(topic, value, **arguments)

        prepared = None if self._producer._must_ask_about(topic) else prepare()
        self._sending.add(future)
        future.add_done_callback(self._sending.discard)
        if self._backlog or prepared is None or not self._producer._offer(prepared, delivery):
            deadline = time.monotonic() + self._producer._max_block
            self._backlog.append(_Waiting(topic, prepare, prepared, delivery, future, deadline))
            if self._sender is None or self._sender.done():
                self._sender = self._loop.create_task(self._send_backlog())
        return future

    async def _send_backlog(self) -> None:
        """Send what found no room, in order: nothing sent later overtakes it."""
        while self._backlog:
            waiting = self._backlog[0]
            try:
                await self._send_when_there_is_room(waiting)
            except PenstockError as error:
                if not waiting.future.done():
                    waiting.future.set_exception(error)
            self._backlog.popleft()

    async def _send_when_there_is_room(self, waiting: _Waiting) -> None:
        prepared = await self._call(waiting.prepare) if waiting.prepared is None else waiting.prepared
        while not waiting.future.done() and not self._producer._offer(prepared, waiting.delivery):
            self._producer._check_room(waiting.topic, waiting.deadline)
            await asyncio.sleep(_ROOM_S)

    def _report(
        self, future: asyncio.Future[Delivered], delivered: Delivered | None, error: PenstockError | None
    ) -> None:
        """Called in the producer's thread."""
        with self._lock:
            self._reports.append((future, delivered, error))
            if self._is_waking:
                return
            self._is_waking = True
        self._loop.call_soon_threadsafe(self._tell)

    def _tell(self) -> None:
        with self._lock:
            reports, self._reports = self._reports, deque()
            self._is_waking = False
        for future, delivered, error in reports:
            if future.done():
                continue
            if error is not None:
                future.set_exception(error)
            else:
                assert delivered is not None
                future.set_result(delivered)

    @asynccontextmanager
    async def transaction(self, timeout: float = 60.0) -> AsyncIterator[AsyncProducer]:
        """As `Producer.transaction`."""
        context = self._producer.transaction(timeout)
        await self._call(context.__enter__)
        try:
            yield self
        except BaseException as error:
            await self._call(context.__exit__, type(error), error, error.__traceback__)
            raise
        await self._call(context.__exit__, None, None, None)

    async def send_offsets(self, consumer: AsyncConsumer, timeout: float = 60.0) -> None:
        """As `Producer.send_offsets`."""
        await self._call(self._producer.send_offsets, consumer.blocking, timeout)

    async def flush(self) -> None:
        """Wait until everything sent so far is delivered. Raises the first failure."""
        for outcome in await asyncio.gather(*self._sending, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def close(self) -> None:
        """Wait until everything is delivered, and end. Raises if records could not be delivered."""
        try:
            await self.flush()
        finally:
            await self._call(self._producer.close)
            self._thread.shutdown(wait=False)

    async def _call(self, function: Callable[..., R], *arguments: Any) -> R:
        return await self._loop.run_in_executor(self._thread, function, *arguments)


def _in_thread(
    method: Callable[Concatenate[Consumer, P], R],
) -> Callable[Concatenate[AsyncConsumer, P], Coroutine[Any, Any, R]]:
    """A method of `Consumer`, to be awaited."""

    @wraps(method)
    async def call(consumer: AsyncConsumer, /, *arguments: P.args, **options: P.kwargs) -> R:
        return await consumer._call(lambda: method(consumer.blocking, *arguments, **options))

    return call


class AsyncConsumer:
    """`Consumer` for asyncio. Takes the same arguments; its methods are to be awaited.

        async with AsyncConsumer("localhost:9092", group="billing", topics=["orders"]) as consumer:
            async for record in consumer:
                ...

    Listeners (`on_assigned` and so on) are called in the consumer's thread, not in the event loop.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, "penstock-consumer")
        self.blocking = Consumer(*arguments, **options)

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(self, kind: object, exception: BaseException | None, traceback: object) -> None:
        await self._close(is_orderly=exception is None)

    def __aiter__(self) -> AsyncConsumer:
        self.blocking._check_may_read()
        return self

    async def __anext__(self) -> AnyRecord:
        while True:
            for record in self.blocking._handing_over():
                return record
            if not await self._fetch(_PATIENCE_S) and self.blocking._is_over():
                raise StopAsyncIteration

    async def _fetch(self, timeout: float) -> bool:
        return await self._call(lambda: self.blocking._fetch(timeout))

    async def process(self, handler: Callable[[AnyRecord], Awaitable[object]]) -> None:
        """As `Consumer.process`, with a coroutine function as the handler."""

        def handle(record: AnyRecord) -> None:
            asyncio.run_coroutine_threadsafe(_awaiting(handler(record)), self._loop).result()

        try:
            await self._call(lambda: self.blocking.process(handle))
        except asyncio.CancelledError:
            self.stop()
            raise

    def stop(self) -> None:
        """As `Consumer.stop`."""
        self.blocking.stop()

    async def close(self) -> None:
        await self._close(is_orderly=True)

    async def _close(self, *, is_orderly: bool) -> None:
        if not self.blocking._is_closed:
            await self._call(lambda: self.blocking._close(is_orderly=is_orderly))
            self._thread.shutdown(wait=False)

    async def _call(self, function: Callable[[], R]) -> R:
        if self.blocking._is_closed:
            raise Closed("the consumer is closed")
        return await self._loop.run_in_executor(self._thread, function)

    subscribe = _in_thread(Consumer.subscribe)
    unsubscribe = _in_thread(Consumer.unsubscribe)
    assign = _in_thread(Consumer.assign)
    assignment = _in_thread(Consumer.assignment)
    poll = _in_thread(Consumer.poll)
    poll_many = _in_thread(Consumer.poll_many)
    commit = _in_thread(Consumer.commit)
    commit_async = _in_thread(Consumer.commit_async)
    position = _in_thread(Consumer.position)
    committed = _in_thread(Consumer.committed)
    watermarks = _in_thread(Consumer.watermarks)
    lag = _in_thread(Consumer.lag)
    seek = _in_thread(Consumer.seek)
    seek_to_beginning = _in_thread(Consumer.seek_to_beginning)
    seek_to_end = _in_thread(Consumer.seek_to_end)
    seek_to_time = _in_thread(Consumer.seek_to_time)
    seek_to_committed = _in_thread(Consumer.seek_to_committed)
    pause = _in_thread(Consumer.pause)
    resume = _in_thread(Consumer.resume)


async def _awaiting(awaitable: Awaitable[R]) -> R:
    return await awaitable
