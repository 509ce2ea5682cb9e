"""DescribeConfigs (32), versions 0-4: every setting of topics, brokers and groups, with its source and synonyms."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.broker.config_answers import (
    Entry,
    broker_entries,
    cluster_default_entries,
    group_entries,
    topic_entries,
)
from penstock.config.broker import Source
from penstock.controller.topics import check_name
from penstock.metadata.image import ResourceType
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call


def handle(broker: Broker, request: DescribeConfigsRequest, call: Call) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_describe(broker, resource, request) for resource in request.resources])


def _describe(
    broker: Broker, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
    try:
        wanted = resource.configuration_keys
        result.configs = [
            _entry(entry, request)
            for entry in _entries(broker, resource.resource_type, resource.resource_name)
            if wanted is None or entry.key.name in wanted
        ]
    except ApiError as error:
        result.error_code, result.error_message = error.code, error.message
    return result


def _entries(broker: Broker, resource_type: int, name: str) -> Iterable[Entry]:
    if resource_type == ResourceType.TOPIC:
        check_name(name)
        if name not in broker.image.topics:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return topic_entries(broker.settings, broker.image.config(ResourceType.TOPIC, name))
    if resource_type == ResourceType.BROKER:
        if not name:
            return cluster_default_entries(broker.settings)
        if name != str(broker.broker_id):
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {broker.broker_id} or empty string, but received {name}",
            )
        return broker_entries(broker.settings)
    if resource_type == ResourceType.GROUP:
        if not name:
            raise ApiError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return group_entries(broker.settings, broker.image.config(ResourceType.GROUP, name))
    raise ApiError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource_type}")


def _entry(entry: Entry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        name=entry.key.name,
        value=entry.value,
        read_only=entry.is_read_only,
        is_default=entry.source is Source.DEFAULT,
        config_source=entry.source,
        is_sensitive=entry.key.is_sensitive,
        synonyms=[
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=synonym.source)
            for synonym in entry.synonyms
        ]
        if request.include_synonyms
        else [],
        config_type=entry.key.type,
        documentation=entry.key.doc if request.include_documentation else None,
    )
