"""Which partition a record goes to.

A partitioner is any callable from a key's bytes (or None) and the number of partitions to a partition. Those with names
are librdkafka's own and cost nothing here; "murmur2" puts a key where Java's clients put it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

from confluent_kafka import murmur2 as _murmur2

from penstock.client.errors import ConfigurationError

Partitioner = Callable[[bytes | None, int], int]

# Records without a key stay with one partition for as long as batches fill (sticky.partitioning.linger.ms).
LIBRDKAFKAS = {
    "murmur2": "murmur2_random",
    "crc32": "consistent_random",
    "fnv1a": "fnv1a_random",
    "random": "random",
}
_BY_CODE = ("round_robin",)


def murmur2(key: bytes, partitions: int) -> int:
    """The partition where Java's clients put this key."""
    return _murmur2(key, partitions)


class RoundRobin:
    """One partition after the other, whatever the keys."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def __call__(self, key: bytes | None, partitions: int) -> int:
        return next(self._numbers) % partitions


def find_partitioner(given: str | Partitioner) -> tuple[str, Callable[[], Partitioner] | None]:
    """librdkafka's name for a partitioner, and for those it does not have what makes one for a topic."""
    if callable(given):
        chosen = given
        return "random", lambda: chosen
    if given == "round_robin":
        return "random", RoundRobin
    if given not in LIBRDKAFKAS:
        known = ", ".join((*LIBRDKAFKAS, *_BY_CODE))
        raise ConfigurationError(f"there is no partitioner {given!r}: use a callable or one of {known}")
    return LIBRDKAFKAS[given], None
