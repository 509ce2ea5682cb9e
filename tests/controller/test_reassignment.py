from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from penstock.controller.reassignment import reassign, under_way
from penstock.metadata.records import PartitionChangeRecord
from penstock.wire.errors import ApiError, ErrorCode
from tests.controller.samples import broker, image_of, topic

IMAGE = image_of(broker(1), broker(2), broker(3, is_fenced=True), topic("t", [1, 2], [2, 1]))


def records(replicas: Sequence[int] | None, *, index: int = 0, may_change_count: bool = True) -> list[Any]:
    return reassign(IMAGE, "t", index, replicas, may_change_count=may_change_count)


def test_a_partition_that_is_where_it_shall_be_is_left_alone() -> None:
    assert records([1, 2]) == []


def test_replicas_can_be_put_in_another_order() -> None:
    image, _ = IMAGE.apply(records([2, 1]), 99, 1)
    state = image.partition("t", 0)
    assert state is not None
    assert (state.replicas, state.leader, state.leader_epoch) == ((2, 1), 1, 0)
    assert list(under_way(image)) == []


@pytest.mark.parametrize(
    ("replicas", "may_change_count", "code"),
    [
        (None, True, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        ([], True, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1, 9], True, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ([1], False, ErrorCode.INVALID_REPLICATION_FACTOR),
        ([1, 3], True, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
    ids=["nothing to stop", "nowhere", "unknown broker", "fewer", "to another broker"],
)
def test_what_cannot_be_is_refused(replicas: Sequence[int] | None, may_change_count: bool, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as refused:
        records(replicas, may_change_count=may_change_count)
    assert refused.value.code is code


def test_what_is_on_its_way_is_found() -> None:
    topic_id = IMAGE.topics["t"].topic_id
    change = PartitionChangeRecord(topic_id=topic_id, partition_id=1, replicas=[2, 1, 3], adding_replicas=[3])
    image, _ = IMAGE.apply([change], 99, 1)
    assert [(found.name, index, state.adding_replicas) for found, index, state in under_way(image)] == [("t", 1, (3,))]
