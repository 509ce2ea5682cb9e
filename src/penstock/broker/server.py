"""The listening sockets, and the limits on who may connect."""

from __future__ import annotations

import asyncio
import logging
import resource
import socket
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.background import Background
from penstock.broker._sending import Sender, flush
from penstock.broker.connection import Connection, Dispatch
from penstock.broker.listeners import Listener
from penstock.broker.memory import RequestMemory
from penstock.config.broker import BrokerConfig
from penstock.wire.frame import SHARED_BUFFER_BYTES

logger = logging.getLogger(__name__)

# Descriptors that are left for the files of logs, whatever the limit on connections is.
_DESCRIPTORS_RESERVED_SHARE = 0.5

_IDLE_CHECKS_PER_LIMIT = 10


class Server:
    """Accepts connections and knows all that are open."""

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        background: Background,
        dispatch: Dispatch,
        before_sending: Callable[[], None],
    ) -> None:
        """`before_sending` makes true what responses say."""
        self._before_sending = before_sending
        self._config = config
        self.background = background
        self.dispatch = dispatch
        settings = config()
        self.request_bytes_max = settings.socket_request_max_bytes
        self.requests_max = settings.queued_max_requests
        self.memory = RequestMemory(settings.queued_max_request_bytes)
        self.shared_buffer = memoryview(bytearray(SHARED_BUFFER_BYTES))
        self._loop = asyncio.get_running_loop()
        self.now = self._loop.time
        self.call_soon = self._loop.call_soon
        self._servers: list[asyncio.Server] = []
        self._connections: set[Connection] = set()
        self._unflushed: list[Sender] = []
        self._per_host: Counter[str] = Counter()
        self._descriptor_limit = int(resource.getrlimit(resource.RLIMIT_NOFILE)[0] * _DESCRIPTORS_RESERVED_SHARE)

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    # ---- starting ----

    def bind(self, listeners: list[Listener]) -> list[tuple[Listener, socket.socket]]:
        """Open the listening sockets. Nothing is accepted yet; port 0 becomes a real port."""
        return [(listener, _bind(listener, self._config())) for listener in listeners]

    async def listen(self, bound: list[tuple[Listener, socket.socket]]) -> None:
        """Accept connections."""
        config = self._config()
        for listener, bound_socket in bound:
            server = await self._loop.create_server(
                partial(Connection, self, listener.name),
                sock=bound_socket,
                backlog=config.socket_listen_backlog_size,
            )
            self._servers.append(server)
        if config.connections_max_idle_ms > 0:
            interval_ms = max(config.connections_max_idle_ms // _IDLE_CHECKS_PER_LIMIT, 1)
            self.background.every(interval_ms, self._close_idle)

    # ---- sending ----

    def flush_soon(self, sender: Sender) -> None:
        """Send what a connection has ready when all requests that are here now have been served.

        Sending one after the other wakes each client once, instead of letting it fall asleep between two responses.
        """
        if not self._unflushed:
            self._loop.call_soon(self._flush)
        self._unflushed.append(sender)

    def _flush(self) -> None:
        unflushed, self._unflushed = self._unflushed, []
        self.flush(unflushed)

    def flush(self, senders: list[Sender]) -> None:
        """Send what some connections have ready, now."""
        self._before_sending()
        flush(senders)

    def drop_answers(self) -> None:
        """Send none of the responses that are ready: what they say has not come true."""
        for connection in [c for c in self._connections if c.has_answers]:
            connection.close_because("what it was about to be told could not be written to disk")

    # ---- connections ----

    def admit(self, connection: Connection) -> bool:
        """Whether a new connection may stay."""
        config = self._config()
        host = connection.host
        limit = min(config.max_connections, self._descriptor_limit)
        if len(self._connections) >= limit:
            logger.warning("refusing a connection from %s: there are %d already", connection.peer, limit)
            return False
        host_limit = _host_limit(config, host)
        if self._per_host[host] >= host_limit:
            logger.warning("refusing a connection from %s: this address has %d already", connection.peer, host_limit)
            return False
        self._connections.add(connection)
        self._per_host[host] += 1
        return True

    def dismiss(self, connection: Connection) -> None:
        if connection in self._connections:
            self._connections.discard(connection)
            self._per_host[connection.host] -= 1
            if not self._per_host[connection.host]:
                del self._per_host[connection.host]

    def _close_idle(self) -> None:
        now = self.now()
        for connection in self._connections:
            if connection.was_heard:
                connection.was_heard, connection.last_active = False, now
        oldest = now - self._config().connections_max_idle_ms / 1000
        for connection in [c for c in self._connections if c.last_active < oldest and c.is_quiet]:
            connection.close_because("it was idle for too long")

    # ---- stopping ----

    async def stop(self, patience_s: float) -> None:
        """Accept nothing new, let what is under way finish, then close all connections."""
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.stop_reading()
        deadline = self.now() + patience_s
        while any(not c.is_quiet for c in self._connections) and self.now() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for connection in list(self._connections):
            connection.close()


def _bind(listener: Listener, config: BrokerConfig) -> socket.socket:
    family = socket.AF_INET6 if ":" in listener.host or not listener.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:
        bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    if config.socket_receive_buffer_bytes > 0:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, config.socket_receive_buffer_bytes)
    if config.socket_send_buffer_bytes > 0:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, config.socket_send_buffer_bytes)
    address: Any = (listener.host or "::", listener.port)
    bound.bind(address)
    bound.setblocking(False)
    return bound


def _host_limit(config: BrokerConfig, host: str) -> int:
    for override in config.max_connections_per_ip_overrides:
        address, _, count = override.rpartition(":")
        if address == host:
            return int(count)
    return config.max_connections_per_ip
