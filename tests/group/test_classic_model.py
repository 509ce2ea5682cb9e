"""A classic group under members that behave and members that do not: what has to be true whatever they do."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.group.classic import NEVER, State
from penstock.wire.errors import ErrorCode
from tests.group.samples import Answer, ClassicScene

SAVE_ERRORS = [ErrorCode.NONE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE]
PROTOCOLS = ["range", "range sticky", "sticky range", "range other", "sticky"]


@dataclass
class Client:
    """A member that behaves, with what it knows. It has one request under way at a time."""

    instance: str | None
    protocols: str
    member_id: str = ""
    generation: int = -1
    joining: Answer | None = None
    syncing: Answer | None = None
    is_member: bool = False
    is_gone: bool = False
    answers: list[Answer] = field(default_factory=list)

    @property
    def is_waiting(self) -> bool:
        return any(answer is not None and answer.is_held for answer in (self.joining, self.syncing))


class ClassicGroups(RuleBasedStateMachine):
    """The group with all its members, its clock and its disk."""

    def __init__(self) -> None:
        super().__init__()
        self.scene = ClassicScene(delay_ms=3_000, size_max=4)
        self.clients: list[Client] = []
        self.requests: list[tuple[Answer, str]] = []  # with the member id that the answer is for; "" if not known yet
        self.generation = 0
        self.generations_seen: set[int] = set()

    # ---- members that behave ----

    @precondition(lambda self: len(self.clients) < 6)
    @rule(
        instance=st.sampled_from([None, None, "i", "j"]),
        protocols=st.sampled_from(PROTOCOLS),
        needs_known_id=st.booleans(),
        can_skip=st.booleans(),
    )
    def come(self, instance: str | None, protocols: str, needs_known_id: bool, can_skip: bool) -> None:
        client = Client(instance, protocols)
        self.clients.append(client)
        client.joining = self.scene.join(
            instance=instance,
            protocols=protocols,
            needs_known_id=needs_known_id and instance is None,
            can_skip=can_skip,
        )
        self.requests.append((client.joining, ""))

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 5))
    def go_on(self, number: int) -> None:
        self._go_on(self.clients[number % len(self.clients)])

    @rule(rounds=st.integers(1, 8), pause_ms=st.sampled_from([0, 500, 3_000]))
    def all_go_on(self, rounds: int, pause_ms: int) -> None:
        for _ in range(rounds):
            for client in list(self.clients):
                self._go_on(client)
            self.scene.advance(pause_ms)

    @initialize(count=st.integers(0, 4), instance=st.sampled_from([None, "i"]), has_settled=st.booleans())
    def begin(self, count: int, instance: str | None, has_settled: bool) -> None:
        for number in range(count):
            self.come(instance if number == 1 else None, "range sticky", needs_known_id=False, can_skip=True)
        if has_settled:
            self.all_go_on(8, 3_000)
            assert not count or self.scene.group.state is State.STABLE

    def _go_on(self, client: Client) -> None:
        """A client does what comes next: it joins, syncs or sends a heartbeat."""
        if client.joining is not None:
            if not client.joining.is_held:
                self._joined(client, client.joining)
        elif client.syncing is not None:
            if not client.syncing.is_held:
                answer, client.syncing = client.syncing, None
                client.is_member = not answer.error
                if answer.error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                    self.clients.remove(client)
                elif answer.error:
                    self._join_again(client)
        elif self.scene.group.static_member_id(client.instance or "") not in (None, client.member_id):
            self.clients.remove(client)
        elif (code := self.scene.heartbeat(client.member_id, generation=client.generation)) is ErrorCode.NONE:
            assert client.generation == self.scene.group.generation
        elif code is ErrorCode.UNKNOWN_MEMBER_ID:
            self.clients.remove(client)
        else:
            self._join_again(client)

    def _joined(self, client: Client, answer: Answer) -> None:
        client.joining = None
        response = answer.response
        if answer.error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = response.member_id
            self._join_again(client)
            return
        if answer.error is ErrorCode.REBALANCE_IN_PROGRESS:
            self._join_again(client)
            return
        if answer.error:
            self.clients.remove(client)
            return
        client.member_id, client.generation = response.member_id, response.generation_id
        self.generations_seen.add(client.generation)
        is_leader = response.leader == response.member_id
        shares = {m.member_id: f"share of {m.member_id}".encode() for m in response.members}
        if not is_leader or response.skip_assignment:
            assert bool(shares) is is_leader
            shares = {}
        client.syncing = self.scene.sync(
            client.member_id, shares, instance=client.instance, generation=client.generation
        )
        self.requests.append((client.syncing, client.member_id))

    def _join_again(self, client: Client) -> None:
        client.joining = self.scene.join(client.member_id, instance=client.instance, protocols=client.protocols)
        self.requests.append((client.joining, client.member_id))

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 5))
    def leave(self, number: int) -> None:
        client = self.clients.pop(number % len(self.clients))
        self.scene.leave(client.member_id, instance=client.instance)

    @precondition(lambda self: self.clients)
    @rule(number=st.integers(0, 5))
    def crash(self, number: int) -> None:
        self.clients.pop(number % len(self.clients))

    # ---- members that do not ----

    @rule(
        number=st.integers(0, 9),
        instance=st.sampled_from([None, "i", "j"]),
        protocols=st.sampled_from([*PROTOCOLS, ""]),
        protocol_type=st.sampled_from(["consumer", "consumer", "connect"]),
    )
    def join_in_the_name_of_somebody(
        self, number: int, instance: str | None, protocols: str, protocol_type: str
    ) -> None:
        member_id = self._any_id(number)
        answer = self.scene.join(member_id, instance=instance, protocols=protocols, protocol_type=protocol_type)
        self.requests.append((answer, member_id))

    @rule(number=st.integers(0, 9), instance=st.sampled_from([None, "i"]), later=st.integers(-1, 1))
    def sync_in_the_name_of_somebody(self, number: int, instance: str | None, later: int) -> None:
        member_id = self._any_id(number)
        generation = self.scene.group.generation + later
        answer = self.scene.sync(member_id, {member_id: b"mine"}, instance=instance, generation=generation)
        self.requests.append((answer, member_id))

    @precondition(lambda self: self.scene.group.members)
    @rule(number=st.integers(0, 9), instance=st.sampled_from([None, "i", "j"]))
    def send_somebody_away(self, number: int, instance: str | None) -> None:
        self.scene.leave(self._any_id(number) if instance is None else "", instance=instance)

    def _any_id(self, number: int) -> str:
        ids = [*self.scene.group.members, *self.scene.group._pending, "stranger"]
        return ids[number % len(ids)]

    # ---- the world ----

    @rule(duration_ms=st.sampled_from([1, 1_000, 3_000, 9_999, 10_000, 60_000]))
    def wait(self, duration_ms: int) -> None:
        self.scene.group.expire(self.scene.now_ms)  # too early: nothing is due
        self.scene.advance(duration_ms)

    @rule(is_slow=st.booleans(), error=st.sampled_from(SAVE_ERRORS))
    def let_saves_be(self, is_slow: bool, error: ErrorCode) -> None:
        self.scene.is_saving_slow = is_slow
        self.scene.save_error = error

    @precondition(lambda self: self.scene.saves)
    @rule(error=st.sampled_from(SAVE_ERRORS))
    def end_a_save(self, error: ErrorCode) -> None:
        self.scene.end_save(error)

    @precondition(lambda self: self.scene.saved)
    @rule()
    def restart(self) -> None:
        self.scene.restart()
        self.generation = self.scene.group.generation

    # ---- what is always true ----

    @invariant()
    def generations_only_grow(self) -> None:
        assert self.scene.group.generation >= self.generation
        self.generation = self.scene.group.generation

    @invariant()
    def an_answer_is_for_the_one_who_asked(self) -> None:
        for answer, member_id in self.requests:
            if not answer.is_held and member_id and hasattr(answer.response, "member_id"):
                assert answer.response.member_id in (member_id, "")

    @invariant()
    def what_is_held_back_is_known_to_the_group(self) -> None:
        known = [member.join_reply for member in self.scene.group.members.values()]
        known += [member.sync_reply for member in self.scene.group.members.values()]
        for answer, _ in self.requests:
            assert sum(answer is reply for reply in known) == answer.is_held, answer.request

    @invariant()
    def members_are_counted_right(self) -> None:
        group = self.scene.group
        assert all(member_id == member.member_id for member_id, member in group.members.items())
        static = {m.instance_id: m.member_id for m in group.members.values() if m.instance_id is not None}
        assert group._instances == static
        offered = [offered.name for member in group.members.values() for offered in member.protocols]
        assert {name: count for name, count in group._offers.items() if count} == {
            name: offered.count(name) for name in offered
        }
        assert group._unsynced <= group.members.keys()
        assert group.leader in group.members if group.members else group.leader is None

    @invariant()
    def a_stable_group_has_what_was_saved(self) -> None:
        group = self.scene.group
        if group.state is State.STABLE and not self.scene.saves and not self.scene.save_error:
            assert all(member.sync_reply is None for member in group.members.values())
            assert group.members
            assert self.scene.saved[-1].value.generation == group.generation

    @invariant()
    def waiting_fits_the_state(self) -> None:
        group = self.scene.group
        joins = [member for member in group.members.values() if member.join_reply is not None]
        syncs = [member for member in group.members.values() if member.sync_reply is not None]
        assert not syncs or group.state is State.COMPLETING_REBALANCE
        if joins and group.state is not State.PREPARING_REBALANCE:
            assert group.state is State.STABLE
            assert self.scene.saves, "a static member waits, but nothing is being saved"
        assert (group.state is State.EMPTY) <= (not group.members)

    @invariant()
    def the_group_wakes_in_time(self) -> None:
        group = self.scene.group
        deadlines = [member.deadline_ms for member in group.members.values()]
        deadlines += group._pending.values()
        if group.state is State.PREPARING_REBALANCE:
            deadlines.append(group._join_deadline_ms)
        deadlines.append(group._sync_deadline_ms)
        assert group.wake_ms <= min(deadlines)
        assert group.wake_ms > self.scene.now_ms
        if group.wake_ms == NEVER:
            assert not group.members
            assert group.state is State.EMPTY

    def teardown(self) -> None:
        """Everybody is gone: all requests are answered in the end, and the group is empty."""
        self.scene.is_saving_slow = False
        self.scene.save_error = ErrorCode.NONE
        while self.scene.saves:
            self.scene.end_save()
        self.scene.advance(1_000_000)
        assert not [answer.request for answer, _ in self.requests if answer.is_held]
        assert self.scene.group.is_empty
        assert self.scene.group.wake_ms == NEVER


TestClassicGroups = ClassicGroups.TestCase
TestClassicGroups.settings = settings(deadline=None, max_examples=120, stateful_step_count=40)
