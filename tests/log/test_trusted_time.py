"""A clock that jumps must not delete data."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.clock import ManualClock
from penstock.log.trusted_time import TOLERANCE_MS, TrustedTime
from tests.log.samples import T0, append, config_of, data_batch, open_at, values_from

HOUR_MS = 3_600_000
YEAR_MS = 365 * 24 * HOUR_MS


class JumpingClock(ManualClock):
    def jump_ms(self, distance_ms: int) -> None:
        """Change the wall clock alone."""
        self._time_ms += distance_ms


@pytest.fixture
def clock() -> JumpingClock:
    return JumpingClock(T0)


@pytest.fixture
def time(clock: JumpingClock) -> TrustedTime:
    return TrustedTime(clock, HOUR_MS)


def test_a_clock_that_runs_evenly_is_believed(clock: JumpingClock, time: TrustedTime) -> None:
    for step_ms in (1, 1000, HOUR_MS, YEAR_MS):
        clock.advance_ms(step_ms)
        assert time.time_ms() == clock.time_ms()


@pytest.mark.parametrize("jump_ms", [TOLERANCE_MS, 1000, -1000, -YEAR_MS])
def test_small_steps_and_steps_back_are_believed_at_once(clock: JumpingClock, time: TrustedTime, jump_ms: int) -> None:
    clock.jump_ms(jump_ms)
    assert time.time_ms() == T0 + jump_ms


def test_a_jump_ahead_is_believed_only_after_a_while(
    clock: JumpingClock, time: TrustedTime, caplog: pytest.LogCaptureFixture
) -> None:
    clock.jump_ms(YEAR_MS)
    assert time.time_ms() == T0
    clock.advance_ms(HOUR_MS - 1)
    assert time.time_ms() == T0 + HOUR_MS - 1
    assert caplog.text.count("jumped ahead by 31536000 s") == 1
    clock.advance_ms(1)
    assert time.time_ms() == T0 + YEAR_MS + HOUR_MS
    clock.advance_ms(1)
    assert time.time_ms() == T0 + YEAR_MS + HOUR_MS + 1


def test_a_jump_that_is_taken_back_did_nothing(clock: JumpingClock, time: TrustedTime) -> None:
    clock.jump_ms(YEAR_MS)
    assert time.time_ms() == T0
    clock.advance_ms(HOUR_MS // 2)
    clock.jump_ms(-YEAR_MS)
    assert time.time_ms() == T0 + HOUR_MS // 2
    clock.advance_ms(HOUR_MS)
    assert time.time_ms() == T0 + HOUR_MS // 2 + HOUR_MS


def test_a_second_jump_is_doubted_anew(clock: JumpingClock, time: TrustedTime) -> None:
    clock.jump_ms(YEAR_MS)
    time.time_ms()
    clock.advance_ms(HOUR_MS - 1)
    clock.jump_ms(YEAR_MS)
    assert time.time_ms() == T0 + HOUR_MS - 1
    clock.advance_ms(HOUR_MS - 1)
    assert time.time_ms() == T0 + 2 * HOUR_MS - 2
    clock.advance_ms(1)
    assert time.time_ms() == clock.time_ms()


def test_without_patience_the_clock_is_always_right(clock: JumpingClock) -> None:
    time = TrustedTime(clock, 0)
    clock.jump_ms(YEAR_MS)
    assert time.time_ms() == T0 + YEAR_MS


def test_retention_waits_when_the_clock_jumps(tmp_path: Path, clock: JumpingClock, time: TrustedTime) -> None:
    log = open_at(tmp_path, config_of(retention_ms=24 * HOUR_MS, segment_bytes=200), clock=clock)
    for number in range(10):
        append(log, data_batch(b"%d" % number, timestamp=T0))
    log.advance_high_watermark(log.end_offset)
    clock.jump_ms(YEAR_MS)
    assert log.delete_old_segments(time.time_ms()) == []
    assert len(values_from(log, 0)) == 10
    clock.advance_ms(HOUR_MS)
    assert log.delete_old_segments(time.time_ms())
