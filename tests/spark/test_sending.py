"""What tasks send: every batch once and in order, several under way at a time, whatever happens to connections."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import penstock.testing
from penstock import Admin, Consumer
from penstock.client.cluster import Cluster, Refused
from penstock.client.shared_transaction import SharedTransaction
from penstock.spark.placing import BadRow
from penstock.spark.sending import Target, WritePlan
from penstock.spark.turns import TaskTurns, TurnServer
from penstock.spark.writing import layout_of, places_of, write, write_at_least_once
from penstock.testing.brokers import RunningBroker
from penstock.wire.compression import Codec

TOPIC, PARTITIONS = "out", 2
ROWS = 120
ROW_BYTES = 150_000  # six make a batch


@pytest.fixture
def broker() -> Iterator[RunningBroker]:
    with penstock.testing.broker() as running, Admin(running.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=PARTITIONS)
        yield running


def target(broker: RunningBroker, timeout_s: float = 30.0) -> Target:
    return Target(broker.bootstrap, (TOPIC,), TOPIC, Codec.NONE, timeout_s)


def rows(task: int = 0, count: int = ROWS) -> Iterator[pa.RecordBatch]:
    """Rows that say who wrote them and which they are, for one partition after the other."""
    for number in range(count):
        value = f"{task} {number} ".encode().ljust(ROW_BYTES)
        yield pa.RecordBatch.from_pydict(
            {"value": pa.array([value], pa.binary()), "partition": pa.array([number % PARTITIONS], pa.int32())}
        )


def written(broker: RunningBroker) -> dict[int, list[tuple[int, int]]]:
    """What readers of committed records find in each partition: tasks and numbers."""
    found: dict[int, list[tuple[int, int]]] = {partition: [] for partition in range(PARTITIONS)}
    with Consumer(broker.bootstrap, auto_offset_reset="earliest", stop_at_end=True) as consumer:
        consumer.assign([(TOPIC, partition) for partition in range(PARTITIONS)])
        for record in consumer:
            task, number = record.value[:20].split()
            found[record.partition].append((int(task), int(number)))
    return found


def in_order(task: int = 0, count: int = ROWS) -> dict[int, list[tuple[int, int]]]:
    return {
        partition: [(task, number) for number in range(partition, count, PARTITIONS)] for partition in range(PARTITIONS)
    }


def test_all_rows_are_there_in_their_order(broker: RunningBroker) -> None:
    assert write_at_least_once(target(broker), rows()) == ROWS
    assert written(broker) == in_order()


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("fault", ["lost request", "lost answer", "moved leader", "unknown partition"])
def test_what_fails_on_the_way_is_there_once_and_in_order(broker: RunningBroker, fault: str, times: int) -> None:
    def strike() -> Any:
        if fault in ("lost request", "lost answer"):
            return broker.faults.drop("Produce", times=times, is_handled=fault == "lost answer")
        code = "NOT_LEADER_OR_FOLLOWER" if fault == "moved leader" else "UNKNOWN_TOPIC_OR_PARTITION"
        return broker.faults.error("Produce", code=code, times=times)

    def with_a_fault_in_between() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(rows()):
            if number == ROWS // 2:
                struck.append(strike())
            yield batch

    struck: list[Any] = []
    assert write_at_least_once(target(broker), with_a_fault_in_between()) == ROWS
    assert struck[0].hits == times
    assert written(broker) == in_order()


@pytest.mark.parametrize("code", ["NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION"])
def test_first_batches_that_are_refused_for_a_moment_are_still_the_first(broker: RunningBroker, code: str) -> None:
    broker.faults.error("Produce", code=code, times=PARTITIONS)
    assert write_at_least_once(target(broker), rows()) == ROWS
    assert written(broker) == in_order()


def test_tasks_that_write_as_one_producer_keep_their_order_while_connections_are_lost(broker: RunningBroker) -> None:
    tasks = 3
    with Cluster(broker.bootstrap) as cluster:
        layout = layout_of(cluster, target(broker))
        places = places_of(layout)
        transaction = SharedTransaction(cluster, "three-tasks")
        identity = transaction.begin()
        transaction.add(places)
        plan = WritePlan(target(broker), places, identity, is_transactional=True)
        with TurnServer("127.0.0.1", "127.0.0.1", 0, len(places)) as turns, ThreadPoolExecutor(tasks) as pool:

            def run(task: int) -> int:
                with TaskTurns(turns.address, task) as mine:
                    return write(plan, layout, rows(task), mine)

            running = [pool.submit(run, task) for task in range(tasks)]
            for is_handled in (True, False, True):
                broker.faults.drop("Produce", times=2, is_handled=is_handled).wait_for_hit(hits=2)
            assert [one.result() for one in running] == [ROWS] * tasks
        assert written(broker) == {partition: [] for partition in range(PARTITIONS)}  # as long as it is open
        transaction.commit()
    found = written(broker)
    for task in range(tasks):
        mine = {partition: [row for row in those if row[0] == task] for partition, those in found.items()}
        assert mine == in_order(task)


def test_what_a_broker_refuses_is_told(broker: RunningBroker) -> None:
    broker.faults.error("Produce", code="TOPIC_AUTHORIZATION_FAILED")
    with pytest.raises(Refused, match=r"write to out-\d"):
        write_at_least_once(target(broker), rows())
    assert not _is_sending()


def test_a_broker_that_does_not_answer_is_given_up(broker: RunningBroker) -> None:
    with broker.faults.delay("Produce", seconds=60), pytest.raises(Refused, match="given up"):
        write_at_least_once(target(broker, timeout_s=0.5), rows())
    assert not _is_sending()


def test_a_bad_row_ends_it(broker: RunningBroker) -> None:
    def bad() -> Iterator[pa.RecordBatch]:
        yield from rows(count=30)
        yield pa.RecordBatch.from_pydict({"value": pa.array([b"v"]), "partition": pa.array([7], pa.int32())})

    before = _open_pipes()
    with pytest.raises(BadRow, match="partition 7 of out, which has 2"):
        write_at_least_once(target(broker), bad())
    assert not _is_sending()
    assert _open_pipes() == before


def test_nothing_is_sent_where_there_are_no_rows(broker: RunningBroker) -> None:
    with broker.faults.error("Produce", code="UNKNOWN_SERVER_ERROR") as fault:
        assert write_at_least_once(target(broker), rows(count=0)) == 0
    assert fault.hits == 0


def _is_sending() -> bool:
    return any(thread.name == "penstock-sending" for thread in threading.enumerate())


def _open_pipes() -> set[str]:
    paths = (Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd"))
    return {str(path.readlink()) for path in paths if path.is_fifo()}
