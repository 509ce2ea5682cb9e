"""Changing settings of topics, brokers and groups: from a wish and the image to records. Pure.

The rules and their messages are Kafka's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from penstock.config.broker import BrokerSettings, broker_keys
from penstock.config.definition import InvalidConfig, Key, KeyType, keys, parse, to_text
from penstock.config.group import GroupConfig, check_limits, group_config
from penstock.config.topic import TopicConfig, topic_config
from penstock.controller.topics import check_name
from penstock.metadata.image import Image, ResourceType
from penstock.metadata.records import ConfigRecord
from penstock.wire.errors import ApiError, ErrorCode


class Operation(IntEnum):
    """What to do with a setting, with the code the protocol uses for it."""

    SET = 0
    DELETE = 1
    APPEND = 2  # to a list
    SUBTRACT = 3  # from a list


class Change(NamedTuple):
    name: str
    operation: int
    value: str | None


def replace_all(current: Mapping[str, str], wanted: Iterable[tuple[str, str | None]]) -> list[Change]:
    """The changes that leave exactly the wanted settings: what AlterConfigs asks for."""
    changes = [Change(name, Operation.SET, value) for name, value in wanted]
    names = [change.name for change in changes]
    return changes + [Change(name, Operation.DELETE, None) for name in current if name not in names]


def change_configs(
    image: Image, settings: BrokerSettings, resource_type: int, name: str, changes: list[Change]
) -> list[Any]:
    """The records for a change of one resource's settings. Raises ApiError."""
    if len({change.name for change in changes}) < len(changes):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if resource_type == ResourceType.TOPIC:
        return _change_topic(image, settings, name, changes)
    if resource_type == ResourceType.BROKER:
        return _change_broker(image, settings, name, changes)
    if resource_type == ResourceType.GROUP:
        return _change_group(image, settings, name, changes)
    raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")


def _change_topic(image: Image, settings: BrokerSettings, topic: str, changes: list[Change]) -> list[Any]:
    if not topic:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
    check_name(topic)
    if topic not in image.topics:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic}' does not exist.")
    current = image.config(ResourceType.TOPIC, topic)
    defaults = settings.topic_defaults
    known = keys(TopicConfig)
    texts = {
        change.name: _new_value(
            change,
            known.get(change.name),
            current.get(change.name, to_text(getattr(defaults, known[change.name].attribute)) or "")
            if change.name in known
            else "",
        )
        for change in changes
    }
    after = {key: value for key, value in {**current, **texts}.items() if value is not None}
    try:
        topic_config(defaults, after)
    except InvalidConfig as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return _records(ResourceType.TOPIC, topic, current, texts)


def _change_broker(image: Image, settings: BrokerSettings, broker: str, changes: list[Change]) -> list[Any]:
    if broker:
        _check_broker_id(image, broker)
    table = broker_keys()
    current = image.config(ResourceType.BROKER, broker)
    fixed = [change.name for change in changes if change.name in table and not table[change.name].is_dynamic]
    if fixed:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: [{', '.join(sorted(fixed))}]"
        )
    texts = {}
    for change in changes:
        key = table.get(change.name)
        default = to_text(key.default) or "" if key is not None else ""
        text = texts[change.name] = _new_value(change, key, current.get(change.name, default))
        if key is not None and text is not None:
            try:
                parse(key, text)
            except InvalidConfig as error:
                raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None
    return _records(ResourceType.BROKER, broker, current, texts)


def _change_group(image: Image, settings: BrokerSettings, group_id: str, changes: list[Change]) -> list[Any]:
    """A group need not exist to have settings."""
    if not group_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
    current = image.config(ResourceType.GROUP, group_id)
    known = keys(GroupConfig)
    texts = {
        change.name: _new_value(change, known.get(change.name), current.get(change.name, "")) for change in changes
    }
    if unknown := [name for name, text in texts.items() if text is not None and name not in known]:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {unknown[0]}")
    after = {key: value for key, value in {**current, **texts}.items() if value is not None}
    try:
        check_limits(settings.broker, group_config(settings.broker, after), after)
    except InvalidConfig as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from None
    return _records(ResourceType.GROUP, group_id, current, texts)


def _check_broker_id(image: Image, text: str) -> None:
    try:
        broker_id = int(text)
    except ValueError:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {text}") from None
    if broker_id not in image.brokers:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"There is no broker {broker_id}")


def _new_value(change: Change, key: Key | None, current: str) -> str | None:
    """The setting's text after a change; None if it is deleted."""
    if change.operation == Operation.DELETE:
        return None
    if change.value is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {change.name}")
    if change.operation == Operation.SET:
        return change.value
    if change.operation not in (Operation.APPEND, Operation.SUBTRACT):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"Unknown operation {change.operation} for {change.name}")
    operation = Operation(change.operation)
    if key is None or key.type is not KeyType.LIST:
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"Can't {operation.name} to key {change.name} because its type is not LIST."
        )
    items = [item for item in current.split(",") if item]
    given = change.value.split(",")
    if operation is Operation.APPEND:
        items += [item for item in given if item not in items]
    else:
        items = [item for item in items if item not in given]
    return ",".join(items)


def _records(
    resource_type: ResourceType, name: str, current: Mapping[str, str], texts: Mapping[str, str | None]
) -> list[Any]:
    """Records for what really changes."""
    return [
        ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=value)
        for key, value in texts.items()
        if current.get(key) != value
    ]
