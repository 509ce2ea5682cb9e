"""A broker in this process, spoken to through its handlers and codecs but without a socket."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from penstock.broker.broker import Broker
from penstock.broker.connection import Connection
from penstock.broker.dispatch import Call, Route
from penstock.clock import Clock
from penstock.group.coordinator import GroupCoordinator
from penstock.group.shard import Shard
from penstock.log.storage import Storage
from penstock.wire.api import APIS, Api
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.find_coordinator import FindCoordinatorRequest

BY_REQUEST: dict[type, Api] = {api.request_type: api for api in APIS.values()}


class Host:
    """A running broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self._connection = cast(
            Connection, SimpleNamespace(host="127.0.0.1", listener="PLAINTEXT", in_order=nullcontext)
        )

    @property
    def groups(self) -> GroupCoordinator:
        return self.broker.groups

    def shard(self, group_id: str = "g") -> Shard:
        return self.groups.shard(group_id)

    def begin(self, request: Any, version: int | None = None) -> asyncio.Future[Any]:
        """Send a request; the answer may come later. Both go through the codec of their version."""
        api = BY_REQUEST[type(request)]
        route = Route(api, api.high if version is None else version)
        sent, _ = route.reader.read(bytearray(route.reader.encode(request)))
        result = route.handle(self.broker, sent, Call(self._connection, route.version, "client"))

        async def answer() -> Any:
            response = await result if inspect.isawaitable(result) else result
            return route.writer.read(route.writer.encode(response))[0]

        return asyncio.ensure_future(answer())

    async def call(self, request: Any, version: int | None = None) -> Any:
        return await asyncio.wait_for(self.begin(request, version), 20)

    async def make_topics(self, **partitions: int) -> None:
        topics = [CreatableTopic(name, count, 1) for name, count in partitions.items()]
        response = await self.call(CreateTopicsRequest(topics, 10_000))
        assert {topic.error_code for topic in response.topics} == {0}

    async def find_coordinator(self) -> None:
        response = await self.call(FindCoordinatorRequest(coordinator_keys=["g"]))
        assert response.coordinators[0].error_code == 0


@asynccontextmanager
async def host(
    data: Path, clock: Clock | None = None, storage: Storage | None = None, **settings: str
) -> AsyncIterator[Host]:
    """A broker with a coordinator, on what is in a directory."""
    static = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": str(data),
        "node.id": "1",
        "offsets.topic.num.partitions": "2",
        "group.initial.rebalance.delay.ms": "0",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    broker = Broker(static, storage=storage, clock=clock)
    await broker.start()
    try:
        running = Host(broker)
        await running.find_coordinator()
        await loaded(running)
        yield running
    finally:
        await broker.stop()


async def loaded(running: Host) -> None:
    await asyncio.gather(*running.groups.shards.loading)
    assert all(shard.is_loaded for shard in running.groups.shards)
