from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker.memory import RequestMemory


class Reader:
    def __init__(self, log: list[Reader]) -> None:
        self.log = log
        self.resumed = 0

    def resume(self) -> None:
        self.resumed += 1
        self.log.append(self)


def readers(count: int) -> tuple[list[Reader], list[Reader]]:
    """Some readers, and the list of those that were resumed, in order."""
    resumed: list[Reader] = []
    return [Reader(resumed) for _ in range(count)], resumed


def test_what_fits_is_given_at_once() -> None:
    (a, b), resumed = readers(2)
    memory = RequestMemory(10)
    assert memory.acquire(a, 6)
    assert memory.acquire(b, 4)
    assert memory.used_bytes == 10
    assert resumed == []


def test_what_does_not_fit_waits_until_enough_is_released() -> None:
    (a, b, c), resumed = readers(3)
    memory = RequestMemory(10)
    assert memory.acquire(a, 4)
    assert memory.acquire(b, 6)
    assert not memory.acquire(c, 5)
    memory.release(4)
    assert resumed == []
    memory.release(6)
    assert resumed == [c]
    assert memory.used_bytes == 5


def test_those_who_wait_are_served_in_order() -> None:
    (a, *others), resumed = readers(5)
    memory = RequestMemory(10)
    memory.acquire(a, 10)
    for reader in others:
        assert not memory.acquire(reader, 4)
    memory.release(10)
    assert resumed == others[:2]
    memory.release(4)
    assert resumed == others[:3]
    memory.release(4)
    assert resumed == others
    assert memory.used_bytes == 8


def test_a_request_larger_than_the_whole_budget_gets_its_turn_alone() -> None:
    (a, b, c), resumed = readers(3)
    memory = RequestMemory(10)
    assert memory.acquire(a, 50)
    assert not memory.acquire(b, 1)
    memory.release(50)
    assert resumed == [b]
    assert not memory.acquire(c, 50)
    memory.release(1)
    assert resumed == [b, c]


def test_a_large_request_that_waits_is_not_overtaken_for_ever() -> None:
    """Small requests that always fit would keep it waiting for as long as they come."""
    (a, large, small), resumed = readers(3)
    memory = RequestMemory(10)
    memory.acquire(a, 8)
    assert not memory.acquire(large, 9)
    assert not memory.acquire(small, 1)
    memory.release(8)
    assert resumed[0] is large


def test_without_a_limit_nobody_waits() -> None:
    (a, b), _ = readers(2)
    memory = RequestMemory(-1)
    assert memory.acquire(a, 10**12)
    assert memory.acquire(b, 10**12)
    memory.release(10**12)
    assert memory.used_bytes == 10**12


def test_a_reader_that_goes_away_is_not_resumed() -> None:
    (a, b, c), resumed = readers(3)
    memory = RequestMemory(10)
    memory.acquire(a, 10)
    memory.acquire(b, 5)
    memory.acquire(c, 5)
    assert memory.forget(b) is True
    assert memory.forget(b) is False
    assert memory.forget(a) is False
    memory.release(10)
    assert resumed == [c]
    assert memory.used_bytes == 5


def test_a_reader_that_goes_away_does_not_hold_back_those_behind_it() -> None:
    (a, large, small), resumed = readers(3)
    memory = RequestMemory(10)
    memory.acquire(a, 8)
    memory.acquire(large, 9)
    memory.acquire(small, 3)
    memory.forget(large)
    memory.release(1)  # a part of what the first one has
    assert resumed == [small]


@settings(deadline=None, max_examples=200)
@given(
    st.integers(1, 50),
    st.lists(st.tuples(st.sampled_from(["acquire", "release", "forget"]), st.integers(1, 60)), max_size=60),
)
def test_the_budget_is_kept_and_everyone_is_served_in_the_end(limit: int, script: list[tuple[str, int]]) -> None:
    memory = RequestMemory(limit)
    held: dict[Reader, int] = {}
    waiting: dict[Reader, int] = {}
    resumed: list[Reader] = []

    def settle() -> None:
        while resumed:
            reader = resumed.pop(0)
            held[reader] = waiting.pop(reader)

    def release_one() -> None:
        reader = next(iter(held))
        memory.release(held.pop(reader))
        settle()

    for what, size in script:
        if what == "acquire":
            reader = Reader(resumed)
            if memory.acquire(reader, size):
                held[reader] = size
            else:
                waiting[reader] = size
        elif what == "release" and held:
            release_one()
        elif what == "forget" and waiting:
            reader = next(iter(waiting))
            assert memory.forget(reader)
            del waiting[reader]
        assert memory.used_bytes == sum(held.values())
        assert memory.used_bytes <= limit or len(held) == 1
        assert held or not waiting
    while held:
        release_one()
    assert waiting == {}
    assert memory.used_bytes == 0
