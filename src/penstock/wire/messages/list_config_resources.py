"""ListConfigResources (74): what has settings. 0 knows only client metrics, 1 all kinds."""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import INT8, INT16, INT32, STRING, array


@message(versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    resource_types: list[int] = field(array(INT8), "1+", factory=list)


@struct
class ConfigResource:
    resource_name: str = field(STRING, default="")
    resource_type: int = field(INT8, "1+", default=16, ignorable=True)


@message(versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    config_resources: list[ConfigResource] = field(array(ConfigResource), factory=list)
