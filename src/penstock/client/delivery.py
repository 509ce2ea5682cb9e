"""What becomes of a record that was sent."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, Message

from penstock.client.errors import DeliveryFailed, PenstockError
from penstock.client.rdkafka import delivery_failure
from penstock.client.records import Delivered

logger = logging.getLogger("penstock.client")

OnDelivery = Callable[[Delivered | None, PenstockError | None], None]

_KEPT_FAILURES_MAX = 1000


class Delivery:
    """A handle on a record that was sent. Light: it holds a lock only while somebody waits for it."""

    __slots__ = ("_event", "_failures", "_on_delivery", "_topic", "delivered", "failure", "is_seen")

    def __init__(self, topic: str, on_delivery: OnDelivery | None, failures: Failures) -> None:
        self._topic = topic
        self._on_delivery = on_delivery
        self._failures = failures
        self._event: threading.Event | None = None
        self.delivered: Delivered | None = None
        self.failure: DeliveryFailed | None = None
        self.is_seen = False

    def is_done(self) -> bool:
        return self.delivered is not None or self.failure is not None

    def result(self, timeout: float | None = None) -> Delivered:
        """Wait until the record is acknowledged, and say where it is. Raises `DeliveryFailed` if it failed.

        After `timeout` seconds a TimeoutError is raised; the record may still be delivered later.
        """
        if not self.is_done():
            # The event is set after the outcome, and looked for before it: one of the two sides sees the other.
            self._event = event = self._event or threading.Event()
            if not self.is_done() and not event.wait(timeout):
                raise TimeoutError(f"no acknowledgement of a record for {self._topic!r} within {timeout:g} s")
        self.is_seen = True
        if self.failure is not None:
            raise self.failure
        assert self.delivered is not None
        return self.delivered

    def report(self, error: KafkaError | None, message: Message) -> None:
        """Called by librdkafka with the outcome."""
        if error is None:
            self.delivered = _delivered(message)
        else:
            self.failure = delivery_failure(error, self._topic)
        if self._on_delivery is not None:
            self.is_seen = True
            try:
                self._on_delivery(self.delivered, self.failure)
            except Exception:
                logger.exception("on_delivery failed for a record of %r", self._topic)
        elif self.failure is not None:
            self._failures.add(self)
        if self._event is not None:
            self._event.set()


def _delivered(message: Message) -> Delivered:
    kind, timestamp = message.timestamp()
    offset = message.offset()
    topic, partition = message.topic(), message.partition()
    assert topic is not None
    assert partition is not None
    return Delivered(
        topic,
        partition,
        offset if offset is not None and offset >= 0 else None,
        None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
    )


class Failures:
    """Failed deliveries, until the program has been told about them."""

    def __init__(self, *, is_told_otherwise: bool = False) -> None:
        self._is_told_otherwise = is_told_otherwise
        self._lock = threading.Lock()
        self._failed: list[Delivery] = []
        self._more = 0
        self.has_any = False

    def add(self, delivery: Delivery) -> None:
        with self._lock:
            self.has_any = True
            if self._is_told_otherwise:
                return
            if len(self._failed) < _KEPT_FAILURES_MAX:
                self._failed.append(delivery)
            else:
                self._more += 1

    def raise_unseen(self) -> None:
        """Raise if there are failures that nobody has looked at; each is raised once."""
        with self._lock:
            unseen = [delivery for delivery in self._failed if not delivery.is_seen]
            count = len(unseen) + self._more
            self._failed.clear()
            self._more = 0
        if not unseen:
            return
        first = unseen[0].failure
        assert first is not None
        if count == 1:
            raise first
        raise DeliveryFailed(f"{count} records were not delivered; the first of them: {first}", first.error)
