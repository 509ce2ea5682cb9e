"""Turns at writing: who may write where, and what tasks and driver tell each other about it."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from penstock.client.cluster import Refused
from penstock.spark.turns import TaskTurns, Turn, Turns, TurnServer

PLACES = 3


def begun() -> Turns:
    """Turns where the first batch of the first place, of one record, is there."""
    turns = Turns(PLACES)
    turns.ask(1, 0, 1)
    turns.done(1, 0)
    return turns


def test_numbers_follow_each_other_in_each_place() -> None:
    turns = Turns(PLACES)
    assert turns.ask(1, 0, 10) == [Turn(1, 0, 0)]
    assert turns.ask(1, 1, 7) == [Turn(1, 1, 0)]
    assert turns.done(1, 0) == []
    assert turns.ask(2, 0, 5) == [Turn(2, 0, 10)]
    assert turns.done(2, 0) == []
    assert turns.ask(1, 0, 1) == [Turn(1, 0, 15)]


def test_who_waits_longest_is_next() -> None:
    turns = Turns(PLACES)
    assert turns.ask(1, 0, 10) == [Turn(1, 0, 0)]
    assert turns.ask(2, 0, 20) == []
    assert turns.ask(3, 0, 30) == []
    assert turns.done(1, 0) == [Turn(2, 0, 10)]
    assert turns.ask(1, 0, 40) == []
    assert turns.done(2, 0) == [Turn(3, 0, 30)]
    assert turns.has_or_awaits(1)
    assert turns.done(3, 0) == [Turn(1, 0, 60)]
    assert turns.has_or_awaits(1)
    assert turns.done(1, 0) == []
    assert not turns.has_or_awaits(1)


def test_the_first_batch_of_a_place_goes_alone() -> None:
    turns = Turns(PLACES)
    assert turns.ask(1, 0, 10) == [Turn(1, 0, 0)]
    assert turns.ask(1, 0, 10) == []
    assert turns.ask(1, 0, 10) == []
    assert turns.ask(1, 1, 10) == [Turn(1, 1, 0)]
    assert turns.done(1, 0) == [Turn(1, 0, 10), Turn(1, 0, 20)]


def test_a_task_has_several_turns_in_a_place_if_nobody_asked_in_between() -> None:
    turns = begun()
    assert turns.ask(1, 0, 10) == [Turn(1, 0, 1)]
    assert turns.ask(1, 0, 10) == [Turn(1, 0, 11)]
    assert turns.ask(2, 0, 5) == []
    assert turns.ask(2, 0, 5) == []
    assert turns.ask(1, 0, 10) == []
    assert turns.done(1, 0) == []
    assert turns.done(1, 0) == [Turn(2, 0, 21), Turn(2, 0, 26)]


def test_no_more_batches_are_under_way_than_a_partition_would_know_again() -> None:
    turns = begun()
    given = [len(turns.ask(1, 0, 1)) for _ in range(7)]
    assert given == [1, 1, 1, 1, 1, 0, 0]
    assert turns.done(1, 0) == [Turn(1, 0, 6)]


def test_numbers_begin_again_behind_the_largest() -> None:
    turns = Turns(PLACES)
    assert turns.ask(1, 0, 2**31 - 2) == [Turn(1, 0, 0)]
    turns.done(1, 0)
    assert turns.ask(1, 0, 3) == [Turn(1, 0, 2**31 - 2)]
    turns.done(1, 0)
    assert turns.ask(1, 0, 1) == [Turn(1, 0, 1)]  # after 2147483647 comes 0


@pytest.mark.parametrize(("place", "count"), [(-1, 1), (PLACES, 1), (0, 0), (0, -1)])
def test_there_is_no_turn_for_nothing(place: int, count: int) -> None:
    with pytest.raises(ValueError, match="a turn for"):
        Turns(PLACES).ask(1, place, count)


def test_only_who_has_a_turn_gives_it_back() -> None:
    turns = Turns(PLACES)
    turns.ask(1, 0, 10)
    for task, place in [(2, 0), (1, 1), (1, -1), (1, PLACES)]:
        with pytest.raises(ValueError, match="not the turn"):
            turns.done(task, place)


@pytest.fixture
def server() -> Iterator[TurnServer]:
    with TurnServer("127.0.0.1", "127.0.0.1", 0, PLACES) as running:
        yield running


def wait_for(turns: TaskTurns) -> None:
    """Until there is something to take."""
    poll = select.poll()  # and not `select`, which wants small numbers of open files
    poll.register(turns, select.POLLIN)
    poll.poll()


def waited_for(turns: TaskTurns) -> Turn:
    """The next turn that a task gets."""
    while not (taken := turns.taken()):
        wait_for(turns)
    (turn,) = taken
    return turn


def taken(turns: TaskTurns, place: int, count: int) -> int:
    """A turn that one asks for, and waits for: its number."""
    turns.ask(place, count)
    turn = waited_for(turns)
    assert turn.place == place
    return turn.number


def test_tasks_take_turns(server: TurnServer) -> None:
    with TaskTurns(server.address, 0) as one, TaskTurns(server.address, 1) as other:
        assert taken(one, 0, 10) == 0
        assert taken(one, 1, 10) == 0
        other.ask(0, 5)
        assert taken(other, 2, 1) == 0  # it goes on elsewhere
        one.give_back(0)
        assert waited_for(other) == Turn(1, 0, 10)
        other.give_back(0)
        other.give_back(2)
        one.give_back(1)


def test_many_tasks_write_in_one_order(server: TurnServer) -> None:
    """As they would: they ask for many turns, and use each as it comes, whatever others they have."""
    written: list[list[tuple[int, int]]] = [[] for _ in range(PLACES)]

    def write(task: int) -> None:
        with TaskTurns(server.address, task) as turns:
            asked = used = 0
            while used < 200:
                while asked < min(used + 12, 200):
                    turns.ask((task + asked * asked) % PLACES, task + 1)
                    asked += 1
                wait_for(turns)
                for turn in turns.taken():
                    written[turn.place].append((turn.number, task + 1))
                    turns.give_back(turn.place)
                    used += 1

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(write, range(8)))
    assert sum(map(len, written)) == 8 * 200
    for batches in written:
        expected = 0
        for sequence, count in batches:
            assert sequence == expected
            expected += count


def test_a_task_is_tried_once(server: TurnServer) -> None:
    with TaskTurns(server.address, 0) as first:
        assert taken(first, 0, 1) == 0
        with TaskTurns(server.address, 0) as second:
            assert "earlier attempt" in refusal(second, 1)
        first.give_back(0)  # a second attempt does not disturb the first
        assert taken(first, 1, 1) == 0
        first.give_back(1)


def refusal(turns: TaskTurns, place: int = 0) -> str:
    """What a task is told when it wants to write."""
    with pytest.raises(Refused) as told:
        taken(turns, place, 1)
    return str(told.value)


def fails(server: TurnServer, task: int, error: Exception | None) -> None:
    """A task that ends, somehow, while it is its turn."""
    with TaskTurns(server.address, task) as turns:
        assert taken(turns, 0, 1) == 0
        if error is not None:
            raise error


def test_when_one_task_fails_all_do_and_say_why(server: TurnServer) -> None:
    with TaskTurns(server.address, 0) as one:
        with pytest.raises(ValueError, match="a bad row"):
            fails(server, 1, ValueError("a bad row"))
        assert "another task failed: a bad row" in refusal(one)
    with TaskTurns(server.address, 2) as late:
        assert "another task failed: a bad row" in refusal(late)


def test_a_task_that_is_killed_fails_the_others(server: TurnServer) -> None:
    with TaskTurns(server.address, 0) as one:
        killed = TaskTurns(server.address, 1)
        assert taken(killed, 0, 1) == 0
        killed._socket.close()
        assert "ended without a word" in refusal(one)


def test_a_turn_must_be_given_back_before_the_end(server: TurnServer) -> None:
    with TaskTurns(server.address, 0) as one:
        fails(server, 1, None)
        assert "ended without a word" in refusal(one)


def test_who_waits_for_a_turn_must_not_end(server: TurnServer) -> None:
    with TaskTurns(server.address, 0) as one:
        assert taken(one, 0, 1) == 0
        with TaskTurns(server.address, 1) as other:
            other.ask(0, 1)
        assert "ended without a word" in refusal(one)


def test_tasks_end_with_the_driver() -> None:
    with TurnServer("127.0.0.1", "127.0.0.1", 0, PLACES) as server:
        task = TaskTurns(server.address, 0)
        assert taken(task, 0, 1) == 0
    with pytest.raises((Refused, ConnectionError)), task:
        taken(task, 1, 1)
    with pytest.raises(ConnectionRefusedError):
        TaskTurns(server.address, 1)


def test_strangers_get_no_answer(server: TurnServer) -> None:
    with TaskTurns(server.address, 0) as task:
        stranger = TaskTurns(replace(server.address, secret=bytes(32)), 1)
        with pytest.raises((Refused, ConnectionError)), stranger:
            taken(stranger, 0, 1)
        with socket.create_connection((server.address.host, server.address.port)) as noise:
            noise.sendall(struct.pack("!32siBii", server.address.secret, 2, 99, 0, 0))
            assert noise.recv(1) == b""
        assert "ended without a word" in refusal(task)  # who knew the secret was one of the tasks


def test_the_secret_is_not_shown(server: TurnServer) -> None:
    assert str(server.address.secret) not in repr(server.address)
