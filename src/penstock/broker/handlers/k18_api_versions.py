"""ApiVersions (18), versions 0-4: what this broker speaks, and the cluster's features."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock.broker.dispatch import HANDLERS
from penstock.controller.controller import SUPPORTED_FEATURES
from penstock.wire.api import APIS, ApiKey
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call

_CLIENT_SOFTWARE_VERSION = 3
_CLIENT_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(broker: Broker, request: ApiVersionsRequest, call: Call) -> ApiVersionsResponse:
    if call.version >= _CLIENT_SOFTWARE_VERSION and not (
        _CLIENT_SOFTWARE.fullmatch(request.client_software_name)
        and _CLIENT_SOFTWARE.fullmatch(request.client_software_version)
    ):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    image = broker.image
    return ApiVersionsResponse(
        api_keys=_api_keys(),
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in image.features.items()
        ],
    )


def unsupported_version() -> ApiVersionsResponse:
    """The answer, in version 0, to a version that is not known here: only ApiVersions itself, as Kafka does."""
    api = APIS[ApiKey.API_VERSIONS]
    return ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[ApiVersion(api_key=api.key, min_version=api.low, max_version=api.high)],
    )


def _api_keys() -> list[ApiVersion]:
    served = (APIS[key] for key in HANDLERS)
    return [
        # librdkafka takes Produce above version 0 for a broker without the old codecs, and refuses to use them.
        ApiVersion(api_key=api.key, min_version=0 if api.key == ApiKey.PRODUCE else api.low, max_version=api.high)
        for api in served
    ]
