"""Our field tables are Kafka's message definitions: field by field, version by version.

Kafka's jars carry the definitions as JSON. Versions that Kafka 4.3.1 still speaks are compared with its definitions,
older ones (which we keep for old clients) with those of 3.9.1.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import pytest
from kio.schema.errors import ErrorCode as KioErrorCode

from penstock.metadata import kraft, records
from penstock.wire import _codec, schema
from penstock.wire.api import APIS, Api, ApiKey
from penstock.wire.errors import ErrorCode
from penstock.wire.schema import FieldSpec, Versions, field, field_table, message, struct
from penstock.wire.types import BOOL, INT16, INT32, INT64, STRING, ZERO_UUID, FieldType, array, struct_of
from tests.support.maven import KAFKA_VERSION, OLD_CLIENTS_VERSION, definitions, kafka_jars, old_clients_jar

Definition = dict[str, Any]

KIND_NAMES = {
    _codec.BOOL: "bool",
    _codec.INT8: "int8",
    _codec.INT16: "int16",
    _codec.UINT16: "uint16",
    _codec.INT32: "int32",
    _codec.UINT32: "uint32",
    _codec.INT64: "int64",
    _codec.FLOAT64: "float64",
    _codec.UUID: "uuid",
    _codec.STRING: "string",
    _codec.BYTES: "bytes",
    _codec.RECORDS: "records",
}

# Kafka holds the newest version of these unstable and does not serve it by default; neither do we.
UNSTABLE_HIGHEST = {ApiKey.INIT_PRODUCER_ID: 6}

METADATA_RECORDS = [cls for cls, _ in records._TYPES.values()]
CONTROL_RECORDS = [kraft.LeaderChangeMessage, kraft.SnapshotHeaderRecord, kraft.SnapshotFooterRecord]


# ---- Kafka's side ----


@cache
def new_messages() -> dict[str, Definition]:
    return definitions(kafka_jars() / f"kafka-clients-{KAFKA_VERSION}.jar", "common/message/")


@cache
def old_messages() -> dict[str, Definition]:
    return definitions(old_clients_jar(), "common/message/")


@cache
def metadata_records() -> dict[str, Definition]:
    return definitions(kafka_jars() / f"kafka-metadata-{KAFKA_VERSION}.jar", "common/metadata/")


def kafka_versions(text: str | None) -> Versions:
    return Versions.parse(None if text == "none" else text)


def definition_of(cls: type, version: int) -> Definition:
    """The definition that is the reference for this version of a message."""
    new = new_messages()[cls.__name__]
    if version in kafka_versions(new["validVersions"]):
        return new
    old = old_messages()[cls.__name__]
    assert version in kafka_versions(old["validVersions"]), (
        f"{cls.__name__} v{version} is neither in Kafka {KAFKA_VERSION} nor in {OLD_CLIENTS_VERSION}"
    )
    return old


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def as_integer(text: Any) -> int:
    return int(text, 0) if isinstance(text, str) else int(text)


def kafka_defaults(row: Definition, struct: type | None = None) -> list[Any]:
    """The values that our field may have as its default, to mean what Kafka's default means."""
    kind, given = row["type"], row.get("default")
    if given == "null":
        return [None]
    if kind.startswith("[]"):
        return [[]]
    if kind[0].isupper():  # a struct; one that is tagged is None where it is left out
        return [None] if "tag" in row or "nullableVersions" in row or struct is None else [struct()]
    if kind == "bool":
        return [str(given).lower() == "true"]
    if kind.startswith(("int", "uint")):
        return [as_integer(given or 0)]
    if kind == "float64":
        return [float(given or 0)]
    if kind == "uuid":
        return [ZERO_UUID]
    # Where null is allowed and Kafka names no default, null is ours: it cannot be mistaken for a value.
    empty = given or "" if kind == "string" else b""
    return [empty, None] if "nullableVersions" in row and given is None else [empty]


# ---- the comparison ----


def type_name(kind: FieldType) -> str:
    if kind.kind == _codec.ARRAY:
        return "[]struct" if kind.struct is not None else "[]" + KIND_NAMES[kind.element]
    return "struct" if kind.kind == _codec.STRUCT else KIND_NAMES[kind.kind]


def kafka_type_name(kind: str) -> str:
    element = kind.removeprefix("[]")
    prefix = "[]" if kind.startswith("[]") else ""
    return prefix + ("struct" if element[0].isupper() else element)


@dataclasses.dataclass(frozen=True)
class Facts:
    """What one field is in one version: what has to be the same on both sides."""

    name: str
    type: str
    is_nullable: bool
    tag: int | None
    is_ignorable: bool


def our_facts(spec: FieldSpec, version: int) -> Facts:
    return Facts(
        name=spec.name,
        type=type_name(spec.type),
        is_nullable=version in spec.nullable,
        tag=spec.tag if version in spec.tagged else None,
        is_ignorable=spec.ignorable,
    )


def kafka_facts(row: Definition, version: int) -> Facts:
    return Facts(
        name=snake_case(row["name"]),
        type=kafka_type_name(row["type"]),
        is_nullable=version in kafka_versions(row.get("nullableVersions")),
        tag=row["tag"] if version in kafka_versions(row.get("taggedVersions")) else None,
        is_ignorable=str(row.get("ignorable", False)).lower() == "true",
    )


def in_wire_order(facts: Iterable[tuple[Facts, Any]]) -> list[tuple[Facts, Any]]:
    """Plain fields as they are declared, then tagged ones by tag."""
    return sorted(facts, key=lambda pair: -1 if pair[0].tag is None else pair[0].tag)


def mismatches(cls: type, definition: Definition, version: int) -> Iterator[str]:
    """Where our table of a whole message differs from Kafka's definition, in one version."""
    where = f"{definition['name']} v{version}"
    theirs = version in kafka_versions(definition["flexibleVersions"])
    if schema.is_flexible(cls, version) != theirs:
        yield f"{where}: flexible is {not theirs} here, {theirs} in Kafka"
    structs = {row["name"]: row["fields"] for row in definition.get("commonStructs", [])}
    yield from struct_mismatches(cls, definition["fields"], structs, version, where)


def struct_mismatches(
    cls: type, rows: list[Definition], structs: dict[str, list[Definition]], version: int, where: str
) -> Iterator[str]:
    ours = in_wire_order((our_facts(spec, version), spec) for spec in field_table(cls) if version in spec.versions)
    theirs = in_wire_order(
        (kafka_facts(row, version), row) for row in rows if version in kafka_versions(row["versions"])
    )
    our_names, their_names = [facts.name for facts, _ in ours], [facts.name for facts, _ in theirs]
    if our_names != their_names:
        yield f"{where}: the fields on the wire are {our_names} here, {their_names} in Kafka"
        return
    for (our, spec), (their, row) in zip(ours, theirs, strict=True):
        path = f"{where}, field {their.name}"
        if our != their:
            yield f"{path}: {our} here, {their} in Kafka"
            continue
        if not any(
            spec.default == value and type(spec.default) is type(value)
            for value in kafka_defaults(row, spec.type.struct)
        ):
            yield f"{path}: default {spec.default!r} here, {row.get('default')!r} in Kafka"
        if spec.type.struct is not None:
            name = row["type"].removeprefix("[]")
            nested = row["fields"] if "fields" in row else structs[name]
            yield from struct_mismatches(spec.type.struct, nested, structs, version, path)


def versions_to_compare(cls: type) -> list[int]:
    """All versions we speak, and those that rows of the table name beyond them."""
    versions = schema.message_versions(cls)
    beyond = {spec.versions.low for spec in field_table(cls) if spec.versions.low > versions.high}
    return sorted({*range(versions.low, versions.high + 1), *beyond})


# ---- APIs ----


def api_messages() -> list[type]:
    return [kind for api in APIS.values() for kind in (api.request_type, api.response_type)]


def all_apis() -> list[Any]:
    return [pytest.param(api, id=api.name) for api in APIS.values()]


@pytest.mark.parametrize("cls", api_messages(), ids=lambda cls: cls.__name__)
def test_every_version_of_a_message_has_kafkas_fields(cls: type) -> None:
    found = [
        text for version in versions_to_compare(cls) for text in mismatches(cls, definition_of(cls, version), version)
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("cls", [*api_messages(), *METADATA_RECORDS, *CONTROL_RECORDS], ids=lambda cls: cls.__name__)
def test_every_row_of_a_table_is_on_the_wire_in_some_compared_version(cls: type) -> None:
    """So that no row escapes the comparison, and none is dead."""
    versions = versions_to_compare(cls)

    def unseen(part: type, path: str) -> Iterator[str]:
        for spec in field_table(part):
            if not any(version in spec.versions for version in versions):
                yield f"{path}.{spec.name}"
            if spec.type.struct is not None:
                yield from unseen(spec.type.struct, f"{path}.{spec.name}")

    assert list(unseen(cls, cls.__name__)) == []


@pytest.mark.parametrize("api", all_apis())
def test_the_highest_version_is_kafkas_highest_stable_one(api: Api) -> None:
    highest = kafka_versions(new_messages()[f"{api.name}Request"]["validVersions"]).high
    if api.key in UNSTABLE_HIGHEST:
        assert new_messages()[f"{api.name}Request"]["latestVersionUnstable"] is True
        assert highest == UNSTABLE_HIGHEST[api.key]
        highest -= 1
    assert api.high == highest


@pytest.mark.parametrize("api", all_apis())
def test_the_lowest_version_is_not_above_kafkas(api: Api) -> None:
    assert api.low <= kafka_versions(new_messages()[f"{api.name}Request"]["validVersions"]).low


@pytest.mark.parametrize("api", all_apis())
@pytest.mark.parametrize("kind", ["Request", "Response"])
def test_the_api_table_agrees_with_the_definition(api: Api, kind: str) -> None:
    definition = new_messages()[api.name + kind]
    assert api.key == definition["apiKey"]
    assert api.flexible == kafka_versions(definition["flexibleVersions"]).low
    cls = api.request_type if kind == "Request" else api.response_type
    assert schema.message_versions(cls) == Versions(api.low, api.high)


def test_error_codes_are_kafkas() -> None:
    """The jar does not list them, but kio does, made from Kafka's source."""
    assert {code.name: code.value for code in ErrorCode} == {code.name.upper(): code.value for code in KioErrorCode}


# ---- the metadata log ----


@pytest.mark.parametrize("cls", METADATA_RECORDS, ids=lambda cls: cls.__name__)
def test_every_version_of_a_metadata_record_has_kafkas_fields(cls: type) -> None:
    definition = metadata_records()[cls.__name__]
    found = [text for version in versions_to_compare(cls) for text in mismatches(cls, definition, version)]
    assert not found, "\n".join(found)
    assert schema.message_versions(cls) == kafka_versions(definition["validVersions"])


def test_metadata_records_have_kafkas_type_numbers() -> None:
    ours = {cls.__name__: record_type for record_type, (cls, _) in records._TYPES.items()}
    theirs = {name: definition["apiKey"] for name, definition in metadata_records().items()}
    assert ours == {name: theirs[name] for name in ours}


def test_metadata_records_are_written_in_versions_that_exist() -> None:
    for cls, version in records._TYPES.values():
        assert version in kafka_versions(metadata_records()[cls.__name__]["validVersions"]), cls.__name__


@pytest.mark.parametrize("cls", CONTROL_RECORDS, ids=lambda cls: cls.__name__)
def test_control_records_of_the_metadata_log_have_kafkas_fields(cls: type) -> None:
    definition = new_messages()[cls.__name__]
    found = list(mismatches(cls, definition, 0))
    assert not found, "\n".join(found)
    assert schema.message_versions(cls) == Versions(0, 0)


# ---- the comparison itself can fail ----

SAMPLE: Definition = {
    "name": "SampleRequest",
    "validVersions": "0-2",
    "flexibleVersions": "2+",
    "fields": [
        {"name": "TopicName", "type": "string", "versions": "0+", "nullableVersions": "1+", "ignorable": True},
        {"name": "MaxBytes", "type": "int32", "versions": "1+", "default": "0x7fffffff"},
        {"name": "Parts", "type": "[]Part", "versions": "0+"},
        {"name": "Leader", "type": "Leader", "versions": "2+", "taggedVersions": "2+", "tag": 0, "fields": [
            {"name": "LeaderId", "type": "int32", "versions": "2+", "default": "-1"},
        ]},
        {"name": "IsReady", "type": "bool", "versions": "2+", "taggedVersions": "2+", "tag": 1, "default": "true"},
    ],
    "commonStructs": [
        {"name": "Part", "versions": "0+", "fields": [
            {"name": "Index", "type": "int32", "versions": "0+"},
            {"name": "Nodes", "type": "[]int32", "versions": "0+", "nullableVersions": "0+", "default": "null"},
        ]},
    ],
}  # fmt: skip


@struct
class Part:
    index: int = field(INT32, default=0)
    nodes: list[int] | None = field(array(INT32), nullable="0+", default=None)


@struct
class WidePart:
    index: int = field(INT64, default=0)
    nodes: list[int] | None = field(array(INT32), nullable="0+", default=None)


@struct
class Leader:
    leader_id: int = field(INT32, "2+", default=-1)


@struct
class LeaderZero:
    leader_id: int = field(INT32, "2+", default=0)


RIGHT_ROWS: dict[str, Any] = {
    "topic_name": field(STRING, nullable="1+", default=None, ignorable=True),
    "max_bytes": field(INT32, "1+", default=0x7FFFFFFF),
    "parts": field(array(Part), factory=list),
    "leader": field(struct_of(Leader), "2+", default=None, tag=0),
    "is_ready": field(BOOL, "2+", default=True, tag=1),
}


def sample_table(rows: dict[str, Any], flexible: str = "2+") -> type:
    body = {"__annotations__": dict.fromkeys(rows, Any), **rows}
    made: type = message(versions="0-2", flexible=flexible)(type("SampleRequest", (), body))
    return made


def sample_mismatches(rows: dict[str, Any], flexible: str = "2+") -> list[str]:
    cls = sample_table(rows, flexible)
    return [text for version in range(3) for text in mismatches(cls, SAMPLE, version)]


def test_the_comparison_accepts_the_right_table() -> None:
    assert sample_mismatches(RIGHT_ROWS) == []


@pytest.mark.parametrize(
    ("name", "wrong", "versions"),
    [
        ("topic_name", field(STRING, nullable="0+", default=None, ignorable=True), {0}),
        ("topic_name", field(STRING, nullable="2+", default=None, ignorable=True), {1}),
        ("topic_name", field(STRING, nullable="1+", default=None), {0, 1, 2}),
        ("topic_name", field(STRING, nullable="1+", default="none", ignorable=True), {0, 1, 2}),
        ("max_bytes", field(INT16, "1+", default=0x7FFFFFFF), {1, 2}),
        ("max_bytes", field(INT32, "1+", default=0), {1, 2}),
        ("max_bytes", field(INT32, "0+", default=0x7FFFFFFF), {0}),
        ("max_bytes", field(INT32, "1", default=0x7FFFFFFF), {2}),
        ("parts", field(array(INT32), factory=list), {0, 1, 2}),
        ("parts", field(array(Part), default=None), {0, 1, 2}),
        ("parts", field(array(WidePart), factory=list), {0, 1, 2}),
        ("leader", field(struct_of(LeaderZero), "2+", default=None, tag=0), {2}),
        ("leader", field(struct_of(Leader), "2+", default=None), {2}),
        ("leader", field(struct_of(Leader), "2+", nullable="2+", default=None, tag=0), {2}),
        ("is_ready", field(BOOL, "2+", default=True, tag=2), {2}),
        ("is_ready", field(BOOL, "2+", default=False, tag=1), {2}),
        ("is_ready", field(BOOL, "2+", default=1, tag=1), {2}),
    ],
)
def test_the_comparison_finds_a_wrong_row_and_names_it(name: str, wrong: Any, versions: set[int]) -> None:
    found = sample_mismatches(RIGHT_ROWS | {name: wrong})
    assert {version for version in range(3) if any(f"SampleRequest v{version}" in text for text in found)} == versions
    assert all(name in text for text in found)


def test_the_comparison_finds_a_missing_field() -> None:
    rows = {name: row for name, row in RIGHT_ROWS.items() if name != "max_bytes"}
    assert any("SampleRequest v1" in text and "max_bytes" in text for text in sample_mismatches(rows))


def test_the_comparison_finds_fields_in_the_wrong_order() -> None:
    rows = {name: RIGHT_ROWS[name] for name in ("parts", "topic_name", "max_bytes", "leader", "is_ready")}
    assert len(sample_mismatches(rows)) == 3


def test_the_comparison_finds_swapped_tags() -> None:
    rows = RIGHT_ROWS | {
        "leader": field(struct_of(Leader), "2+", default=None, tag=1),
        "is_ready": field(BOOL, "2+", default=True, tag=0),
    }
    assert any("SampleRequest v2" in text for text in sample_mismatches(rows))


def test_the_comparison_finds_wrong_flexible_versions() -> None:
    assert sample_mismatches(RIGHT_ROWS, flexible="1+") == ["SampleRequest v1: flexible is True here, False in Kafka"]
