"""What a connection still has to send: bytes, and parts of files that go from disk to network without a copy."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from penstock.background import Background
from penstock.broker._sending import Sender
from penstock.log.storage import FileSlice

Part = bytes | FileSlice
Encoded = bytes | list[Part]  # a response

# Beyond this many bytes of unsent responses, nothing more is read from a client that does not read itself.
_UNSENT_BYTES_MAX = 4 * 1024 * 1024

# A slice up to this size is cheaper to read and send with its header than to hand to sendfile.
_INLINE_BYTES = 32 * 1024

# How much is sent in one go before other connections get their turn.
_TURN_BYTES = 2 * 1024 * 1024

_SENDFILE_BYTES_MAX = 1024 * 1024


class Outbox(Sender):
    """Sends a connection's responses in order, straight through its socket.

    Writing past the event loop's transport lets a response's header and its records leave together: the header with
    MSG_MORE, the records with sendfile. The transport only reads. When the socket is full, a duplicate of its
    descriptor is watched (the transport's own may not be). Records that are not in memory are read in a thread first,
    so a slow disk holds up one connection, not the loop.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        background: Background,
        connection: socket.socket,
        on_full: Callable[[], None],
        on_drained: Callable[[], None],
        on_failure: Callable[[str], None],
    ) -> None:
        """`on_full` is called when so much is unsent that no more should be made, `on_drained` when nothing is."""
        self.fd = connection.fileno()
        self._loop = loop
        self._background = background
        self._socket = connection
        self._on_full = on_full
        self._on_drained = on_drained
        self._on_failure = on_failure
        self._parts: deque[Part] = deque()
        self._watched_fd = -1
        self._is_waiting = False  # for the socket, for a disk, or for its next turn
        self._is_closed = False
        self._pending_bytes = 0  # in memory; slices of files are not

    @property
    def is_empty(self) -> bool:
        """Whether everything is sent."""
        return not self._parts and not self.ready

    def send_ready(self) -> None:
        """Send what is ready after all that was sent before; what became ready together leaves together."""
        if self._is_closed:
            self.ready.clear()
            return
        parts: list[Part] = []
        for response in self.ready:
            if isinstance(response, bytes):
                parts.append(response)
            else:
                parts += response
        self.ready.clear()
        added = _inlined(parts)
        self._parts.extend(added)
        self._pending_bytes += sum(len(part) for part in added if type(part) is bytes)
        self.is_engaged = True
        if not self._is_waiting:
            self._pump()
        if self._pending_bytes > _UNSENT_BYTES_MAX:
            self._on_full()

    def _pump(self) -> None:
        """Send until all is sent, the socket is full, or the turn is over."""
        turn_bytes = _TURN_BYTES
        try:
            while self._parts and turn_bytes > 0:
                part = self._parts[0]
                sent = self._send_bytes_part(part) if type(part) is bytes else self._send_slice(part)  # type: ignore[arg-type]
                if sent < 0:
                    return
                turn_bytes -= sent
        except BlockingIOError:
            self._wait_for_socket()
            return
        except OSError as error:
            self._fail(error)
            return
        if self._parts:
            self._is_waiting = True
            self._loop.call_soon(self._resume)
        else:
            self.is_engaged = False
            self._on_drained()

    def _send_bytes_part(self, data: bytes) -> int:
        more = socket.MSG_MORE if len(self._parts) > 1 else 0
        sent = self._socket.send(data, more)
        self._pending_bytes -= sent
        if sent == len(data):
            self._parts.popleft()
        else:
            self._parts[0] = data[sent:]
        return sent

    def _send_slice(self, piece: FileSlice) -> int:
        """Send some of a slice; -1 if it has to be read from disk first."""
        count = min(piece.size, _SENDFILE_BYTES_MAX)
        if not _is_in_memory(piece.file.fd, piece.position, count):
            self._is_waiting = True
            self._background.run(lambda: _read_ahead(piece.file.fd, piece.position, count)).add_done_callback(
                self._read_ahead_done
            )
            return -1
        sent = os.sendfile(self._socket.fileno(), piece.file.fd, piece.position, count)
        if sent == 0:
            raise OSError(f"{piece.file.path} is shorter than it was")
        if sent == piece.size:
            self._parts.popleft()
        else:
            self._parts[0] = FileSlice(piece.file, piece.position + sent, piece.size - sent)
        return sent

    def _read_ahead_done(self, done: asyncio.Future[None]) -> None:
        if done.cancelled() or self._is_closed:
            return
        error = done.exception()
        if isinstance(error, OSError):
            self._fail(error)
        else:
            self._resume()

    def _wait_for_socket(self) -> None:
        self._is_waiting = True
        if self._watched_fd < 0:
            self._watched_fd = os.dup(self._socket.fileno())
        self._loop.add_writer(self._watched_fd, self._socket_is_writable)

    def _socket_is_writable(self) -> None:
        self._loop.remove_writer(self._watched_fd)
        self._resume()

    def _resume(self) -> None:
        self._is_waiting = False
        if not self._is_closed:
            self._pump()

    def _fail(self, error: OSError) -> None:
        self.close()
        self._on_failure(error.strerror or str(error))

    def close(self) -> None:
        """Forget what is not sent."""
        self._is_closed = self.is_engaged = True
        self._parts.clear()
        self.ready.clear()
        self._pending_bytes = 0
        if self._watched_fd >= 0:
            self._loop.remove_writer(self._watched_fd)
            os.close(self._watched_fd)
            self._watched_fd = -1


def _inlined(parts: Sequence[Part]) -> list[Part]:
    """The same parts with small slices read, and neighbouring bytes joined: fewer system calls."""
    joined: list[Part] = []
    run: list[bytes] = []
    for part in parts:
        content = _read_if_small(part) if isinstance(part, FileSlice) else part
        if content is None:
            joined.append(b"".join(run))
            joined.append(part)
            run = []
        else:
            run.append(content)
    if run:
        joined.append(b"".join(run))
    return joined


def _read_if_small(piece: FileSlice) -> bytes | None:
    """The slice's bytes, if they are few and in memory."""
    if piece.size > _INLINE_BYTES:
        return None
    content = bytearray(piece.size)
    try:
        count = os.preadv(piece.file.fd, [content], piece.position, os.RWF_NOWAIT)
    except OSError:
        return None
    return bytes(content) if count == piece.size else None


def _is_in_memory(fd: int, position: int, count: int) -> bool:
    """Whether the ends of a range are in the page cache; a file system that cannot tell counts as in memory."""
    probe: list[Any] = [bytearray(1)]
    try:
        os.preadv(fd, probe, position, os.RWF_NOWAIT)
        os.preadv(fd, probe, position + count - 1, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _read_ahead(fd: int, position: int, count: int) -> None:
    """Bring a range of a file into memory. Runs in a thread."""
    os.posix_fadvise(fd, position, count, os.POSIX_FADV_WILLNEED)
    end = position + count
    while position < end:
        read = len(os.pread(fd, min(128 * 1024, end - position), position))
        if read == 0:
            return
        position += read
