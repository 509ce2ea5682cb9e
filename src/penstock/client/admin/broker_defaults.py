"""Settings that hold for all brokers. librdkafka refuses to ask for them, so they go over a connection of our own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import confluent_kafka.admin as rdkafka
from confluent_kafka import KafkaError

from penstock.client.admin.cluster import describe_cluster
from penstock.client.admin.descriptions import ConfigEntry
from penstock.client.admin.session import Session
from penstock.client.rdkafka import from_kafka
from penstock.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from penstock.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

_BROKER = 4  # the type of resource, as the protocol has it
_ALL = ""

Change = tuple[rdkafka.AlterConfigOpType, str, str | None]


async def describe(session: Session, doing: str) -> dict[str, ConfigEntry]:
    """The settings that were made for all brokers, by name."""
    resource = DescribeConfigsResource(resource_type=_BROKER, resource_name=_ALL, configuration_keys=None)
    response = await _ask(session, DescribeConfigsRequest(resources=[resource]), doing)
    (result,) = response.results
    _check(result, doing)
    return {entry.name: _entry(entry) for entry in sorted(result.configs, key=lambda entry: entry.name)}


async def alter(session: Session, changes: Iterable[Change], validate_only: bool, doing: str) -> None:
    """Make changes, and leave all other settings as they are."""
    configs = [AlterableConfig(name=name, config_operation=one.value, value=value) for one, name, value in changes]
    resource = AlterConfigsResource(resource_type=_BROKER, resource_name=_ALL, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    response = await _ask(session, request, doing)
    _check(response.responses[0], doing)


async def _ask(session: Session, request: Any, doing: str) -> Any:
    cluster = await describe_cluster(session)
    broker = cluster.controller or cluster.brokers[0]
    return await session.ask(broker.host, broker.port, request, doing)


def _check(result: Any, doing: str) -> None:
    if result.error_code:
        raise from_kafka(KafkaError(result.error_code, result.error_message), doing)


def _entry(entry: Any) -> ConfigEntry:
    source = rdkafka.ConfigSource(entry.config_source)
    return ConfigEntry(
        name=entry.name,
        value=entry.value,
        source=source.name,
        is_default=source is rdkafka.ConfigSource.DEFAULT_CONFIG,
        is_read_only=entry.read_only,
        is_sensitive=entry.is_sensitive,
    )
