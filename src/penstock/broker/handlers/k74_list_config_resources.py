"""ListConfigResources (74), versions 0-1: what has settings. Version 0 asks for client metrics only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.metadata.image import Image, ResourceType
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call


def handle(broker: Broker, request: ListConfigResourcesRequest, call: Call) -> ListConfigResourcesResponse:
    try:
        kinds = {ResourceType(code) for code in request.resource_types}
    except ValueError:
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    if call.version == 0:
        kinds = {ResourceType.CLIENT_METRICS}
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in sorted(kinds or ResourceType)
            for name in _names(broker.image, kind)
        ]
    )


def _names(image: Image, kind: ResourceType) -> Iterable[str]:
    """Topics and brokers have settings even if nobody has set any."""
    if kind is ResourceType.TOPIC:
        return image.topics
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(broker_id) for broker_id in image.brokers]
    return [name for resource_type, name in image.configs if resource_type == kind]
