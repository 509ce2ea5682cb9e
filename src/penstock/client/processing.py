"""`Consumer.process`: every record handled at least once, whatever crashes.

The order of things, which is what makes it safe:

1. A record is handled. If that fails, a copy is sent to the next retry topic or to the dead-letter topic.
2. Before more records are fetched, all copies sent so far are acknowledged by all in-sync replicas.
3. Only then may the offsets of that batch be committed.

A crash before 3 has the records read, handled and perhaps copied again: handlers must bear to see a record twice. If a
copy cannot be written, processing ends with that error and nothing of the batch is committed.

A record of a retry topic that is not due yet is not taken: its partition is paused until it is. Nothing else waits for
it, and its offset cannot be committed before it was handled. What it returns to after a crash or a rebalance is the
topic itself.
"""

from __future__ import annotations

import heapq
import re
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from penstock.client._records import Record
from penstock.client.admin import Admin, NewTopic
from penstock.client.errors import ConfigurationError, PenstockError, TopicExists, UnknownTopic
from penstock.client.partitions import TopicPartition
from penstock.client.producer import Producer
from penstock.client.retry import Origin, Retry, Schedule
from penstock.client.settings import Bootstrap, Config

if TYPE_CHECKING:
    from penstock.client.consumer import Consumer

AnyRecord = Record[Any, Any]
Handler = Callable[[AnyRecord], object]

_PATIENCE_S = 0.5
_TOPIC_WAIT_S = 10.0
# Settings that say how to reach a cluster; the others are the consumer's own.
_CONNECTION_SETTINGS = ("security.", "sasl.", "ssl.", "socket.", "broker.address", "client.dns", "enable.ssl", "oauth")


class RetryTopics:
    """The retry and dead-letter topics of a consumer, and how to write to them."""

    def __init__(self, retry: Retry, group: str, bootstrap: Bootstrap, config: Config | None) -> None:
        self._retry = retry
        self._bootstrap = bootstrap
        self._config = {key: value for key, value in (config or {}).items() if key.startswith(_CONNECTION_SETTINGS)}
        self.schedule = Schedule(retry, group)
        self.names = frozenset(self.schedule.retry_topics)

    def prepare(self, topics: list[str]) -> list[str]:
        """Make sure that the topics are there. Returns what to subscribe to besides `topics`."""
        own = [*self.schedule.retry_topics, self.schedule.dead_letter]
        is_pattern = topics[0].startswith("^")
        for name in own:
            if any(re.match(topic, name) if is_pattern else topic == name for topic in topics):
                raise ConfigurationError(f"the consumer would read {name!r} itself: choose other topics for retries")
        if self._retry.create_topics:
            self._create(own, None if is_pattern else topics[0])
        # librdkafka takes names and patterns together; a name is a pattern for itself.
        return [f"^{re.escape(name)}$" for name in self.schedule.retry_topics] if is_pattern else own[:-1]

    def _create(self, names: list[str], like: str | None) -> None:
        with Admin(self._bootstrap, config=self._config) as admin:
            there = set(admin.list_topics())
            missing = [name for name in names if name not in there]
            partitions = self._retry.partitions
            if missing and partitions is None and like is not None:
                try:
                    partitions = len(admin.describe_topics([like])[0].partitions)
                except UnknownTopic:
                    partitions = None
            for name in missing:
                try:
                    admin.create_topics([NewTopic(name, partitions, self._retry.replication_factor)])
                except TopicExists:
                    continue
            deadline = time.monotonic() + _TOPIC_WAIT_S
            while missing and not set(missing) <= set(admin.list_topics()) and time.monotonic() < deadline:
                time.sleep(0.02)

    def producer(self) -> Producer:
        return Producer(
            self._bootstrap, key_serializer="bytes", value_serializer="bytes", linger_ms=0, config=self._config
        )


class Processor:
    """One run of `Consumer.process`."""

    def __init__(
        self,
        consumer: Consumer,
        handler: Handler,
        retry: RetryTopics | None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._consumer = consumer
        self._handler = handler
        self._retry = retry
        self._now = now
        self._producer: Producer | None = None
        self._waiting: list[tuple[int, TopicPartition]] = []
        self._in_hand: AnyRecord | None = None

    def run(self) -> None:
        try:
            self._run()
        except BaseException:
            self._give_up()
            raise
        finally:
            self._end()

    def _run(self) -> None:
        consumer = self._consumer
        while True:
            self._resume_due()
            record = consumer._prefetch.peek()
            if record is None:
                if not self._fetch() and consumer._is_over():
                    break
            elif not self._put_off(record):
                self._in_hand = next(consumer._prefetch.waiting)
                self._handle(record)
                self._in_hand = None
        self._finish_batch()

    def _fetch(self) -> bool:
        self._finish_batch()
        patience = _PATIENCE_S
        if self._waiting:
            patience = min(max(self._waiting[0][0] / 1000 - self._now(), 0.0), patience)
        return self._consumer._fetch(patience)

    def _finish_batch(self) -> None:
        """Everything handled so far is done with as soon as its copies are written."""
        if self._producer is not None:
            self._producer.flush()
        self._consumer._finish_batch()
        if not self._consumer._auto_commits:
            self._consumer.commit()

    def _handle(self, record: AnyRecord) -> None:
        retry = self._retry
        if retry is None:
            self._handler(self._consumer._finish(record))
            return
        try:
            original = Origin.of(record).restore(record) if record.topic in retry.names else record
            self._handler(self._consumer._finish(original))
        except Exception as error:
            topic, headers = retry.schedule.next(record, error, round(self._now() * 1000))
            if self._producer is None:
                self._producer = retry.producer()
            self._producer.send(topic, record.value, key=record.key, headers=headers)

    # ---- due times ----

    def _put_off(self, record: AnyRecord) -> bool:
        """Whether the record has to wait. If so, its partition does."""
        if self._retry is None or record.topic not in self._retry.names:
            return False
        due_ms = Origin.of(record).due_ms
        if due_ms <= self._now() * 1000:
            return False
        partition = TopicPartition(record.topic, record.partition)
        self._consumer.pause([partition])
        heapq.heappush(self._waiting, (due_ms, partition))
        return True

    def _resume_due(self) -> None:
        while self._waiting and self._waiting[0][0] <= self._now() * 1000:
            _, partition = heapq.heappop(self._waiting)
            if partition in self._consumer._held:
                self._consumer.resume([partition])

    # ---- the end ----

    def _give_up(self) -> None:
        """Something failed. Take back what is not done: the record in hand, or, if copies are missing, the batch."""
        consumer = self._consumer
        if self._are_copies_written():
            consumer._take_back([self._in_hand] if self._in_hand is not None else [])
        else:
            consumer._take_back(consumer._prefetch.handed())

    def _are_copies_written(self) -> bool:
        if self._producer is None:
            return True
        if self._producer.has_failed:
            return False
        try:
            self._producer.flush()
        except PenstockError:
            return False
        return True

    def _end(self) -> None:
        """Commit what is done, and leave no partition paused."""
        consumer = self._consumer
        if self._producer is not None:
            with suppress(PenstockError):
                self._producer.close()
        held = {partition for _, partition in self._waiting if partition in consumer._held}
        consumer.resume(held)
        consumer.commit()
