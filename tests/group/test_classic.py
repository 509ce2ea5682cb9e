"""Classic groups: every way from one state to another, and what the members hear of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.group.classic import NEVER, State
from penstock.wire.errors import ApiError, ErrorCode
from tests.group.samples import DELAY_MS, REBALANCE_MS, SESSION_MS, T0, ClassicScene

# ---- joining ----


def test_the_first_member_waits_for_the_initial_delay() -> None:
    scene = ClassicScene(delay_ms=DELAY_MS)
    first = scene.join()
    assert scene.group.state is State.PREPARING_REBALANCE
    scene.advance(DELAY_MS - 1)
    assert first.is_held
    scene.advance(1)
    assert first.error is ErrorCode.NONE
    assert (first.response.generation_id, first.response.leader) == (1, first.response.member_id)
    assert scene.group.state is State.COMPLETING_REBALANCE


def test_the_initial_delay_is_prolonged_while_members_come() -> None:
    scene = ClassicScene(delay_ms=DELAY_MS)
    answers = [scene.join()]
    for _ in range(3):
        scene.advance(DELAY_MS - 1)
        answers.append(scene.join())
        scene.advance(1)
        assert all(answer.is_held for answer in answers)
    scene.advance(DELAY_MS)
    assert {answer.response.generation_id for answer in answers} == {1}


def test_the_initial_delay_ends_with_the_rebalance_timeout() -> None:
    scene = ClassicScene(delay_ms=DELAY_MS)
    answers = [scene.join(rebalance_ms=10_000)]
    begun_ms = scene.now_ms
    while answers[0].is_held:
        scene.advance(500)
        answers.append(scene.join(rebalance_ms=10_000))
    assert scene.now_ms - begun_ms <= 10_000 + 500


def test_a_first_member_that_leaves_again_leaves_an_empty_group() -> None:
    scene = ClassicScene(delay_ms=DELAY_MS)
    first = scene.join()
    (member_id,) = scene.group.members
    assert scene.leave(member_id) is ErrorCode.NONE
    assert first.error is ErrorCode.UNKNOWN_MEMBER_ID
    scene.advance(DELAY_MS)
    assert (scene.group.state, scene.group.wake_ms) == (State.EMPTY, NEVER)


def test_a_new_member_has_to_come_back_with_the_id_it_is_given() -> None:
    scene = ClassicScene()
    refused = scene.join(needs_known_id=True)
    assert refused.error is ErrorCode.MEMBER_ID_REQUIRED
    assert scene.group.state is State.EMPTY
    assert scene.group.wake_ms < NEVER, "the id is not good for ever"
    known = scene.join(refused.response.member_id)
    scene.advance(0)
    assert known.response.member_id == refused.response.member_id
    assert known.error is ErrorCode.NONE


def test_an_id_that_was_given_out_is_forgotten_after_a_session() -> None:
    scene = ClassicScene()
    given = scene.join(needs_known_id=True).response.member_id
    scene.advance(SESSION_MS)
    assert scene.group.is_empty
    assert scene.group.wake_ms == NEVER
    assert scene.join(given).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_those_who_were_given_an_id() -> None:
    scene = ClassicScene()
    (leader,) = scene.stable(1)
    given = scene.join(needs_known_id=True).response.member_id
    again = scene.join(leader)
    assert again.is_held
    scene.join(given)
    assert len(again.response.members) == 2


def test_a_rebalance_goes_on_when_an_id_that_was_given_out_expires() -> None:
    scene = ClassicScene()
    (leader,) = scene.stable(1)
    scene.join(needs_known_id=True, session_ms=1_000)
    again = scene.join(leader)
    scene.advance(1_000)
    assert len(again.response.members) == 1


def test_somebody_with_an_id_that_nobody_gave_is_unknown() -> None:
    scene = ClassicScene()
    assert scene.join("made up").error is ErrorCode.UNKNOWN_MEMBER_ID
    scene.stable(1)
    assert scene.join("made up").error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(("protocol_type", "protocols"), [("", "range"), ("consumer", "")])
def test_a_join_without_a_protocol_is_refused(protocol_type: str, protocols: str) -> None:
    scene = ClassicScene()
    refused = scene.join(protocol_type=protocol_type, protocols=protocols)
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(("protocol_type", "protocols"), [("connect", "range"), ("consumer", "sticky")])
def test_a_join_that_has_nothing_in_common_with_the_group_is_refused(protocol_type: str, protocols: str) -> None:
    scene = ClassicScene()
    scene.stable(1, protocols="range roundrobin")
    refused = scene.join(protocol_type=protocol_type, protocols=protocols)
    assert refused.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert scene.group.state is State.STABLE


def test_the_leader_gets_the_list_of_members_and_the_others_do_not() -> None:
    scene = ClassicScene(delay_ms=DELAY_MS)
    first, second = scene.join(), scene.join()
    scene.advance(2 * DELAY_MS)
    assert {m.member_id for m in first.response.members} == set(scene.group.members)
    assert {bytes(m.metadata) for m in first.response.members} == {b"metadata of range"}
    assert second.response.members == []
    assert second.response.leader == first.response.member_id


def test_the_protocol_that_most_members_like_best_is_selected() -> None:
    scene = ClassicScene(delay_ms=DELAY_MS)
    scene.join(protocols="a b c")
    scene.join(protocols="c b a")
    last = scene.join(protocols="b c")
    scene.advance(2 * DELAY_MS)
    assert last.response.protocol_name == "b"  # "a" is not for all; b has two votes, c has one
    assert scene.group.protocol == "b"


def test_a_known_member_that_joins_again_in_a_stable_group_hears_what_it_knew() -> None:
    scene = ClassicScene()
    leader, follower = scene.stable(2)
    again = scene.join(follower)
    assert (again.response.generation_id, again.response.leader) == (scene.group.generation, leader)
    assert scene.group.state is State.STABLE


def test_a_leader_that_joins_again_makes_a_rebalance() -> None:
    scene = ClassicScene()
    leader, follower = scene.stable(2)
    generation = scene.group.generation
    again = scene.join(leader)
    assert again.is_held
    assert scene.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS
    scene.join(follower)
    assert again.response.generation_id == generation + 1


def test_a_member_that_reads_something_else_makes_a_rebalance() -> None:
    scene = ClassicScene()
    _, follower = scene.stable(2)
    assert scene.join(follower, protocols="range other").is_held
    assert scene.group.state is State.PREPARING_REBALANCE


def test_a_member_that_has_not_heard_the_answer_to_its_join_gets_it_again() -> None:
    scene = ClassicScene()
    leader, follower = scene.gather(2)
    assert len(scene.join(leader).response.members) == 2
    assert scene.join(follower).response.generation_id == scene.group.generation
    assert scene.group.state is State.COMPLETING_REBALANCE


def test_the_earlier_of_two_joins_of_a_member_is_answered_too() -> None:
    scene = ClassicScene()
    leader, follower = scene.stable(2)
    first = scene.join(leader)
    second = scene.join(leader)
    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    scene.join(follower)
    assert second.error is ErrorCode.NONE


def test_members_that_do_not_come_back_in_time_are_removed() -> None:
    scene = ClassicScene()
    leader, follower = scene.stable(2, session_ms=3 * REBALANCE_MS)
    again = scene.join(leader, session_ms=3 * REBALANCE_MS)
    scene.advance(REBALANCE_MS - 1)
    assert again.is_held
    scene.advance(1)
    assert [m.member_id for m in again.response.members] == [leader]
    assert follower not in scene.group.members


def test_another_member_leads_when_the_leader_does_not_come_back() -> None:
    scene = ClassicScene()
    leader, follower = scene.stable(2, session_ms=3 * REBALANCE_MS)
    again = scene.join(follower, protocols="range other", session_ms=3 * REBALANCE_MS)
    scene.advance(REBALANCE_MS)
    assert again.response.leader == follower
    assert leader not in scene.group.members


def test_a_new_member_that_waits_too_long_is_given_up() -> None:
    scene = ClassicScene()
    rebalance_ms = 2 * scene.timing.new_member_timeout_ms
    (leader,) = scene.stable(1, session_ms=rebalance_ms, rebalance_ms=rebalance_ms)
    new = scene.join(rebalance_ms=rebalance_ms)
    scene.advance(scene.timing.new_member_timeout_ms)
    assert new.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert list(scene.group.members) == [leader]


# ---- the size of a group ----


def test_a_full_group_takes_no_new_members() -> None:
    scene = ClassicScene(size_max=2)
    leader, follower = scene.stable(2)
    assert scene.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED
    again = scene.join(leader)
    assert scene.join().is_held  # one of those who are expected may not come
    assert scene.join(follower).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len(again.response.members) == 2


def test_a_group_that_is_too_large_shrinks_at_the_next_rebalance() -> None:
    scene = ClassicScene()
    first, second, third = scene.stable(3)
    scene.timing = replace(scene.timing, size_max=2)
    again = scene.join(first)
    scene.join(second)
    assert scene.join(third).error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert {m.member_id for m in again.response.members} == {first, second}


# ---- syncing ----


def test_everyone_gets_what_the_leader_assigned() -> None:
    scene = ClassicScene()
    ids = scene.gather(3)
    answers = scene.settle()
    assert {member_id: bytes(a.assignment) for member_id, a in answers.items()} == {
        member_id: f"share of {member_id}".encode() for member_id in ids
    }
    assert scene.group.wake_ms <= scene.now_ms + SESSION_MS


def test_a_member_that_syncs_late_gets_its_assignment_at_once() -> None:
    scene = ClassicScene()
    leader, follower = scene.gather(2)
    scene.sync(leader, {follower: b"late"})
    assert bytes(scene.sync(follower).response.assignment) == b"late"


def test_a_member_without_a_share_gets_an_empty_one() -> None:
    scene = ClassicScene()
    leader, follower = scene.gather(2)
    scene.sync(leader, {leader: b"all", "stranger": b"x"})
    assert bytes(scene.sync(follower).response.assignment) == b""


def test_members_that_do_not_sync_in_time_are_removed() -> None:
    scene = ClassicScene()
    leader, follower = scene.gather(2, session_ms=3 * REBALANCE_MS)
    waiting = scene.sync(follower)
    scene.advance(REBALANCE_MS)
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert leader not in scene.group.members
    assert scene.group.state is State.PREPARING_REBALANCE


def test_a_member_that_does_not_sync_in_a_stable_group_is_removed_too() -> None:
    scene = ClassicScene()
    leader, follower = scene.gather(2, session_ms=3 * REBALANCE_MS)
    scene.sync(leader, {})
    scene.advance(REBALANCE_MS)
    assert follower not in scene.group.members
    assert scene.group.state is State.PREPARING_REBALANCE


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"generation": 0}, ErrorCode.ILLEGAL_GENERATION),
        ({"generation": 2}, ErrorCode.ILLEGAL_GENERATION),
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol": "sticky"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"instance": "i"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_sync_that_does_not_fit_is_refused(changes: dict[str, object], error: ErrorCode) -> None:
    scene = ClassicScene()
    (leader,) = scene.gather(1)
    assert scene.sync(leader, **changes).error is error  # type: ignore[arg-type]
    assert scene.sync(leader, protocol_type="consumer", protocol="range").error is ErrorCode.NONE


def test_a_sync_while_a_rebalance_is_prepared_is_refused() -> None:
    scene = ClassicScene()
    leader, follower = scene.stable(2)
    scene.join(leader)
    assert scene.sync(follower).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_the_earlier_of_two_syncs_of_a_member_is_answered_too() -> None:
    scene = ClassicScene()
    leader, follower = scene.gather(2)
    first, second = scene.sync(follower), scene.sync(follower)
    assert first.error is ErrorCode.REBALANCE_IN_PROGRESS
    scene.sync(leader, {})
    assert second.error is ErrorCode.NONE


def test_a_join_while_others_wait_for_the_assignment_sends_them_back() -> None:
    scene = ClassicScene()
    _, follower = scene.gather(2)
    waiting = scene.sync(follower)
    scene.join()
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert scene.group.state is State.PREPARING_REBALANCE


# ---- saving ----


def test_nobody_gets_an_assignment_that_is_not_durable() -> None:
    scene = ClassicScene()
    leader, follower = scene.gather(2)
    scene.is_saving_slow = True
    answers = [scene.sync(follower), scene.sync(leader, {follower: b"f"})]
    assert all(answer.is_held for answer in answers)
    assert scene.group.state is State.COMPLETING_REBALANCE
    scene.end_save()
    assert [answer.error for answer in answers] == [ErrorCode.NONE, ErrorCode.NONE]
    assert scene.group.state is State.STABLE


def test_an_assignment_that_cannot_be_saved_is_not_given_out() -> None:
    scene = ClassicScene()
    leader, follower = scene.gather(2)
    scene.save_error = ErrorCode.NOT_COORDINATOR
    answers = [scene.sync(follower), scene.sync(leader, {follower: b"f"})]
    assert {answer.error for answer in answers} == {ErrorCode.NOT_COORDINATOR}
    assert scene.group.state is State.PREPARING_REBALANCE
    assert all(member.assignment == b"" for member in scene.group.members.values())
    assert scene.group.wake_ms != NEVER


def test_a_save_that_ends_after_the_next_rebalance_began_changes_nothing() -> None:
    scene = ClassicScene()
    leader, follower = scene.gather(2)
    scene.is_saving_slow = True
    waiting = scene.sync(leader, {follower: b"f"})
    new = scene.join()
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    scene.end_save()
    assert scene.group.state is State.PREPARING_REBALANCE
    assert new.is_held


def test_a_slow_save_does_not_shorten_the_session_of_those_who_waited() -> None:
    scene = ClassicScene()
    leader, follower = scene.gather(2)
    scene.is_saving_slow = True
    scene.sync(leader, {follower: b"f"})
    scene.advance(SESSION_MS - 1)
    waiting = scene.sync(follower)
    scene.end_save()
    assert waiting.error is ErrorCode.NONE
    scene.advance(2)
    assert follower in scene.group.members


# ---- heartbeats and sessions ----


def test_a_member_that_is_silent_for_a_session_is_removed() -> None:
    scene = ClassicScene()
    leader, follower = scene.stable(2)
    scene.advance(SESSION_MS - 1)
    assert scene.heartbeat(leader) is ErrorCode.NONE
    scene.advance(1)
    assert list(scene.group.members) == [leader]
    assert scene.heartbeat(follower) is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_commit_is_a_sign_of_life() -> None:
    scene = ClassicScene()
    (leader,) = scene.stable(1)
    scene.advance(SESSION_MS - 1)
    scene.group.touch(leader, scene.now_ms)
    scene.advance(SESSION_MS - 1)
    assert leader in scene.group.members


def test_a_member_that_waits_for_an_answer_need_not_send_heartbeats() -> None:
    scene = ClassicScene()
    leader, follower = scene.stable(2)
    waiting = scene.join(leader)
    for _ in range(4):
        scene.advance(SESSION_MS - 1)
        assert scene.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS
    assert waiting.is_held
    scene.join(follower)
    assert waiting.error is ErrorCode.NONE


def test_a_heartbeat_of_another_generation_is_refused() -> None:
    scene = ClassicScene()
    (leader,) = scene.stable(1)
    assert scene.heartbeat(leader, generation=7) is ErrorCode.ILLEGAL_GENERATION
    assert scene.heartbeat("stranger") is ErrorCode.UNKNOWN_MEMBER_ID


def test_when_all_sessions_expire_the_group_is_empty_and_saved_as_such() -> None:
    scene = ClassicScene()
    scene.stable(3)
    generation = scene.group.generation
    scene.advance(SESSION_MS)
    assert (scene.group.state, scene.group.wake_ms) == (State.EMPTY, NEVER)
    value = scene.saved[-1].value
    assert (value.generation, value.members, value.protocol, value.leader) == (generation + 1, [], None, None)
    assert value.protocol_type == "consumer"


# ---- leaving ----


def test_a_member_that_leaves_makes_a_rebalance_of_the_others() -> None:
    scene = ClassicScene()
    leader, follower = scene.stable(2)
    assert scene.leave(leader) is ErrorCode.NONE
    assert scene.group.leader == follower
    assert scene.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS
    assert scene.join(follower).response.leader == follower


def test_the_rebalance_goes_on_when_the_last_absent_member_leaves() -> None:
    scene = ClassicScene()
    leader, follower = scene.stable(2)
    again = scene.join(leader)
    scene.leave(follower)
    assert [m.member_id for m in again.response.members] == [leader]


def test_whoever_was_given_an_id_can_leave_before_it_joins() -> None:
    scene = ClassicScene()
    given = scene.join(needs_known_id=True).response.member_id
    assert scene.leave(given) is ErrorCode.NONE
    assert scene.group.is_empty
    assert scene.leave(given) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_can_be_sent_away_by_its_instance_id() -> None:
    scene = ClassicScene()
    scene.gather(1, instance="i")
    assert scene.leave(instance="stranger") is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.leave("somebody", instance="i") is ErrorCode.FENCED_INSTANCE_ID
    assert scene.leave(instance="i") is ErrorCode.NONE
    assert scene.group.state is State.EMPTY


def test_a_member_that_leaves_is_answered_what_it_still_waits_for() -> None:
    scene = ClassicScene()
    leader, follower = scene.gather(2)
    waiting = scene.sync(follower)
    scene.leave(follower)
    assert waiting.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.join(leader).response.generation_id == 2


# ---- static members ----


def test_a_static_member_that_comes_back_takes_its_place_without_a_rebalance() -> None:
    scene = ClassicScene()
    scene.stable(1, instance="i")
    share = next(iter(scene.group.members.values())).assignment
    generation = scene.group.generation
    back = scene.join(instance="i", can_skip=True)
    member_id = back.response.member_id
    assert (back.error, back.response.generation_id) == (ErrorCode.NONE, generation)
    assert scene.group.state is State.STABLE
    assert bytes(scene.sync(member_id, instance="i").response.assignment) == share
    assert [m.member_id for m in scene.saved[-1].value.members] == [member_id]


def test_a_leader_that_comes_back_is_told_to_skip_the_assignment() -> None:
    scene = ClassicScene()
    (old,) = scene.stable(1, instance="i")
    new = scene.join(instance="i", can_skip=True).response
    assert new.skip_assignment
    assert new.leader == new.member_id != old
    assert len(new.members) == 1


def test_a_leader_that_cannot_skip_must_not_know_that_it_leads() -> None:
    scene = ClassicScene()
    (old,) = scene.stable(1, instance="i")
    new = scene.join(instance="i").response
    assert (new.leader, new.members, new.skip_assignment) == (old, [], False)


def test_a_follower_that_comes_back_hears_who_leads() -> None:
    scene = ClassicScene(delay_ms=DELAY_MS)
    scene.join(instance="i")
    scene.join(instance="j")
    scene.advance(2 * DELAY_MS)
    scene.settle()
    leader = scene.group.leader
    for can_skip in (False, True):
        new = scene.join(instance="j", can_skip=can_skip).response
        assert (new.leader, new.members, new.skip_assignment) == (leader, [], False)


def test_the_predecessor_of_a_static_member_is_fenced() -> None:
    scene = ClassicScene()
    (old,) = scene.stable(1, instance="i")
    scene.join(instance="i")
    for call in (
        lambda: scene.heartbeat(old, instance="i"),
        lambda: scene.group.check_commit(old, "i", scene.group.generation),
    ):
        with pytest.raises(ApiError) as refused:
            call()
        assert refused.value.code is ErrorCode.FENCED_INSTANCE_ID
    assert scene.heartbeat(old) is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.sync(old, instance="i").error is ErrorCode.FENCED_INSTANCE_ID
    assert scene.join(old, instance="i").error is ErrorCode.FENCED_INSTANCE_ID
    assert scene.leave(old, instance="i") is ErrorCode.FENCED_INSTANCE_ID


def test_a_predecessor_that_still_waits_is_fenced_at_once() -> None:
    scene = ClassicScene(delay_ms=DELAY_MS)
    old = scene.join(instance="i")
    new = scene.join(instance="i")
    assert old.error is ErrorCode.FENCED_INSTANCE_ID
    scene.advance(2 * DELAY_MS)
    assert new.error is ErrorCode.NONE


def test_a_predecessor_that_waits_for_its_assignment_is_fenced_at_once() -> None:
    scene = ClassicScene(delay_ms=DELAY_MS)
    scene.join()
    follower = scene.join(instance="i")
    scene.advance(2 * DELAY_MS)
    waiting = scene.sync(follower.response.member_id, instance="i")
    new = scene.join(instance="i")
    assert waiting.error is ErrorCode.FENCED_INSTANCE_ID
    assert new.is_held
    assert scene.group.state is State.PREPARING_REBALANCE


def test_a_static_member_that_prefers_another_protocol_makes_a_rebalance() -> None:
    scene = ClassicScene()
    scene.stable(1, instance="i", protocols="a b")
    new = scene.join(instance="i", protocols="b a")
    assert new.response.generation_id == 2
    assert new.response.protocol_name == "b"


def test_absent_static_members_are_kept_when_a_generation_begins() -> None:
    scene = ClassicScene(delay_ms=DELAY_MS)
    scene.join(instance="i", session_ms=3 * REBALANCE_MS)
    scene.join(session_ms=3 * REBALANCE_MS)
    scene.advance(2 * DELAY_MS)
    scene.settle()
    static, dynamic = scene.group.members
    again = scene.join(dynamic, protocols="range x", session_ms=3 * REBALANCE_MS)
    scene.advance(REBALANCE_MS)
    assert again.response.leader == dynamic
    assert {m.member_id for m in again.response.members} == {static, dynamic}


def test_a_group_of_absent_static_members_waits_until_their_sessions_end() -> None:
    scene = ClassicScene(delay_ms=DELAY_MS)
    scene.join(instance="i", session_ms=3 * REBALANCE_MS)
    scene.join()
    scene.advance(2 * DELAY_MS)
    scene.settle()
    _, dynamic = scene.group.members
    scene.leave(dynamic)
    scene.advance(2 * REBALANCE_MS)
    assert scene.group.state is State.PREPARING_REBALANCE
    scene.advance(REBALANCE_MS)
    assert (scene.group.state, scene.group.wake_ms) == (State.EMPTY, NEVER)


def test_a_replacement_that_cannot_be_saved_is_undone() -> None:
    scene = ClassicScene()
    (old,) = scene.stable(1, instance="i")
    scene.save_error = ErrorCode.NOT_COORDINATOR
    refused = scene.join(instance="i", protocols="range extra", session_ms=77, rebalance_ms=78)
    assert refused.error is ErrorCode.NOT_COORDINATOR
    assert refused.response.member_id == ""
    member = scene.group.check_member(old, "i")
    assert [offered.name for offered in member.protocols] == ["range"]
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (SESSION_MS, REBALANCE_MS)
    assert scene.group.leader == old
    assert scene.heartbeat(old, instance="i") is ErrorCode.NONE


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_replacement_of_a_replacement_waits_for_its_own_save(error: ErrorCode) -> None:
    scene = ClassicScene()
    scene.stable(1, instance="i")
    scene.is_saving_slow = True
    first, second = scene.join(instance="i"), scene.join(instance="i")
    assert first.error is ErrorCode.FENCED_INSTANCE_ID
    scene.end_save(error)
    assert second.is_held
    scene.end_save()
    assert second.error is ErrorCode.NONE
    assert scene.group.static_member_id("i") == second.response.member_id


def test_a_replacement_whose_save_ends_in_the_next_rebalance_is_answered_by_that() -> None:
    scene = ClassicScene()
    scene.stable(1, instance="i")
    scene.is_saving_slow = True
    back = scene.join(instance="i")
    new = scene.join()
    scene.end_save(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert back.response.generation_id == new.response.generation_id == 2


# ---- commits ----


def code_of_commit(scene: ClassicScene, member_id: str, generation: int, instance: str | None = None) -> ErrorCode:
    try:
        scene.group.check_commit(member_id, instance, generation)
    except ApiError as error:
        return error.code
    return ErrorCode.NONE


def test_only_members_of_the_generation_may_commit() -> None:
    scene = ClassicScene()
    (leader,) = scene.stable(1)
    assert code_of_commit(scene, leader, 1) is ErrorCode.NONE
    assert code_of_commit(scene, leader, 0) is ErrorCode.ILLEGAL_GENERATION
    assert code_of_commit(scene, "stranger", 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of_commit(scene, leader, 1, "i") is ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of_commit(scene, "", -1) is ErrorCode.UNKNOWN_MEMBER_ID


def test_members_may_commit_while_a_rebalance_is_prepared_but_not_while_it_is_completed() -> None:
    scene = ClassicScene()
    leader, follower = scene.stable(2)
    scene.join(leader)
    assert code_of_commit(scene, follower, 1) is ErrorCode.NONE
    scene.join(follower)
    assert code_of_commit(scene, follower, 2) is ErrorCode.REBALANCE_IN_PROGRESS


def test_strangers_may_commit_only_while_the_group_is_empty() -> None:
    scene = ClassicScene()
    assert code_of_commit(scene, "", -1) is ErrorCode.NONE
    assert code_of_commit(scene, "anyone", -1) is ErrorCode.NONE
    assert code_of_commit(scene, "anyone", 0) is ErrorCode.UNKNOWN_MEMBER_ID
    scene.stable(1)
    assert code_of_commit(scene, "anyone", -1) is ErrorCode.UNKNOWN_MEMBER_ID


# ---- on disk ----


def test_a_stable_group_is_the_same_after_a_restart() -> None:
    scene = ClassicScene()
    leader, follower = scene.stable(2)
    before = scene.group.record()
    scene.restart()
    assert scene.group.state is State.STABLE
    assert scene.group.record() == before
    assert scene.group.changed_wall_ms == T0 + scene.now_ms
    assert scene.heartbeat(leader) is ErrorCode.NONE
    assert bytes(scene.sync(follower).response.assignment) == f"share of {follower}".encode()


def test_after_a_restart_everyone_has_a_whole_session() -> None:
    scene = ClassicScene()
    leader, follower = scene.stable(2)
    scene.advance(SESSION_MS - 1)
    scene.restart()
    assert scene.group.wake_ms == scene.now_ms + SESSION_MS
    scene.advance(SESSION_MS - 1)
    scene.heartbeat(leader)
    scene.advance(1)
    assert list(scene.group.members) == [leader]
    assert follower not in scene.group.members


def test_a_restart_in_the_middle_of_a_rebalance_goes_back_to_the_last_assignment() -> None:
    scene = ClassicScene()
    leader, _ = scene.stable(2)
    waiting = scene.join(leader)
    scene.restart()
    assert waiting.error is ErrorCode.NOT_COORDINATOR
    assert (scene.group.state, scene.group.generation) == (State.STABLE, 1)


def test_a_group_that_became_empty_is_empty_after_a_restart() -> None:
    scene = ClassicScene()
    (leader,) = scene.stable(1)
    scene.leave(leader)
    scene.restart()
    assert (scene.group.state, scene.group.generation, scene.group.wake_ms) == (State.EMPTY, 2, NEVER)
    assert not scene.group.is_simple
