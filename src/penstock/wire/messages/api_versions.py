"""ApiVersions (18): what this broker can do.

The response header is always version 0, so that a client can read the answer to a version the broker does not know. 3
is flexible and adds the cluster's features, 4 fixes the announcement of features whose lowest level is 0.
"""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import BOOL, INT16, INT32, INT64, STRING, array


@message(versions="0-4", flexible="3+")
class ApiVersionsRequest:
    client_software_name: str = field(STRING, "3+", default="", ignorable=True)
    client_software_version: str = field(STRING, "3+", default="", ignorable=True)


@struct
class ApiVersion:
    api_key: int = field(INT16, default=0)
    min_version: int = field(INT16, default=0)
    max_version: int = field(INT16, default=0)


@struct
class SupportedFeatureKey:
    name: str = field(STRING, "3+", default="")
    min_version: int = field(INT16, "3+", default=0)
    max_version: int = field(INT16, "3+", default=0)


@struct
class FinalizedFeatureKey:
    name: str = field(STRING, "3+", default="")
    max_version_level: int = field(INT16, "3+", default=0)
    min_version_level: int = field(INT16, "3+", default=0)


@message(versions="0-4", flexible="3+")
class ApiVersionsResponse:
    error_code: int = field(INT16, default=0)
    api_keys: list[ApiVersion] = field(array(ApiVersion), factory=list)
    throttle_time_ms: int = field(INT32, "1+", default=0, ignorable=True)
    supported_features: list[SupportedFeatureKey] = field(
        array(SupportedFeatureKey),
        "3+",
        factory=list,
        tag=0,
        ignorable=True,
    )
    finalized_features_epoch: int = field(INT64, "3+", default=-1, tag=1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = field(
        array(FinalizedFeatureKey),
        "3+",
        factory=list,
        tag=2,
        ignorable=True,
    )
    zk_migration_ready: bool = field(BOOL, "3+", default=False, tag=3, ignorable=True)
