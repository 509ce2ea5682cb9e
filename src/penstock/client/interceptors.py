"""Hooks into the way of every record. Subclass, and override what is needed.

An interceptor that raises stops the call that it is part of: what it guards against does not happen silently. Only
acknowledgements and commits have nobody to raise to; there the error is logged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.client.errors import PenstockError
from penstock.client.partitions import TopicPartition
from penstock.client.records import Delivered, Headers, Record


@dataclass(frozen=True, slots=True)
class OutgoingRecord:
    """A record on its way out, before its key and value are serialized."""

    topic: str
    value: Any
    key: Any
    headers: Headers
    partition: int | None
    timestamp: int | None


class ProducerInterceptor:
    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        """Called in `send`, before serialization. What it returns is sent."""
        return record

    def on_acknowledged(self, delivered: Delivered | None, error: PenstockError | None) -> None:
        """Called for each record with the broker's answer: one of the two is None."""


class ConsumerInterceptor:
    def on_consume(self, record: Record[Any, Any]) -> Record[Any, Any]:
        """Called when a record is handed over, after deserialization. What it returns is handed over."""
        return record

    def on_commit(self, offsets: Mapping[TopicPartition, int], error: PenstockError | None) -> None:
        """Called after each commit, automatic ones included."""
