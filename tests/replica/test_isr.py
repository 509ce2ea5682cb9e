from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.replica.isr import committed_offset


@pytest.mark.parametrize(
    ("leader_offset", "followers", "isr", "committed"),
    [
        (10, {}, [1], 10),  # alone
        (10, {2: 7, 3: 9}, [1, 2, 3], 7),
        (10, {2: 7, 3: 9}, [1, 3], 9),  # who is not in sync does not hold it back
        (10, {2: 12}, [1, 2], 10),
        (10, {}, [1, 2], 0),  # one that has not reported yet has nothing
        (10, {2: 5}, [], 10),
        (10, {2: 5, 3: 8}, [2, 3], 5),  # a leader that is not in sync itself
    ],
)
def test_committed_is_what_every_in_sync_replica_has(
    leader_offset: int, followers: dict[int, int], isr: list[int], committed: int
) -> None:
    assert committed_offset(1, leader_offset, followers, isr) == committed


@settings(deadline=None)
@given(
    st.integers(0, 100),
    st.dictionaries(st.integers(2, 6), st.integers(0, 100)),
    st.sets(st.integers(1, 6), min_size=1),
    st.integers(2, 6),
    st.integers(0, 50),
)
def test_it_never_goes_back_while_replicas_only_advance(
    leader_offset: int, followers: dict[int, int], isr: set[int], who: int, step: int
) -> None:
    before = committed_offset(1, leader_offset, followers, isr)
    after = committed_offset(1, leader_offset + step, {**followers, who: followers.get(who, 0) + step}, isr)
    assert before <= after
    for replica in isr:
        assert before <= (leader_offset if replica == 1 else followers.get(replica, 0))
