"""From a frame to a handler, and from its answer to a frame.

`HANDLERS` is the protocol table: every API this broker serves, and the module that does. A handler is a function
`handle(broker, request, call)` that only translates: it calls the domain and puts the result into a response. It
returns the response, or a coroutine or future of one, or None where the protocol wants no answer. A module on the hot
path may also have `handle_frame(broker, cursor, connection)`, which is tried first and may serve a request without its
objects.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from penstock.broker.connection import Connection, Slot
from penstock.broker.outbox import Encoded
from penstock.wire._codec import Codec, RequestCursor
from penstock.wire.api import APIS, Api, ApiKey
from penstock.wire.errors import DecodeError

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

logger = logging.getLogger(__name__)

HANDLERS: dict[ApiKey, str] = {
    ApiKey.PRODUCE: "k00_produce",
    ApiKey.FETCH: "k01_fetch",
    ApiKey.LIST_OFFSETS: "k02_list_offsets",
    ApiKey.METADATA: "k03_metadata",
    ApiKey.OFFSET_COMMIT: "k08_offset_commit",
    ApiKey.OFFSET_FETCH: "k09_offset_fetch",
    ApiKey.FIND_COORDINATOR: "k10_find_coordinator",
    ApiKey.JOIN_GROUP: "k11_join_group",
    ApiKey.HEARTBEAT: "k12_heartbeat",
    ApiKey.LEAVE_GROUP: "k13_leave_group",
    ApiKey.SYNC_GROUP: "k14_sync_group",
    ApiKey.DESCRIBE_GROUPS: "k15_describe_groups",
    ApiKey.LIST_GROUPS: "k16_list_groups",
    ApiKey.API_VERSIONS: "k18_api_versions",
    ApiKey.CREATE_TOPICS: "k19_create_topics",
    ApiKey.DELETE_TOPICS: "k20_delete_topics",
    ApiKey.DELETE_RECORDS: "k21_delete_records",
    ApiKey.INIT_PRODUCER_ID: "k22_init_producer_id",
    ApiKey.OFFSET_FOR_LEADER_EPOCH: "k23_offset_for_leader_epoch",
    ApiKey.ADD_PARTITIONS_TO_TXN: "k24_add_partitions_to_txn",
    ApiKey.ADD_OFFSETS_TO_TXN: "k25_add_offsets_to_txn",
    ApiKey.END_TXN: "k26_end_txn",
    ApiKey.WRITE_TXN_MARKERS: "k27_write_txn_markers",
    ApiKey.TXN_OFFSET_COMMIT: "k28_txn_offset_commit",
    ApiKey.DESCRIBE_CONFIGS: "k32_describe_configs",
    ApiKey.ALTER_CONFIGS: "k33_alter_configs",
    ApiKey.DESCRIBE_LOG_DIRS: "k35_describe_log_dirs",
    ApiKey.CREATE_PARTITIONS: "k37_create_partitions",
    ApiKey.DELETE_GROUPS: "k42_delete_groups",
    ApiKey.ELECT_LEADERS: "k43_elect_leaders",
    ApiKey.INCREMENTAL_ALTER_CONFIGS: "k44_incremental_alter_configs",
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: "k45_alter_partition_reassignments",
    ApiKey.LIST_PARTITION_REASSIGNMENTS: "k46_list_partition_reassignments",
    ApiKey.OFFSET_DELETE: "k47_offset_delete",
    ApiKey.DESCRIBE_CLUSTER: "k60_describe_cluster",
    ApiKey.DESCRIBE_PRODUCERS: "k61_describe_producers",
    ApiKey.DESCRIBE_TRANSACTIONS: "k65_describe_transactions",
    ApiKey.LIST_TRANSACTIONS: "k66_list_transactions",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "k68_consumer_group_heartbeat",
    ApiKey.CONSUMER_GROUP_DESCRIBE: "k69_consumer_group_describe",
    ApiKey.LIST_CONFIG_RESOURCES: "k74_list_config_resources",
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: "k75_describe_topic_partitions",
}

Handler = Callable[["Broker", Any, "Call"], Any]
FrameHandler = Callable[["Broker", RequestCursor, Connection], Any]


class Call:
    """What a handler may want to know of the request besides its body."""

    __slots__ = ("client_id", "connection", "version")

    def __init__(self, connection: Connection, version: int, client_id: str | None) -> None:
        self.connection = connection
        self.version = version
        self.client_id = client_id


class Route:
    """All that is needed to serve one version of one API."""

    __slots__ = (
        "api",
        "handle",
        "handle_frame",
        "has_flexible_request",
        "has_flexible_response",
        "reader",
        "response_type",
        "version",
        "writer",
    )

    def __init__(self, api: Api, version: int) -> None:
        self.api = api
        self.version = version
        self.reader: Codec = api.request_codec(version)
        self.writer: Codec = api.response_codec(version)
        self.has_flexible_request = api.has_flexible_request_header(version)
        self.has_flexible_response = api.has_flexible_response_header(version)
        module = import_module(f"penstock.broker.handlers.{HANDLERS[api.key]}")
        self.handle: Handler = module.handle
        self.handle_frame: FrameHandler | None = getattr(module, "handle_frame", None)
        self.response_type = api.response_type


class Dispatcher:
    """Finds and calls the handler of each request."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._routes: dict[int, Route] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def dispatch(self, connection: Connection, frame: Any) -> Encoded | None:
        """Serve one request. Returns its response if there is one now. Raises WireError if it cannot be understood."""
        cursor = RequestCursor(frame)
        route = self._routes.get(cursor.route)
        if route is None:
            route = self._find_route(cursor)
            if route.version != cursor.api_version:
                # A client that is ahead of us is told in the oldest version what we speak.
                return self._encode(route, cursor.correlation_id, self._unsupported_version())
        handle_frame = route.handle_frame
        if handle_frame is not None:
            result = handle_frame(self._broker, cursor, connection)
            if result is not None:
                if type(result) is bytes:
                    return result
                self._answer_later(connection, route, cursor.correlation_id, result)
                return None
        # Bytes behind the body are ignored, as Kafka does: librdkafka sends some with Metadata.
        request = route.reader.read_request(cursor, route.has_flexible_request)
        try:
            result = route.handle(self._broker, request, Call(connection, route.version, cursor.client_id))
        except Exception:
            self._failed(connection, route)
            return None
        if type(result) is route.response_type:
            return self._encode(route, cursor.correlation_id, result)
        if result is not None:
            self._answer_later(connection, route, cursor.correlation_id, result)
        return None

    def _find_route(self, cursor: RequestCursor) -> Route:
        api = APIS.get(cursor.api_key)
        if api is None or api.key not in HANDLERS:
            raise DecodeError(f"there is no API {cursor.api_key}")
        version = cursor.api_version
        if not api.supports(version):
            if api.key != ApiKey.API_VERSIONS:
                raise DecodeError(f"version {version} of {api.name} is not supported")
            version = 0
        route = self._routes[api.key << 16 | version] = Route(api, version)  # as `RequestCursor.route` has it
        return route

    def _unsupported_version(self) -> Any:
        from penstock.broker.handlers import k18_api_versions

        return k18_api_versions.unsupported_version()

    def _encode(self, route: Route, correlation_id: int, response: Any) -> Encoded:
        encoded: Encoded = route.writer.encode_response(correlation_id, route.has_flexible_response, response)
        return encoded

    def _answer_later(self, connection: Connection, route: Route, correlation_id: int, result: Any) -> None:
        slot = connection.answer_later()
        future = result
        if asyncio.iscoroutine(result):
            future = asyncio.get_running_loop().create_task(result)
            self._tasks.add(future)
            future.add_done_callback(self._tasks.discard)
        if future.done():  # without another turn of the loop, and before those whom the same request has answered, too
            self._done(connection, route, correlation_id, slot, future)
        else:
            future.add_done_callback(partial(self._done, connection, route, correlation_id, slot))

    def _done(
        self, connection: Connection, route: Route, correlation_id: int, slot: Slot, future: asyncio.Future[Any]
    ) -> None:
        if connection.is_closing:
            return
        if future.cancelled() or future.exception() is not None:
            if not future.cancelled():
                logger.error("%s failed", route.api.name, exc_info=future.exception())
            connection.close()
            return
        response = future.result()
        encoded = None if response is None else self._encode(route, correlation_id, response)
        connection.fill(slot, encoded)

    def _failed(self, connection: Connection, route: Route) -> None:
        """A mistake of ours. The client cannot be answered in its API's terms; it will connect again."""
        logger.exception("%s failed", route.api.name)
        connection.close()


class Interceptor(Protocol):
    """Stands between requests and their handlers, for tests that want a broker to misbehave."""

    @property
    def is_active(self) -> bool:
        """Whether it wants to see requests now."""
        ...

    def intercept(self, api: Api, request: Any, call: Call, proceed: Callable[[], Any]) -> Any:
        """Serve a request, and return what a handler may return. `proceed()` is the handler.

        It must be called before this returns, if at all: the request's memory is used again afterwards.
        """
        ...


class InterceptedDispatcher(Dispatcher):
    """Has an interceptor serve requests while it is active.

    All is done in the routes, so a dispatcher without an interceptor does not pay for this.
    """

    def __init__(self, broker: Broker, interceptor: Interceptor) -> None:
        super().__init__(broker)
        self._interceptor = interceptor

    def _find_route(self, cursor: RequestCursor) -> Route:
        route = super()._find_route(cursor)
        route.handle = partial(self._intercept, route.api, route.handle)
        if route.handle_frame is not None:
            route.handle_frame = partial(self._maybe_handle_frame, route.handle_frame)
        return route

    def _maybe_handle_frame(
        self, handle_frame: FrameHandler, broker: Broker, cursor: RequestCursor, connection: Connection
    ) -> Any:
        return None if self._interceptor.is_active else handle_frame(broker, cursor, connection)

    def _intercept(self, api: Api, handle: Handler, broker: Broker, request: Any, call: Call) -> Any:
        return self._interceptor.intercept(api, request, call, partial(handle, broker, request, call))
