"""AlterConfigs (33): replace all settings of a resource. 2 is flexible. IncrementalAlterConfigs is what clients should
use.
"""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import BOOL, INT8, INT16, INT32, STRING, array


@struct
class AlterableConfig:
    name: str = field(STRING, default="")
    value: str | None = field(STRING, nullable="0+", default=None)


@struct
class AlterConfigsResource:
    resource_type: int = field(INT8, default=0)
    resource_name: str = field(STRING, default="")
    configs: list[AlterableConfig] = field(array(AlterableConfig), factory=list)


@message(versions="0-2", flexible="2+")
class AlterConfigsRequest:
    resources: list[AlterConfigsResource] = field(array(AlterConfigsResource), factory=list)
    validate_only: bool = field(BOOL, default=False)


@struct
class AlterConfigsResourceResponse:
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    resource_type: int = field(INT8, default=0)
    resource_name: str = field(STRING, default="")


@message(versions="0-2", flexible="2+")
class AlterConfigsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    responses: list[AlterConfigsResourceResponse] = field(array(AlterConfigsResourceResponse), factory=list)
