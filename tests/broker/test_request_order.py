"""Requests of one connection take effect in the order in which they were sent, however long each one takes."""

from __future__ import annotations

import os

import penstock.testing
from penstock.client.connection import Connection
from penstock.wire.compression import Codec
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.broker.frames import produce, produced


def test_a_small_batch_does_not_overtake_one_that_takes_long_to_check() -> None:
    with penstock.testing.broker() as broker, Connection("127.0.0.1", broker.port) as connection:
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        connection.call(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
        sizes = [60_000, 10, 40_000, 50_000, 10, 10]
        for _ in range(5):
            codecs = [Codec.ZSTD if size > 10 else Codec.NONE for size in sizes]
            requests = [produce("t", os.urandom(size), codec) for size, codec in zip(sizes, codecs, strict=True)]
            connection.send_bytes(b"".join(requests))
            answers = [produced(connection) for _ in sizes]
            assert [answer.error_code for answer in answers] == [0] * len(sizes)
            offsets = [answer.base_offset for answer in answers]
            assert offsets == list(range(offsets[0], offsets[0] + len(sizes)))
