"""A consumer group under everything that can happen to it: no partition has two readers, and in the end all is read."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.group.consumer import LEAVE_FOR_A_WHILE
from penstock.group.reconcile import MemberState
from penstock.wire.errors import ApiError, ErrorCode
from tests.group.consumers import Client, Coordinator, Topics, compacted, facts, flat, replayed

NAMES = ["ta", "tb", "tc"]
numbers = st.integers(0, 7)
subscriptions = st.tuples(st.frozensets(st.sampled_from(NAMES)), st.sampled_from([None, None, "t.*", "t[ab]"])).filter(
    lambda pair: bool(pair[0] or pair[1])
)


class ConsumerGroups(RuleBasedStateMachine):
    """One group, its clients, and the topics of the cluster."""

    def __init__(self) -> None:
        super().__init__()
        self.topics = Topics()
        self.coordinator = Coordinator(self.topics)
        self.clients: list[Client] = []
        self.away: list[Client] = []  # static members that will be back
        self.made = 0
        self.epochs = (0, 0)
        self.member_epochs: dict[str, int] = {}

    @initialize(counts=st.lists(st.integers(0, 5), min_size=3, max_size=3))
    def make_topics(self, counts: list[int]) -> None:
        for name, count in zip(NAMES, counts, strict=True):
            self.topics.set(name, count)

    # ---- clients ----

    @precondition(lambda self: len(self.clients) < 6)
    @rule(what=subscriptions, assignor=st.sampled_from([None, None, "range", "uniform"]), is_slow=st.booleans())
    def join(self, what: tuple[frozenset[str], str | None], assignor: str | None, is_slow: bool) -> None:
        self.made += 1
        client = Client(f"m{self.made}", *what, assignor=assignor, is_slow=is_slow)
        self.clients.append(client)
        self._beat(client)

    @precondition(lambda self: not any(client.instance for client in [*self.clients, *self.away]))
    @rule(what=subscriptions)
    def join_as_static_member(self, what: tuple[frozenset[str], str | None]) -> None:
        self.made += 1
        client = Client(f"m{self.made}", *what, instance="i")
        self.clients.append(client)
        self._beat(client)

    @precondition(lambda self: self.clients)
    @rule(number=numbers, fate=st.sampled_from(["answered", "answer lost", "not appended"]))
    def beat(self, number: int, fate: str) -> None:
        self._beat(self.clients[number % len(self.clients)], fate)

    @rule()
    def all_beat(self) -> None:
        for client in list(self.clients):
            client.follow()
            self._beat(client)

    def _beat(self, client: Client, fate: str = "answered", *, is_second: bool = False) -> None:
        request = client.request()
        before = facts(self.coordinator.group)
        try:
            answer = self.coordinator.beat(request, is_appended=fate != "not appended")
        except ApiError as error:
            if error.code is ErrorCode.COORDINATOR_NOT_AVAILABLE:
                assert facts(self.coordinator.group) == before
                client.says_all = True
                return
            if is_second or error.code not in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
                raise
            client.start_over()
            if client.instance is not None and client.member_id in self.coordinator.group.members:
                self.coordinator.fence(client.member_id)  # only the end of its session sets the instance id free
            self._beat(client, is_second=True)
            return
        if fate == "answer lost":
            client.says_all = True
        else:
            client.hear(*answer)

    @precondition(lambda self: self.clients)
    @rule(number=numbers)
    def follow(self, number: int) -> None:
        self.clients[number % len(self.clients)].follow()

    @precondition(lambda self: self.clients)
    @rule(number=numbers, what=subscriptions)
    def subscribe_to_something_else(self, number: int, what: tuple[frozenset[str], str | None]) -> None:
        client = self.clients[number % len(self.clients)]
        client.names, regex = what
        client.regex = regex if regex is not None or client.regex is None else ""
        client.says_all = True

    @precondition(lambda self: self.clients)
    @rule(number=numbers, assignor=st.sampled_from(["range", "uniform"]))
    def ask_for_another_assignor(self, number: int, assignor: str) -> None:
        """That is written down, but changes nothing at once."""
        client = self.clients[number % len(self.clients)]
        client.assignor, client.says_all = assignor, True
        self._beat(client)

    @precondition(lambda self: self.clients)
    @rule(number=numbers)
    def leave(self, number: int) -> None:
        client = self.clients.pop(number % len(self.clients))
        if client.member_id in self.coordinator.group.members:
            self.coordinator.fence(client.member_id)

    @precondition(lambda self: any(client.instance for client in self.clients) and self.coordinator.group.instances)
    @rule()
    def take_a_break(self) -> None:
        client = next(client for client in self.clients if client.instance)
        self.coordinator.take_a_break(client.member_id, "i")
        self.clients.remove(client)
        self.away.append(client)

    @precondition(lambda self: self.away)
    @rule(is_same_id=st.booleans())
    def come_back(self, is_same_id: bool) -> None:
        client = self.away.pop()
        client.start_over()
        if not is_same_id:
            self.made += 1
            client.member_id = f"m{self.made}"
        self.clients.append(client)
        self._beat(client)

    @precondition(lambda self: self.clients)
    @rule(number=numbers)
    def be_silent_for_too_long(self, number: int) -> None:
        """The client does not know it yet; it must give everything up before anybody else can have it."""
        client = self.clients[number % len(self.clients)]
        if client.member_id in self.coordinator.group.members:
            self.coordinator.fence(client.member_id)
            client.owned, client.target, client.told = set(), None, None

    @precondition(lambda self: self.clients)
    @rule(number=numbers, epoch=st.integers(1, 30))
    def somebody_claims_another_epoch(self, number: int, epoch: int) -> None:
        client = self.clients[number % len(self.clients)]
        member = self.coordinator.group.members.get(client.member_id)
        if member is None or epoch in (member.epoch, member.progress.previous_epoch):
            return
        before = facts(self.coordinator.group)
        true, client.epoch = client.epoch, epoch
        request = client.request()
        client.epoch = true
        with pytest.raises(ApiError) as refused:
            self.coordinator.beat(request)
        assert refused.value.code is ErrorCode.FENCED_MEMBER_EPOCH
        assert facts(self.coordinator.group) == before

    # ---- the cluster ----

    @rule(name=st.sampled_from(NAMES), more=st.integers(1, 3))
    def grow(self, name: str, more: int) -> None:
        self.topics.set(name, self.topics.count(name) + more)

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        self.topics.set(name, 0)

    @rule(is_compacted=st.booleans())
    def restart(self, is_compacted: bool) -> None:
        log = compacted(self.coordinator.log) if is_compacted else self.coordinator.log
        shard = replayed(log)
        if "g" in shard.groups:
            self.coordinator.group = shard.consumer("g")

    # ---- what is always true ----

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        owners: dict[tuple[bytes, int], int] = {}
        for member in self.coordinator.group.members.values():
            for partition in flat(member.progress.assigned) | flat(member.progress.revoking):
                assert partition not in owners
                owners[partition] = member.epoch
        assert self.coordinator.group.owners == owners

    @invariant()
    def no_partition_has_two_readers(self) -> None:
        read = [partition for client in self.clients for partition in client.owned]
        assert len(read) == len(set(read))

    @invariant()
    def epochs_never_go_back(self) -> None:
        group = self.coordinator.group
        assert group.assignment_epoch <= group.epoch
        assert self.epochs <= (group.epoch, group.assignment_epoch)
        self.epochs = (group.epoch, group.assignment_epoch)
        for member_id, member in group.members.items():
            assert member.epoch <= group.assignment_epoch
            if member.instance_id is None:
                assert member.epoch >= self.member_epochs.get(member_id, 0)
        self.member_epochs = {member_id: member.epoch for member_id, member in group.members.items()}

    @invariant()
    def members_are_where_their_state_says(self) -> None:
        for member in self.coordinator.group.members.values():
            is_revoking = member.progress.state is MemberState.UNREVOKED_PARTITIONS
            assert is_revoking >= bool(member.progress.revoking)
            if member.epoch != LEAVE_FOR_A_WHILE:
                assert is_revoking == bool(member.progress.revoking)

    @invariant()
    def the_log_is_the_group(self) -> None:
        now = facts(self.coordinator.group)
        for log in (self.coordinator.log, compacted(self.coordinator.log)):
            groups = replayed(log).groups
            assert facts(groups["g"] if groups else type(self.coordinator.group)("g")) == now  # type: ignore[arg-type]

    # ---- in the end ----

    def teardown(self) -> None:
        coordinator = self.coordinator
        known = {client.member_id for client in self.clients}
        for member_id in [m for m in coordinator.group.members if m not in known]:
            coordinator.fence(member_id)
        for _ in range(12):
            for client in self.clients:
                client.is_slow = False
                client.follow()
                self._beat(client)
        self._check_is_quiet()
        change = coordinator.change()
        change.tombstones()
        coordinator.commit(change)
        assert not any(value for key, value in facts(coordinator.group).items())
        assert replayed(coordinator.log).groups == {}
        assert compacted(coordinator.log) == []

    def _check_is_quiet(self) -> None:
        group = self.coordinator.group
        assert group.members.keys() == {client.member_id for client in self.clients}
        assert group.state == ("Stable" if self.clients else "Empty")
        for client in self.clients:
            assert client.owned == flat(group.target[client.member_id])
            assert client.epoch == group.epoch
        read = [partition for client in self.clients for partition in client.owned]
        names = set().union(*(group.subscribed_topics(member) for member in group.members.values()))
        assert sorted(read) == sorted(self.topics.partitions_of(names))


TestConsumerGroups = ConsumerGroups.TestCase
TestConsumerGroups.settings = settings(deadline=None, max_examples=80, stateful_step_count=30)
