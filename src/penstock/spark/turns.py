"""Turns at writing, for tasks that share one producer id.

A partition takes the batches of a producer only in the order of their sequence numbers, and these tasks write to all
partitions at once. So the driver hands out turns: who has one for a partition knows its batch's number, sends it, and
gives the turn back when the batch is acknowledged. Rows are written by the task that has them, wherever they go. A task
may ask for many turns, and uses each as soon as it has it, whatever becomes of the others: so nobody waits for ever. It
has several turns for one partition at once if nobody else has asked in between: its batches go one way, in order. The
first batch of a partition goes alone: a leader that has not heard of the producer takes any number for its first, so if
the first batch failed for a moment, those behind it would be there without it, and it could never follow.

A task's part is written by one attempt or not at all: the first attempt that comes here is the only one. If one of the
tasks fails, all do; the driver then begins the batch anew, as another producer epoch.

`Turns` decides, `TurnServer` is the driver's side of the conversation, `TaskTurns` a task's.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import secrets
import selectors
import socket
import struct
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, Self

from penstock.client.cluster import Refused
from penstock.wire.errors import ErrorCode

logger = logging.getLogger(__name__)

_SEQUENCE_MASK = 0x7FFFFFFF

# What a task says: first a greeting, then messages, the last of them FINISHED or FAILED. FAILED is followed by text.
_GREETING = struct.Struct("!32si")  # the secret, the task's number
_MESSAGE = struct.Struct("!Bii")
_GREET, _ASK, _DONE, _FINISHED, _FAILED = range(5)  # with: -; place and count; place; nothing; the length of the text
# What it is told: a place and a sequence number in it; or REFUSED and the length of the text that follows.
_ANSWER = struct.Struct("!ii")
_REFUSED = -1
_TEXT_BYTES_MAX = 2000

_UNDER_WAY_MAX = 5  # batches of a producer that a partition remembers, and so knows again if they come twice


class Turn(NamedTuple):
    """Leave for a task to write a batch to a place, with this sequence number."""

    task: int
    place: int
    number: int


class Turns:
    """Who may write where, and with which sequence number. Tasks are told apart by any number."""

    def __init__(self, place_count: int) -> None:
        self._places = [_Place() for _ in range(place_count)]

    def ask(self, task: int, place: int, count: int) -> list[Turn]:
        """Ask for a turn to write some records: the turns that are given for it now."""
        if not 0 <= place < len(self._places) or not 0 < count <= _SEQUENCE_MASK:
            raise ValueError(f"a turn for {count} records in place {place} of {len(self._places)}")
        self._places[place].waiting.append((task, count))
        return self._given(place)

    def done(self, task: int, place: int) -> list[Turn]:
        """Give a turn back: the turns that are given for it now."""
        held = self._places[place] if 0 <= place < len(self._places) else None
        if held is None or not held.is_held_by(task):
            raise ValueError(f"it is not the turn of task {task} in place {place}")
        held.under_way -= 1
        held.has_begun = True
        return self._given(place)

    def _given(self, place: int) -> list[Turn]:
        return [Turn(task, place, number) for task, number in self._places[place].given()]

    def has_or_awaits(self, task: int) -> bool:
        """Whether a task has a turn, or waits for one."""
        return any(place.has_or_awaits(task) for place in self._places)


@dataclass(slots=True)
class _Place:
    next_number: int = 0
    writer: int = -1
    under_way: int = 0  # turns that it has
    has_begun: bool = False  # its first batch is acknowledged
    waiting: deque[tuple[int, int]] = field(default_factory=deque)  # tasks, and how many records each has

    def given(self) -> Iterator[tuple[int, int]]:
        """Give turns to those who wait longest, as long as they are one task's: who has them, and their numbers."""
        while self.waiting and self.under_way < (_UNDER_WAY_MAX if self.has_begun else 1):
            task, count = self.waiting[0]
            if self.under_way and task != self.writer:
                return
            self.waiting.popleft()
            self.writer = task
            self.under_way += 1
            number = self.next_number
            self.next_number = (number + count) & _SEQUENCE_MASK
            yield task, number

    def is_held_by(self, task: int) -> bool:
        return self.under_way > 0 and self.writer == task

    def has_or_awaits(self, task: int) -> bool:
        return self.is_held_by(task) or any(waiting == task for waiting, _ in self.waiting)


@dataclass(frozen=True)
class TurnAddress:
    """Where tasks ask for turns, and what proves that they may."""

    host: str
    port: int
    secret: bytes = field(repr=False)


class TurnServer:
    """Hands out turns for one attempt at a batch, in a thread of its own."""

    def __init__(self, host: str, bind_host: str, port: int, place_count: int) -> None:
        self._turns = Turns(place_count)
        self._secret = secrets.token_bytes(32)
        self._listener = socket.create_server((bind_host, port), backlog=1024)
        self._listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._tasks: dict[int, _Conversation] = {}  # all that have ever begun
        self._failure = ""
        self._thread = threading.Thread(target=self._run, name="penstock-turns", daemon=True)
        self.address = TurnAddress(host, self._listener.getsockname()[1], self._secret)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._wake.close()
        self._thread.join()

    def _run(self) -> None:
        try:
            while True:
                for key, _ in self._selector.select():
                    if key.fileobj is self._woken:
                        return
                    if key.fileobj is self._listener:
                        self._accept()
                    else:
                        self._hear(key.data)
        finally:
            for key in list(self._selector.get_map().values()):
                key.fileobj.close()  # type: ignore[union-attr]
            self._selector.close()

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:  # it has gone again
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._selector.register(connection, selectors.EVENT_READ, _Conversation(connection))

    def _hear(self, task: _Conversation) -> None:
        try:
            data = task.connection.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        task.heard += data
        try:
            while (message := task.next_message()) is not None:
                self._take(task, *message)
        except ValueError as error:
            logger.warning("a connection for turns at writing is closed: %s", error)
            self._end(task)
            return
        if not data:
            self._end(task)

    def _take(self, task: _Conversation, kind: int, first: int, second: int, content: bytes) -> None:
        if kind == _GREET:
            self._begin(task, first, content)
        elif task.number < 0:  # it was refused, and goes on until it has heard that
            return
        elif kind == _ASK:
            self._tell(self._turns.ask(task.number, first, second))
        elif kind == _DONE:
            self._tell(self._turns.done(task.number, first))
        elif kind == _FINISHED:
            if self._turns.has_or_awaits(task.number):
                raise ValueError("it ends with a turn that it has, or waits for")
            task.is_finished = True
        else:
            self._fail(content.decode(errors="replace"))

    def _tell(self, turns: Iterable[Turn]) -> None:
        for turn in turns:
            self._tasks[turn.task].tell(turn)

    def _begin(self, task: _Conversation, number: int, secret: bytes) -> None:
        if not hmac.compare_digest(secret, self._secret):
            raise ValueError("it does not know the secret")
        if self._failure:
            task.refuse(self._failure)
        elif number in self._tasks:
            task.refuse("an earlier attempt at this task may have written a part of it")
        else:
            task.number = number
            self._tasks[number] = task

    def _end(self, task: _Conversation) -> None:
        self._selector.unregister(task.connection)
        task.connection.close()
        if task.number >= 0 and not task.is_finished:
            self._fail("a task ended without a word")

    def _fail(self, reason: str) -> None:
        """A part of the batch cannot be completed, so no other part needs to be."""
        if self._failure:
            return
        self._failure = f"another task failed: {reason}"
        for task in self._tasks.values():
            task.refuse(self._failure)


class _Conversation:
    """What the driver knows of a task that is connected. Without a greeting it has no number."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.number = -1
        self.is_greeted = False
        self.is_finished = False
        self.heard = bytearray()

    def next_message(self) -> tuple[int, int, int, bytes] | None:
        """The next thing that the task has said, if it is all there: its kind, two numbers, and bytes."""
        size = (_MESSAGE if self.is_greeted else _GREETING).size
        if len(self.heard) < size:
            return None
        if not self.is_greeted:
            self.is_greeted = True
            secret, number = _GREETING.unpack(self._taken(size))
            return _GREET, number, 0, secret
        kind, first, second = _MESSAGE.unpack_from(self.heard)
        if kind not in (_ASK, _DONE, _FINISHED, _FAILED):
            raise ValueError(f"it says something unknown: {kind}")
        if kind != _FAILED:
            self._taken(size)
            return kind, first, second, b""
        if not 0 <= first <= _TEXT_BYTES_MAX:
            raise ValueError(f"it has {first} bytes to say")
        if len(self.heard) < size + first:
            return None
        return kind, first, second, self._taken(size + first)[size:]

    def _taken(self, size: int) -> bytes:
        taken = bytes(self.heard[:size])
        del self.heard[:size]
        return taken

    def tell(self, turn: Turn) -> None:
        self._send(_ANSWER.pack(turn.place, turn.number))

    def refuse(self, reason: str) -> None:
        text = reason.encode()[:_TEXT_BYTES_MAX]
        self._send(_ANSWER.pack(_REFUSED, len(text)) + text)

    def _send(self, data: bytes) -> None:
        """A task has asked for each answer, so there is room. Whether it is still there shows when it is heard."""
        with contextlib.suppress(OSError):
            self.connection.send(data)


class TurnTaker(Protocol):
    """What a writer needs to know of turns."""

    def ask(self, place: int, count: int) -> None:
        """Ask for a turn to write some records."""

    def taken(self) -> list[Turn]:
        """The turns that have come by now, those of one place in the order in which they were asked for."""

    def give_back(self, place: int) -> None:
        """What was sent first is acknowledged."""

    def fileno(self) -> int | None:
        """What can be read when turns come, if it takes waiting."""


class OwnTurns:
    """For a writer that shares its producer id with nobody."""

    def __init__(self, place_count: int) -> None:
        self._turns = Turns(place_count)
        self._given: list[Turn] = []

    def ask(self, place: int, count: int) -> None:
        self._given += self._turns.ask(0, place, count)

    def taken(self) -> list[Turn]:
        taken, self._given = self._given, []
        return taken

    def give_back(self, place: int) -> None:
        self._given += self._turns.done(0, place)

    def fileno(self) -> None:
        return None


class TaskTurns:
    """A task's way to ask for turns. Leaving it with an error fails all tasks of the batch."""

    def __init__(self, address: TurnAddress, task: int) -> None:
        self._task = task
        self._heard = bytearray()
        self._socket = socket.create_connection((address.host, address.port), timeout=30)
        self._socket.settimeout(None)  # turns of others take as long as they do; if the driver dies, this ends
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._send(_GREETING.pack(address.secret, task))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        with self._socket, contextlib.suppress(OSError):
            if error is None:
                self._send(_MESSAGE.pack(_FINISHED, 0, 0))
            else:
                text = (str(error) or type(error).__name__).encode()[:_TEXT_BYTES_MAX]
                self._send(_MESSAGE.pack(_FAILED, len(text), 0) + text)

    def ask(self, place: int, count: int) -> None:
        self._send(_MESSAGE.pack(_ASK, place, count))

    def taken(self) -> list[Turn]:
        self._hear()
        turns = []
        while len(self._heard) >= _ANSWER.size:
            place, number = _ANSWER.unpack_from(self._heard)
            if place == _REFUSED:
                raise _refused(self._text(number))
            del self._heard[: _ANSWER.size]
            turns.append(Turn(self._task, place, number))
        return turns

    def give_back(self, place: int) -> None:
        self._send(_MESSAGE.pack(_DONE, place, 0))

    def fileno(self) -> int:
        return self._socket.fileno()

    def _hear(self) -> None:
        """Take in what is there, without waiting."""
        try:
            data = self._socket.recv(65536, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        if not data:
            raise _refused("the driver has ended the batch")
        self._heard += data

    def _text(self, size: int) -> str:
        """What follows a refusal; nothing comes after it."""
        text = bytes(self._heard[_ANSWER.size :])
        if len(text) < size:
            text += self._socket.recv(size - len(text), socket.MSG_WAITALL)
        return text[:size].decode(errors="replace")

    def _send(self, data: bytes) -> None:
        self._socket.sendall(data)


def _refused(reason: str) -> Refused:
    return Refused(ErrorCode.INVALID_TXN_STATE, "write a part of a batch", reason)
