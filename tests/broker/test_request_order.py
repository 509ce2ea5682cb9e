"""Requests of one connection take effect in the order in which they were sent, however long each one takes."""

from __future__ import annotations

import os

import penstock.testing
from penstock.client.connection import Connection
from penstock.wire.api import APIS, ApiKey
from penstock.wire.batch import encode_batch
from penstock.wire.compression import Codec
from penstock.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.record import Record

VERSION = 9
PRODUCE = APIS[ApiKey.PRODUCE]


def _produce(value: bytes, codec: Codec) -> bytes:
    batch = encode_batch([Record(0, 1_700_000_000_000, None, value, ())], codec=codec)
    partition = PartitionProduceData(index=0, records=memoryview(batch))
    request = ProduceRequest(
        acks=1, timeout_ms=5000, topic_data=[TopicProduceData(name="t", partition_data=[partition])]
    )
    return PRODUCE.request_codec(VERSION).encode_request(PRODUCE.key, VERSION, 1, None, True, request)


def test_a_small_batch_does_not_overtake_one_that_takes_long_to_check() -> None:
    with penstock.testing.broker() as broker, Connection("127.0.0.1", broker.port) as connection:
        topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        connection.call(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
        sizes = [60_000, 10, 40_000, 50_000, 10, 10]
        for _ in range(5):
            codecs = [Codec.ZSTD if size > 10 else Codec.NONE for size in sizes]
            requests = [_produce(os.urandom(size), codec) for size, codec in zip(sizes, codecs, strict=True)]
            connection.send_bytes(b"".join(requests))
            answers = [connection.receive(PRODUCE, VERSION).responses[0].partition_responses[0] for _ in sizes]
            assert [answer.error_code for answer in answers] == [0] * len(sizes)
            offsets = [answer.base_offset for answer in answers]
            assert offsets == list(range(offsets[0], offsets[0] + len(sizes)))
