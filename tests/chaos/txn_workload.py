"""Clients that write and read transactions, and a network that can be cut."""

from __future__ import annotations

import asyncio
import itertools
import random
import threading
from contextlib import suppress

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.chaos.txn_history import Outcome, Polled, Written

_PATIENCE_S = 30.0


class Writer(threading.Thread):
    """Writes transactions one after the other; every fourth or so is aborted on purpose."""

    def __init__(
        self, name: str, bootstrap: str, topic: str, partitions: int, values: itertools.count[int], seed: int
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._address = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._values = values
        self._chance = random.Random(seed)
        self._producer: Producer | None = None
        self.stopping = threading.Event()
        self.history: list[Written] = []

    def run(self) -> None:
        while not self.stopping.is_set():
            try:
                self._write_one(self._ready())
            except KafkaException:
                self._producer = None  # whatever state it is in: begin anew with the same id
        with suppress(KafkaException):
            self._producer = None
            self._ready()  # nothing of this writer stays open

    def _ready(self) -> Producer:
        if self._producer is None:
            made = Producer(
                {
                    "bootstrap.servers": self._address,
                    "transactional.id": self.name,
                    "transaction.timeout.ms": 20_000,
                    "linger.ms": 1,
                    "log_level": 0,
                }
            )
            made.init_transactions(_PATIENCE_S)
            self._producer = made
        return self._producer

    def _write_one(self, producer: Producer) -> None:
        one = Written(self.name)
        producer.begin_transaction()
        self.history.append(one)
        for _ in range(self._chance.randint(1, 4)):
            partition, value = self._chance.randrange(self._partitions), next(self._values)
            one.writes.append((partition, value))
            producer.produce(self._topic, str(value), partition=partition)
        if self._chance.random() < 0.25:
            producer.flush(_PATIENCE_S)
            producer.abort_transaction(_PATIENCE_S)
            one.outcome = Outcome.ABORTED
            return
        self._commit(producer, one)

    def _commit(self, producer: Producer, one: Written) -> None:
        while True:
            try:
                producer.commit_transaction(_PATIENCE_S)
                one.outcome = Outcome.COMMITTED
                return
            except KafkaException as exception:
                error = exception.args[0]
                if error.txn_requires_abort():
                    producer.abort_transaction(_PATIENCE_S)
                    one.outcome = Outcome.ABORTED
                    return
                if not error.retriable() or self.stopping.is_set():
                    raise


class Reader(threading.Thread):
    """Reads committed records from the beginning, again and again from the beginning when its client fails."""

    def __init__(self, name: str, bootstrap: str, topic: str, partitions: int) -> None:
        super().__init__(name=name, daemon=True)
        self._address = bootstrap
        self._topic = topic
        self._partitions = partitions
        self.stopping = threading.Event()
        self.polled: list[Polled] = []

    def run(self) -> None:
        while not self.stopping.is_set():
            session = Polled(f"{self.name}.{len(self.polled)}")
            self.polled.append(session)
            with suppress(KafkaException):
                self._read(session)

    def _read(self, session: Polled) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._address,
                "group.id": self.name,
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition(self._topic, index, 0) for index in range(self._partitions)])
        try:
            while not self.stopping.is_set():
                for message in consumer.consume(500, 0.2):
                    if message.error() is None:
                        session.records.append((message.partition(), message.offset(), int(message.value())))
        finally:
            consumer.close()


class Proxy:
    """Stands between clients and the broker, so that all connections can be cut at once."""

    def __init__(self, port: int, broker_port: int) -> None:
        self._port = port
        self._broker_port = broker_port
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", self._broker_port)
            self._writers.add(broker_writer)
            await asyncio.gather(_pipe(reader, broker_writer), _pipe(broker_reader, writer))
        except (OSError, asyncio.CancelledError):  # asyncio's own callback cannot bear a task that was cancelled
            writer.close()

    def cut(self) -> None:
        """Drop all connections, in the midst of whatever they carry."""
        self._loop.call_soon_threadsafe(self._cut)

    def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _close(self) -> None:
        self._server.close()
        self._cut()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    writer.close()
