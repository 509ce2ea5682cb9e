from __future__ import annotations

from typing import Any

import pytest

from penstock.broker import fetch_sessions
from penstock.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, FetchPlan, FetchSessions, FetchTarget
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

ID_A, ID_B = b"a" * 16, b"b" * 16
Wanted = dict[str, dict[int, int]]  # topic -> partition -> fetch offset


def request(
    wanted: Wanted | None = None,
    *,
    session_id: int = NO_SESSION,
    epoch: int = INITIAL_EPOCH,
    forgotten: dict[str, list[int]] | None = None,
    **fields: Any,
) -> FetchRequest:
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchTopic(
                topic=topic,
                topic_id=topic.encode() * 16,
                partitions=[
                    FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1000, **fields)
                    for index, offset in partitions.items()
                ],
            )
            for topic, partitions in (wanted or {}).items()
        ],
        forgotten_topics_data=[
            ForgottenTopic(topic=topic, topic_id=topic.encode() * 16, partitions=indexes)
            for topic, indexes in (forgotten or {}).items()
        ],
    )


def plan(sessions: FetchSessions, made: FetchRequest, *, now: float = 0.0, uses_topic_ids: bool = False) -> FetchPlan:
    return sessions.plan(made, uses_topic_ids=uses_topic_ids, now=now)


def wanted_by(made: FetchPlan) -> list[tuple[Any, int, int]]:
    return [(target.topic, target.index, target.fetch_offset) for target in made.targets]


def refusal(sessions: FetchSessions, made: FetchRequest, **options: Any) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        plan(sessions, made, **options)
    return caught.value.code


# ---- full requests ----


def test_a_final_epoch_fetches_without_a_session() -> None:
    sessions = FetchSessions(10)
    made = plan(sessions, request({"a": {0: 5, 1: 6}}, epoch=FINAL_EPOCH))
    assert wanted_by(made) == [("a", 0, 5), ("a", 1, 6)]
    assert (made.session, made.session_id, made.is_incremental) == (None, NO_SESSION, False)
    assert len(sessions) == 0


def test_an_initial_epoch_begins_a_session_with_a_full_answer() -> None:
    sessions = FetchSessions(10)
    made = plan(sessions, request({"a": {0: 5}, "b": {3: 7}}))
    assert wanted_by(made) == [("a", 0, 5), ("b", 3, 7)]
    assert made.session_id > 0
    assert not made.is_incremental
    assert len(sessions) == 1


def test_sessions_have_different_ids() -> None:
    sessions = FetchSessions(100)
    ids = {plan(sessions, request({"a": {0: 0}})).session_id for _ in range(100)}
    assert len(ids) == 100
    assert all(0 < session_id < 2**31 for session_id in ids)


def test_a_full_request_without_partitions_begins_no_session() -> None:
    sessions = FetchSessions(10)
    assert plan(sessions, request({})).session is None


@pytest.mark.parametrize("epoch", [INITIAL_EPOCH, FINAL_EPOCH])
def test_a_full_request_ends_the_session_it_names(epoch: int) -> None:
    sessions = FetchSessions(10)
    old = plan(sessions, request({"a": {0: 0}})).session_id
    made = plan(sessions, request({"a": {0: 9}}, session_id=old, epoch=epoch))
    assert made.session_id != old
    assert len(sessions) == (1 if epoch == INITIAL_EPOCH else 0)
    assert refusal(sessions, request(session_id=old, epoch=1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_what_a_client_says_of_a_partition_is_kept() -> None:
    made = plan(FetchSessions(1), request({"a": {0: 5}}, current_leader_epoch=3, last_fetched_epoch=2))
    assert made.targets == [FetchTarget("a", 0, 5, 1000, 3, 2)]


# ---- incremental requests ----


def test_an_incremental_request_fetches_what_the_session_holds() -> None:
    sessions = FetchSessions(10)
    session_id = plan(sessions, request({"a": {0: 5}, "b": {1: 6}})).session_id
    made = plan(sessions, request(session_id=session_id, epoch=1))
    assert wanted_by(made) == [("a", 0, 5), ("b", 1, 6)]
    assert made.is_incremental
    assert made.session_id == session_id


def test_partitions_are_added_changed_and_forgotten() -> None:
    sessions = FetchSessions(10)
    session_id = plan(sessions, request({"a": {0: 5, 1: 6}})).session_id
    made = plan(
        sessions,
        request({"a": {0: 50, 2: 7}, "b": {0: 1}}, session_id=session_id, epoch=1, forgotten={"a": [1, 99], "c": [0]}),
    )
    assert wanted_by(made) == [("a", 0, 50), ("a", 2, 7), ("b", 0, 1)]
    assert wanted_by(plan(sessions, request(session_id=session_id, epoch=2))) == wanted_by(made)


def test_a_changed_partition_keeps_what_its_client_was_told() -> None:
    sessions = FetchSessions(10)
    first = plan(sessions, request({"a": {0: 5}}))
    first.targets[0].told_high_watermark = 77
    made = plan(
        sessions,
        request({"a": {0: 8}}, session_id=first.session_id, epoch=1, current_leader_epoch=4, last_fetched_epoch=3),
    )
    [target] = made.targets
    assert (target.fetch_offset, target.leader_epoch, target.last_fetched_epoch) == (8, 4, 3)
    assert target.told_high_watermark == 77


def test_every_request_of_a_session_has_the_next_epoch() -> None:
    sessions = FetchSessions(10)
    session_id = plan(sessions, request({"a": {0: 5}})).session_id
    for epoch in range(1, 5):
        for wrong in (epoch - 1, epoch + 1):
            if wrong > 0:
                code = refusal(sessions, request(session_id=session_id, epoch=wrong))
                assert code is ErrorCode.INVALID_FETCH_SESSION_EPOCH
        plan(sessions, request(session_id=session_id, epoch=epoch))


def test_a_refused_request_changes_nothing() -> None:
    sessions = FetchSessions(10)
    session_id = plan(sessions, request({"a": {0: 5}})).session_id
    refusal(sessions, request({"b": {0: 1}}, session_id=session_id, epoch=7, forgotten={"a": [0]}))
    assert wanted_by(plan(sessions, request(session_id=session_id, epoch=1))) == [("a", 0, 5)]


def test_epochs_wrap_to_one() -> None:
    sessions = FetchSessions(10)
    made = plan(sessions, request({"a": {0: 5}}))
    assert made.session is not None
    made.session.epoch = 2**31 - 1
    plan(sessions, request(session_id=made.session_id, epoch=2**31 - 1))
    plan(sessions, request(session_id=made.session_id, epoch=1))


def test_an_unknown_session_is_refused() -> None:
    assert refusal(FetchSessions(10), request(session_id=5, epoch=1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_session_names_topics_by_id_or_by_name_but_not_both() -> None:
    sessions = FetchSessions(10)
    by_name = plan(sessions, request({"a": {0: 5}})).session_id
    by_id = plan(sessions, request({"a": {0: 5}}), uses_topic_ids=True)
    assert wanted_by(by_id) == [(ID_A, 0, 5)]
    error = ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert refusal(sessions, request(session_id=by_name, epoch=1), uses_topic_ids=True) is error
    assert refusal(sessions, request(session_id=by_id.session_id, epoch=1)) is error


def test_partitions_are_forgotten_by_id_in_a_session_of_ids() -> None:
    sessions = FetchSessions(10)
    session_id = plan(sessions, request({"a": {0: 5}, "b": {0: 6}}), uses_topic_ids=True).session_id
    made = plan(sessions, request(session_id=session_id, epoch=1, forgotten={"a": [0]}), uses_topic_ids=True)
    assert wanted_by(made) == [(ID_B, 0, 6)]


# ---- limits ----


def test_without_a_free_slot_there_is_no_session_but_an_answer() -> None:
    sessions = FetchSessions(2)
    for _ in range(2):
        assert plan(sessions, request({"a": {0: 0}})).session is not None
    made = plan(sessions, request({"a": {0: 0}}), now=119.9)
    assert made.session is None
    assert wanted_by(made) == [("a", 0, 0)]


def test_the_session_that_was_not_used_for_longest_gives_its_slot_away() -> None:
    sessions = FetchSessions(2)
    first = plan(sessions, request({"a": {0: 0}}), now=0.0).session_id
    second = plan(sessions, request({"a": {0: 0}}), now=10.0).session_id
    plan(sessions, request(session_id=first, epoch=1), now=20.0)
    assert plan(sessions, request({"a": {0: 0}}), now=131.0).session is not None
    assert len(sessions) == 2
    assert refusal(sessions, request(session_id=second, epoch=1)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    plan(sessions, request(session_id=first, epoch=2), now=131.0)


def test_no_slots_means_no_sessions() -> None:
    assert plan(FetchSessions(0), request({"a": {0: 0}}), now=1e9).session is None


def test_all_sessions_together_hold_a_limited_number_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_sessions, "_PARTITIONS_MAX", 5)
    sessions = FetchSessions(100)
    first = plan(sessions, request({"a": dict.fromkeys(range(3), 0)}), now=0.0)
    assert first.session is not None
    assert plan(sessions, request({"a": dict.fromkeys(range(3), 0)}), now=1.0).session is None
    assert plan(sessions, request({"a": dict.fromkeys(range(2), 0)}), now=1.0).session is not None
    # Those that are forgotten make room, and so do sessions that end.
    plan(sessions, request(session_id=first.session_id, epoch=1, forgotten={"a": [0, 1]}), now=1.0)
    third = plan(sessions, request({"a": dict.fromkeys(range(2), 0)}), now=1.0)
    assert third.session is not None
    assert plan(sessions, request({"a": {0: 0}}), now=1.0).session is None
    plan(sessions, request({}, session_id=third.session_id, epoch=FINAL_EPOCH), now=1.0)
    assert plan(sessions, request({"a": {0: 0}}), now=1.0).session is not None


def test_a_session_cannot_grow_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one client fills the broker's memory, a few partitions at a time."""
    monkeypatch.setattr(fetch_sessions, "_PARTITIONS_MAX", 5)
    sessions = FetchSessions(100)
    session_id = plan(sessions, request({"a": {0: 0}})).session_id
    try:
        made = plan(sessions, request({"a": dict.fromkeys(range(1, 50), 0)}, session_id=session_id, epoch=1))
    except ApiError:
        return
    assert made.session is None or len(made.session.targets) <= 5


# ---- what is told ----


def target() -> FetchTarget:
    return FetchTarget("a", 0, 5, 1000, -1, -1)


def data(high_watermark: int = 10, start: int = 2, **fields: Any) -> PartitionData:
    return PartitionData(high_watermark=high_watermark, log_start_offset=start, **fields)


def test_the_first_answer_is_always_news_and_the_same_again_is_not() -> None:
    one = target()
    assert one.has_news(data())
    assert not one.has_news(data())
    assert not one.has_news(data(records=b""))


@pytest.mark.parametrize(
    "news",
    [
        data(records=b"x"),
        data(high_watermark=11),
        data(start=3),
        data(error_code=3),
        data(diverging_epoch=EpochEndOffset(epoch=1, end_offset=2)),
    ],
)
def test_records_offsets_and_errors_are_news(news: PartitionData) -> None:
    one = target()
    one.has_news(data())
    assert one.has_news(news)


def test_what_was_told_is_not_told_again() -> None:
    one = target()
    one.has_news(data())
    assert one.has_news(data(high_watermark=11, start=4))
    assert not one.has_news(data(high_watermark=11, start=4))


def test_an_error_is_told_until_it_is_gone_and_then_the_state_is() -> None:
    one = target()
    one.has_news(data())
    for _ in range(3):
        assert one.has_news(data(high_watermark=-1, start=-1, error_code=6))
    assert one.has_news(data())
    assert not one.has_news(data())


# ---- taking turns ----


def test_partitions_that_gave_data_go_to_the_end_of_the_queue() -> None:
    sessions = FetchSessions(10)
    made = plan(sessions, request({"a": dict.fromkeys(range(4), 0)}))
    assert made.session is not None
    made.session.served([("a", 0), ("a", 1), ("z", 9)])
    later = plan(sessions, request(session_id=made.session_id, epoch=1))
    assert [target.index for target in later.targets] == [2, 3, 0, 1]


def test_every_partition_gets_its_turn() -> None:
    sessions = FetchSessions(10)
    made = plan(sessions, request({"a": dict.fromkeys(range(5), 0)}))
    first = []
    for epoch in range(1, 6):
        later = plan(sessions, request(session_id=made.session_id, epoch=epoch))
        first.append(later.targets[0].index)
        assert later.session is not None
        later.session.served([("a", later.targets[0].index)])
    assert sorted(first) == [0, 1, 2, 3, 4]


def test_a_session_that_has_forgotten_all_its_partitions_ends() -> None:
    sessions = FetchSessions(10)
    first = plan(sessions, request({"a": {0: 5}}))
    emptied = plan(sessions, request(session_id=first.session_id, epoch=1, forgotten={"a": [0]}))
    assert emptied.session is None
    assert emptied.targets == []
    assert len(sessions) == 0
    assert refusal(sessions, request(session_id=first.session_id, epoch=2)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
