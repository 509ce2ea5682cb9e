"""One client connection: bytes in, requests to the dispatcher, responses out in order."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from penstock.broker.outbox import Encoded, Outbox
from penstock.wire.errors import WireError
from penstock.wire.frame import FrameBuffer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.broker.server import Server

logger = logging.getLogger(__name__)

# So many responses are sent at once, even if more requests of the connection are waiting to be read.
_READY_RESPONSES_MAX = 100


class Slot:
    """A place in the order of responses."""

    __slots__ = ("is_ready", "response")

    def __init__(self) -> None:
        self.response: Encoded | None = None
        self.is_ready = False


class Connection(asyncio.BufferedProtocol):
    """A connection of one client.

    Requests are begun in the order in which they arrive, and answered in that order; while one waits (for replicas, for
    data), those behind it go on. Reading pauses when too many requests wait, when too much is unsent, when the broker's
    memory for requests is used up, or while a request must not be overtaken (`in_order`).
    """

    def __init__(self, server: Server, listener: str) -> None:
        self._server = server
        self.listener = listener
        self._dispatch = server.dispatch
        self._frames = FrameBuffer(server.shared_buffer, server.request_bytes_max)
        self.get_buffer = self._frames.writable  # type: ignore[method-assign]
        self._slots: deque[Slot] = deque()
        self._is_receiving = False
        self._held_frames: deque[bytearray] | None = None  # requests that arrived while an earlier one held them up
        self._memory_held = 0
        self._pauses: set[str] = set()
        self._transport: Any = None
        self._socket: socket.socket | None = None
        self._outbox: Outbox  # from when it is admitted
        self._ready: list[Encoded] = []  # the outbox's
        self.peer = ""
        self.host = ""
        self.last_active = 0.0  # as the server found when it looked last; it looks at `was_heard`
        self.was_heard = False
        self.is_closing = False

    # ---- the transport's calls ----

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        address = transport.get_extra_info("peername") or ("?", 0)
        self.host, self.peer = address[0], f"{address[0]}:{address[1]}"
        loop = asyncio.get_running_loop()
        self.last_active = loop.time()
        if not self._server.admit(self):
            self.is_closing = True
            transport.abort()
            return
        pseudo = transport.get_extra_info("socket")
        # The transport keeps the descriptor; this object only borrows it (see connection_lost).
        self._socket = socket.socket(pseudo.family, pseudo.type, pseudo.proto, fileno=pseudo.fileno())
        self._outbox = Outbox(
            loop, self._server.background, self._socket, self._full, self._drained, self.close_because
        )
        self._ready = self._outbox.ready

    def buffer_updated(self, count: int) -> None:
        self.was_heard = True
        self._is_receiving = True
        try:
            for frame in self._frames.received(count):
                if self.is_closing:
                    return
                if self._held_frames is None:
                    response = self._dispatch(self, frame)
                    if response is not None:
                        if self._slots:
                            self._line_up(response)
                        else:
                            self._ready.append(response)
                else:
                    self._held_frames.append(bytearray(frame))  # its records are stamped in place
        except WireError as error:
            self.close_because(str(error))
            return
        finally:
            self._is_receiving = False
        if self._frames.problem is not None:
            self._server.flush([self._outbox])
            self.close_because(self._frames.problem)
            return
        if self._ready:
            if len(self._ready) < _READY_RESPONSES_MAX:
                self._server.flush_soon(self._outbox)
            else:
                self._server.flush([self._outbox])
        if self._frames.pending_bytes != self._memory_held:
            self._account_memory()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self.is_closing = True
        if self._socket is not None:
            self._outbox.close()
            self._socket.detach()
            self._socket = None
        self._slots.clear()
        if self._memory_held and not self._server.memory.forget(self):
            self._server.memory.release(self._memory_held)
        self._memory_held = 0
        self._frames.discard()
        self._server.dismiss(self)

    # ---- answering ----

    def _line_up(self, response: Encoded) -> None:
        """Put a response behind those that are still to come."""
        slot = Slot()
        slot.response, slot.is_ready = response, True
        self._slots.append(slot)

    def answer_later(self) -> Slot:
        """Keep the place of the request that is being dispatched; `fill` it later."""
        slot = Slot()
        self._slots.append(slot)
        if len(self._slots) >= self._server.requests_max:
            self._pause("requests")
        return slot

    def fill(self, slot: Slot, response: Encoded | None) -> None:
        """Give the response for a place that was kept. None: there is none to send."""
        slot.response, slot.is_ready = response, True
        self._move_up()
        if self._ready and not self._is_receiving:
            self._server.flush_soon(self._outbox)
        if len(self._slots) < self._server.requests_max:
            self._unpause("requests")

    def _move_up(self) -> None:
        """What stands before all that is still to come may be sent."""
        slots = self._slots
        while slots and slots[0].is_ready:
            done = slots.popleft().response
            if done is not None:
                self._ready.append(done)

    def _full(self) -> None:
        self._pause("unsent")

    def _drained(self) -> None:
        self._unpause("unsent")

    # ---- order, memory, pauses ----

    @contextmanager
    def in_order(self) -> Iterator[None]:
        """While this is open, later requests of the connection are not begun."""
        assert self._held_frames is None
        self._held_frames = deque()
        self._pause("order")
        try:
            yield
        finally:
            self._server.call_soon(self._release_held)

    def _release_held(self) -> None:
        held = self._held_frames or deque()
        self._held_frames = None
        self._is_receiving = True
        try:
            while held and self._held_frames is None and not self.is_closing:
                response = self._dispatch(self, held.popleft())
                if response is not None:
                    self._line_up(response)
            self._move_up()
        except WireError as error:
            self.close_because(str(error))
            return
        except Exception:  # a mistake of ours: as in buffer_updated, the client must not wait for ever
            logger.exception("serving %s failed", self.peer)
            self.close()
            return
        finally:
            self._is_receiving = False
        if self._held_frames is not None:  # one of them holds up the rest again
            self._held_frames.extend(held)
        else:
            self._unpause("order")
        if self._ready:
            self._server.flush_soon(self._outbox)

    def _account_memory(self) -> None:
        """Keep the broker's budget in step with what this connection's incomplete request will take."""
        wanted = self._frames.pending_bytes
        if self._memory_held:
            self._server.memory.release(self._memory_held)
        self._memory_held = wanted
        if wanted and not self._server.memory.acquire(self, wanted):
            self._pause("memory")

    def resume(self) -> None:
        """The broker's memory budget has room for this connection's request now."""
        self._unpause("memory")

    def _pause(self, reason: str) -> None:
        if not self._pauses and not self.is_closing:
            self._transport.pause_reading()
        self._pauses.add(reason)

    def _unpause(self, reason: str) -> None:
        if reason in self._pauses:
            self._pauses.discard(reason)
            if not self._pauses and not self.is_closing:
                self._transport.resume_reading()

    # ---- the end ----

    @property
    def has_answers(self) -> bool:
        """Whether there are responses that nobody has begun to send."""
        return bool(self._ready) or any(slot.is_ready for slot in self._slots)

    @property
    def is_quiet(self) -> bool:
        """Whether no request waits for its answer and nothing is unsent."""
        return not self._slots and self._outbox.is_empty and self._held_frames is None

    def stop_reading(self) -> None:
        """Take no more requests: the broker is about to stop."""
        self._pause("stopping")

    def close_because(self, reason: str) -> None:
        """Close the connection for a fault of the other side: one line in the log, nothing else."""
        if not self.is_closing:
            logger.info("closing the connection from %s: %s", self.peer, reason)
            self.close()

    def close(self) -> None:
        if not self.is_closing:
            self.is_closing = True
            self._outbox.close()  # nothing that is ready is true enough to be sent, or there is nobody to send it to
            self._transport.abort()


Dispatch = Callable[[Connection, Any], Encoded | None]
