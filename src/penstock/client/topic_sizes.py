"""How many partitions topics have, for partitioners that librdkafka does not know."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import KafkaException

from penstock.client.rdkafka import from_exception, from_kafka

_AGE_MAX_S = 60.0


class TopicSizes:
    """Partition counts, asked for on first use and again when they are a minute old."""

    def __init__(self, rdkafka: Any) -> None:
        self._rdkafka = rdkafka
        self._counts: dict[str, tuple[int, float]] = {}

    def knows(self, topic: str) -> bool:
        return time.monotonic() < self._counts.get(topic, (0, 0.0))[1]

    def partitions_of(self, topic: str, timeout: float) -> int:
        count, expires = self._counts.get(topic, (0, 0.0))
        now = time.monotonic()
        if now < expires:
            return count
        doing = f"find out how many partitions {topic!r} has"
        try:
            found = self._rdkafka.list_topics(topic, timeout=timeout).topics[topic]
        except KafkaException as exception:
            raise from_exception(exception, doing) from None
        if found.error is not None:
            raise from_kafka(found.error, doing)
        self._counts[topic] = (len(found.partitions), now + _AGE_MAX_S)
        return len(found.partitions)
