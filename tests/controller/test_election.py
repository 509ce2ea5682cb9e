from __future__ import annotations

from typing import Any

import pytest

from penstock.controller.election import Election, elect, may_lead, on_registration
from penstock.metadata.image import Image, PartitionState
from penstock.metadata.records import PartitionRecord, TopicRecord
from penstock.wire.errors import ApiError, ErrorCode
from tests.controller.samples import ID, broker, image_of


def image_with(**fields: Any) -> Image:
    fields = {"replicas": [1, 2, 3], "isr": [1, 2], "leader": 1, "leader_epoch": 4, "partition_epoch": 7, **fields}
    return image_of(
        TopicRecord(name="t", topic_id=ID),
        PartitionRecord(topic_id=ID, partition_id=0, **fields),
        PartitionRecord(topic_id=ID, partition_id=1, **{**fields, "leader": 9, "isr": [9], "replicas": [9]}),
    )


def after(image: Image, broker_id: int, *, was_clean: bool) -> PartitionState:
    """The first partition after a broker has registered."""
    changed, _ = image.apply(on_registration(image, broker_id, was_clean=was_clean), 9, 1)
    assert changed.partition("t", 1) == image.partition("t", 1)
    state = changed.partition("t", 0)
    assert state is not None
    return state


@pytest.mark.parametrize("was_clean", [True, False])
def test_a_broker_leads_what_has_no_leader_if_it_was_in_sync(was_clean: bool) -> None:
    state = after(image_with(leader=-1), 2, was_clean=was_clean)
    assert (state.leader, state.leader_epoch, state.isr) == (2, 5, (1, 2))


def test_a_broker_that_was_not_in_sync_leads_nothing() -> None:
    image = image_with(leader=-1)
    assert on_registration(image, 3, was_clean=True) == []


def test_a_broker_that_is_known_to_have_all_may_lead_alone() -> None:
    state = after(image_with(leader=-1, isr=[], eligible_leader_replicas=[3]), 3, was_clean=True)
    assert (state.leader, state.leader_epoch, state.isr) == (3, 5, (3,))
    assert state.eligible_leader_replicas == ()


def test_after_a_crash_a_leader_begins_a_new_epoch() -> None:
    state = after(image_with(), 1, was_clean=False)
    assert (state.leader, state.leader_epoch, state.partition_epoch, state.isr) == (1, 5, 8, (1, 2))


def test_after_a_clean_shutdown_a_leader_goes_on() -> None:
    assert on_registration(image_with(), 1, was_clean=True) == []


def test_others_partitions_are_left_alone() -> None:
    assert on_registration(image_with(), 2, was_clean=False) == []
    assert on_registration(Image(), 1, was_clean=False) == []


def test_who_is_in_sync_or_known_to_have_all_may_lead() -> None:
    state = PartitionState((1, 2, 3, 4), (1,), 1, 0, 0, eligible_leader_replicas=(2,))
    assert [may_lead(state, broker) for broker in (1, 2, 3)] == [True, True, False]


# ---- asked for ----


def elected(kind: Election, *, fenced: tuple[int, ...] = (), **fields: Any) -> PartitionState:
    """A partition of the replicas 1, 2, 3 after an election."""
    brokers = [broker(broker_id, is_fenced=broker_id in fenced) for broker_id in (1, 2, 3)]
    state = {"replicas": [1, 2, 3], "isr": [1, 2], "leader": 2, "leader_epoch": 4, "partition_epoch": 7, **fields}
    image = image_of(
        *brokers, TopicRecord(name="t", topic_id=ID), PartitionRecord(topic_id=ID, partition_id=0, **state)
    )
    changed, _ = image.apply(elect(image, "t", 0, kind), 9, 1)
    found = changed.partition("t", 0)
    assert found is not None
    return found


def test_the_first_replica_leads_again_when_it_is_asked_for() -> None:
    state = elected(Election.PREFERRED)
    assert (state.leader, state.leader_epoch, state.isr) == (1, 5, (1, 2))


@pytest.mark.parametrize(("isr", "fenced"), [([2, 3], ()), ([1, 2], (1,))], ids=["behind", "away"])
def test_the_first_replica_cannot_lead_while_it_is_behind_or_away(isr: list[int], fenced: tuple[int, ...]) -> None:
    with pytest.raises(ApiError) as refused:
        elected(Election.PREFERRED, isr=isr, fenced=fenced)
    assert refused.value.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def test_a_partition_without_a_leader_takes_whom_it_can_get() -> None:
    state = elected(Election.UNCLEAN, leader=-1, isr=[1], fenced=(1,))
    assert (state.leader, state.isr) == (2, (2,))
    state = elected(Election.UNCLEAN, leader=-1, isr=[3])
    assert (state.leader, state.isr) == (3, (3,)), "nothing is lost if it need not be"


def test_a_partition_of_brokers_that_are_all_away_gets_no_leader() -> None:
    with pytest.raises(ApiError) as refused:
        elected(Election.UNCLEAN, leader=-1, fenced=(1, 2, 3))
    assert refused.value.code is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
