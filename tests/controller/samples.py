"""Images of small clusters for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.metadata.image import Image, ResourceType
from penstock.metadata.records import BrokerEndpoint, ConfigRecord, PartitionRecord, RegisterBrokerRecord, TopicRecord
from penstock.wire.types import ZERO_UUID

ID = bytes(range(16))


def broker(broker_id: int, *, rack: str | None = None, is_fenced: bool = False, directories: int = 1) -> Any:
    return RegisterBrokerRecord(
        broker_id=broker_id,
        broker_epoch=100 + broker_id,
        end_points=[BrokerEndpoint(name="PLAINTEXT", host="h", port=9092)],
        rack=rack,
        fenced=is_fenced,
        log_dirs=[bytes([broker_id, n + 1]) * 8 for n in range(directories)],
    )


def topic(name: str, *replicas: list[int], topic_id: bytes | None = None) -> list[Any]:
    """The records of a topic with these replicas, one list per partition."""
    topic_id = topic_id or name.encode().ljust(16, b"\0")
    return [
        TopicRecord(name=name, topic_id=topic_id),
        *[
            PartitionRecord(
                topic_id=topic_id,
                partition_id=index,
                replicas=ids,
                isr=ids,
                leader=ids[0],
                leader_epoch=0,
                partition_epoch=0,
                directories=[ZERO_UUID] * len(ids),
            )
            for index, ids in enumerate(replicas)
        ],
    ]


def config(resource_type: ResourceType, name: str, settings: Mapping[str, str]) -> list[Any]:
    return [
        ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)
        for key, value in settings.items()
    ]


def image_of(*records: Any) -> Image:
    flat: list[Any] = []
    for record in records:
        flat += record if isinstance(record, list) else [record]
    return Image().apply(flat, len(flat) - 1, 1)[0]
