"""The asyncio clients against a real broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Admin, AsyncConsumer, AsyncProducer, Delivered, Record, Retry
from penstock.client.errors import BufferFull, Closed, DeliveryFailed, SerializationError
from tests.support.systems import System, free_port

Create = Callable[..., None]


@pytest.fixture
def group(unique: Callable[[str], str]) -> str:
    return unique("group")


class Ticks:
    """Counts how often the event loop comes round."""

    def __init__(self) -> None:
        self.count = 0

    async def __aenter__(self) -> Ticks:
        self._task = asyncio.create_task(self._tick())
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._task.cancel()

    async def _tick(self) -> None:
        while True:
            self.count += 1
            await asyncio.sleep(0.001)


def test_records_are_sent_and_read_while_the_loop_goes_on(
    system: System, admin: Admin, topic: str, create: Create, group: str
) -> None:
    create(topic)

    async def scenario() -> list[Any]:
        async with Ticks() as ticks:
            async with AsyncProducer(system.bootstrap, linger_ms=50) as producer:
                before = ticks.count
                assert await producer.send(topic, "0", key="k") == Delivered(topic, 0, 0, pytest.approx(0, abs=1e15))
                assert ticks.count > before + 5
                for number in range(1, 300):
                    producer.send(topic, str(number))
            seen = []
            async with AsyncConsumer(
                system.bootstrap, group=group, topics=[topic], auto_offset_reset="earliest"
            ) as consumer:
                before = ticks.count
                async for record in consumer:
                    seen.append(record.value)
                    if len(seen) == 200:
                        break
                assert ticks.count > before + 5
                await consumer.commit()
                assert await consumer.position((topic, 0)) == 200
        with pytest.raises(Closed):
            await consumer.poll()
        return seen

    assert asyncio.run(scenario()) == [str(number).encode() for number in range(200)]
    assert [info.offset for info in admin.group_offsets(group).values()] == [200]


def test_failures_come_out_of_await(topic: str) -> None:
    async def scenario() -> None:
        producer = AsyncProducer(f"127.0.0.1:{free_port()}", delivery_timeout=0.3, buffer_records=2, max_block=0.1)
        with pytest.raises(SerializationError):
            producer.send(topic, 1)
        first, second, third = (producer.send(topic, "x") for _ in range(3))
        with pytest.raises(BufferFull):
            await third
        with pytest.raises(DeliveryFailed):
            await first
        with pytest.raises(DeliveryFailed):
            await second
        last = producer.send(topic, "x")
        with pytest.raises(DeliveryFailed):
            await producer.close()
        assert isinstance(last.exception(), DeliveryFailed)

    asyncio.run(scenario())


@pytest.mark.parametrize("partitioner", ["murmur2", "round_robin"])
def test_what_waits_for_room_is_sent_in_order(system: System, topic: str, create: Create, partitioner: str) -> None:
    create(topic)

    async def scenario() -> list[Delivered]:
        options: dict[str, Any] = {"buffer_records": 5, "linger_ms": 0, "partitioner": partitioner}
        async with AsyncProducer(system.bootstrap, **options) as producer:
            return await asyncio.gather(*(producer.send(topic, "x") for _ in range(50)))

    assert [delivered.offset for delivered in asyncio.run(scenario())] == list(range(50))


def test_exactly_once_with_asyncio(
    system: System, admin: Admin, create: Create, group: str, unique: Callable[[str], str]
) -> None:
    source, sink = unique("source"), unique("sink")
    create(source)
    create(sink)

    async def scenario() -> None:
        async with AsyncProducer(system.bootstrap) as producer:
            await producer.send(source, "a")
        options: dict[str, Any] = {"group": group, "topics": [source], "auto_offset_reset": "earliest"}
        async with (
            AsyncProducer(system.bootstrap, transactional_id=unique("txn")) as producer,
            AsyncConsumer(system.bootstrap, auto_commit=False, **options) as consumer,
            producer.transaction(),
        ):
            record = await consumer.poll(20)
            assert record is not None
            producer.send(sink, record.value)
            await producer.send_offsets(consumer)

    asyncio.run(scenario())
    assert [info.offset for info in admin.group_offsets(group).values()] == [1]
    assert [info.offset for info in admin.topic_offsets(sink, read_committed=True).values()] == [2]


def test_coroutines_process_records_with_retries(
    system: System, admin: Admin, topic: str, create: Create, group: str
) -> None:
    create(topic)
    seen: list[Any] = []

    async def scenario() -> None:
        async with AsyncProducer(system.bootstrap) as producer:
            await asyncio.gather(producer.send(topic, "bad"), producer.send(topic, "good"))
        retry = Retry(delays=[0.1], dead_letter=f"{group}.dlq")
        async with AsyncConsumer(
            system.bootstrap, group=group, topics=[topic], auto_offset_reset="earliest", retry=retry
        ) as consumer:

            async def handle(record: Record[Any, Any]) -> None:
                await asyncio.sleep(0)
                seen.append(record.value)
                if len(seen) == 3:
                    consumer.stop()
                if record.value == b"bad":
                    raise ValueError

            await consumer.process(handle)

    asyncio.run(scenario())
    assert seen == [b"bad", b"good", b"bad"]
    assert [info.offset for info in admin.topic_offsets(f"{group}.dlq").values()] == [1]
