"""Damage is found, told apart from what is around it, and never served."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from penstock.log.inspection import PartitionCheck
from penstock.log.log import Log
from penstock.log.pace import Pace
from penstock.log.scrub import Scrub, ScrubStopped
from penstock.log.segment import Damage, Segment
from penstock.log.storage import Storage
from penstock.wire.batch import batches_in
from penstock.wire.errors import ApiError, ErrorCode
from tests.log.samples import T0, append, config_of, data_batch, open_at, values_from

COUNT = 60


def scrub(segment: Segment, end_offset: int, stop: threading.Event | None = None) -> tuple[Damage, ...]:
    return Scrub(Storage(), segment, end_offset, Pace(lambda: 0.0, lambda: 0.0), stop or threading.Event()).run()


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """One closed segment of batches of two records, with an index entry every few of them."""
    log = open_at(tmp_path, config_of(index_interval_bytes=300))
    for number in range(COUNT):
        append(log, data_batch(b"a%d" % number, b"b%d" % number))
    log.roll()
    log.advance_high_watermark(log.end_offset)
    return log


def _damage(segment: Segment, position: int, content: bytes = b"\xee") -> None:
    with open(segment.file.path, "r+b") as file:
        file.seek(position)
        file.write(content)


def _positions(segment: Segment) -> list[int]:
    return [batch.position for batch in batches_in(segment.file.read_at(segment.size, 0), is_verified=False)]


def test_a_good_segment_has_no_damage(log: Log) -> None:
    assert scrub(log.segments[0], 2 * COUNT) == ()


@pytest.mark.parametrize("number", [0, 1, 17, COUNT - 1])
def test_a_flipped_bit_is_found_with_its_place(log: Log, number: int) -> None:
    segment = log.segments[0]
    positions = [*_positions(segment), segment.size]
    _damage(segment, positions[number] + 65)
    damage = Damage(positions[number], positions[number + 1], 2 * number, 2 * number + 2)
    assert scrub(segment, 2 * COUNT) == (damage,)
    (problem,) = PartitionCheck(Storage(), log.directory).run().problems[:1]
    assert (problem.path, problem.position) == (segment.file.path, damage.position)


@pytest.mark.parametrize("content", [b"\xff\xff\xff\xff", b"\0\0\0\x01", b"\x7f\0\0\0"])
def test_a_damaged_size_costs_what_lies_before_the_next_index_entry(log: Log, content: bytes) -> None:
    segment = log.segments[0]
    positions = _positions(segment)
    _damage(segment, positions[20] + 8, content)
    (damage,) = scrub(segment, 2 * COUNT)
    assert (damage.position, damage.first_offset) == (positions[20], 40)
    assert damage.end_position in positions[21:30]
    assert damage.end_offset == 2 * positions.index(damage.end_position)


def test_what_is_damaged_is_refused_and_all_else_is_served(log: Log) -> None:
    segment = log.segments[0]
    positions = _positions(segment)
    for number in (0, 20, 21, 40, COUNT - 1):
        _damage(segment, positions[number] + 64)
    _damage(segment, positions[30] + 8, b"\xff\xff")
    segment.damages = scrub(segment, 2 * COUNT)
    problems = PartitionCheck(Storage(), log.directory).run().problems
    offline = {problem.position for problem in problems if problem.path == segment.file.path}
    assert offline == {damage.position for damage in segment.damages}
    append(log, data_batch(b"in the next segment"))
    log.advance_high_watermark(log.end_offset)
    refused, served = [], []
    codes = set()
    for offset in range(2 * COUNT):
        try:
            part = log.read(offset, 10**6, log.end_offset)
        except ApiError as error:
            codes.add(error.code)
            refused.append(offset)
        else:
            assert part is not None
            first = next(batches_in(part.read()))
            assert first.base_offset <= offset <= first.last_offset
            served.append(offset)
            list(batches_in(part.read()))  # all of them good
    assert codes == {ErrorCode.CORRUPT_MESSAGE}
    assert {offset // 2 for offset in refused} >= {0, 20, 21, 30, 40, COUNT - 1}
    assert len(refused) < 40
    assert sorted([*refused, *served]) == list(range(2 * COUNT))
    assert values_from(log, 2 * COUNT) == [b"in the next segment"]


def test_damage_that_no_scrub_has_found_yet_is_an_error_of_that_partition_alone(log: Log) -> None:
    segment = log.segments[0]
    _damage(segment, _positions(segment)[20] + 8, b"\0\0\0\x01")
    reads = (
        lambda: log.read(42, 1000, log.end_offset),
        lambda: log.offset_for_timestamp(T0),
        lambda: log.offset_of_max_timestamp(),
    )
    _damage(segment, 64)
    for read in reads:
        with pytest.raises(ApiError) as caught:
            read()
        assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


def test_a_bound_within_the_damage_serves_what_is_before_it(log: Log) -> None:
    segment = log.segments[0]
    positions = _positions(segment)
    _damage(segment, positions[20] + 64)
    segment.damages = scrub(segment, 2 * COUNT)
    part = log.read(30, 10**6, 41)
    assert part is not None
    assert [batch.base_offset for batch in batches_in(part.read())] == [30, 32, 34, 36, 38]


@pytest.mark.parametrize("seed", range(20))
def test_whatever_is_flipped_is_found(log: Log, seed: int) -> None:
    rng = random.Random(seed)
    segment = log.segments[0]
    good = segment.file.read_at(segment.size, 0)
    position = rng.randrange(segment.size)
    number = max(n for n, start in enumerate(_positions(segment)) if start <= position)
    within = position - _positions(segment)[number]
    _damage(segment, position, bytes([good[position] ^ 1 << rng.randrange(8)]))
    damages = scrub(segment, 2 * COUNT)
    if within < 8 or 12 <= within < 16:
        assert damages == ()  # the offset and the leader epoch are not covered by the checksum
    else:
        assert damages[0].first_offset == 2 * number


def test_a_scrub_can_be_stopped(log: Log) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(ScrubStopped):
        scrub(log.segments[0], 2 * COUNT, stop)
