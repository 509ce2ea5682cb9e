"""AlterConfigs (33), versions 0-2: replace all settings of resources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.wire.errors import ApiError
from penstock.wire.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call


async def handle(broker: Broker, request: AlterConfigsRequest, call: Call) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=[await _alter(broker, resource, is_dry_run=request.validate_only) for resource in request.resources]
    )


async def _alter(broker: Broker, resource: AlterConfigsResource, *, is_dry_run: bool) -> AlterConfigsResourceResponse:
    result = AlterConfigsResourceResponse(resource_type=resource.resource_type, resource_name=resource.resource_name)
    wanted = [(config.name, config.value) for config in resource.configs]
    try:
        await broker.controller.replace_configs(
            resource.resource_type, resource.resource_name, wanted, is_dry_run=is_dry_run
        )
    except ApiError as error:
        result.error_code, result.error_message = error.code, error.message
    return result
