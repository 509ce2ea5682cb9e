"""DescribeCluster (60). 1 tells brokers from controllers, 2 can include fenced brokers."""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import BOOL, INT8, INT16, INT32, STRING, array


@message(versions="0-2", flexible="0+")
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = field(BOOL, default=False)
    endpoint_type: int = field(INT8, "1+", default=1)
    include_fenced_brokers: bool = field(BOOL, "2+", default=False)


@struct
class DescribeClusterBroker:
    broker_id: int = field(INT32, default=0)
    host: str = field(STRING, default="")
    port: int = field(INT32, default=0)
    rack: str | None = field(STRING, nullable="0+", default=None)
    is_fenced: bool = field(BOOL, "2+", default=False)


@message(versions="0-2", flexible="0+")
class DescribeClusterResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, default=0)
    error_message: str | None = field(STRING, nullable="0+", default=None)
    endpoint_type: int = field(INT8, "1+", default=1)
    cluster_id: str = field(STRING, default="")
    controller_id: int = field(INT32, default=-1)
    brokers: list[DescribeClusterBroker] = field(array(DescribeClusterBroker), factory=list)
    cluster_authorized_operations: int = field(INT32, default=-2147483648)
