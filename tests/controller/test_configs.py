from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from penstock.config.broker import BrokerSettings
from penstock.controller.configs import Change, Operation, change_configs, replace_all
from penstock.metadata.image import Image, ResourceType
from penstock.wire.errors import ApiError, ErrorCode
from tests.controller.samples import broker, config, image_of, topic

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER
SET, DELETE, APPEND, SUBTRACT = Operation.SET, Operation.DELETE, Operation.APPEND, Operation.SUBTRACT

IMAGE = image_of(
    broker(1),
    broker(2),
    topic("t", [1]),
    config(TOPIC, "t", {"retention.ms": "5", "cleanup.policy": "compact"}),
    config(BROKER, "1", {"max.connections": "10"}),
    config(BROKER, "", {"max.connections": "99", "log.retention.ms": "777"}),
)
SETTINGS = BrokerSettings.resolve({"log.cleanup.policy": "delete"})


def changed(
    kind: int, name: str, *changes: tuple[str, int, str | None], image: Image = IMAGE
) -> tuple[Mapping[str, str], list[Any]]:
    """The resource's settings after a change, and the records that made it."""
    records = change_configs(image, SETTINGS, kind, name, [Change(*change) for change in changes])
    return image.apply(records, 99, 1)[0].config(ResourceType(kind), name), records


def refusal(kind: int, name: str, *changes: tuple[str, int, str | None]) -> tuple[ErrorCode, str | None]:
    with pytest.raises(ApiError) as caught:
        changed(kind, name, *changes)
    return caught.value.code, caught.value.message


# ---- topics ----


def test_a_setting_is_set_changed_or_deleted() -> None:
    after, _ = changed(
        TOPIC, "t", ("segment.ms", SET, "7"), ("retention.ms", SET, "6"), ("cleanup.policy", DELETE, None)
    )
    assert after == {"retention.ms": "6", "segment.ms": "7"}


def test_deleting_what_is_not_set_is_fine() -> None:
    after, records = changed(TOPIC, "t", ("segment.ms", DELETE, None))
    assert after == IMAGE.config(TOPIC, "t")
    assert records == []


def test_setting_what_is_set_already_writes_nothing() -> None:
    assert changed(TOPIC, "t", ("retention.ms", SET, "5"))[1] == []


def test_items_are_added_to_a_list_once() -> None:
    assert changed(TOPIC, "t", ("cleanup.policy", APPEND, "delete"))[0]["cleanup.policy"] == "compact,delete"
    assert changed(TOPIC, "t", ("cleanup.policy", APPEND, "compact"))[1] == []
    assert changed(TOPIC, "t", ("cleanup.policy", APPEND, "compact,delete"))[0]["cleanup.policy"] == "compact,delete"


def test_items_are_taken_from_a_list() -> None:
    image = image_of(topic("t", [1]), config(TOPIC, "t", {"cleanup.policy": "compact,delete"}))
    after, _ = changed(TOPIC, "t", ("cleanup.policy", SUBTRACT, "compact"), image=image)
    assert after["cleanup.policy"] == "delete"
    after, records = changed(TOPIC, "t", ("cleanup.policy", SUBTRACT, "nothing"), image=image)
    assert after["cleanup.policy"] == "compact,delete"
    assert records == []


def test_a_list_that_is_not_set_grows_from_its_default() -> None:
    image = image_of(topic("t", [1]))
    after, _ = changed(TOPIC, "t", ("cleanup.policy", APPEND, "compact"), image=image)
    assert after["cleanup.policy"] == "delete,compact"
    after, _ = changed(TOPIC, "t", ("leader.replication.throttled.replicas", APPEND, "0:1,1:2"), image=image)
    assert after["leader.replication.throttled.replicas"] == "0:1,1:2"


@pytest.mark.parametrize(
    ("changes", "code", "message"),
    [
        (
            [("retention.ms", SET, "1"), ("retention.ms", SET, "2")],
            ErrorCode.INVALID_REQUEST,
            "Error due to duplicate config keys",
        ),
        ([("no.such", SET, "1")], ErrorCode.INVALID_CONFIG, "Unknown topic config name: no.such"),
        (
            [("retention.ms", SET, "x")],
            ErrorCode.INVALID_CONFIG,
            "Invalid value x for configuration retention.ms: Not a number of type LONG",
        ),
        ([("retention.ms", SET, None)], ErrorCode.INVALID_REQUEST, "Null value not supported for : retention.ms"),
        (
            [("cleanup.policy", APPEND, None)],
            ErrorCode.INVALID_REQUEST,
            "Null value not supported for : cleanup.policy",
        ),
        (
            [("retention.ms", APPEND, "1")],
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            [("retention.ms", SUBTRACT, "1")],
            ErrorCode.INVALID_CONFIG,
            "Can't SUBTRACT to key retention.ms because its type is not LIST.",
        ),
        (
            [("no.such", APPEND, "1")],
            ErrorCode.INVALID_CONFIG,
            "Can't APPEND to key no.such because its type is not LIST.",
        ),
        ([("retention.ms", 4, "1")], ErrorCode.INVALID_REQUEST, "Unknown operation 4 for retention.ms"),
        ([("retention.ms", -1, "1")], ErrorCode.INVALID_REQUEST, "Unknown operation -1 for retention.ms"),
        (
            [("cleanup.policy", APPEND, "shred")],
            ErrorCode.INVALID_CONFIG,
            "Invalid value compact,shred for configuration cleanup.policy: String must be one of: compact, delete",
        ),
        (
            [("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "8")],
            ErrorCode.INVALID_CONFIG,
            "conflict topic config setting min.compaction.lag.ms (9) > max.compaction.lag.ms (8)",
        ),
    ],
)
def test_changes_that_cannot_be_are_refused(
    changes: list[tuple[str, int, str | None]], code: ErrorCode, message: str
) -> None:
    assert refusal(TOPIC, "t", *changes) == (code, message)


def test_one_bad_change_keeps_all_others_from_being_made() -> None:
    code, _ = refusal(TOPIC, "t", ("segment.ms", SET, "7"), ("no.such", SET, "1"))
    assert code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("", ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed."),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'missing' does not exist."),
        (
            "a b",
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and "
            "'-'",
        ),
    ],
)
def test_only_topics_that_exist_can_be_changed(name: str, code: ErrorCode, message: str) -> None:
    assert refusal(TOPIC, name, ("retention.ms", SET, "1")) == (code, message)


# ---- brokers ----


def test_a_broker_and_all_brokers_have_settings_of_their_own() -> None:
    assert changed(BROKER, "1", ("max.connections", SET, "11"))[0] == {"max.connections": "11"}
    assert changed(BROKER, "2", ("log.retention.ms", SET, "6"))[0] == {"log.retention.ms": "6"}
    after, _ = changed(BROKER, "", ("max.connections", DELETE, None))
    assert after == {"log.retention.ms": "777"}


def test_settings_nobody_knows_are_kept_for_brokers() -> None:
    """As Kafka does: a plugin may want them."""
    assert changed(BROKER, "1", ("my.plugin.key", SET, "x"))[0]["my.plugin.key"] == "x"


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (
            "1",
            [("num.io.threads", SET, "3"), ("broker.id", SET, "3"), ("max.connections", SET, "1")],
            "Cannot update these configs dynamically: [broker.id, num.io.threads]",
        ),
        ("", [("listeners", DELETE, None)], "Cannot update these configs dynamically: [listeners]"),
        (
            "1",
            [("max.connections", SET, "x")],
            "Invalid value x for configuration max.connections: Not a number of type INT",
        ),
        (
            "",
            [("log.retention.ms", SET, "-2")],
            "Invalid value -2 for configuration log.retention.ms: Value must be at least -1",
        ),
        ("one", [("max.connections", SET, "1")], "Node id must be an integer, but it is: one"),
        ("7", [("max.connections", SET, "1")], "There is no broker 7"),
        ("1", [("max.connections", SET, None)], "Null value not supported for : max.connections"),
    ],
)
def test_changes_of_brokers_that_cannot_be_are_refused(
    name: str, changes: list[tuple[str, int, str | None]], message: str
) -> None:
    assert refusal(BROKER, name, *changes) == (ErrorCode.INVALID_REQUEST, message)


def test_a_brokers_lists_can_be_changed_item_by_item() -> None:
    after, _ = changed(BROKER, "", ("log.cleanup.policy", APPEND, "compact"))
    assert after["log.cleanup.policy"] == "delete,compact"
    after, _ = changed(BROKER, "1", ("max.connections.per.ip.overrides", APPEND, "10.0.0.1:5"))
    assert after["max.connections.per.ip.overrides"] == "10.0.0.1:5"


@pytest.mark.parametrize("kind", [0, 8, 16, 99])
def test_other_resources_are_refused(kind: int) -> None:
    with pytest.raises(ApiError) as caught:
        change_configs(IMAGE, SETTINGS, kind, "x", [Change("a", SET, "1")])
    assert (caught.value.code, caught.value.message) == (ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")


# ---- replacing all ----


def test_replacing_all_sets_what_is_wanted_and_deletes_the_rest() -> None:
    changes = replace_all(IMAGE.config(TOPIC, "t"), [("retention.ms", "9"), ("segment.ms", "7")])
    records = change_configs(IMAGE, SETTINGS, TOPIC, "t", changes)
    assert IMAGE.apply(records, 9, 1)[0].config(TOPIC, "t") == {"retention.ms": "9", "segment.ms": "7"}


def test_replacing_all_with_nothing_deletes_all() -> None:
    assert sorted(replace_all({"a": "1", "b": "2"}, [])) == [Change("a", DELETE, None), Change("b", DELETE, None)]


def test_replacing_all_takes_any_iterable() -> None:
    wanted = iter([("a", "1")])
    assert replace_all({"b": "2"}, wanted) == [Change("a", SET, "1"), Change("b", DELETE, None)]
