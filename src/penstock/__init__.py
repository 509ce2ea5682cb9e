"""Penstock: an event-streaming platform that speaks Kafka's protocol, keeps Kafka's files and feeds Spark.

The names of the client library are loaded when they are first used: a broker starts without librdkafka.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.client.admin import Admin, AsyncAdmin, NewTopic, Resource
    from penstock.client.aio import AsyncConsumer, AsyncProducer
    from penstock.client.consumer import Consumer
    from penstock.client.delivery import Delivery
    from penstock.client.errors import PenstockError
    from penstock.client.interceptors import ConsumerInterceptor, OutgoingRecord, ProducerInterceptor
    from penstock.client.partitions import TopicPartition
    from penstock.client.producer import Producer
    from penstock.client.records import Delivered, Record
    from penstock.client.retry import Retry

_MODULES = {
    "Admin": "admin",
    "AsyncAdmin": "admin",
    "AsyncConsumer": "aio",
    "AsyncProducer": "aio",
    "Consumer": "consumer",
    "ConsumerInterceptor": "interceptors",
    "Delivered": "records",
    "Delivery": "delivery",
    "NewTopic": "admin",
    "OutgoingRecord": "interceptors",
    "PenstockError": "errors",
    "Producer": "producer",
    "ProducerInterceptor": "interceptors",
    "Record": "records",
    "Resource": "admin",
    "Retry": "retry",
    "TopicPartition": "partitions",
}

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "Consumer",
    "ConsumerInterceptor",
    "Delivered",
    "Delivery",
    "NewTopic",
    "OutgoingRecord",
    "PenstockError",
    "Producer",
    "ProducerInterceptor",
    "Record",
    "Resource",
    "Retry",
    "TopicPartition",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    return getattr(import_module(f"penstock.client.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES])
