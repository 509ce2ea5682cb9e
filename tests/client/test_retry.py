"""Processing with retry and dead-letter topics, against a real broker."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Admin, Consumer, Producer, Record, Resource, Retry, TopicPartition
from penstock.client.errors import ConfigurationError, PenstockError
from penstock.client.retry import attempts
from tests.client.waiting import BASE_MS
from tests.support.systems import System

Create = Callable[..., None]
AnyRecord = Record[Any, Any]


def fill(system: System, topic: str, values: list[str], **options: Any) -> None:
    with Producer(system.bootstrap) as producer:
        for value in values:
            producer.send(topic, value, **options)


def read(system: System, topic: str) -> list[AnyRecord]:
    config = {"fetch.wait.max.ms": 20}
    with Consumer(system.bootstrap, auto_offset_reset="earliest", stop_at_end=True, config=config) as consumer:
        consumer.assign([(topic, 0)])
        return list(consumer)


def committed(admin: Admin, group: str, topic: str) -> int:
    return admin.group_offsets(group)[TopicPartition(topic, 0)].offset


@pytest.fixture
def group(unique: Callable[[str], str]) -> str:
    return unique("group")


class Handling:
    """A handler that fails for some values, and stops the consumer after a number of calls."""

    def __init__(self, calls: int, *, failing: Callable[[AnyRecord], bool] = lambda record: False) -> None:
        self.calls = calls
        self.failing = failing
        self.seen: list[tuple[float, AnyRecord]] = []
        self.consumer: Consumer | None = None

    def __call__(self, record: AnyRecord) -> None:
        self.seen.append((time.time(), record))
        if len(self.seen) == self.calls and self.consumer is not None:
            self.consumer.stop()
        if self.failing(record):
            raise ValueError(f"cannot handle {record.value!r}")

    def values(self) -> list[Any]:
        return [record.value for _, record in self.seen]


def process(system: System, handling: Handling, **options: Any) -> None:
    config = {"fetch.wait.max.ms": 20}
    with Consumer(system.bootstrap, auto_offset_reset="earliest", config=config, **options) as consumer:
        handling.consumer = consumer
        consumer.process(handling)


def test_a_failing_record_is_retried_when_due_and_then_becomes_a_dead_letter(
    system: System, admin: Admin, topic: str, create: Create, group: str
) -> None:
    create(topic)
    fill(system, topic, ["good", "bad", "fine"], key="key", headers={"mine": "1"}, timestamp=BASE_MS)
    retry = Retry(delays=[0.3, 0.6], dead_letter=f"{group}.dlq")
    handling = Handling(5, failing=lambda record: record.value == "bad")
    process(system, handling, group=group, topics=[topic], retry=retry, value_deserializer="str")

    assert handling.values() == ["good", "bad", "fine", "bad", "bad"]
    times = [moment for moment, record in handling.seen if record.value == "bad"]
    assert times[1] - times[0] >= 0.299  # when a record is due is noted in milliseconds
    assert times[2] - times[1] >= 0.599
    tried = [record for _, record in handling.seen if record.value == "bad"]
    assert [attempts(record) for record in tried] == [0, 1, 2]
    # The handler sees a retried record where it first was.
    assert {(record.topic, record.partition, record.offset, record.timestamp, record.key) for record in tried} == {
        (topic, 0, 1, BASE_MS, b"key")
    }

    (dead,) = read(system, f"{group}.dlq")
    headers = dict(dead.headers)
    assert (dead.key, dead.value, headers["mine"]) == (b"key", b"bad", b"1")
    assert headers["penstock.retry.attempts"] == b"3"
    assert headers["penstock.retry.group"] == group.encode()
    assert headers["penstock.retry.topic"] == topic.encode()
    assert (headers["penstock.retry.partition"], headers["penstock.retry.offset"]) == (b"0", b"1")
    assert headers["penstock.retry.timestamp"] == str(BASE_MS).encode()
    assert headers["penstock.retry.exception"] == b"builtins.ValueError"
    assert headers["penstock.retry.message"] == b"cannot handle 'bad'"
    assert b"in __call__" in (headers["penstock.retry.stack"] or b"")
    assert "penstock.retry.due" not in headers
    assert committed(admin, group, topic) == 3
    assert committed(admin, group, f"{group}.retry.1") == 1
    assert committed(admin, group, f"{group}.retry.2") == 1


def test_others_are_not_held_up_by_one_that_waits(system: System, topic: str, create: Create, group: str) -> None:
    create(topic)
    fill(system, topic, ["bad"])
    failed = threading.Event()

    def failing(record: AnyRecord) -> bool:
        failed.set()
        return bool(record.value == b"bad")

    handling = Handling(21, failing=failing)
    options: dict[str, Any] = {"group": group, "topics": [topic]}
    options["retry"] = Retry(delays=[60], dead_letter=f"{group}.dlq")
    thread = threading.Thread(target=process, args=(system, handling), kwargs=options)
    thread.start()
    assert failed.wait(30)
    fill(system, topic, [str(number) for number in range(20)])
    thread.join(20)
    assert not thread.is_alive()
    assert handling.values() == [b"bad", *(b"%d" % number for number in range(20))]


def test_hopeless_records_go_to_the_dead_letter_topic_at_once(
    system: System, topic: str, create: Create, group: str
) -> None:
    create(topic)
    fill(system, topic, ["not json", "1", "2"])
    retry = Retry(delays=[60], dead_letter=f"{group}.dlq", not_for=(ValueError,))
    handling = Handling(2, failing=lambda record: record.value == 1)
    process(system, handling, group=group, topics=[topic], retry=retry, value_deserializer="json")
    dead = {record.value: dict(record.headers) for record in read(system, f"{group}.dlq")}
    assert set(dead) == {b"not json", b"1"}
    assert (dead[b"not json"]["penstock.retry.exception"] or b"").endswith(b"SerializationError")


@pytest.mark.parametrize("auto_commit", [True, False])
def test_without_retry_an_error_ends_processing_and_the_record_comes_again(
    system: System, admin: Admin, topic: str, create: Create, group: str, auto_commit: bool
) -> None:
    create(topic)
    fill(system, topic, ["0", "1", "2", "3"])
    options: dict[str, Any] = {"group": group, "topics": [topic], "auto_commit": auto_commit}
    with pytest.raises(ValueError, match="cannot handle b'2'"):
        process(system, Handling(4, failing=lambda record: record.value == b"2"), **options)
    assert committed(admin, group, topic) == 2
    handling = Handling(2)
    process(system, handling, **options)
    assert handling.values() == [b"2", b"3"]
    assert committed(admin, group, topic) == 4


def test_an_error_that_the_program_survives_hands_the_record_over_again(
    system: System, topic: str, create: Create, group: str
) -> None:
    create(topic)
    fill(system, topic, ["0", "1", "2"])
    handling = Handling(4, failing=lambda record: record.value == b"1" and len(handling.seen) == 2)
    with Consumer(system.bootstrap, group=group, topics=[topic], auto_offset_reset="earliest") as consumer:
        handling.consumer = consumer
        with pytest.raises(ValueError, match="cannot handle"):
            consumer.process(handling)
        consumer.process(handling)
    assert handling.values() == [b"0", b"1", b"1", b"2"]


def test_nothing_is_committed_if_a_copy_cannot_be_written(
    system: System, admin: Admin, topic: str, create: Create, group: str
) -> None:
    create(topic)
    # The retry topic takes only small records.
    admin.create_topic(f"{group}.dlq", partitions=1, config={"max.message.bytes": "200"})
    fill(system, topic, ["x" * 500])
    retry = Retry(delays=[], dead_letter=f"{group}.dlq")
    with pytest.raises(PenstockError, match=f"deliver a record to '{group}.dlq'"):
        process(system, Handling(99, failing=lambda record: True), group=group, topics=[topic], retry=retry)
    assert [info.offset for info in admin.group_offsets(group).values()] in ([], [0])
    admin.alter_config(Resource.topic(f"{group}.dlq"), delete=["max.message.bytes"])
    handling = Handling(1, failing=lambda record: True)
    process(system, handling, group=group, topics=[topic], retry=retry)
    assert len(read(system, f"{group}.dlq")) == 1


def test_a_consumer_that_would_read_its_own_dead_letters_is_refused(system: System, group: str) -> None:
    with pytest.raises(ConfigurationError, match=r"would read 'orders\.dlq' itself"):
        Consumer(system.bootstrap, group=group, pattern="orders.*", retry=Retry([1], "orders.dlq", topic="r"))
    with pytest.raises(ConfigurationError, match="process"):
        next(iter(Consumer(system.bootstrap, group=group, retry=Retry([1], "orders.dlq"))))
    with pytest.raises(ConfigurationError, match="retry needs a group"):
        Consumer(system.bootstrap, retry=Retry([1], "orders.dlq"))


def test_nothing_is_lost_when_the_program_is_killed_again_and_again(
    system: System, admin: Admin, topic: str, create: Create, group: str
) -> None:
    create(topic)
    fill(system, topic, [str(number) for number in range(60)])
    command = [sys.executable, "-m", "tests.client.crashing", system.bootstrap, group, topic, "23"]
    handled: list[int] = []
    codes = []
    while 0 not in codes:
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        handled += map(int, run.stdout.split())
        codes.append(run.returncode)
        assert run.returncode in (0, -signal.SIGKILL), run.stderr
    dead = {int(record.value) for record in read(system, f"{group}.dlq")}
    assert len(codes) > 2
    assert set(handled) == set(range(0, 60, 2))
    assert dead == set(range(1, 60, 2))
    assert committed(admin, group, topic) == 60
