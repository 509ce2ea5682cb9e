"""What is encoded is decoded again, by us and by kio, a codec that shares nothing with ours."""

from __future__ import annotations

import io
from functools import cache
from importlib import import_module
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from penstock.metadata import kraft, records
from penstock.wire._codec import RequestCursor, encode_one_produced, read_one_produce
from penstock.wire.api import APIS, Api, ApiKey
from penstock.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from penstock.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from penstock.wire.schema import codec, field_table
from tests.wire.samples import api_messages, for_version, full_message, is_tagged_struct, messages_of, versions_of

OTHER_MESSAGES = [
    *(cls for cls, _ in records._TYPES.values()),
    kraft.LeaderChangeMessage,
    kraft.SnapshotHeaderRecord,
    kraft.SnapshotFooterRecord,
]

# What kio cannot check: it follows Kafka 4, which dropped these versions.
KIO_LACKS = {
    ("CreateTopics", 0),
    ("CreateTopics", 1),
    ("DeleteTopics", 0),
    ("DescribeConfigs", 0),
    ("DescribeLogDirs", 0),
}

some = settings(deadline=None, max_examples=25)
few = settings(deadline=None, max_examples=8)

all_apis = pytest.mark.parametrize("api", [pytest.param(api, id=api.name) for api in APIS.values()])
produce = APIS[ApiKey.PRODUCE]


# ---- our own codec ----


@pytest.mark.parametrize("cls", [*api_messages(), *OTHER_MESSAGES], ids=lambda cls: cls.__name__)
@given(data=st.data())
@some
def test_a_message_survives_encoding_in_every_version(cls: type, data: st.DataObject) -> None:
    message = data.draw(messages_of(cls))
    for version in versions_of(cls):
        encoded = codec(cls, version).encode(for_version(message, version, keeps_absent=True))
        decoded, end = codec(cls, version).read(encoded)
        assert decoded == for_version(message, version)
        assert end == len(encoded)


@pytest.mark.parametrize("cls", [*api_messages(), *OTHER_MESSAGES], ids=lambda cls: cls.__name__)
def test_a_message_without_values_survives_encoding_in_every_version(cls: type) -> None:
    for version in versions_of(cls):
        message = for_version(cls(), version)
        decoded, _ = codec(cls, version).read(codec(cls, version).encode(message))
        assert decoded == message


@pytest.mark.parametrize("cls", api_messages(), ids=lambda cls: cls.__name__)
def test_decoding_begins_where_it_is_told_to(cls: type) -> None:
    for version in versions_of(cls):
        message = for_version(full_message(cls), version)
        encoded = codec(cls, version).encode(message)
        assert codec(cls, version).read(b"before" + encoded + b"behind", 6) == (message, 6 + len(encoded))


def test_decoded_messages_do_not_share_their_default_lists() -> None:
    encoded = codec(FetchResponse, 12).encode(FetchResponse())
    first, _ = codec(FetchResponse, 12).read(encoded)
    second, _ = codec(FetchResponse, 12).read(encoded)
    first.node_endpoints.append("changed")
    assert second.node_endpoints == []
    assert FetchResponse().node_endpoints == []


def test_record_bytes_are_views_of_the_frame_and_not_copies() -> None:
    message = ProduceRequest(
        topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(0, b"records")])]
    )
    frame = bytearray(codec(ProduceRequest, 9).encode(message))
    decoded, _ = codec(ProduceRequest, 9).read(frame)
    seen = decoded.topic_data[0].partition_data[0].records
    frame[frame.index(b"records")] = ord("R")
    assert bytes(seen) == b"Records"


class FileSlice:
    """Record data that is not in memory: all that the codec may ask for is its length."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    def __len__(self) -> int:
        return len(self.content)


@given(contents=st.lists(st.none() | st.binary(max_size=300), max_size=5), version=st.sampled_from([4, 11, 12, 18]))
@settings(deadline=None, max_examples=60)
def test_a_response_with_file_slices_is_the_response_with_their_bytes(
    contents: list[bytes | None], version: int
) -> None:
    def response(wrap: Any) -> Any:
        partitions = [
            PartitionData(index, records=None if content is None else wrap(content))
            for index, content in enumerate(contents)
        ]
        message = FetchResponse(responses=[FetchableTopicResponse("t", partitions=partitions)])
        return APIS[ApiKey.FETCH].response_codec(version).encode_response(7, version >= 12, message)

    whole = response(bytes)
    parts = response(FileSlice)
    if isinstance(parts, bytes):  # no slice with anything in it
        parts = [parts]
    assert b"".join(part.content if isinstance(part, FileSlice) else part for part in parts) == whole
    assert sum(isinstance(part, FileSlice) for part in parts) == sum(bool(content) for content in contents)


# ---- kio ----


@cache
def kio_entity(api: Api, version: int, kind: str) -> Any:
    """kio's class for a message, or None if it has none."""
    try:
        module = import_module(f"kio.schema.{api.key.name.lower()}.v{version}.{kind.lower()}")
    except ModuleNotFoundError:
        return None
    return getattr(module, api.name + kind)


def kio_decode(entity: Any, data: bytes, position: int = 0) -> tuple[Any, int]:
    decoded, size = entity_reader(entity)(data, position)
    return decoded, position + size


def kio_encode(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


# kio holds error codes as an enumeration, timestamps as datetimes and durations as timedeltas.
KIO_RANGES = {
    "retention_time_ms": st.integers(-1, 4_102_444_800_000),
    "error_code": st.sampled_from([code.value for code in KioErrorCode]),
    "partition_error_code": st.sampled_from([code.value for code in KioErrorCode]),
    "log_append_time_ms": st.integers(-1, 4_102_444_800_000),
    "transaction_start_time_ms": st.integers(0, 4_102_444_800_000),
}


def without_default_structs(message: Any) -> Any:
    """Leaves out tagged structs that say nothing, as kio and Kafka do; we write whatever is not None."""

    def value(spec: Any, given: Any) -> Any:
        if given is None or spec.type.struct is None:
            return given
        if isinstance(given, list):
            return [without_default_structs(item) for item in given]
        return None if is_tagged_struct(spec) and given == spec.type.struct() else without_default_structs(given)

    return type(message)(**{spec.name: value(spec, getattr(message, spec.name)) for spec in field_table(type(message))})


def test_kio_lacks_no_more_versions_than_we_know() -> None:
    pairs = [(api, version) for api in APIS.values() for version in range(api.low, api.high + 1)]
    for kind in ("Request", "Response"):
        lacking = {(api.name, version) for api, version in pairs if kio_entity(api, version, kind) is None}
        assert lacking == KIO_LACKS
    assert len(pairs) - len(KIO_LACKS) > 90


@all_apis
@pytest.mark.parametrize("kind", ["Request", "Response"])
@given(data=st.data())
@some
def test_kio_reads_our_messages_and_writes_the_same_bytes(api: Api, kind: str, data: st.DataObject) -> None:
    cls = api.request_type if kind == "Request" else api.response_type
    message = without_default_structs(data.draw(messages_of(cls, KIO_RANGES)))
    for version in versions_of(cls):
        entity = kio_entity(api, version, kind)
        if entity is None:
            continue
        ours = codec(cls, version).encode(for_version(message, version))
        decoded, end = kio_decode(entity, ours)
        assert end == len(ours)
        assert kio_encode(decoded) == ours


# ---- headers and frames ----


def kio_header(kind: str, version: int) -> Any:
    return getattr(import_module(f"kio.schema.{kind.lower()}_header.v{version}.header"), f"{kind}Header")


client_ids = st.none() | st.text(max_size=20)
correlation_ids = st.integers(-(2**31), 2**31 - 1)


@all_apis
@given(client_id=client_ids, correlation_id=correlation_ids)
@few
def test_a_request_header_that_kio_wrote_is_read(api: Api, client_id: str | None, correlation_id: int) -> None:
    message = full_message(api.request_type)
    for version in range(api.low, api.high + 1):
        is_flexible = api.has_flexible_request_header(version)
        header = kio_header("Request", 2 if is_flexible else 1)(
            request_api_key=api.key, request_api_version=version, correlation_id=correlation_id, client_id=client_id
        )
        body = api.request_codec(version).encode(for_version(message, version))
        cursor = RequestCursor(kio_encode(header) + body)
        assert (cursor.api_key, cursor.api_version) == (api.key, version)
        assert (cursor.correlation_id, cursor.client_id) == (correlation_id, client_id)
        expected = for_version(message, version)
        assert api.request_codec(version).read_request(cursor, is_flexible) == expected
        assert cursor.remaining == 0
        cursor.rewind()
        assert api.request_codec(version).read_request(cursor, is_flexible) == expected


@all_apis
@given(client_id=client_ids, correlation_id=correlation_ids)
@few
def test_kio_reads_our_request_frames(api: Api, client_id: str | None, correlation_id: int) -> None:
    message = full_message(api.request_type)
    for version in range(api.low, api.high + 1):
        entity = kio_entity(api, version, "Request")
        if entity is None:
            continue
        is_flexible = api.has_flexible_request_header(version)
        assert entity.__header_schema__ is kio_header("Request", 2 if is_flexible else 1)
        content = for_version(message, version)
        frame = api.request_codec(version).encode_request(
            api.key, version, correlation_id, client_id, is_flexible, content
        )
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        header, end = kio_decode(entity.__header_schema__, frame, 4)
        assert (header.request_api_key, header.request_api_version) == (api.key, version)
        assert (header.correlation_id, header.client_id) == (correlation_id, client_id)
        body, end = kio_decode(entity, frame, end)
        assert end == len(frame)
        assert kio_encode(body) == api.request_codec(version).encode(content)


@all_apis
@given(correlation_id=correlation_ids)
@few
def test_kio_reads_our_response_frames(api: Api, correlation_id: int) -> None:
    for version in range(api.low, api.high + 1):
        entity = kio_entity(api, version, "Response")
        if entity is None:
            continue
        is_flexible = api.has_flexible_response_header(version)
        assert entity.__header_schema__ is kio_header("Response", 1 if is_flexible else 0)
        content = for_version(api.response_type(), version)
        frame = api.response_codec(version).encode_response(correlation_id, is_flexible, content)
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        header, end = kio_decode(entity.__header_schema__, frame, 4)
        assert header.correlation_id == correlation_id
        body, end = kio_decode(entity, frame, end)
        assert end == len(frame)
        assert kio_encode(body) == api.response_codec(version).encode(content)


# ---- the short cut for produce requests of one partition ----


def produce_frame(version: int, message: ProduceRequest, correlation_id: int = 42) -> bytes:
    frame = produce.request_codec(version).encode_request(0, version, correlation_id, "client", version >= 9, message)
    return frame[4:]


@given(message=messages_of(ProduceRequest), version=st.integers(produce.low, produce.high))
@settings(deadline=None, max_examples=200)
def test_the_short_cut_reads_what_the_long_way_reads(message: ProduceRequest, version: int) -> None:
    message = for_version(message, version)
    cursor = RequestCursor(produce_frame(version, message))
    short = read_one_produce(cursor, version)
    partitions = [(topic, data) for topic in message.topic_data for data in topic.partition_data]
    if short is None:
        has_one = len(message.topic_data) == 1 and len(partitions) == 1
        assert not has_one or partitions[0][1].records is None
        assert produce.request_codec(version).read_request(cursor, version >= 9) == message
        return
    [(topic, data)] = partitions
    assert len(message.topic_data) == 1
    assert (short.transactional_id, short.acks, short.timeout_ms) == (
        message.transactional_id,
        message.acks,
        message.timeout_ms,
    )
    assert short.topic == (topic.topic_id if version >= 13 else topic.name)
    assert (short.index, short.records) == (data.index, data.records)
    cursor.rewind()
    assert produce.request_codec(version).read_request(cursor, version >= 9) == message


@pytest.mark.parametrize("version", range(produce.low, produce.high + 1))
def test_the_short_cut_takes_a_request_for_one_partition(version: int) -> None:
    topic = TopicProduceData("topic", bytes(range(16)), [PartitionProduceData(3, b"records")])
    short = read_one_produce(RequestCursor(produce_frame(version, ProduceRequest(topic_data=[topic]))), version)
    assert short is not None
    assert (short.index, bytes(short.records)) == (3, b"records")


@given(
    name=st.text(max_size=200),
    index=st.integers(-(2**31), 2**31 - 1),
    offsets=st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 3),
    correlation_id=correlation_ids,
)
@settings(deadline=None, max_examples=50)
def test_the_short_cut_answers_as_the_long_way_does(
    name: str, index: int, offsets: tuple[int, int, int], correlation_id: int
) -> None:
    topic_id = bytes(range(16))
    base_offset, log_append_time, log_start_offset = offsets
    for version in range(produce.low, produce.high + 1):
        request = ProduceRequest(
            topic_data=[TopicProduceData(name, topic_id, [PartitionProduceData(index, b"records")])]
        )
        cursor = RequestCursor(produce_frame(version, request, correlation_id))
        short = read_one_produce(cursor, version)
        assert short is not None
        partition = PartitionProduceResponse(
            index, base_offset=base_offset, log_append_time_ms=log_append_time, log_start_offset=log_start_offset
        )
        response = ProduceResponse(responses=[TopicProduceResponse(name, topic_id, [partition])])
        assert encode_one_produced(
            cursor, short, base_offset, log_append_time, log_start_offset
        ) == produce.response_codec(version).encode_response(correlation_id, version >= 9, response)
