"""Bytes from anyone: a message or a DecodeError, nothing else, and no memory for lengths that are only claimed."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.metadata.records import TopicRecord, decode_record, encode_record
from penstock.wire._codec import ELEMENTS_MAX, RequestCursor, read_one_produce
from penstock.wire.api import APIS, ApiKey
from penstock.wire.errors import DecodeError, EncodeError
from penstock.wire.messages.api_versions import ApiVersionsResponse
from penstock.wire.messages.create_partitions import CreatePartitionsRequest
from penstock.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from penstock.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.schema import codec, field, field_table, is_flexible
from penstock.wire.schema import message as wire_message
from penstock.wire.schema import struct as wire_struct
from penstock.wire.types import INT32, STRING, struct_of
from tests.wire.samples import api_messages, for_version, full_message, versions_of

KIB = 1024

every_message = pytest.mark.parametrize("cls", api_messages(), ids=lambda cls: cls.__name__)


def compact(length: int) -> bytes:
    """An unsigned varint."""
    out = bytearray()
    while length >= 0x80:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*out, length])


@cache
def full_encoding(cls: type, version: int) -> bytes:
    return codec(cls, version).encode(for_version(full_message(cls), version))


def check_is_message_or_refused(cls: type, version: int, data: bytes) -> None:
    """Decoding either raises DecodeError or gives a message that lies within the data and can be encoded again."""
    reader = codec(cls, version)
    try:
        message, end = reader.read(data)
    except DecodeError:
        return
    assert 0 <= end <= len(data)
    assert reader.read(reader.encode(message))[0] == message


def peak_bytes(action: Callable[[], Any]) -> int:
    """How much memory Python held at most, beyond what it held before."""
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def refused_peak_bytes(cls: type, version: int, data: bytes) -> int:
    def refuse() -> None:
        with pytest.raises(DecodeError):
            codec(cls, version).read(data)

    refuse()  # compiles the codec, outside of the measurement
    return peak_bytes(refuse)


# ---- any bytes ----


@every_message
def test_a_message_cut_off_anywhere_is_refused(cls: type) -> None:
    for version in versions_of(cls):
        whole = full_encoding(cls, version)
        for size in range(len(whole)):
            with pytest.raises(DecodeError):
                codec(cls, version).read(whole[:size])
        assert codec(cls, version).read(whole)[1] == len(whole)


edits = st.lists(
    st.tuples(
        st.sampled_from(["flip", "set", "insert", "delete", "cut"]),
        st.floats(0, 1, exclude_max=True),
        st.integers(0, 255) | st.sampled_from([0x00, 0x01, 0x7F, 0x80, 0xFF]),
    ),
    min_size=1,
    max_size=4,
)


def edited(data: bytes, changes: list[tuple[str, float, int]]) -> bytes:
    out = bytearray(data)
    for kind, fraction, value in changes:
        at = int(fraction * len(out))
        if not out or kind == "insert":
            out.insert(at, value)
        elif kind == "flip":
            out[at] ^= 1 << value % 8
        elif kind == "set":
            out[at] = value
        elif kind == "delete":
            del out[at]
        else:
            del out[at:]
    return bytes(out)


@every_message
@given(changes=edits)
@settings(deadline=None, max_examples=50)
def test_a_damaged_message_is_decoded_or_refused(cls: type, changes: list[tuple[str, float, int]]) -> None:
    for version in versions_of(cls):
        check_is_message_or_refused(cls, version, edited(full_encoding(cls, version), changes))


@every_message
@given(data=st.binary(max_size=60) | st.lists(st.sampled_from([0, 1, 2, 3, 0x7F, 0x80, 0xFF]), max_size=60).map(bytes))
@settings(deadline=None, max_examples=50)
def test_random_bytes_are_decoded_or_refused(cls: type, data: bytes) -> None:
    for version in versions_of(cls):
        check_is_message_or_refused(cls, version, data)


def test_a_position_outside_the_buffer_is_refused() -> None:
    for position in (-1, 5, 2**62, -(2**62)):
        with pytest.raises(DecodeError):
            codec(DeleteTopicsRequest, 0).read(bytes(4), position)


# ---- request headers, and the short cut for produce requests ----


def produce_request(version: int) -> bytes:
    topic = TopicProduceData("topic", bytes(range(16)), [PartitionProduceData(3, b"some records")])
    request = ProduceRequest("id", -1, 1000, [topic])
    frame = codec(ProduceRequest, version).encode_request(0, version, 42, "client", version >= 9, request)
    return frame[4:]


@pytest.mark.parametrize("version", versions_of(ProduceRequest))
def test_a_produce_request_cut_off_anywhere_is_refused(version: int) -> None:
    whole = produce_request(version)
    for size in range(len(whole)):
        with pytest.raises(DecodeError):
            read_one_produce(RequestCursor(whole[:size]), version)
    assert read_one_produce(RequestCursor(whole), version) is not None


@given(changes=edits, version=st.sampled_from(versions_of(ProduceRequest)))
@settings(deadline=None, max_examples=500)
def test_the_short_cut_never_takes_what_the_long_way_refuses(
    changes: list[tuple[str, float, int]], version: int
) -> None:
    def long_way() -> Any:
        return codec(ProduceRequest, version).read_request(RequestCursor(data), version >= 9)

    data = edited(produce_request(version), changes)
    try:
        short = read_one_produce(RequestCursor(data), version)
    except DecodeError:
        with pytest.raises(DecodeError):
            long_way()
        return
    if short is None:
        return
    request = long_way()
    [topic] = request.topic_data
    [partition] = topic.partition_data
    assert (short.transactional_id, short.acks, short.timeout_ms, short.index, short.records) == (
        request.transactional_id,
        request.acks,
        request.timeout_ms,
        partition.index,
        partition.records,
    )
    assert short.topic == (topic.topic_id if version >= 13 else topic.name)


@pytest.mark.parametrize("tags", [b"\x02\x09\x00\x08\x00", b"\x02\x09\x00\x09\x00"], ids=["out of order", "twice"])
def test_the_short_cut_refuses_disordered_tagged_fields_as_the_long_way_does(tags: bytes) -> None:
    data = produce_request(9)
    assert data[-3:] == b"\0\0\0"  # no tagged fields in the partition, the topic and the request
    data = data[:-1] + tags
    with pytest.raises(DecodeError):
        codec(ProduceRequest, 9).read_request(RequestCursor(data), True)
    with pytest.raises(DecodeError):
        read_one_produce(RequestCursor(data), 9)


def test_a_produce_request_with_bytes_behind_it_is_left_to_the_long_way() -> None:
    cursor = RequestCursor(produce_request(9) + b"!")
    start = cursor.position
    assert read_one_produce(cursor, 9) is None
    assert cursor.position == start


@pytest.mark.parametrize(
    "header",
    [
        b"",
        bytes(7),
        bytes(8),  # no client id
        bytes(8) + b"\xff\xfe",  # client id of length -2
        bytes(8) + b"\x00\x05abc",  # client id longer than the frame
        bytes(8) + b"\x00\x02\xff\xfe",  # client id that is not UTF-8
    ],
)
def test_a_malformed_request_header_is_refused(header: bytes) -> None:
    with pytest.raises(DecodeError):
        RequestCursor(header)


@pytest.mark.parametrize("tagged", [b"", b"\x01", b"\x01\x00", b"\x01\x00\x09", b"\xff\xff\xff\xff\x0f", b"\xff" * 6])
def test_malformed_tagged_fields_of_a_request_header_are_refused(tagged: bytes) -> None:
    cursor = RequestCursor(struct.pack(">hhih", 18, 3, 1, -1) + tagged)
    with pytest.raises(DecodeError):
        APIS[ApiKey.API_VERSIONS].request_codec(3).read_request(cursor, True)


def test_unknown_tagged_fields_of_a_request_header_are_skipped() -> None:
    header = struct.pack(">hhih", 18, 3, 1, -1) + b"\x02\x00\x03abc\x09\x00"
    cursor = RequestCursor(header + b"\x02n\x02v\x00")
    request = APIS[ApiKey.API_VERSIONS].request_codec(3).read_request(cursor, True)
    assert (request.client_software_name, request.client_software_version) == ("n", "v")


# ---- lengths ----

int32 = struct.Struct(">i").pack
int16 = struct.Struct(">h").pack


@pytest.mark.parametrize("length", [-2, -3, -(2**31), 1, 2, 2**31 - 1])
def test_an_array_length_that_is_negative_or_beyond_the_frame_is_refused(length: int) -> None:
    assert refused_peak_bytes(DeleteTopicsRequest, 0, int32(length)) < 16 * KIB


@pytest.mark.parametrize("length", [-2, -3, -(2**15), 6, 2**15 - 1])
def test_a_string_length_that_is_negative_or_beyond_the_frame_is_refused(length: int) -> None:
    assert refused_peak_bytes(DeleteTopicsRequest, 0, int32(1) + int16(length) + b"topic") < 16 * KIB


@pytest.mark.parametrize("length", [-2, -(2**31), 8, 2**31 - 1])
def test_a_records_length_that_is_negative_or_beyond_the_frame_is_refused(length: int) -> None:
    data = int16(-1) + int16(1) + int32(0) + int32(1) + int16(1) + b"t" + int32(1) + int32(0)
    assert refused_peak_bytes(ProduceRequest, 3, data + int32(length) + b"records") < 16 * KIB


@pytest.mark.parametrize("length", [7, 128, 2**14, 2**31, 2**32 - 1])
def test_a_compact_length_beyond_the_frame_is_refused(length: int) -> None:
    assert refused_peak_bytes(DeleteTopicsRequest, 4, compact(length)) < 16 * KIB
    assert refused_peak_bytes(DeleteTopicsRequest, 4, compact(2) + compact(length) + b"topic") < 16 * KIB


@pytest.mark.parametrize(
    ("cls", "version", "data"),
    [
        (DeleteTopicsRequest, 0, int32(-1) + int32(0)),
        (DeleteTopicsRequest, 0, int32(1) + int16(-1) + int32(0)),
        (DeleteTopicsRequest, 4, compact(0) + int32(0) + b"\0"),
        (DeleteTopicsRequest, 4, compact(2) + compact(0) + int32(0) + b"\0"),
        (MetadataRequest, 0, int32(-1)),
        (MetadataRequest, 1, int32(1) + int16(-1)),
        (MetadataRequest, 9, compact(2) + compact(0) + b"\0\0\0\0\0"),
    ],
)
def test_null_where_a_value_is_required_is_refused(cls: type, version: int, data: bytes) -> None:
    with pytest.raises(DecodeError):
        codec(cls, version).read(data)


def test_null_where_it_is_allowed_is_read() -> None:
    assert codec(MetadataRequest, 1).read(int32(-1))[0].topics is None


VARINTS_TOO_LONG = [
    b"\x80" * 5 + b"\x01",
    b"\x80" * 9 + b"\x01",
    b"\xff" * 12,
    b"\x81\x80\x80\x80\x80\x00",  # 1, in six bytes
    b"\x80\x80\x80\x80\x10",  # 2^32
    b"\x81\x80\x80\x80\x10",  # 2^32 + 1, which cut off to 32 bits would be 1
    b"\xff\xff\xff\xff\x7f",
]


@pytest.mark.parametrize("varint", VARINTS_TOO_LONG)
def test_a_varint_beyond_32_bits_is_refused(varint: bytes) -> None:
    with pytest.raises(DecodeError):
        codec(DeleteTopicsRequest, 4).read(varint + bytes(100))


def test_a_varint_with_padding_is_read_as_kafka_does() -> None:
    padded = b"\x82\x80\x80\x80\x00" + compact(2) + b"t" + int32(5) + b"\0"
    assert codec(DeleteTopicsRequest, 4).read(padded)[0] == DeleteTopicsRequest(topic_names=["t"], timeout_ms=5)


@pytest.mark.parametrize(
    "text",
    [b"\xff", b"\xc3", b"a\x80", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe6\xb0"],
    ids=["0xff", "cut off", "continuation", "overlong", "surrogate", "beyond unicode", "cut off too"],
)
def test_a_string_that_is_not_utf8_is_refused(text: bytes) -> None:
    with pytest.raises(DecodeError):
        codec(DeleteTopicsRequest, 0).read(int32(1) + int16(len(text)) + text + int32(0))
    with pytest.raises(DecodeError):
        codec(DeleteTopicsRequest, 4).read(compact(2) + compact(len(text) + 1) + text + int32(0) + b"\0")


# ---- how much one frame may unfold into ----


def empty_names(count: int) -> bytes:
    """A DeleteTopics request of version 4 for `count` topics without name: one byte each."""
    return compact(count + 1) + b"\x01" * count + int32(0) + b"\0"


def test_as_many_array_elements_as_allowed_are_read() -> None:
    request, _ = codec(DeleteTopicsRequest, 4).read(empty_names(ELEMENTS_MAX))
    assert len(request.topic_names) == ELEMENTS_MAX


def test_more_array_elements_than_allowed_are_refused_and_cost_nothing() -> None:
    assert refused_peak_bytes(DeleteTopicsRequest, 4, empty_names(ELEMENTS_MAX + 1)) < 16 * KIB
    assert refused_peak_bytes(MetadataRequest, 9, compact(10**7) + b"\x01\x00" * 10**7) < 16 * KIB


def test_the_elements_of_all_arrays_of_a_message_are_counted_together() -> None:
    def request(topics: int, nodes: int) -> bytes:
        assignment = compact(nodes + 1) + int32(7) * nodes + b"\0"
        topic = compact(2) + b"t" + int32(1) + compact(2) + assignment + b"\0"
        return compact(topics + 1) + topic * topics + int32(0) + b"\0\0"

    topics = 50
    fitting = ELEMENTS_MAX // topics - 2  # per topic: itself, its assignment and the nodes
    decoded, _ = codec(CreatePartitionsRequest, 2).read(request(topics, fitting))
    assert len(decoded.topics[-1].assignments[0].broker_ids) == fitting
    with pytest.raises(DecodeError):
        codec(CreatePartitionsRequest, 2).read(request(topics, fitting + 1))


def test_memory_for_a_message_is_bounded_by_the_number_of_its_elements() -> None:
    """Two bytes on the wire become a struct in memory; what a frame of any size can cost stays below this."""
    largest = compact(ELEMENTS_MAX + 1) + b"\x01\x00" * ELEMENTS_MAX + bytes(3) + b"\0"
    assert peak_bytes(lambda: codec(MetadataRequest, 9).read(largest)) < 200 * ELEMENTS_MAX


# ---- tagged fields ----


def api_versions_with(*tagged: tuple[int, bytes], count: int | None = None) -> bytes:
    """An ApiVersions response of version 3 with tagged fields; known are 0 and 2 (arrays), 1 (int64) and 3 (bool)."""
    fields = b"".join(compact(tag) + compact(len(value)) + value for tag, value in tagged)
    return int16(0) + compact(1) + int32(0) + compact(len(tagged) if count is None else count) + fields


epoch = struct.pack(">q", 77)


def read_api_versions(data: bytes) -> ApiVersionsResponse:
    response, end = codec(ApiVersionsResponse, 3).read(data)
    assert end == len(data)
    assert isinstance(response, ApiVersionsResponse)
    return response


def test_tagged_fields_in_order_are_read() -> None:
    assert read_api_versions(api_versions_with((1, epoch), (3, b"\x01"))) == ApiVersionsResponse(
        finalized_features_epoch=77, zk_migration_ready=True
    )


def test_tagged_fields_that_are_left_out_have_their_defaults() -> None:
    assert read_api_versions(api_versions_with()) == ApiVersionsResponse()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(api_versions_with((3, b"\x01"), (1, epoch)), id="out of order"),
        pytest.param(api_versions_with((1, epoch), (1, epoch)), id="twice"),
        pytest.param(api_versions_with((9, b""), (9, b"")), id="an unknown one twice"),
        pytest.param(api_versions_with((9, b"ab"), (1, epoch)), id="an unknown one out of order"),
        pytest.param(api_versions_with((1, epoch + b"!")), id="not filled"),
        pytest.param(api_versions_with((3, b"\x01\x01")), id="a boolean of two bytes"),
        pytest.param(api_versions_with((3, b"")), id="a boolean of no bytes"),
        pytest.param(api_versions_with((1, epoch[:7])) + bytes(50), id="too short, and bytes behind it"),
        pytest.param(api_versions_with((0, compact(2) + compact(2) + b"f")) + bytes(50), id="cut off inside"),
        pytest.param(api_versions_with((0, compact(100))) + bytes(200), id="array longer than the field"),
        pytest.param(api_versions_with((2, compact(0))), id="null"),
        pytest.param(api_versions_with(count=1) + compact(1) + compact(8) + epoch[:7], id="longer than the message"),
        pytest.param(api_versions_with(count=1) + compact(9) + compact(2**32 - 1), id="claims 4 GiB"),
        pytest.param(api_versions_with((1, epoch), count=2), id="fewer than announced"),
        pytest.param(api_versions_with(count=2**32 - 1), id="announces 4 G fields"),
        pytest.param(api_versions_with(count=1) + b"\xff" * 5 + b"\x01", id="tag beyond 32 bits"),
    ],
)
def test_malformed_tagged_fields_are_refused(data: bytes) -> None:
    assert refused_peak_bytes(ApiVersionsResponse, 3, data) < 16 * KIB


@pytest.mark.parametrize("tag", [4, 127, 128, 10_000, 2**31, 2**32 - 1])
@pytest.mark.parametrize("content", [b"", b"x", bytes(300), b"\xff" * 20])
def test_unknown_tagged_fields_are_skipped(tag: int, content: bytes) -> None:
    response = read_api_versions(api_versions_with((1, epoch), (tag, content)))
    assert response == ApiVersionsResponse(finalized_features_epoch=77)


@every_message
def test_unknown_tagged_fields_change_nothing_in_any_flexible_version(cls: type) -> None:
    """The tagged fields of the message itself are its last bytes, so one more is easily added."""
    for version in versions_of(cls):
        empty = codec(cls, version).encode(for_version(cls(), version))
        if not is_flexible(cls, version):
            continue
        assert empty[-1] == 0
        decoded, end = codec(cls, version).read(empty[:-1] + b"\x02" + compact(500) + b"\x01x" + compact(501) + b"\x00")
        assert decoded == for_version(cls(), version)
        assert end == len(empty) + 7


# ---- the metadata log ----


def test_a_metadata_record_cut_off_anywhere_is_refused() -> None:
    whole = encode_record(TopicRecord("topic", bytes(range(16))))
    for size in range(len(whole)):
        with pytest.raises(DecodeError):
            decode_record(whole[:size])
    assert decode_record(whole) == TopicRecord("topic", bytes(range(16)))


def test_a_metadata_record_in_an_unknown_version_is_refused() -> None:
    whole = bytearray(encode_record(TopicRecord("topic", bytes(range(16)))))
    whole[2] = 9
    with pytest.raises(DecodeError):
        decode_record(bytes(whole))


# ---- encoding: what a version cannot say is refused, not garbled ----


@pytest.mark.parametrize(
    ("version", "message"),
    [
        (0, MetadataRequest(topics=None)),
        (1, MetadataRequest(topics=[MetadataRequestTopic(name=None)])),
        (9, MetadataRequest(topics=[MetadataRequestTopic(name=None)])),
        (4, MetadataRequest(allow_auto_topic_creation=None)),  # type: ignore[arg-type]
        (10, MetadataRequest(topics=[MetadataRequestTopic(topic_id=None)])),  # type: ignore[arg-type]
    ],
)
def test_null_in_a_field_that_must_have_a_value_cannot_be_encoded(version: int, message: MetadataRequest) -> None:
    with pytest.raises(EncodeError):
        codec(MetadataRequest, version).encode(message)


@pytest.mark.parametrize("version", [0, 4])
def test_null_as_an_element_of_an_array_of_strings_cannot_be_encoded(version: int) -> None:
    with pytest.raises(EncodeError):
        codec(DeleteTopicsRequest, version).encode(DeleteTopicsRequest(topic_names=[None]))  # type: ignore[list-item]


@pytest.mark.parametrize("text", ["x" * 32768, "ü" * 16384, "x" * 100_000])
def test_a_string_beyond_32767_bytes_cannot_be_encoded_in_a_version_that_is_not_flexible(text: str) -> None:
    message = DeleteTopicsRequest(topic_names=[text])
    with pytest.raises(EncodeError):
        codec(DeleteTopicsRequest, 3).encode(message)
    assert codec(DeleteTopicsRequest, 4).read(codec(DeleteTopicsRequest, 4).encode(message))[0] == message


def test_a_string_of_32767_bytes_can_be_encoded_in_any_version() -> None:
    message = DeleteTopicsRequest(topic_names=["x" * 32767])
    for version in (0, 3, 4):
        assert (
            codec(DeleteTopicsRequest, version).read(codec(DeleteTopicsRequest, version).encode(message))[0] == message
        )


def test_a_client_id_beyond_32767_bytes_cannot_be_encoded() -> None:
    with pytest.raises(EncodeError):
        codec(MetadataRequest, 9).encode_request(3, 9, 1, "x" * 32768, True, MetadataRequest())


@pytest.mark.parametrize("number", [2**31, -(2**31) - 1, 2**64])
def test_a_number_out_of_range_cannot_be_encoded(number: int) -> None:
    with pytest.raises((EncodeError, OverflowError)):
        codec(MetadataResponse, 3).encode(MetadataResponse(throttle_time_ms=number))


@pytest.mark.parametrize("size", [0, 15, 17])
def test_a_uuid_that_does_not_have_16_bytes_cannot_be_encoded(size: int) -> None:
    with pytest.raises(EncodeError):
        codec(MetadataRequest, 10).encode(MetadataRequest(topics=[MetadataRequestTopic(bytes(size), "t")]))


@pytest.mark.parametrize("wrap", [bytearray, memoryview, lambda uuid: uuid.decode()], ids=["bytearray", "view", "str"])
def test_a_uuid_that_is_not_bytes_is_encoded_as_it_is_or_refused(wrap: Callable[[bytes], Any]) -> None:
    """And never as whatever lies in memory where a bytes object would have its content."""
    uuid = b"0123456789abcdef"
    message = MetadataRequest(topics=[MetadataRequestTopic(wrap(uuid), "t")])
    try:
        encoded = codec(MetadataRequest, 10).encode(message)
    except (EncodeError, TypeError):
        return
    assert codec(MetadataRequest, 10).read(encoded)[0].topics[0].topic_id == uuid


def test_text_that_is_no_unicode_cannot_be_encoded() -> None:
    with pytest.raises((EncodeError, UnicodeEncodeError)):
        codec(DeleteTopicsRequest, 4).encode(DeleteTopicsRequest(topic_names=["\ud800"]))


def request_frame(cls: type, version: int, message: Any) -> bytes:
    return codec(cls, version).encode_request(0, version, 1, None, False, message)


def test_a_request_with_a_field_its_version_lacks_cannot_be_encoded() -> None:
    with pytest.raises(EncodeError, match="include_synonyms"):
        request_frame(DescribeConfigsRequest, 0, DescribeConfigsRequest(include_synonyms=True))
    with pytest.raises(EncodeError, match="producer_id"):
        request_frame(InitProducerIdRequest, 2, InitProducerIdRequest(producer_id=5))


@pytest.mark.parametrize("cls", [api.request_type for api in APIS.values()], ids=lambda cls: cls.__name__)
def test_only_what_may_be_ignored_is_dropped_from_a_request(cls: type) -> None:
    """Field by field: a value in a field that the version lacks is an error, unless the field is ignorable."""
    full = full_message(cls)
    for version in versions_of(cls):
        plain = for_version(cls(), version)
        expected = request_frame(cls, version, plain)
        for spec in field_table(cls):
            if version in spec.versions:
                continue
            message = for_version(cls(), version)
            setattr(message, spec.name, getattr(full, spec.name))
            if spec.ignorable:
                assert request_frame(cls, version, message) == expected, spec.name
            else:
                with pytest.raises(EncodeError, match=spec.name):
                    request_frame(cls, version, message)


def test_a_field_that_a_version_lacks_is_found_in_nested_structs_too() -> None:
    api = APIS[ApiKey.FETCH]
    message = for_version(api.request_type(), 4)
    message.topics = [for_version(full_message(api.request_type), 11).topics[0]]
    request_frame(api.request_type, 11, message)
    message.topics[0].partitions[0].last_fetched_epoch = 3  # from version 12
    with pytest.raises(EncodeError, match="last_fetched_epoch"):
        request_frame(api.request_type, 11, message)


@wire_struct
class Extra:
    number: int = field(INT32, "1+", default=0)
    note: str = field(STRING, "2+", default="")


@wire_message(versions="1-2", flexible="1+")
class WithTaggedStruct:
    extra: Extra | None = field(struct_of(Extra), "1+", default=None, tag=0)


def test_a_field_that_a_version_lacks_is_found_in_tagged_structs_too() -> None:
    message = WithTaggedStruct(Extra(7, "note"))
    with pytest.raises(EncodeError, match="note"):
        request_frame(WithTaggedStruct, 1, message)
    assert codec(WithTaggedStruct, 2).read(codec(WithTaggedStruct, 2).encode(message))[0] == message


@pytest.mark.parametrize("api", [pytest.param(api, id=api.name) for api in APIS.values()])
def test_a_response_leaves_out_what_its_version_lacks(api: Any) -> None:
    full = full_message(api.response_type)
    for version in range(api.low, api.high + 1):
        encoder = api.response_codec(version)
        given_all = encoder.encode_response(1, False, for_version(full, version, keeps_absent=True))
        assert given_all == encoder.encode_response(1, False, for_version(full, version))


def test_a_response_drops_a_field_that_may_not_be_ignored() -> None:
    result = DeletableTopicResult("t", topic_id=bytes(range(16)), error_code=3, error_message="why")
    plain = DeletableTopicResult("t", error_code=3)
    encoder = codec(DeleteTopicsResponse, 1)
    assert encoder.encode_response(1, False, DeleteTopicsResponse(responses=[result])) == encoder.encode_response(
        1, False, DeleteTopicsResponse(responses=[plain])
    )


def test_arrays_of_the_wrong_kind_of_thing_cannot_be_encoded() -> None:
    resource = DescribeConfigsResource(configuration_keys=[b"bytes"])  # type: ignore[list-item]
    with pytest.raises((EncodeError, TypeError)):
        codec(DescribeConfigsRequest, 1).encode(DescribeConfigsRequest(resources=[resource]))
    topic = DescribableLogDirTopic("t", ["one"])  # type: ignore[list-item]
    with pytest.raises((EncodeError, TypeError)):
        codec(DescribeLogDirsRequest, 1).encode(DescribeLogDirsRequest(topics=[topic]))
