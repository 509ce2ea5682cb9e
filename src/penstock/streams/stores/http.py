"""Stores over HTTP, as JSON, for reading only.

    GET /status                                the application, its queries, its stores
    GET /stores                                all stores, how many rows each has, and where it stands
    GET /stores/<name>?from=a&to=b&limit=100   rows of a range of keys, or all
    GET /stores/<name>?start=0&end=60000       windows of all keys that begin in a stretch of time
    GET /stores/<name>/<key>                   the row of a key, or its windows: with ?start= and &end=, some of them

Keys are as in the address: text, a number, or JSON for all else. Times are in ms, or as in ISO 8601.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from penstock.client.errors import ConfigurationError
from penstock.streams.stores.answers import Answer
from penstock.streams.stores.follower import Stores
from penstock.streams.stores.store import LIMIT, Store

HOST = "127.0.0.1"
_LIMIT_MAX = 10_000  # rows in an answer
_BYTES_MAX = 16 << 20  # of an answer
_PATH_MAX = 8192
_CONNECTIONS_MAX = 64
_IDLE_S = 30.0
_PARAMETERS = frozenset({"from", "to", "start", "end", "limit"})

Status = Callable[[], Mapping[str, Any]]


class _NotFound(Exception):
    """There is nothing under an address."""


class StoreServer:
    """Serves stores until it is closed. `address` is host:port; port 0 takes a free one."""

    def __init__(self, stores: Stores, status: Status, address: str) -> None:
        host, _, port = address.rpartition(":")
        if not port.isdigit() or int(port) > 65535:
            raise ConfigurationError(f"http is {address!r}: write it as host:port, or as port")
        try:
            self._server = _Server((host.strip("[]") or HOST, int(port)), _Handler)
        except OSError as error:
            raise ConfigurationError(
                f"cannot listen on {address}: {error.strerror or error}; use another port"
            ) from None
        self._server.pages = Pages(stores, status)
        self.address = f"{host or HOST}:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.1,), name="stores-http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Serve no longer."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Pages:
    """What is under an address. Knows nothing of connections."""

    def __init__(self, stores: Stores, status: Status) -> None:
        self._stores = stores
        self._status = status

    def page(self, target: str) -> tuple[int, Any]:
        """The code and the content for what comes after the host."""
        if len(target) > _PATH_MAX:
            return 414, {"error": f"the address is longer than {_PATH_MAX} bytes"}
        parts = urlsplit(target)
        path = [unquote(part) for part in parts.path.split("/")[1:]]
        try:
            return 200, self._content(path, dict(parse_qsl(parts.query, keep_blank_values=True)))
        except ConfigurationError as error:
            return 400, {"error": str(error)}
        except _NotFound as error:
            return 404, {"error": str(error)}

    def _content(self, path: list[str], given: dict[str, str]) -> Any:
        unknown = given.keys() - _PARAMETERS
        if unknown:
            raise ConfigurationError(
                f"unknown {', '.join(sorted(unknown))}: there are {', '.join(sorted(_PARAMETERS))}"
            )
        match path:
            case ["status"]:
                return self._status()
            case ["stores"]:
                return [self._listed(self._stores[name]) for name in self._stores.names]
            case ["stores", name]:
                return self._rows(self._store(name), given).to_json()
            case ["stores", name, key]:
                return self._of_key(self._store(name), key, given).to_json()
        raise _NotFound("there are /status, /stores, /stores/<name> and /stores/<name>/<key>")

    def _store(self, name: str) -> Store:
        if name not in self._stores.names:
            raise _NotFound(f"there is no store {name!r}: there are {', '.join(self._stores.names) or 'none'}")
        return self._stores[name]

    def _listed(self, store: Store) -> dict[str, Any]:
        return {
            "name": store.name,
            "topic": store.topic,
            "is_windowed": store.is_windowed,
            "rows": store.count(),
            "standing": asdict(store.standing),
        }

    def _rows(self, store: Store, given: dict[str, str]) -> Answer:
        limit = _limit(given)
        if "start" in given or "end" in given:
            if "from" in given or "to" in given:
                raise ConfigurationError("ask for keys with from and to, or for windows with start and end, not both")
            return store.windows(None, _time(given, "start"), _time(given, "end"), limit=limit)
        first, last = (store.typed_key(given[name]) if name in given else None for name in ("from", "to"))
        return store.range(first, last, limit=limit)

    def _of_key(self, store: Store, key: str, given: dict[str, str]) -> Answer:
        if store.is_windowed or "start" in given or "end" in given:
            times = (_time(given, "start"), _time(given, "end"))
            return store.windows(store.typed_key(key), *times, limit=_limit(given))
        return store.get(store.typed_key(key))


def _limit(given: dict[str, str]) -> int:
    text = given.get("limit", str(LIMIT))
    if not text.isdigit() or not 0 < int(text) <= _LIMIT_MAX:
        raise ConfigurationError(f"limit is {text!r}: use 1 to {_LIMIT_MAX:,}")
    return int(text)


def _time(given: dict[str, str], name: str) -> int | datetime | None:
    text = given.get(name)
    if text is None or text.isdigit():
        return None if text is None else int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"{name} is {text!r}: give milliseconds, or a time like 2026-05-01T12:00:00Z"
        ) from None


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    pages: Pages

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._places = threading.BoundedSemaphore(_CONNECTIONS_MAX)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in a thread of its own, unless there are too many."""
        if not self._places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve a connection to its end."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "penstock"
    sys_version = ""
    timeout = _IDLE_S
    server: _Server

    def do_GET(self) -> None:
        """Answer a request."""
        code, content = self.server.pages.page(self.path)
        text = json.dumps(content, ensure_ascii=False).encode()
        if len(text) > _BYTES_MAX:
            code, text = 413, b'{"error": "the answer is too large: ask for fewer rows with limit"}'
        self.send_response(code)
        self.send_header("Content-Type", "application/json; charset=utf-8")
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged: who asks is told."""
