"""DescribeCluster (60), versions 0-2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.broker.operations import CLUSTER_OPERATIONS, UNKNOWN
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call

_BROKERS = 1


def handle(broker: Broker, request: DescribeClusterRequest, call: Call) -> DescribeClusterResponse:
    if request.endpoint_type != _BROKERS:
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            error_message="this is a broker's endpoint; there is none for controllers alone",
        )
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in broker.nodes(call.connection.listener)
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else UNKNOWN,
    )
