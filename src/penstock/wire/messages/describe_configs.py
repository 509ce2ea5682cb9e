"""DescribeConfigs (32).

0 is kept for clients of Kafka 1.0 (Kafka 4 starts at 1). 1 adds sources and synonyms, 3 types and documentation, 4 is
flexible.
"""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import BOOL, INT8, INT16, INT32, STRING, array


@struct
class DescribeConfigsResource:
    resource_type: int = field(INT8, default=0)
    resource_name: str = field(STRING, default="")
    configuration_keys: list[str] | None = field(array(STRING), nullable="0+", factory=list)


@message(versions="0-4", flexible="4+")
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource] = field(array(DescribeConfigsResource), factory=list)
    include_synonyms: bool = field(BOOL, "1+", default=False)
    include_documentation: bool = field(BOOL, "3+", default=False)


@struct
class DescribeConfigsSynonym:
    name: str = field(STRING, "1+", default="")
    value: str | None = field(STRING, "1+", nullable="0+", default=None)
    source: int = field(INT8, "1+", default=0)


@struct
class DescribeConfigsResourceResult:
    name: str = field(STRING, default="")
    value: str | None = field(STRING, nullable="0+", default=None)
    read_only: bool = field(BOOL, default=False)
    is_default: bool = field(BOOL, "0", default=False)
    config_source: int = field(INT8, "1+", default=-1, ignorable=True)
    is_sensitive: bool = field(BOOL, default=False)
    synonyms: list[DescribeConfigsSynonym] = field(array(DescribeConfigsSynonym), "1+", factory=list, ignorable=True)
    config_type: int = field(INT8, "3+", default=0, ignorable=True)
    documentation: str | None = field(STRING, "3+", nullable="0+", default=None, ignorable=True)


@struct
class DescribeConfigsResult:
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    resource_type: int = field(INT8, default=0)
    resource_name: str = field(STRING, default="")
    configs: list[DescribeConfigsResourceResult] = field(array(DescribeConfigsResourceResult), factory=list)


@message(versions="0-4", flexible="4+")
class DescribeConfigsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    results: list[DescribeConfigsResult] = field(array(DescribeConfigsResult), factory=list)
