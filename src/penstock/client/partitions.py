"""Partitions of topics, as the client library names them."""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """A partition of a topic. A plain pair ("orders", 0) is as good wherever one is asked for."""

    topic: str
    partition: int


PartitionLike = TopicPartition | tuple[str, int]
