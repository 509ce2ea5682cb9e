"""Groups as the official Java consumer and tools use them: both protocols, and the way from one to the other."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock.wire.errors import ErrorCode
from tests.support.groups import (
    ClassicMember,
    commit,
    describe_consumer_group,
    listed,
    offsets_partition_of,
    wait_for_coordinator,
    wait_until,
)
from tests.support.java_tools import JavaTools, rows
from tests.support.readers import Got, Ledger
from tests.support.systems import System

pytestmark = pytest.mark.java

PARTITIONS = 6
PROTOCOLS = ["classic", "consumer"]
ASSIGNORS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "sticky": "org.apache.kafka.clients.consumer.StickyAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}


class JavaMembers:
    """The members of one group, in the resident JVM. What they saw is known after `look`."""

    def __init__(self, java: JavaTools, system: System, group: str) -> None:
        self.java = java
        self.system = system
        self.group = group
        self.ledger = Ledger()
        self.received: list[Got] = []
        self.failures: dict[str, str] = {}
        self._running: set[str] = set()
        self._count = 0

    def start(self, protocol: str = "classic", assignor: str | None = None, **task: Any) -> str:
        """A new member; returns its name."""
        name = f"{protocol}-{self._count}"
        self._count += 1
        config = {
            "bootstrap.servers": self.system.bootstrap,
            "group.id": self.group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": "500",
            "metadata.max.age.ms": "1000",
        }
        if protocol == "classic":
            config |= {"heartbeat.interval.ms": "200", "session.timeout.ms": "10000"}
        if assignor is not None and protocol == "classic":
            config["partition.assignment.strategy"] = ASSIGNORS[assignor]
        elif assignor is not None:
            config["group.remote.assignor"] = assignor
        config |= task.pop("config", {})
        self._call("start", json.dumps({"name": name, "config": config, **task}))
        self._running.add(name)
        return name

    def stop(self, name: str) -> None:
        self._running.discard(name)
        self._call("stop", name)
        self.look()

    def stop_all(self) -> None:
        for name in sorted(self._running):
            self.stop(name)

    def look(self) -> None:
        for event in self._call("events"):
            member = event["member"]
            partitions = [(topic, index) for topic, index in event.get("partitions", [])]
            match event["event"]:
                case "assigned":
                    self.ledger.take(member, partitions)
                case "revoked" | "lost":
                    self.ledger.give_up(member, partitions)
                case "record":
                    got = Got(event["topic"], event["partition"], event["offset"], event["value"].encode())
                    self.received.append(got)
                case "failed":
                    self.failures[member] = f"{event['error']}: {event['message']}"
                case "closed":
                    self.ledger.give_up(member, self.ledger.of(member))

    def share(self, count: int = PARTITIONS) -> None:
        """Wait until all partitions are owned, and every member has about as many as the others."""

        def is_shared() -> bool:
            self.look()
            sizes = [len(self.ledger.of(name)) for name in self._running]
            return self.ledger.is_shared_by(self._running, count) and max(sizes) - min(sizes) <= 1

        wait_until(is_shared, 90.0)

    def wait_for(self, count: int) -> None:
        """Until the records 0 to count - 1 were received."""

        def is_there() -> bool:
            self.look()
            return set(self.numbers) >= set(range(count))

        wait_until(is_there)

    @property
    def numbers(self) -> list[int]:
        return sorted(int(got.value) for got in self.received)

    def _call(self, *args: str) -> list[Any]:
        result = self.java.run("Members", *args)
        assert result.code == 0, result.err
        return result.lines


@pytest.fixture
def tool(system: System, java: JavaTools) -> Callable[..., str]:
    wait_for_coordinator(system)

    def run(name: str, *args: str, stdin: str = "") -> str:
        return java.tool(name, "--bootstrap-server", system.bootstrap, *args, stdin=stdin).out

    return run


@pytest.fixture
def groups_tool(tool: Callable[..., str]) -> Callable[..., str]:
    return lambda *args: tool("consumer.group.ConsumerGroupCommand", *args)


@pytest.fixture
def group(unique: Callable[[str], str]) -> str:
    return unique("group")


@pytest.fixture
def members(system: System, java: JavaTools, group: str) -> Iterator[JavaMembers]:
    wait_for_coordinator(system)
    made = JavaMembers(java, system, group)
    yield made
    made.stop_all()
    made.look()


class Source(threading.Thread):
    """Produces numbered records until it is told to stop."""

    def __init__(self, system: System, topic: str, partitions: int = PARTITIONS) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": system.bootstrap, "linger.ms": 5})
        self._topic = topic
        self._partitions = partitions
        self._stopping = threading.Event()
        self.count = 0

    def run(self) -> None:
        while not self._stopping.is_set():
            self.fill(10)
            self._stopping.wait(0.1)

    def fill(self, count: int) -> None:
        for _ in range(count):
            self._producer.produce(self._topic, b"%d" % self.count, partition=self.count % self._partitions)
            self.count += 1
        assert self._producer.flush(20) == 0

    def stop(self) -> None:
        self._stopping.set()
        self.join(30)


# ---- the consumer ----


@pytest.mark.parametrize(
    ("protocol", "assignor"),
    [
        ("classic", "range"),
        ("classic", "roundrobin"),
        ("classic", "sticky"),
        ("classic", "cooperative-sticky"),
        ("consumer", "uniform"),
        ("consumer", "range"),
    ],
)
def test_members_come_and_go(
    system: System, topic: str, tool: Any, members: JavaMembers, protocol: str, assignor: str
) -> None:
    tool("TopicCommand", "--create", "--topic", topic, "--partitions", str(PARTITIONS))
    source = Source(system, topic)
    first = members.start(protocol, assignor, topics=[topic])
    members.share()
    members.start(protocol, assignor, topics=[topic])
    members.share()
    source.fill(60)
    members.wait_for(60)
    members.stop(first)
    members.share()
    source.fill(60)
    members.wait_for(120)
    members.stop_all()
    assert members.numbers == list(range(120)), "every record once"
    assert members.ledger.faults == []
    assert members.failures == {}
    members.start(protocol, assignor, topics=[topic])
    members.share()
    source.fill(6)
    members.wait_for(126)
    assert members.numbers == list(range(126)), "it goes on where the others stopped"


@pytest.mark.parametrize(("protocol", "kind"), [("classic", "pattern"), ("consumer", "pattern"), ("consumer", "regex")])
def test_a_pattern_is_matched(
    system: System, unique: Any, tool: Any, members: JavaMembers, protocol: str, kind: str
) -> None:
    prefix = unique("herd")
    for name in (f"{prefix}.cow", f"{prefix}.goat", f"not-{prefix}.cow"):
        tool("TopicCommand", "--create", "--topic", name)
    name = members.start(protocol, **{kind: rf"{prefix}\..*"})
    members.share(2)
    assert members.ledger.of(name) == {(f"{prefix}.cow", 0), (f"{prefix}.goat", 0)}


def test_a_bad_regular_expression_is_refused(topic: str, members: JavaMembers) -> None:
    name = members.start("consumer", regex="[")
    wait_until(lambda: members.look() or members.failures.get(name))
    assert members.failures[name].startswith("InvalidRegularExpression: ")
    assert "SubscribedTopicRegex `[` is not a valid regular expression: missing closing ]." in members.failures[name]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_static_members_keep_their_partitions(
    system: System, topic: str, tool: Any, members: JavaMembers, protocol: str
) -> None:
    tool("TopicCommand", "--create", "--topic", topic, "--partitions", str(PARTITIONS))
    first = members.start(protocol, topics=[topic], config={"group.instance.id": "one"})
    members.start(protocol, topics=[topic], config={"group.instance.id": "two"})
    members.share()
    before, moves = members.ledger.of(first), members.ledger.moves
    members.stop(first)
    again = members.start(protocol, topics=[topic], config={"group.instance.id": "one"})
    members.share()
    assert members.ledger.of(again) == before
    assert members.ledger.moves == moves + len(before), "nobody else was disturbed"
    assert members.ledger.faults == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_instance_id_has_one_holder(topic: str, tool: Any, members: JavaMembers, protocol: str) -> None:
    tool("TopicCommand", "--create", "--topic", topic, "--partitions", str(PARTITIONS))
    first = members.start(protocol, topics=[topic], config={"group.instance.id": "one"})
    members.share()
    second = members.start(protocol, topics=[topic], config={"group.instance.id": "one"})
    wait_until(lambda: members.look() or members.failures)
    # The classic protocol fences the one who was first, the other refuses the one who comes second.
    loser, error = (first, "FencedInstanceIdException") if protocol == "classic" else (second, "UnreleasedInstanceId")
    assert list(members.failures) == [loser]
    assert members.failures[loser].startswith(error)


# ---- from one protocol to the other ----


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_group_rolls_to_the_consumer_protocol_and_back(
    system: System, topic: str, tool: Any, members: JavaMembers, group: str, assignor: str
) -> None:
    tool("TopicCommand", "--create", "--topic", topic, "--partitions", str(PARTITIONS))
    source = Source(system, topic)
    source.start()

    def kind() -> str:
        with system.connect() as connection:
            found: str = listed(connection)[group].group_type
            return found

    running = [members.start("classic", assignor, topics=[topic]) for _ in range(3)]
    members.share()
    assert kind() == "classic"
    for protocol in ("consumer", "classic"):
        for position in range(3):
            members.stop(running[position])
            running[position] = members.start(protocol, assignor if protocol == "classic" else None, topics=[topic])
            members.share()
            rolled_back = protocol == "classic" and position == 2
            assert kind() == ("classic" if rolled_back else "consumer")
        if protocol == "consumer":
            with system.connect() as connection:
                described = describe_consumer_group(connection, group)
            assert [member.member_type for member in described.members] == [1, 1, 1]
    source.stop()
    members.wait_for(source.count)
    members.stop_all()
    assert members.ledger.faults == [], "at no moment had two members the same partition"
    assert set(members.numbers) == set(range(source.count)), "nothing was missed"
    assert members.failures == {}


def test_members_of_both_protocols_share_a_group(
    system: System, topic: str, tool: Any, members: JavaMembers, group: str, groups_tool: Any
) -> None:
    tool("TopicCommand", "--create", "--topic", topic, "--partitions", str(PARTITIONS))
    source = Source(system, topic)
    members.start("classic", topics=[topic])
    members.share()  # Kafka 4.3 cannot form a group of both protocols at once
    for protocol in ("consumer", "classic"):
        members.start(protocol, topics=[topic])
    members.share()
    source.fill(60)
    members.wait_for(60)
    with system.connect() as connection:
        described = describe_consumer_group(connection, group)
    assert sorted(member.member_type for member in described.members) == [0, 0, 1]
    shown = groups_tool("--describe", "--group", group, "--members", "--verbose")
    assert sorted(row["UPGRADED"] for row in rows(shown)) == ["false", "false", "true"]
    members.stop_all()
    assert members.numbers == list(range(60))
    assert members.ledger.faults == []


# ---- kafka-consumer-groups ----


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_consumer_groups_lists_and_describes(
    system: System, topic: str, tool: Any, groups_tool: Any, members: JavaMembers, group: str, protocol: str
) -> None:
    tool("TopicCommand", "--create", "--topic", topic, "--partitions", "2")
    Source(system, topic, 2).fill(10)
    name = members.start(protocol, topics=[topic])
    members.wait_for(10)
    assert group in groups_tool("--list").split()
    assert re.search(rf"{group}\s+{protocol.capitalize()}", groups_tool("--list", "--type", protocol))
    other = "consumer" if protocol == "classic" else "classic"
    assert group not in groups_tool("--list", "--type", other)
    assert re.search(rf"{group}\s+Stable", groups_tool("--list", "--state", "stable"))
    assert group not in groups_tool("--list", "--state", "empty")

    wait_until(lambda: _lags(groups_tool("--describe", "--group", group)) == {0: (5, 5, 0), 1: (5, 5, 0)})
    for row in rows(groups_tool("--describe", "--group", group)):
        assert (row["TOPIC"], row["HOST"], row["CLIENT-ID"]) == (topic, "/127.0.0.1", name)
    (row,) = rows(groups_tool("--describe", "--group", group, "--members"))
    assert (row["GROUP"], row["HOST"], row["CLIENT-ID"], row["#PARTITIONS"]) == (group, "/127.0.0.1", name, "2")
    state = groups_tool("--describe", "--group", group, "--state")
    assignor = "range" if protocol == "classic" else "uniform"
    assert re.search(rf"{group}\s+127.0.0.1:{system.port}\s+\(1\)\s+{assignor}\s+Stable\s+1", state)

    members.stop(name)
    Source(system, topic, 2).fill(4)
    empty = groups_tool("--describe", "--group", group)
    assert _lags(empty) == {0: (5, 7, 2), 1: (5, 7, 2)}
    assert re.search(rf"{group}\s+Empty", groups_tool("--list", "--state"))


def _lags(output: str) -> dict[int, tuple[int, int, int]]:
    """(current offset, end offset, lag) by partition."""
    try:
        table = rows(output)
        return {
            int(row["PARTITION"]): (int(row["CURRENT-OFFSET"]), int(row["LOG-END-OFFSET"]), int(row["LAG"]))
            for row in table
        }
    except (StopIteration, ValueError):
        return {}


def test_consumer_groups_names_a_group_that_is_not_there(system: System, java: JavaTools, groups_tool: Any) -> None:
    command = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    result = java.run(command, "--bootstrap-server", system.bootstrap, "--describe", "--group", "missing")
    assert "GroupIdNotFoundException: Group missing not found." in result.out
    result = java.run(command, "--bootstrap-server", system.bootstrap, "--delete", "--group", "missing")
    assert "GroupIdNotFoundException: The group id does not exist." in result.out + result.err


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_consumer_groups_resets_offsets(
    system: System, topic: str, tool: Any, groups_tool: Any, members: JavaMembers, group: str, protocol: str
) -> None:
    tool("TopicCommand", "--create", "--topic", topic, "--partitions", "2")
    Source(system, topic, 2).fill(20)
    name = members.start(protocol, topics=[topic])
    members.wait_for(20)
    reset = ("--reset-offsets", "--group", group, "--topic", topic)

    def new_offsets(*options: str) -> dict[int, int]:
        return {int(row["PARTITION"]): int(row["NEW-OFFSET"]) for row in rows(groups_tool(*reset, *options))}

    in_use = groups_tool(*reset, "--to-earliest", "--execute")
    assert f"Assignments can only be reset if the group '{group}' is inactive, but the current state is" in in_use
    members.stop(name)
    assert new_offsets("--to-earliest", "--dry-run") == {0: 0, 1: 0}
    assert _lags(groups_tool("--describe", "--group", group)) == {0: (10, 10, 0), 1: (10, 10, 0)}, "only planned"
    assert new_offsets("--to-offset", "7", "--execute") == {0: 7, 1: 7}
    assert _lags(groups_tool("--describe", "--group", group)) == {0: (7, 10, 3), 1: (7, 10, 3)}
    assert new_offsets("--shift-by", "-3", "--execute") == {0: 4, 1: 4}
    assert new_offsets("--to-offset", "99", "--execute") == {0: 10, 1: 10}, "no further than the end"
    assert new_offsets("--to-earliest", "--execute") == {0: 0, 1: 0}
    assert new_offsets("--to-latest", "--execute") == {0: 10, 1: 10}
    assert new_offsets("--shift-by", "-1", "--execute") == {0: 9, 1: 9}
    before = len(members.received)
    members.start(protocol, topics=[topic])
    wait_until(lambda: members.look() or len(members.received) == before + 2)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_consumer_groups_deletes_groups_and_offsets(
    system: System, topic: str, tool: Any, groups_tool: Any, members: JavaMembers, group: str, java: Any, protocol: str
) -> None:
    tool("TopicCommand", "--create", "--topic", topic, "--partitions", "2")
    Source(system, topic, 2).fill(10)
    name = members.start(protocol, topics=[topic])
    members.wait_for(10)
    command = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    target = ("--bootstrap-server", system.bootstrap, "--group", group)
    refused = java.run(command, *target, "--delete")
    assert "GroupNotEmptyException: The group is not empty." in refused.out + refused.err
    refused = java.run(command, *target, "--delete-offsets", "--topic", topic)
    assert "is actively subscribed to it" in refused.out + refused.err
    members.stop(name)
    deleted = groups_tool("--group", group, "--delete-offsets", "--topic", f"{topic}:1")
    assert re.search(rf"{topic}\s+1\s+Successful", deleted)
    assert set(_lags(groups_tool("--describe", "--group", group))) == {0}
    assert f"Deletion of requested consumer groups ('{group}') was successful." in groups_tool(
        "--group", group, "--delete"
    )
    assert group not in groups_tool("--list").split()


# ---- other tools ----


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_verifiable_consumer_reads_and_commits(
    system: System, topic: str, tool: Any, group: str, groups_tool: Any, protocol: str
) -> None:
    tool("TopicCommand", "--create", "--topic", topic, "--partitions", "2")
    Source(system, topic, 2).fill(20)
    printed = tool(
        "VerifiableConsumer", "--topic", topic, "--group-id", group, "--max-messages", "20",
        "--group-protocol", protocol, "--reset-policy", "earliest",
    )  # fmt: skip
    events = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    names = [event["name"] for event in events]
    assert names[0] == "startup_complete"
    assert names[-1] == "shutdown_complete"
    # A client that hears of its assignment before it knows the topic first takes on what it can name: nothing.
    assigned = [event["partitions"] for event in events if event["name"] == "partitions_assigned"]
    assert sorted(p["partition"] for partitions in assigned for p in partitions) == [0, 1]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 20
    commits = [event for event in events if event["name"] == "offsets_committed"]
    assert commits
    assert all(event["success"] for event in commits)
    assert _lags(groups_tool("--describe", "--group", group)) == {0: (10, 10, 0), 1: (10, 10, 0)}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_console_consumer_reads_as_a_member(
    system: System, topic: str, tool: Any, group: str, groups_tool: Any, protocol: str
) -> None:
    tool("TopicCommand", "--create", "--topic", topic)
    Source(system, topic, 1).fill(10)
    read = tool(
        "consumer.ConsoleConsumer", "--topic", topic, "--group", group, "--from-beginning", "--max-messages", "10",
        "--timeout-ms", "20000", "--command-property", f"group.protocol={protocol}",
    )  # fmt: skip
    assert read.split() == [str(number) for number in range(10)]
    assert _lags(groups_tool("--describe", "--group", group)) == {0: (10, 10, 0)}


@pytest.fixture
def written(tool: Any, group: str) -> Callable[[str], list[Any]]:
    """What `__consumer_offsets` holds about the test's group, as one of Kafka's formatters shows it."""

    def read(formatter: str) -> list[Any]:
        printed = tool(
            "consumer.ConsoleConsumer", "--topic", "__consumer_offsets", "--timeout-ms", "5000",
            "--partition", str(offsets_partition_of(group)), "--offset", "earliest",
            "--formatter", f"org.apache.kafka.tools.consumer.{formatter}",
        )  # fmt: skip
        records = []
        position = printed.find("{")
        while position >= 0:  # one follows the other, without line breaks
            record, position = json.JSONDecoder().raw_decode(printed, position)
            records.append(record)
            position = printed.find("{", position)
        return [record for record in records if record["key"]["data"]["group"] == group]

    return read


def test_the_offsets_topic_is_read_by_the_official_formatters(
    system: System, topic: str, tool: Any, group: str, written: Any
) -> None:
    tool("TopicCommand", "--create", "--topic", topic, "--partitions", "2")
    member = ClassicMember(system, group, [topic], client_id="scribe", session_timeout_ms=12_000)
    member.settle({topic: [0, 1]})
    began = int(time.time() * 1000)
    assert member.commit(topic, 42, index=1, metadata="noted") == ErrorCode.NONE
    member.leave()
    member.close()

    (committed,) = written("OffsetsMessageFormatter")
    assert committed["key"] == {"type": 1, "data": {"group": group, "topic": topic, "partition": 1}}
    value = committed["value"]["data"]
    assert committed["value"]["version"] in (3, 4)
    assert (value["offset"], value["leaderEpoch"], value["metadata"]) == (42, -1, "noted")
    assert abs(value["commitTimestamp"] - began) < 60_000

    states = written("GroupMetadataMessageFormatter")
    assert all(record["key"] == {"type": 2, "data": {"group": group}} for record in states)
    stable, empty = states[-2]["value"], states[-1]["value"]
    assert stable["version"] == 3
    assert (stable["data"]["protocolType"], stable["data"]["generation"]) == ("consumer", 1)
    assert (stable["data"]["protocol"], stable["data"]["leader"]) == ("range", member.member_id)
    (seen,) = stable["data"]["members"]
    assert (seen["memberId"], seen["clientId"], seen["clientHost"]) == (member.member_id, "scribe", "/127.0.0.1")
    assert (seen["sessionTimeout"], seen["rebalanceTimeout"]) == (12_000, 30_000)
    assert seen["groupInstanceId"] is None
    assert (empty["data"]["generation"], empty["data"]["members"]) == (2, [])
    assert (empty["data"]["protocol"], empty["data"]["leader"]) == (None, None)


def test_deleting_a_group_leaves_tombstones(
    system: System, topic: str, tool: Any, groups_tool: Any, group: str, written: Any
) -> None:
    tool("TopicCommand", "--create", "--topic", topic)
    with system.connect() as connection:
        commit(connection, group, {(topic, 0): 5})
    groups_tool("--delete", "--group", group)
    values = [record["value"] for record in written("OffsetsMessageFormatter")]
    assert [value and value["data"]["offset"] for value in values] == [5, None]
