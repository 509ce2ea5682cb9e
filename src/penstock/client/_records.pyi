from dataclasses import dataclass
from typing import Any, Generic, TypeVar

K = TypeVar("K", covariant=True)
V = TypeVar("V", covariant=True)

@dataclass(frozen=True)
class Record(Generic[K, V]):
    topic: str
    partition: int = 0
    offset: int = 0
    timestamp: int | None = None
    key: K = ...
    value: V = ...
    headers: tuple[tuple[str, bytes | None], ...] = ()
    is_append_time: bool = False
    def with_contents(self, key: Any, value: Any) -> Record[Any, Any]: ...

def records_of(messages: list[Any], errors: list[Any]) -> list[Record[Any, Any]]: ...
def positions_of(records: list[Record[Any, Any]], start: int, stop: int) -> dict[tuple[str, int], int]: ...
