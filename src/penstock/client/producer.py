"""The producer: sends records, in batches and in the background, and says what became of each.

A thread serves delivery reports, so callbacks come and handles finish while the program does something else. No
failure is lost: one that neither a callback nor a handle told the program about is raised by `flush` and `close`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any, Literal

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException, Message

from penstock.client import transactions
from penstock.client.delivery import Delivery, Failures, OnDelivery
from penstock.client.errors import BufferFull, Closed, ConfigurationError, DeliveryFailed, PenstockError
from penstock.client.interceptors import OutgoingRecord, ProducerInterceptor
from penstock.client.partitioners import Partitioner, find_partitioner
from penstock.client.rdkafka import from_exception
from penstock.client.records import Delivered, HeadersLike, to_headers
from penstock.client.serializers import Serializer, serialize, serializer
from penstock.client.settings import Bootstrap, Config, LastError, make, settings
from penstock.client.times import to_timestamp_ms
from penstock.client.topic_sizes import TopicSizes
from penstock.client.transactions import OffsetSource

logger = logging.getLogger("penstock.client")

Acks = Literal[0, 1, "all"]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]

_ANY_PARTITION = -1
_SERVE_S = 0.1
_ROOM_S = 0.001


class Producer:
    """Sends records to topics.

        with Producer("localhost:9092", value_serializer="json") as producer:
            producer.send("orders", {"id": 1}, key="customer-7")

    Times are in seconds unless the name says otherwise. `send` returns at once, unless the buffer is full: then it
    waits up to `max_block` seconds for room and raises `BufferFull`. A record that is not acknowledged within
    `delivery_timeout` fails. Leaving the `with` block, or `close`, waits until everything is delivered.

    Safe to use from several threads.
    """

    def __init__(
        self,
        bootstrap: Bootstrap = "localhost:9092",
        *,
        key_serializer: str | Serializer | None = None,
        value_serializer: str | Serializer | None = None,
        acks: Acks = "all",
        idempotence: bool | None = None,
        transactional_id: str | None = None,
        transaction_timeout: float | None = None,
        linger_ms: float | None = None,
        batch_bytes: int | None = None,
        compression: Compression | None = None,
        retries: int | None = None,
        delivery_timeout: float | None = None,
        buffer_records: int | None = None,
        buffer_bytes: int | None = None,
        max_block: float = 60.0,
        partitioner: str | Partitioner = "murmur2",
        interceptors: Sequence[ProducerInterceptor] = (),
        client_id: str | None = None,
        config: Config | None = None,
    ) -> None:
        if acks not in (0, 1, "all", -1):
            raise ConfigurationError(f"acks is {acks!r}: it must be 0, 1 or 'all'")
        self._serialize_key = serializer(key_serializer)
        self._serialize_value = serializer(value_serializer)
        self._max_block = max_block
        self._interceptors = tuple(interceptors)
        self._last_error = LastError()
        rdkafkas_partitioner, self._make_partitioner = find_partitioner(partitioner)
        arguments = {
            "client.id": client_id,
            "acks": acks,
            "enable.idempotence": acks in ("all", -1) if idempotence is None else idempotence,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": _ms(transaction_timeout),
            "linger.ms": linger_ms,
            "batch.size": batch_bytes,
            "compression.type": compression,
            "message.send.max.retries": retries,
            "delivery.timeout.ms": _ms(delivery_timeout),
            "queue.buffering.max.messages": buffer_records,
            "queue.buffering.max.kbytes": None if buffer_bytes is None else max(1, buffer_bytes // 1024),
            "partitioner": rdkafkas_partitioner,
            "error_cb": self._last_error,
        }
        merged = settings(bootstrap, arguments, config)
        # Records of a transaction share its fate, and its end tells which: they have no news of their own.
        self._failures = Failures(is_told_otherwise=bool(merged.get("transactional.id")))
        self._rdkafka = make(confluent_kafka.Producer, merged)
        self._topic_sizes = TopicSizes(self._rdkafka)
        self._partitioners: dict[str, Partitioner] = {}
        self._transactions = transactions.Transactions(self._rdkafka, str(merged.get("transactional.id") or ""))
        self._is_closed = False
        self._thread = threading.Thread(target=self._serve, name="penstock-producer", daemon=True)
        self._thread.start()

    def __enter__(self) -> Producer:
        return self

    def __exit__(self, kind: object, exception: BaseException | None, traceback: object) -> None:
        if exception is None:
            self.close()
            return
        try:
            self.close()
        except PenstockError as error:
            # The error that is on its way out matters more; this one is likely its consequence.
            logger.error("%s", error)

    def __len__(self) -> int:
        """Records that wait for their acknowledgement."""
        return len(self._rdkafka)

    @property
    def has_failed(self) -> bool:
        """Whether any record was not delivered, other than those whose `on_delivery` was told."""
        return self._failures.has_any

    # ---- sending ----

    def send(
        self,
        topic: str,
        value: Any = None,
        *,
        key: Any = None,
        headers: HeadersLike | None = None,
        partition: int | None = None,
        timestamp: int | datetime | None = None,
        on_delivery: OnDelivery | None = None,
    ) -> Delivery:
        """Send a record, and return a handle on what becomes of it.

        `on_delivery(delivered, error)` is called in the producer's thread with the broker's answer; one of the two is
        None. It must not block.
        """
        delivery = Delivery(topic, on_delivery, self._failures)
        deadline: float | None = None
        arguments = self._arguments(topic, value, key, headers, partition, timestamp)
        while not self._offer(arguments, delivery):
            deadline = deadline or time.monotonic() + self._max_block
            self._check_room(topic, deadline)
            time.sleep(_ROOM_S)
        return delivery

    def send_and_wait(
        self, topic: str, value: Any = None, *, timeout: float | None = None, **options: Any
    ) -> Delivered:
        """Send a record and wait until it is acknowledged. Takes the arguments of `send`."""
        return self.send(topic, value, **options).result(timeout)

    def _arguments(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: HeadersLike | None,
        partition: int | None,
        timestamp: int | datetime | None,
    ) -> dict[str, Any]:
        """What to call librdkafka with. Everything that can be wrong with a record is found here."""
        if self._is_closed:
            raise Closed("the producer is closed: nothing can be sent any more")
        self._transactions.check_may_send()
        pairs = to_headers(headers)
        timestamp_ms = None if timestamp is None else to_timestamp_ms(timestamp)
        if self._interceptors:
            record = OutgoingRecord(topic, value, key, pairs, partition, timestamp_ms)
            for interceptor in self._interceptors:
                record = interceptor.on_send(record)
            topic, value, key, pairs = record.topic, record.value, record.key, record.headers
            partition, timestamp_ms = record.partition, record.timestamp
        key_bytes = serialize(key, self._serialize_key, "key", topic)
        arguments: dict[str, Any] = {
            "topic": topic,
            "value": serialize(value, self._serialize_value, "value", topic),
            "key": key_bytes,
            "partition": self._choose(topic, key_bytes) if partition is None else _checked_partition(partition),
        }
        if pairs:
            arguments["headers"] = list(pairs)
        if timestamp_ms is not None:
            arguments["timestamp"] = timestamp_ms
        return arguments

    def _must_ask_about(self, topic: str) -> bool:
        """Whether sending to a topic has to wait for the cluster's word on how many partitions it has."""
        return self._make_partitioner is not None and not self._topic_sizes.knows(topic)

    def _choose(self, topic: str, key: bytes | None) -> int:
        if self._make_partitioner is None:
            return _ANY_PARTITION
        chosen = self._partitioners.get(topic)
        if chosen is None:
            chosen = self._partitioners[topic] = self._make_partitioner()
        count = self._topic_sizes.partitions_of(topic, self._max_block)
        partition = chosen(key, count)
        if not 0 <= partition < count:
            raise ConfigurationError(
                f"the partitioner chose partition {partition} of {topic!r}, which has {count} partitions"
            )
        return partition

    def _offer(self, arguments: dict[str, Any], delivery: Delivery) -> bool:
        """Give a record to librdkafka; False if its buffer is full."""
        callback: Callable[[KafkaError | None, Message], None] = delivery.report
        if self._interceptors:
            callback = self._reporting_to_interceptors(delivery)
        try:
            self._rdkafka.produce(**arguments, on_delivery=callback)
        except BufferError:
            return False
        except (KafkaException, TypeError, ValueError) as exception:
            raise from_exception(exception, f"send a record to {arguments['topic']!r}") from None
        return True

    def _check_room(self, topic: str, deadline: float) -> None:
        """Raise if the buffer was full for too long."""
        if time.monotonic() >= deadline:
            reason = f" ({self._last_error.text})" if self._last_error.text else ""
            raise BufferFull(
                f"cannot send a record to {topic!r}: {len(self)} records wait for their acknowledgement and the buffer "
                f"stayed full for {self._max_block:g} s{reason}; check the broker, or send more slowly"
            )

    def _reporting_to_interceptors(self, delivery: Delivery) -> Callable[[KafkaError | None, Message], None]:
        def report(error: KafkaError | None, message: Message) -> None:
            delivery.report(error, message)
            for interceptor in self._interceptors:
                try:
                    interceptor.on_acknowledged(delivery.delivered, delivery.failure)
                except Exception:
                    logger.exception("an interceptor failed in on_acknowledged")

        return report

    def _serve(self) -> None:
        while not self._is_closed:
            try:
                self._rdkafka.poll(_SERVE_S)
            except KafkaException as exception:
                # A fatal error; whatever the program does next with this producer raises it.
                logger.error("%s", exception.args[0])
                time.sleep(_SERVE_S)

    # ---- transactions ----

    @contextmanager
    def transaction(self, timeout: float = 60.0) -> Iterator[Producer]:
        """All that is sent in the `with` block becomes visible together, or not at all.

        If the block raises, the transaction is aborted and the error goes on.
        """
        with self._transactions.transaction(timeout):
            yield self

    def send_offsets(self, consumer: OffsetSource, timeout: float = 60.0) -> None:
        """Make what the consumer has handed over a part of the transaction: committed with it, or not at all."""
        self._transactions.send_offsets(consumer, timeout)

    # ---- the end ----

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything sent so far is delivered. Raises if some of it failed and nobody was told."""
        if self._is_closed:
            raise Closed("the producer is closed")
        remaining = self._rdkafka.flush(-1 if timeout is None else timeout)
        if remaining:
            reason = f" ({self._last_error.text})" if self._last_error.text else ""
            raise DeliveryFailed(f"{remaining} records were not yet delivered after {timeout:g} s{reason}")
        self._failures.raise_unseen()

    def close(self, timeout: float | None = 60.0) -> None:
        """Wait until everything is delivered, and end. Raises if records could not be delivered."""
        if self._is_closed:
            return
        remaining = self._rdkafka.flush(-1 if timeout is None else timeout)
        if remaining:
            self._rdkafka.purge()
            self._rdkafka.flush(_SERVE_S)
        self._is_closed = True
        self._thread.join()
        if remaining:
            reason = f" ({self._last_error.text})" if self._last_error.text else ""
            raise DeliveryFailed(f"{remaining} records were not delivered within {timeout:g} s{reason}; they are lost")
        self._failures.raise_unseen()


def _ms(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _checked_partition(partition: int) -> int:
    if partition < 0:
        raise ConfigurationError(f"partition is {partition}: it must be 0 or above, or None to let it be chosen")
    return partition
