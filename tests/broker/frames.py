"""Requests as bytes, to be sent many at a time."""

from __future__ import annotations

from penstock.client.connection import Connection
from penstock.wire.api import APIS, ApiKey
from penstock.wire.batch import encode_batch
from penstock.wire.compression import Codec
from penstock.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from penstock.wire.record import Record

_VERSION = 9
_PRODUCE = APIS[ApiKey.PRODUCE]


def produce(topic: str, value: bytes, codec: Codec = Codec.NONE) -> bytes:
    """A request to append one record to the first partition."""
    batch = encode_batch([Record(0, 1_700_000_000_000, None, value, ())], codec=codec)
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=memoryview(batch))])]
    request = ProduceRequest(acks=1, timeout_ms=5000, topic_data=data)
    return _PRODUCE.request_codec(_VERSION).encode_request(_PRODUCE.key, _VERSION, 1, None, True, request)


def produced(connection: Connection) -> PartitionProduceResponse:
    """The answer to such a request."""
    answer: PartitionProduceResponse = connection.receive(_PRODUCE, _VERSION).responses[0].partition_responses[0]
    return answer
