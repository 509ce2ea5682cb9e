"""The consumer against a real broker."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock import Admin, Consumer, ConsumerInterceptor, PenstockError, Producer, Record, TopicPartition
from penstock.client.errors import (
    Closed,
    ConfigurationError,
    NoOffset,
    SerializationError,
    UnknownTopic,
)
from tests.client.waiting import BASE_MS, eventually
from tests.support.systems import System

Create = Callable[..., None]


def fill(system: System, topic: str, count: int, partition: int = 0) -> None:
    """Records whose values are their offsets, a second apart."""
    with Producer(system.bootstrap) as producer:
        for number in range(count):
            producer.send(topic, str(number), partition=partition, timestamp=BASE_MS + number * 1000)


@pytest.fixture
def group(unique: Callable[[str], str]) -> str:
    return unique("group")


@pytest.fixture
def open_consumer(system: System) -> Iterator[Callable[..., Consumer]]:
    """Makes consumers that start at the beginning; closes what a test left open."""
    made: list[Consumer] = []

    def make(**options: Any) -> Consumer:
        # A seek waits until the fetch under way is answered: let that not take long.
        config = {"fetch.wait.max.ms": 20, **options.pop("config", {})}
        made.append(Consumer(system.bootstrap, **{"auto_offset_reset": "earliest", **options}, config=config))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()


Open = Callable[..., Consumer]


def take(consumer: Consumer, count: int) -> list[int]:
    """The values of the next records, as numbers."""
    values: list[int] = []
    while len(values) < count:
        records = consumer.poll_many(count - len(values), 20)
        assert records, f"only {len(values)} of {count} records came"
        values += [int(record.value) for record in records]
    return values


def committed(admin: Admin, group: str) -> dict[tuple[str, int], int]:
    return {tuple(partition): info.offset for partition, info in admin.group_offsets(group).items()}


# ---- reading ----


def test_a_group_reads_everything_and_goes_on_where_it_left_off(
    system: System, admin: Admin, topic: str, create: Create, group: str, open_consumer: Open
) -> None:
    create(topic, 2)
    fill(system, topic, 30)
    fill(system, topic, 30, partition=1)
    with open_consumer(group=group, topics=[topic]) as consumer:
        seen = {(record.partition, record.offset): record.value for record, _ in zip(consumer, range(40), strict=False)}
    assert all(value == str(offset).encode() for (_, offset), value in seen.items())
    with open_consumer(group=group, topics=[topic], stop_at_end=True) as consumer:
        rest = [(record.partition, record.offset) for record in consumer]
    # zip takes one record more than it gives.
    assert len(rest) == 19
    assert not set(rest) & set(seen)


def test_topics_are_found_by_pattern(
    system: System, create: Create, group: str, unique: Callable[[str], str], open_consumer: Open
) -> None:
    name = unique("pattern")
    create(f"{name}-a")
    create(f"{name}-b")
    fill(system, f"{name}-a", 2)
    fill(system, f"{name}-b", 2)
    consumer = open_consumer(group=group, pattern=f"{name}-[ab]$")
    assert sorted(take(consumer, 4)) == [0, 0, 1, 1]


def test_partitions_are_assigned_by_hand_without_a_group(
    system: System, topic: str, create: Create, open_consumer: Open
) -> None:
    create(topic, 2)
    fill(system, topic, 5)
    consumer = open_consumer()
    consumer.assign({TopicPartition(topic, 0): 3})
    assert take(consumer, 2) == [3, 4]
    assert consumer.assignment() == [TopicPartition(topic, 0)]
    consumer.assign([(topic, 0)])
    assert take(consumer, 1) == [0]
    with pytest.raises(ConfigurationError, match="committing needs a group"):
        consumer.commit()
    with pytest.raises(ConfigurationError, match="subscribing needs a group"):
        consumer.subscribe([topic])


def test_values_are_deserialized_and_a_bad_one_can_be_skipped(
    system: System, topic: str, create: Create, open_consumer: Open
) -> None:
    create(topic)
    with Producer(system.bootstrap) as producer:
        for value in ['{"a":1}', "not json", None, "[2]"]:
            producer.send(topic, value, key="key")
    consumer = open_consumer(value_deserializer="json", key_deserializer="str", stop_at_end=True)
    consumer.assign([(topic, 0)])
    with pytest.raises(SerializationError, match=f"value of the record at {topic}-0:1"):
        assert [next(iter(consumer)).value for _ in range(2)] == [{"a": 1}]
    assert [(record.key, record.value) for record in consumer] == [("key", None), ("key", [2])]


class Marks(ConsumerInterceptor):
    def __init__(self) -> None:
        self.commits: list[Any] = []

    def on_consume(self, record: Record[Any, Any]) -> Record[Any, Any]:
        return record.with_contents(record.key, record.value + b"!")

    def on_commit(self, offsets: Any, error: PenstockError | None) -> None:
        self.commits.append((offsets, error))


def test_interceptors_see_records_and_commits(
    system: System, topic: str, create: Create, group: str, open_consumer: Open
) -> None:
    create(topic)
    fill(system, topic, 1)
    marks = Marks()
    consumer = open_consumer(group=group, topics=[topic], auto_commit=False, interceptors=[marks])
    record = consumer.poll(20)
    assert record is not None
    assert record.value == b"0!"
    consumer.commit()
    assert marks.commits == [({(topic, 0): 1}, None)]


def test_reading_can_be_stopped_from_within(system: System, topic: str, create: Create, open_consumer: Open) -> None:
    create(topic)
    fill(system, topic, 3)
    consumer = open_consumer(prefetch=1)
    consumer.assign([(topic, 0)])
    seen = []
    for record in consumer:
        seen.append(record.offset)
        if record.offset == 1:
            consumer.stop()
    assert seen == [0, 1]
    assert take(consumer, 1) == [2]


def test_mistakes_are_told(system: System, topic: str, group: str, open_consumer: Open) -> None:
    with pytest.raises(ConfigurationError, match="auto_offset_reset is 'first'"):
        open_consumer(auto_offset_reset="first")
    with pytest.raises(ConfigurationError, match=r"config\['enable.auto.commit'\] cannot be set"):
        open_consumer(config={"enable.auto.commit": True})
    with pytest.raises(ConfigurationError, match="not the string 'orders'"):
        open_consumer(group=group, topics="orders")
    with pytest.raises(UnknownTopic, match=f"read topic '{topic}'.*create the topic first"):
        open_consumer(group=group, topics=[topic]).poll(20)
    consumer = open_consumer()
    consumer.close()
    with pytest.raises(Closed):
        consumer.poll()


def test_without_a_reset_policy_a_missing_offset_is_an_error(
    system: System, topic: str, create: Create, group: str, open_consumer: Open
) -> None:
    create(topic)
    consumer = open_consumer(group=group, topics=[topic], auto_offset_reset="none")
    with pytest.raises(NoOffset, match="seek to an offset, or set auto_offset_reset"):
        consumer.poll(20)


# ---- committing ----


def test_a_commit_covers_what_was_handed_over_and_no_more(
    system: System, admin: Admin, topic: str, create: Create, group: str, open_consumer: Open
) -> None:
    create(topic)
    fill(system, topic, 100)
    consumer = open_consumer(group=group, topics=[topic], auto_commit=False)
    take(consumer, 37)
    # More than that was fetched; only what was handed over may be committed.
    assert consumer._prefetch.peek() is not None
    assert consumer.commit() == {TopicPartition(topic, 0): 37}
    assert committed(admin, group) == {(topic, 0): 37}
    take(consumer, 1)
    consumer.commit_async()
    eventually(lambda: consumer.poll_many(1, 0) is not None and committed(admin, group) == {(topic, 0): 38})
    consumer.commit({TopicPartition(topic, 0): 5})
    assert committed(admin, group) == {(topic, 0): 5}
    assert consumer.committed() == {TopicPartition(topic, 0): 5}


def test_automatic_commits_happen_while_reading_and_mix_with_others(
    system: System, admin: Admin, topic: str, create: Create, group: str, open_consumer: Open
) -> None:
    create(topic)
    fill(system, topic, 10)
    told: list[Any] = []
    consumer = open_consumer(
        group=group,
        topics=[topic],
        auto_commit_interval=0.05,
        prefetch=1,
        on_commit=lambda offsets, error: told.append((offsets, error)),
    )
    take(consumer, 4)
    consumer.poll_many(1, 20)
    # The fifth is with the program: only four are done.
    eventually(lambda: committed(admin, group) == {(topic, 0): 4})
    consumer.commit()
    assert committed(admin, group) == {(topic, 0): 5}
    take(consumer, 5)
    assert ({(topic, 0): 5}, None) in told
    consumer.close()
    assert committed(admin, group) == {(topic, 0): 10}


def test_an_exception_leaves_the_record_in_hand_uncommitted(
    system: System, admin: Admin, topic: str, create: Create, group: str
) -> None:
    create(topic)
    fill(system, topic, 20)
    options: dict[str, Any] = {"group": group, "topics": [topic], "auto_offset_reset": "earliest"}

    def fail_at(offset: int) -> None:
        with Consumer(system.bootstrap, **options) as consumer:
            for record in consumer:
                if record.offset == offset:
                    raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_at(7)
    assert committed(admin, group) == {(topic, 0): 7}


# ---- rebalances ----


def test_listeners_are_told_and_revoked_records_are_not_handed_over(
    system: System, topic: str, create: Create, group: str, open_consumer: Open
) -> None:
    create(topic, 2)
    for partition in (0, 1):
        fill(system, topic, 400, partition)
    seen: list[tuple[int, int]] = []
    others: list[tuple[int, int]] = []
    assigned: list[list[TopicPartition]] = []
    revoked: list[tuple[int, list[TopicPartition]]] = []
    cooperative = {"partition.assignment.strategy": "cooperative-sticky", "heartbeat.interval.ms": 200}
    first = open_consumer(
        group=group,
        topics=[topic],
        on_assigned=assigned.append,
        on_revoked=lambda partitions: revoked.append((len(seen), partitions)),
        config=cooperative,
    )
    seen += [(record.partition, record.offset) for record in first.poll_many(50, 20)]
    assert assigned == [[TopicPartition(topic, 0), TopicPartition(topic, 1)]]
    second = open_consumer(group=group, topics=[topic], auto_commit=False, config=cooperative)
    while not revoked:
        seen += [(record.partition, record.offset) for record in first.poll_many(1, 0.05)]
        others += [(record.partition, record.offset) for record in second.poll_many(1, 0.05)]
    everything = {(partition, offset) for partition in (0, 1) for offset in range(400)}
    deadline = time.monotonic() + 30
    while missing := everything - set(seen + others):
        assert time.monotonic() < deadline, f"{len(missing)} records never came, among them {min(missing)}; {revoked}"
        seen += [(record.partition, record.offset) for record in first.poll_many(50, 0.05)]
        others += [(record.partition, record.offset) for record in second.poll_many(50, 0.05)]
    ((count, (gone,)),) = revoked
    # The first consumer had fetched ahead; of what it lost it hands nothing over any more.
    assert gone.partition not in {partition for partition, _ in seen[count:]}
    assert {partition for partition, _ in others} == {gone.partition}


def test_a_listener_may_choose_where_to_start(
    system: System, topic: str, create: Create, group: str, open_consumer: Open
) -> None:
    create(topic)
    fill(system, topic, 10)
    consumer = open_consumer(group=group, on_assigned=lambda partitions: consumer.seek(partitions[0], 6))
    consumer.subscribe([topic])
    assert take(consumer, 2) == [6, 7]


def test_a_static_member_keeps_its_place_with_both_protocols(
    system: System, admin: Admin, topic: str, create: Create, group: str, open_consumer: Open
) -> None:
    create(topic)
    fill(system, topic, 2)
    for protocol in ("classic", "consumer"):
        name = f"{group}-{protocol}"
        with open_consumer(group=name, topics=[topic], instance_id="one", group_protocol=protocol) as consumer:
            take(consumer, 1)
            (description,) = admin.describe_groups([name])
            assert description.type.lower() == protocol
            assert [member.instance_id for member in description.members] == ["one"]


# ---- moving ----


def test_seeking_by_offset_place_and_time(system: System, topic: str, create: Create, open_consumer: Open) -> None:
    create(topic)
    fill(system, topic, 100)
    consumer = open_consumer()
    consumer.assign([(topic, 0)])
    here = TopicPartition(topic, 0)
    assert take(consumer, 3) == [0, 1, 2]
    consumer.seek(here, 50)
    assert consumer.position(here) == 50
    assert take(consumer, 2) == [50, 51]
    consumer.seek_to_beginning()
    assert take(consumer, 1) == [0]
    consumer.seek_to_time(datetime.fromtimestamp(BASE_MS / 1000 + 69.5, UTC))
    assert take(consumer, 1) == [70]
    consumer.seek_to_end()
    assert consumer.poll(0.2) is None
    assert (consumer.position(here), consumer.watermarks(here)) == (100, (0, 100))
    consumer.seek_to_time(BASE_MS + 98_000)
    assert consumer.lag() == {here: 2}
    with pytest.raises(ConfigurationError, match="offset -1"):
        consumer.seek(here, -1)


def test_seeking_within_a_loop_takes_effect_with_the_next_record(
    system: System, topic: str, create: Create, open_consumer: Open
) -> None:
    create(topic)
    fill(system, topic, 100)
    consumer = open_consumer(stop_at_end=True)
    consumer.assign([(topic, 0)])
    seen = []
    for record in consumer:
        seen.append(record.offset)
        if record.offset == 20:
            consumer.seek((topic, 0), 90)
    assert seen == [*range(21), *range(90, 100)]


def test_a_paused_partition_waits_with_what_was_fetched_of_it(
    system: System, topic: str, create: Create, open_consumer: Open
) -> None:
    create(topic, 2)
    for partition in (0, 1):
        fill(system, topic, 50, partition)
    consumer = open_consumer()
    consumer.assign([(topic, 0), (topic, 1)])
    seen = [(record.partition, record.offset) for record in consumer.poll_many(10, 20)]
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    consumer.pause([zero])
    while not any(partition == 1 and offset == 49 for partition, offset in seen):
        records = consumer.poll_many(7, 20)
        assert {record.partition for record in records} == {1}
        seen += [(record.partition, record.offset) for record in records]
    consumer.pause([one])
    assert consumer.poll(0.2) is None
    consumer.resume([zero, one])
    while len(seen) < 100:
        records = consumer.poll_many(7, 20)
        assert records, f"only {seen} came"
        seen += [(record.partition, record.offset) for record in records]
    assert [offset for partition, offset in seen if partition == 0] == list(range(50))
