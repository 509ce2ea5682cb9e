"""Processors: a class of the user's that sees record by record, remembers something of each key, and sets timers.

    class Deduplicated(Processor):
        seen = map_state(ttl="1 hour")

        def process(self, record: Record, context: Context) -> None:
            if record.value.id not in self.seen:
                self.seen[record.value.id] = True
                context.emit(record.value)

    orders.process_values(Deduplicated, returns="id STRING, amount DOUBLE")

What is declared with `value_state`, `list_state` and `map_state` is another one for each key. What a key remembers is
read and written as a whole. Timers and the time to live of state go by the processor's `clock`: the time of the stream,
or that on the wall.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, MutableMapping, MutableSequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, overload

from penstock.client.errors import ConfigurationError
from penstock.streams.windows import Duration, milliseconds

STREAM_TIME = "stream time"
WALL_CLOCK = "wall clock"
CLOCKS = (STREAM_TIME, WALL_CLOCK)

_SAME = object()  # in place of a key: the record's


@dataclass(frozen=True, slots=True)
class Record:
    """A record, as a processor gets it. Times are in ms."""

    key: Any
    value: Any
    timestamp: int
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer whose time has come."""

    name: str
    at: int


@dataclass
class Kept:
    """What is remembered of a key: state by name, each element with the time at which it expires; and timers."""

    states: dict[str, Any] = field(default_factory=dict)
    timers: dict[str, int] = field(default_factory=dict)

    def expire(self, now_ms: int) -> None:
        """Forget what has lived long enough."""
        for name, elements in list(self.states.items()):
            left = _left(elements, now_ms)
            if left:
                self.states[name] = left
            else:
                del self.states[name]

    def next_ms(self) -> int | None:
        """When there is something to do: a timer, or something to forget."""
        expiries = [one[1] for elements in self.states.values() for one in _each(elements) if one[1] is not None]
        return min([*self.timers.values(), *expiries], default=None)

    def due(self, now_ms: int) -> Timer | None:
        """The timer that must be called first, if one must."""
        at, name = min(((at, name) for name, at in self.timers.items()), default=(now_ms + 1, ""))
        return Timer(name, at) if at <= now_ms else None

    @property
    def is_empty(self) -> bool:
        return not self.states and not self.timers


def _each(elements: Any) -> Iterator[tuple[Any, int | None]]:
    yield from elements.values() if isinstance(elements, dict) else elements


def _left(elements: Any, now_ms: int) -> Any:
    if isinstance(elements, dict):
        return {key: one for key, one in elements.items() if one[1] is None or one[1] > now_ms}
    return [one for one in elements if one[1] is None or one[1] > now_ms]


class Context:
    """Where a processor is: whose record or timer it has, and at what time. Times are in ms."""

    def __init__(self, key: Any, kept: Kept, may_change_key: bool) -> None:
        self.key = key
        self.timestamp = 0  # of the record or timer; what is emitted has it if nothing else is said
        self.now = 0  # by the processor's clock
        self.kept = kept
        self.emitted: list[tuple[Any, Any, int]] = []
        self._may_change_key = may_change_key

    def emit(self, value: Any, *, key: Any = _SAME, timestamp: int | None = None) -> None:
        """Pass on a record, any number of times."""
        if key is not _SAME and not self._may_change_key:
            raise ConfigurationError("process_values keeps the key: use process to emit records with another one")
        at = self.timestamp if timestamp is None else timestamp
        self.emitted.append((self.key if key is _SAME else key, value, at))

    def set_timer(self, name: str = "", *, after: Duration | None = None, at: int | None = None) -> None:
        """Have `on_timer` called for this key: so long after the time that is now, or at a time. One of a name."""
        if (after is None) == (at is None):
            raise ConfigurationError("set_timer needs either after='5 minutes' or at=<ms>")
        when = at if at is not None else self.now + milliseconds(after or "", "after")
        self.kept.timers[name] = when

    def cancel_timer(self, name: str = "") -> None:
        """Forget a timer, if there is one."""
        self.kept.timers.pop(name, None)


class Processor:
    """To be subclassed. One object serves many keys: only declared state is kept, and kept apart."""

    clock: ClassVar[str] = STREAM_TIME
    _context: Context  # the engine sets it before each call

    @abstractmethod
    def process(self, record: Record, context: Context) -> None:
        """Called with every record, those of a key in order."""

    def on_timer(self, timer: Timer, context: Context) -> None:
        """Called when a timer's time has come."""


class _State:
    """What all declarations of state have: a name, and how long it lives after it was written."""

    def __init__(self, ttl: Duration | None) -> None:
        self._ttl_ms = None if ttl is None else milliseconds(ttl, "ttl")
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def stamped(self, context: Context, value: Any) -> tuple[Any, int | None]:
        """A value, and when it expires."""
        return value, None if self._ttl_ms is None else context.now + self._ttl_ms

    def elements(self, context: Context, kind: Callable[[], Any]) -> Any:
        """What is there, of which some may have expired just now."""
        states = context.kept.states
        found = states.get(self._name, None) or kind()
        states[self._name] = found if self._ttl_ms is None else _left(found, context.now)
        return states[self._name]


class ValueState(_State):
    """One value of a key: an attribute that can be read, set and deleted."""

    def __init__(self, default: Any, ttl: Duration | None) -> None:
        super().__init__(ttl)
        self._default = default

    def __get__(self, processor: Processor | None, owner: type) -> Any:
        if processor is None:
            return self
        elements = self.elements(processor._context, list)
        return elements[0][0] if elements else self._default

    def __set__(self, processor: Processor, value: Any) -> None:
        context = processor._context
        context.kept.states[self._name] = [self.stamped(context, value)]

    def __delete__(self, processor: Processor) -> None:
        processor._context.kept.states.pop(self._name, None)


class _Collection(_State):
    """State that is a collection: it is changed, not replaced."""

    def __set__(self, processor: Processor, value: Any) -> None:
        raise ConfigurationError(f"{self._name} cannot be replaced: change what is in it, beginning with clear()")


class ListState(_Collection):
    """A list of a key. Elements expire one by one."""

    @overload
    def __get__(self, processor: None, owner: type) -> ListState: ...
    @overload
    def __get__(self, processor: Processor, owner: type) -> MutableSequence[Any]: ...
    def __get__(self, processor: Processor | None, owner: type) -> ListState | MutableSequence[Any]:
        return self if processor is None else _KeptList(self, processor._context)


class MapState(_Collection):
    """A dict of a key. Entries expire one by one."""

    @overload
    def __get__(self, processor: None, owner: type) -> MapState: ...
    @overload
    def __get__(self, processor: Processor, owner: type) -> MutableMapping[Any, Any]: ...
    def __get__(self, processor: Processor | None, owner: type) -> MapState | MutableMapping[Any, Any]:
        return self if processor is None else _KeptMap(self, processor._context)


class _KeptList(MutableSequence[Any]):
    def __init__(self, state: ListState, context: Context) -> None:
        self._state, self._context = state, context
        self._elements: list[tuple[Any, int | None]] = state.elements(context, list)

    def __getitem__(self, index: Any) -> Any:
        found = self._elements[index]
        return [value for value, _ in found] if isinstance(found, list) else found[0]

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, slice):
            self._elements[index] = [self._state.stamped(self._context, one) for one in value]
        else:
            self._elements[index] = self._state.stamped(self._context, value)

    def __delitem__(self, index: Any) -> None:
        del self._elements[index]

    def __len__(self) -> int:
        return len(self._elements)

    def insert(self, index: int, value: Any) -> None:
        self._elements.insert(index, self._state.stamped(self._context, value))


class _KeptMap(MutableMapping[Any, Any]):
    def __init__(self, state: MapState, context: Context) -> None:
        self._state, self._context = state, context
        self._elements: dict[Any, tuple[Any, int | None]] = state.elements(context, dict)

    def __getitem__(self, key: Any) -> Any:
        return self._elements[key][0]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._elements[key] = self._state.stamped(self._context, value)

    def __delitem__(self, key: Any) -> None:
        del self._elements[key]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._elements)

    def __len__(self) -> int:
        return len(self._elements)


def value_state(default: Any = None, *, ttl: Duration | None = None) -> Any:
    """One value per key: `default` until it is set, and again when it has lived for `ttl`."""
    return ValueState(default, ttl)


def list_state(*, ttl: Duration | None = None) -> ListState:
    """A list per key, whose elements live for `ttl`."""
    return ListState(ttl)


def map_state(*, ttl: Duration | None = None) -> MapState:
    """A dict per key, whose entries live for `ttl`."""
    return MapState(ttl)


def called(processor: Processor, context: Context, arrived: Record | None, now_ms: int) -> None:
    """Call a processor with a record, after the timers that are due by then; or with None, for those alone.

    A timer may set another one, which must be later: else this would not end.
    """
    kept = context.kept
    processor._context = context
    while (timer := kept.due(now_ms)) is not None:
        del kept.timers[timer.name]
        context.timestamp = context.now = timer.at
        processor.on_timer(timer, context)
        again = kept.timers.get(timer.name)
        if again is not None and again <= timer.at:
            raise ConfigurationError(f"on_timer set its timer to {again} again, which is not after {timer.at}")
    context.now = now_ms
    if arrived is not None:
        context.timestamp = arrived.timestamp
        processor.process(arrived, context)
