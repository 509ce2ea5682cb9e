from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from penstock.streams import TopologyError, hopping, session, sliding, tumbling, within
from penstock.streams.windows import milliseconds


@pytest.mark.parametrize(
    ("given", "length_ms"),
    [
        ("90 seconds", 90_000),
        ("1 hour 30 minutes", 5_400_000),
        ("5ms", 5),
        ("1 day", 86_400_000),
        (timedelta(seconds=1.5), 1500),
    ],
)
def test_lengths_of_time(given: Any, length_ms: int) -> None:
    assert milliseconds(given, "size") == length_ms


@pytest.mark.parametrize("given", ["", "soon", "5", "1 fortnight", 5, None])
def test_what_is_no_length_of_time_is_refused(given: Any) -> None:
    with pytest.raises(TopologyError, match=r"size is .*: give a timedelta, or text such as '90 seconds'"):
        tumbling(given)


def test_windows_say_what_they_are() -> None:
    assert str(tumbling("1 minute", grace="10 seconds")) == "tumbling 1 minute, grace 10 seconds, emit updates"
    assert str(hopping("2 minutes", "30 seconds", emit="final")) == (
        "hopping 2 minutes by 30 seconds, grace 0 ms, emit final"
    )
    assert str(session("5 minutes")) == "session with gap 5 minutes, grace 0 ms, emit final"
    assert str(sliding("1 minute")) == "sliding 1 minute, grace 0 ms, emit updates"
    assert str(within("1500 ms")) == "within 1500 ms before and 1500 ms after"
    assert str(within(after="1 hour")) == "within 0 ms before and 1 hour after"


def test_windows_that_cannot_be_are_refused() -> None:
    with pytest.raises(TopologyError, match="leave gaps"):
        hopping("1 minute", "2 minutes")
    with pytest.raises(TopologyError, match="longer than nothing"):
        tumbling("0 ms")
    with pytest.raises(TopologyError, match="emit is 'sometimes': use 'updates' or 'final'"):
        tumbling("1 minute", emit="sometimes")
    with pytest.raises(TopologyError, match="difference is '0 ms': it must be longer than nothing"):
        sliding("0 ms")
