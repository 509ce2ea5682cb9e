"""IncrementalAlterConfigs (44), versions 0-1: change single settings of resources."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.controller.configs import Change
from penstock.wire.errors import ApiError
from penstock.wire.messages.incremental_alter_configs import (
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call


async def handle(
    broker: Broker, request: IncrementalAlterConfigsRequest, call: Call
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[await _alter(broker, resource, is_dry_run=request.validate_only) for resource in request.resources]
    )


async def _alter(broker: Broker, resource: AlterConfigsResource, *, is_dry_run: bool) -> AlterConfigsResourceResponse:
    result = AlterConfigsResourceResponse(resource_type=resource.resource_type, resource_name=resource.resource_name)
    changes = [Change(config.name, config.config_operation, config.value) for config in resource.configs]
    try:
        await broker.controller.alter_configs(
            resource.resource_type, resource.resource_name, changes, is_dry_run=is_dry_run
        )
    except ApiError as error:
        result.error_code, result.error_message = error.code, error.message
    return result
