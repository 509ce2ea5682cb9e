"""Kafka's own tools look at transactions and their logs, and end what hangs; so do ours."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Admin
from penstock.client.connection import Connection
from penstock.client.errors import ConfigurationError
from penstock.coordination.hashing import partition_of
from penstock.wire.errors import ErrorCode
from tests.support import systems
from tests.support.java_tools import JavaTools
from tests.support.systems import System
from tests.support.transactions import (
    GROUPS,
    NOT_READY,
    Txn,
    committed_offset,
    create_topic,
    find_coordinator,
    producers_of,
    read,
    wait_out,
    wait_until,
    wait_until_stable,
)

pytestmark = pytest.mark.java

PARTITIONS = 3
SETTINGS = {
    "transaction_state_log_num_partitions": str(PARTITIONS),
    "offsets_topic_num_partitions": str(PARTITIONS),
    # So that old clients can leave behind what nobody will end.
    "transaction_partition_verification_enable": "false",
}


@pytest.fixture(scope="module", params=["penstock", "kafka"])
def system(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    data = tmp_path_factory.mktemp(f"txn-tools-{request.param}") / "data"
    running = systems.named(request.param, data, **SETTINGS).start()
    yield running
    running.kill()


@pytest.fixture
def topic(connection: Connection, unique: Callable[[str], str]) -> str:
    name = unique("txn-tools")
    create_topic(connection, name, 2)
    return name


@pytest.fixture
def producer(connection: Connection, unique: Callable[[str], str]) -> Txn:
    return Txn(connection, unique("txn-tool")).claim()


@pytest.fixture
def tool(system: System, java: JavaTools) -> Callable[..., list[dict[str, str]]]:
    """kafka-transactions.sh; its table as rows."""

    def run(*arguments: str) -> list[dict[str, str]]:
        printed = java.tool("TransactionsCommand", "--bootstrap-server", system.bootstrap, *arguments).out
        lines = [line.split("\t") for line in printed.splitlines() if line.strip()]
        heads, *rows = [[cell.strip() for cell in line] for line in lines] or [[]]
        return [dict(zip(heads, row, strict=True)) for row in rows]

    return run


Tool = Callable[..., list[dict[str, str]]]


def hang(connection: Connection, name: str, topic: str) -> Txn:
    """A write that its coordinator knows nothing of: an old client's, without verification."""
    old = Txn(connection, name, version=1).claim()
    assert old.produce(topic, "hangs", version=10) == ErrorCode.NONE
    return old


# ---- Kafka's tools ----


def test_transactions_are_listed_and_described_by_kafkas_tool(
    connection: Connection, topic: str, producer: Txn, tool: Tool
) -> None:
    producer.write(topic, "x")
    listed = {row["TransactionalId"]: row for row in tool("list")}
    assert listed[producer.id]["ProducerId"] == str(producer.producer_id)
    assert listed[producer.id]["TransactionState"] == "Ongoing"
    (row,) = tool("describe", "--transactional-id", producer.id)
    assert (row["TransactionState"], row["TopicPartitions"]) == ("Ongoing", f"{topic}-0")
    assert (row["ProducerId"], row["ProducerEpoch"]) == (str(producer.producer_id), "0")
    (row,) = tool("describe-producers", "--topic", topic, "--partition", "0")
    assert (row["ProducerId"], row["CurrentTransactionStartOffset"]) == (str(producer.producer_id), "0")
    assert row["LatestCoordinatorEpoch"] == "-1"
    producer.commit()
    wait_until_stable(connection, topic)
    (row,) = tool("describe-producers", "--topic", topic, "--partition", "0")
    assert (row["ProducerEpoch"], row["CurrentTransactionStartOffset"]) == ("1", "None")


def test_kafkas_tool_finds_and_aborts_what_hangs(
    connection: Connection, topic: str, unique: Callable[[str], str], tool: Tool
) -> None:
    hanging = hang(connection, unique("hanging"), topic)
    alive = Txn(connection, unique("alive")).claim()
    alive.write(topic, "alive", partition=1)
    # What began less than a minute ago is not looked at; the smallest limit is one minute below the clock.
    found = tool("find-hanging", "--topic", topic, "--max-transaction-timeout", "-6")
    assert [(row["Topic"], row["Partition"], row["ProducerId"]) for row in found] == [
        (topic, "0", str(hanging.producer_id))
    ]
    tool("abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    wait_until_stable(connection, topic)
    assert read(connection, topic) == []
    assert tool("find-hanging", "--topic", topic, "--max-transaction-timeout", "-6") == []
    alive.commit()
    wait_until_stable(connection, topic, 1)
    assert read(connection, topic, 1) == ["alive"]


def test_kafkas_tool_terminates_a_transaction(connection: Connection, topic: str, producer: Txn, tool: Tool) -> None:
    producer.write(topic, "x")
    tool("forceTerminateTransaction", "--transactionalId", producer.id)
    wait_until_stable(connection, topic)
    assert read(connection, topic) == []
    assert producer.end(commit=True) in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_TXN_STATE)


def log_of(system: System, topic: str, key: str) -> Path:
    partition = partition_of(key, PARTITIONS)
    return system.data / f"{topic}-{partition}" / "00000000000000000000.log"


def test_kafkas_tools_read_the_log_of_transactions(
    system: System, connection: Connection, topic: str, producer: Txn, java: JavaTools
) -> None:
    producer.write(topic, "x")
    producer.write(topic, "y", partition=1)
    producer.commit()
    state = producer.wait_for_state("CompleteCommit")
    dumped = java.tool(
        "DumpLogSegments", "--files", str(log_of(system, "__transaction_state", producer.id)),
        "--transaction-log-decoder", "--deep-iteration",
    ).out  # fmt: skip
    lines = [line for line in dumped.splitlines() if f'"transactionalId":"{producer.id}"' in line]
    values = [json.loads(line.split("payload: ")[1]) for line in lines]
    assert [value["data"]["transactionStatus"] for value in values] == [0, 1, 1, 2, 4]
    assert {value["version"] for value in values} == {"1"} or {value["version"] for value in values} == {1}
    assert [value["data"]["producerEpoch"] for value in values] == [0, 0, 0, 1, 1]
    partitions = [value["data"]["transactionPartitions"] for value in values]
    assert partitions[0] is None
    for (entry,) in (partitions[2], partitions[3]):
        assert (entry["topic"], sorted(entry["partitionIds"])) == (topic, [0, 1])
    assert partitions[4] == []
    assert state.producer_epoch == 1

    printed = java.tool(
        "consumer.ConsoleConsumer", "--bootstrap-server", system.bootstrap, "--topic", "__transaction_state",
        "--partition", str(partition_of(producer.id, PARTITIONS)), "--offset", "earliest", "--timeout-ms", "5000",
        "--formatter", "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter",
    ).out  # fmt: skip
    seen = [record for record in _json_in(printed) if record["key"]["data"]["transactionalId"] == producer.id]
    assert [record["value"]["data"]["transactionStatus"] for record in seen] == [0, 1, 1, 2, 4]
    assert seen[-1]["value"]["data"].get("clientTransactionVersion") == 2


def _json_in(text: str) -> list[Any]:
    found = []
    position = text.find("{")
    while position >= 0:  # one follows the other, without line breaks
        record, position = json.JSONDecoder().raw_decode(text, position)
        found.append(record)
        position = text.find("{", position)
    return found


def test_kafkas_tools_read_offsets_that_were_committed_in_transactions(
    system: System, connection: Connection, topic: str, producer: Txn, java: JavaTools, unique: Callable[[str], str]
) -> None:
    group = unique("txn-group")
    find_coordinator(connection, group, GROUPS)
    wait_out(lambda: committed_offset(connection, group, topic)[0], *NOT_READY)
    assert producer.commit_offset(group, topic, 7) == ErrorCode.NONE
    producer.commit()
    wait_until(lambda: committed_offset(connection, group, topic), lambda found: found == (0, 7))
    dumped = java.tool(
        "DumpLogSegments", "--files", str(log_of(system, "__consumer_offsets", group)),
        "--offsets-decoder", "--deep-iteration",
    ).out  # fmt: skip
    assert f'"group":"{group}"' in dumped
    assert '"offset":7' in dumped
    assert f"producerId: {producer.producer_id}" in dumped
    assert "endTxnMarker: COMMIT" in dumped


def test_kafkas_tools_read_the_files_of_a_partition_with_transactions(
    system: System, connection: Connection, topic: str, producer: Txn, java: JavaTools
) -> None:
    producer.write(topic, "a")
    producer.abort()
    producer.wait_for_state("CompleteAbort")
    producer.write(topic, "b")
    producer.commit()
    producer.wait_for_state("CompleteCommit")
    folder = system.data / f"{topic}-0"
    dumped = java.tool("DumpLogSegments", "--files", str(folder / "00000000000000000000.log"), "--deep-iteration").out
    assert dumped.count("isTransactional: true") == 4
    assert dumped.count("endTxnMarker: ABORT") == dumped.count("endTxnMarker: COMMIT") == 1
    index = java.tool("DumpLogSegments", "--files", str(folder / "00000000000000000000.txnindex")).out
    assert f"producerId: {producer.producer_id}" in index
    assert "firstOffset: 0 lastOffset: 1 lastStableOffset: 2" in index


# ---- ours ----


def test_the_admin_client_lists_describes_and_ends(
    system: System, connection: Connection, topic: str, producer: Txn, unique: Callable[[str], str]
) -> None:
    hanging = hang(connection, unique("hanging"), topic)
    producer.write(topic, "x", partition=1)
    with Admin(system.bootstrap) as admin:
        assert {one.transactional_id: one.state for one in admin.list_transactions()}[producer.id] == "Ongoing"
        listed = admin.list_transactions(pattern=producer.id, states=["Ongoing"], producer_ids=[producer.producer_id])
        assert [one.transactional_id for one in listed] == [producer.id]
        assert admin.list_transactions(pattern=producer.id, longer_than_ms=3_600_000) == []
        with pytest.raises(ConfigurationError, match="Dreaming"):
            admin.list_transactions(states=["Dreaming"])
        described, unknown = admin.describe_transactions([producer.id, "unheard-of"])
        assert (described.state, described.partitions) == ("Ongoing", ((topic, 1),))
        assert (described.producer_id, described.producer_epoch) == (producer.producer_id, 0)
        assert unknown.state == "Unknown"
        found = admin.open_transactions([topic])
        assert [(one.partition, one.producer_id) for one in found] == [
            (0, hanging.producer_id),
            (1, producer.producer_id),
        ]
        now_ms = int(time.time() * 1000) + 60_000
        assert admin.hanging_transactions([topic], now_ms=now_ms, longer_than_ms=3_600_000) == []
        (one,) = admin.hanging_transactions([topic], now_ms=now_ms, longer_than_ms=1)
        assert (one.partition, one.producer_id, one.start_offset) == (0, hanging.producer_id, 0)
        admin.abort_transaction(one)
        assert admin.hanging_transactions([topic], now_ms=now_ms, longer_than_ms=1) == []
    wait_until_stable(connection, topic)
    assert producers_of(connection, topic)[hanging.producer_id].current_txn_start_offset == -1
    producer.abort()
