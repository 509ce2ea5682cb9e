"""Consumers of groups in threads of their own, one class per client library, all driven the same way.

A reader subscribes, polls until it is stopped, commits as its library does by itself, and leaves its group when it
stops. A `Ledger` that the readers of a group share notes who owns which partition, as they see it themselves.
"""

from __future__ import annotations

import asyncio
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import aiokafka
import kafka
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor as AioSticky
from confluent_kafka import Consumer, KafkaError
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

Partition = tuple[str, int]

HEARTBEAT_MS = 200
SESSION_MS = 10_000
_STOP_TIMEOUT_S = 60.0


class Got(NamedTuple):
    """A record that a reader received."""

    topic: str
    partition: int
    offset: int
    value: bytes


class Ledger:
    """Who owns which partition, from notes that carry the time at which it happened, in nanoseconds.

    Notes of other processes may arrive late, so they are put in order before they are judged. Whoever takes a
    partition that another has not given up is a fault.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._notes: list[tuple[int, bool, str, Partition]] = []  # when, taken or given up, by whom, what

    def take(self, name: str, partitions: Iterable[Partition], at: int | None = None) -> None:
        self._note(True, name, partitions, at)

    def give_up(self, name: str, partitions: Iterable[Partition], at: int | None = None) -> None:
        self._note(False, name, partitions, at)

    def _note(self, is_taken: bool, name: str, partitions: Iterable[Partition], at: int | None) -> None:
        with self._lock:
            when = time.time_ns() if at is None else at
            self._notes += [(when, is_taken, name, partition) for partition in partitions]

    def _replay(self) -> tuple[dict[Partition, str], list[str]]:
        """The owners now, and the faults until now."""
        with self._lock:
            notes = sorted(self._notes, key=lambda note: note[0])
        owners: dict[Partition, str] = {}
        faults: list[str] = []
        for _, is_taken, name, partition in notes:
            owner = owners.get(partition)
            if is_taken:
                if owner not in (None, name):
                    faults.append(f"{name} was given {partition} while {owner} had it")
                owners[partition] = name
            elif owner == name:
                del owners[partition]
        return owners, faults

    @property
    def faults(self) -> list[str]:
        return self._replay()[1]

    @property
    def moves(self) -> int:
        """How often a partition was taken."""
        return sum(is_taken for _, is_taken, _, _ in self._notes)

    def of(self, name: str) -> set[Partition]:
        return {partition for partition, owner in self._replay()[0].items() if owner == name}

    def is_shared_by(self, names: Iterable[str], count: int) -> bool:
        """All of `count` partitions are owned, by these, and each of them has at least one."""
        owners, _ = self._replay()
        return len(owners) == count and set(owners.values()) == set(names)


class Reader(ABC):
    """One member of a group."""

    def __init__(self, bootstrap: str, group: str, topics: list[str] | str, ledger: Ledger, name: str, **config: Any):
        self.bootstrap = bootstrap
        self.group = group
        self.topics = topics
        self.ledger = ledger
        self.name = name
        self.config = config
        self.received: list[Got] = []
        self.failure: BaseException | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)

    def start(self) -> Reader:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Leave the group, and wait until that is done."""
        self._stopping.set()
        self._thread.join(_STOP_TIMEOUT_S)
        assert not self._thread.is_alive(), f"{self.name} does not stop"
        if self.failure is not None:
            raise self.failure

    @property
    def owned(self) -> set[Partition]:
        return self.ledger.of(self.name)

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self.failure = error
        finally:
            self.ledger.give_up(self.name, self.owned)

    @abstractmethod
    def _run(self) -> None: ...

    def take(self, partitions: Iterable[Any]) -> None:
        self.ledger.take(self.name, [(one.topic, one.partition) for one in partitions])

    def give_up(self, partitions: Iterable[Any]) -> None:
        self.ledger.give_up(self.name, [(one.topic, one.partition) for one in partitions])


class RdKafkaReader(Reader):
    """librdkafka through confluent-kafka."""

    def _run(self) -> None:
        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": self.group,
            "client.id": self.name,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 500,
            "topic.metadata.refresh.interval.ms": 1000,
            **self.config,
        }
        if settings.get("group.protocol") != "consumer":
            settings |= {"heartbeat.interval.ms": HEARTBEAT_MS, "session.timeout.ms": SESSION_MS}
        consumer = Consumer(settings)
        give_up = lambda _, partitions: self.give_up(partitions)  # noqa: E731
        topics = [self.topics] if isinstance(self.topics, str) else self.topics
        consumer.subscribe(topics, on_assign=lambda _, p: self.take(p), on_revoke=give_up, on_lost=give_up)
        try:
            while not self._stopping.is_set():
                message = consumer.poll(0.05)
                if message is None:
                    continue
                if message.error() is not None:
                    if message.error().code() == KafkaError._FATAL:
                        raise AssertionError(f"{self.name}: {message.error()}")
                    continue
                self.received.append(Got(message.topic(), message.partition(), message.offset(), message.value()))
        finally:
            consumer.close()


class KafkaPythonReader(Reader):
    def _run(self) -> None:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            client_id=self.name,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=500,
            heartbeat_interval_ms=HEARTBEAT_MS,
            session_timeout_ms=SESSION_MS,
            metadata_max_age_ms=1000,
            **self.config,
        )
        reader = self

        class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_assigned(self, assigned: Any) -> None:
                reader.take(assigned)

            def on_partitions_revoked(self, revoked: Any) -> None:
                reader.give_up(revoked)

            def on_partitions_lost(self, lost: Any) -> None:
                reader.give_up(lost)

        if isinstance(self.topics, str):
            consumer.subscribe(pattern=self.topics, listener=Listener())
        else:
            consumer.subscribe(self.topics, listener=Listener())
        try:
            while not self._stopping.is_set():
                # Its sticky assignors can lose their way when a poll ends while the group is being joined.
                for records in consumer.poll(500).values():
                    self.received += [Got(r.topic, r.partition, r.offset, r.value) for r in records]
        finally:
            consumer.close()


class AioKafkaReader(Reader):
    def _run(self) -> None:
        asyncio.run(self._read())

    async def _read(self) -> None:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=self.bootstrap,
            group_id=self.group,
            client_id=self.name,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=500,
            heartbeat_interval_ms=HEARTBEAT_MS,
            session_timeout_ms=SESSION_MS,
            metadata_max_age_ms=1000,
            **self.config,
        )
        reader = self

        class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
            async def on_partitions_assigned(self, assigned: Any) -> None:
                reader.take(assigned)

            async def on_partitions_revoked(self, revoked: Any) -> None:
                reader.give_up(revoked)

        if isinstance(self.topics, str):
            consumer.subscribe(pattern=self.topics, listener=Listener())
        else:
            consumer.subscribe(self.topics, listener=Listener())
        await consumer.start()
        try:
            while not self._stopping.is_set():
                for records in (await consumer.getmany(timeout_ms=50)).values():
                    self.received += [Got(r.topic, r.partition, r.offset, r.value) for r in records]
        finally:
            await consumer.stop()


def _kind(make: Callable[..., Reader], **config: Any) -> Callable[..., Reader]:
    return lambda *args, **more: make(*args, **config, **more)


def _strategy(make: Callable[..., Reader], assignor: type) -> Callable[..., Reader]:
    return _kind(make, partition_assignment_strategy=[assignor])


READERS: dict[str, Callable[..., Reader]] = {
    "librdkafka range": _kind(RdKafkaReader, **{"partition.assignment.strategy": "range"}),
    "librdkafka roundrobin": _kind(RdKafkaReader, **{"partition.assignment.strategy": "roundrobin"}),
    "librdkafka cooperative-sticky": _kind(RdKafkaReader, **{"partition.assignment.strategy": "cooperative-sticky"}),
    "librdkafka consumer": _kind(RdKafkaReader, **{"group.protocol": "consumer"}),
    "librdkafka consumer range": _kind(
        RdKafkaReader, **{"group.protocol": "consumer", "group.remote.assignor": "range"}
    ),
    "aiokafka range": _strategy(AioKafkaReader, AioRange),
    "aiokafka roundrobin": _strategy(AioKafkaReader, AioRoundRobin),
    "aiokafka sticky": _strategy(AioKafkaReader, AioSticky),
    "kafka-python range": _strategy(KafkaPythonReader, RangePartitionAssignor),
    "kafka-python roundrobin": _strategy(KafkaPythonReader, RoundRobinPartitionAssignor),
    "kafka-python sticky": _strategy(KafkaPythonReader, StickyPartitionAssignor),
    "kafka-python cooperative-sticky": _strategy(KafkaPythonReader, CooperativeStickyAssignor),
}
