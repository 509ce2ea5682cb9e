from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import penstock.testing
from penstock.client.connection import Connection
from penstock.testing import RunningBroker
from penstock.wire.errors import ErrorCode
from tests.cli.running import Command
from tests.support.transactions import Txn, create_topic, latest


@pytest.fixture(scope="module")
def broker() -> Iterator[RunningBroker]:
    with penstock.testing.broker(transaction_partition_verification_enable=False) as running:
        yield running


@pytest.fixture
def run(broker: RunningBroker) -> Command:
    return Command(broker.bootstrap)


@pytest.fixture
def connection(broker: RunningBroker) -> Iterator[Connection]:
    host, port = broker.bootstrap.rsplit(":", 1)
    with Connection(host, int(port)) as made:
        yield made


def test_transactions_are_listed_and_described(
    run: Command, connection: Connection, topic: str, unique: Callable[[str], str]
) -> None:
    create_topic(connection, topic)
    producer = Txn(connection, unique("txn")).claim()
    producer.write(topic, "x")
    row = {"id": producer.id, "state": "Ongoing", "producer_id": producer.producer_id}
    assert row in run.json("txn", "list")
    assert run.json("txn", "list", "--matching", f"{producer.id}", "--state", "Ongoing") == [row]
    assert run.json("txn", "list", "--matching", f"{producer.id}", "--longer-than", "1h") == []
    assert "There are no such" in run("txn", "list", "--state", "PrepareCommit").err
    assert "Dreaming" in run.fails("txn", "list", "--state", "Dreaming", code=2)
    (described,) = run.json("txn", "describe", producer.id)
    assert (described["state"], described["partitions"]) == ("Ongoing", [f"{topic}-0"])
    assert described["timeout_ms"] == 60_000
    assert f"{topic}-0" in run("txn", "describe", producer.id).out
    assert "there is no transactional id 'unheard-of'" in run.fails("txn", "describe", "unheard-of", code=1)
    producer.commit()
    unused = Txn(connection, unique("unused")).claim()
    assert run.json("txn", "list", "--matching", unused.id, "--longer-than", "1s") == []
    assert run.json("txn", "list", "--matching", unused.id) != []


def test_what_hangs_is_shown_and_aborted_only_with_execute(
    run: Command, connection: Connection, topic: str, unique: Callable[[str], str]
) -> None:
    create_topic(connection, topic)
    alive, gone = Txn(connection, unique("alive")).claim(), Txn(connection, unique("gone"), version=1).claim()
    assert gone.produce(topic, "x", version=10) == ErrorCode.NONE
    alive.write(topic, "y")
    assert run.json("txn", "abort-hanging", "--topic", topic) == {"executed": False, "hanging": []}
    told = run.json("txn", "abort-hanging", "--topic", topic, "--older-than", "0s")
    assert [(row["topic"], row["producer_id"]) for row in told["hanging"]] == [(topic, gone.producer_id)]
    assert "add --execute" in run("txn", "abort-hanging", "--topic", topic, "--older-than", "0s").err
    assert latest(connection, topic) == 0
    assert run.json("txn", "abort-hanging", "--topic", topic, "--older-than", "0s", "--execute")["executed"] is True
    assert latest(connection, topic) == 1
    assert "No transaction hangs" in run("txn", "abort-hanging", "--topic", topic, "--older-than", "0s").err
    alive.commit()
    assert latest(connection, topic) == 4
