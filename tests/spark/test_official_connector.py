"""Row for row what Spark's own Kafka connector reads, from the same topics of the same broker: ours, and Kafka's."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from penstock import Admin
from penstock.wire._kernel import build_batch, encode_records
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.record import Record
from tests.support import environments, official_connector, systems
from tests.support.connector_reads import run_reads
from tests.support.systems import System

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
NOW_MS = 1_790_000_000_000
PARTITIONS = 3
HEADERS = [
    None,
    [],
    [("one", b"1")],
    [("same", b"1"), ("same", b"2"), ("same", None)],
    [("null", None), ("empty", b""), ("", b"\xff\x00"), ("ö", "ü".encode())],
]


def read(is_streaming: bool = False, **options: Any) -> Any:
    return {
        "options": {name.replace("__", "."): str(value) for name, value in options.items()},
        "is_streaming": is_streaming,
    }


def offsets(**topics: list[int]) -> str:
    """As the options want them; `-` in names of topics is `_` here."""
    return json.dumps(
        {t.replace("_", "-"): {str(index): n for index, n in enumerate(found)} for t, found in topics.items()}
    )


ALL = ",".join([*CODECS, "append-time", "transactions", "compacted", "odd"])
COMMITTED = {"kafka__isolation__level": "read_committed"}
READS = {
    "everything": read(subscribe=ALL, includeHeaders="true"),
    "everything, without headers": read(subscribe=ALL),
    "everything that is committed": read(subscribe=ALL, includeHeaders="true", **COMMITTED),
    "in small tasks": read(subscribe="transactions,compacted", maxRecordsPerPartition=17, **COMMITTED),
    "in many tasks": read(subscribe="snappy", minPartitions=7),
    "by pattern": read(subscribePattern="(none|zs.*)"),
    "some partitions": read(assign='{"gzip": [2, 0], "transactions": [1]}'),
    "from offset to offset": read(
        subscribe="none,transactions",
        startingOffsets=offsets(none=[5, -2, 20], transactions=[-2, 7, 30]),
        endingOffsets=offsets(none=[30, 10, -1], transactions=[41, -1, 30]),
        **COMMITTED,
    ),
    "through gaps": read(
        assign='{"compacted": [0]}',
        startingOffsets=offsets(compacted=[3]),
        endingOffsets=offsets(compacted=[195]),
    ),
    "from time to time": read(subscribe="none,lz4", startingTimestamp=NOW_MS + 33, endingTimestamp=NOW_MS + 70),
    "by times of partitions": read(
        subscribe="zstd",
        startingOffsetsByTimestamp=offsets(zstd=[NOW_MS + 10, NOW_MS + 60, NOW_MS]),
        endingOffsetsByTimestamp=offsets(zstd=[NOW_MS + 11, NOW_MS + 99999, NOW_MS + 50]),
    ),
    "from a time that is yet to come": read(
        subscribe="none", startingTimestamp=NOW_MS * 2, startingOffsetsByTimestampStrategy="latest"
    ),
    "beyond the end": read(
        subscribe="none",
        startingOffsets=offsets(none=[0, 0, 0]),
        endingOffsets=offsets(none=[9999, 5, 40]),
        failOnDataLoss="false",
        kafkaConsumer__pollTimeoutMs=1000,  # it waits so long for what does not come
    ),
    "from what is deleted": read(subscribe="deleted", startingOffsets=offsets(deleted=[3]), failOnDataLoss="false"),
    "as a stream": read(
        is_streaming=True, subscribe=ALL, startingOffsets="earliest", includeHeaders="true", **COMMITTED
    ),
    "as a stream, in small batches": read(
        is_streaming=True, subscribe="none,compacted", startingOffsets="earliest", maxOffsetsPerTrigger=200
    ),
}  # fmt: skip


SYSTEMS = ("penstock", "kafka")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, System]]:
    """Brokers of both kinds, with the topics that are read."""
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("connectors")
        yield {name: stack.enter_context(_filled(name, folder / name)) for name in SYSTEMS}


@contextmanager
def _filled(name: str, data: Path) -> Iterator[System]:
    running = systems.named(name, data, log_cleaner_backoff_ms="50").start()
    try:
        with Admin(running.bootstrap) as admin:
            for name in CODECS:
                admin.create_topic(name, partitions=PARTITIONS, config={"retention.ms": "-1"})
            admin.create_topic("append-time", partitions=1, config={"message.timestamp.type": "LogAppendTime"})
            admin.create_topic("transactions", partitions=PARTITIONS)
            admin.create_topic("odd", partitions=1, config={"retention.ms": "-1"})
            admin.create_topic("deleted", partitions=1, config={"retention.ms": "-1"})
            compacting = {"cleanup.policy": "compact", "segment.ms": "1000", "min.cleanable.dirty.ratio": "0.01"}
            admin.create_topic("compacted", partitions=1, config=compacting)
        for name in CODECS:
            _fill(running, name, PARTITIONS, **{"compression.type": name})
        _fill(running, "append-time", 1)
        _fill(running, "deleted", 1)
        _fill_by_transactions(running)
        _fill_with_odd_records(running)
        _fill_and_compact(running)
        with Admin(running.bootstrap) as admin:
            admin.delete_records({("deleted", 0): 50})
        yield running
    finally:
        running.kill()


def _fill(system: System, topic: str, partitions: int, **settings: Any) -> None:
    """Records with and without keys, values and headers."""
    producer = Producer({"bootstrap.servers": system.bootstrap, "linger.ms": 20, **settings})
    for number in range(150):
        producer.produce(
            topic,
            key=[None, b"", b"k%d" % number, b"\x00\xff"][number % 4],
            value=[b"v%d" % number * (number % 9), None, b"", b"\xfe"][number % 7 % 4],
            partition=number % partitions,
            timestamp=NOW_MS + number,
            headers=HEADERS[number % len(HEADERS)],
        )
        if number % 40 == 0:
            producer.flush(30)
    producer.flush(30)


def _fill_by_transactions(system: System) -> None:
    """Committed, aborted, empty-handed, two at a time, and one without an end."""
    settings = {"bootstrap.servers": system.bootstrap, "linger.ms": 5, "transaction.timeout.ms": 600_000}
    first, second = (Producer({**settings, "transactional.id": name}) for name in ("first", "second"))
    for producer in (first, second):
        producer.init_transactions(30)
    for number in range(8):
        for producer in (first, second):
            producer.begin_transaction()
        for n in range(8):
            for producer in (first, second):
                producer.produce("transactions", b"%d" % (number * 10 + n), b"key", n % 2)
                producer.flush(30) if n % 4 == 3 else None
        for producer, is_commit in ((first, number % 3 != 1), (second, number % 2 == 0)):
            producer.commit_transaction(30) if is_commit else producer.abort_transaction(30)
    first.begin_transaction()
    first.produce("transactions", b"open", None, 2)
    first.flush(30)
    third = Producer({"bootstrap.servers": system.bootstrap})
    third.produce("transactions", b"behind an open one", None, 2)
    third.flush(30)


def _fill_with_odd_records(system: System) -> None:
    """What no client writes, but a broker takes: no timestamp, and a header's name that is no text."""
    records = [
        Record(0, -1, b"k", b"no timestamp"),
        Record(1, 0, b"k", b"1970", (("x", b""),)),
        Record(2, 1, b"k", b"no text", (("NO-TEXT", b"1"), ("ok", b"2"))),
    ]
    payload = bytes(encode_records(records, 0, -1)).replace(b"NO-TEXT", b"\xff\xe2\x82x\xc3(\x00")
    batch = build_batch(
        payload, base_offset=0, last_offset_delta=2, count=3, attributes=0, base_timestamp=-1, max_timestamp=1
    )
    data = [PartitionProduceData(index=0, records=memoryview(batch))]
    topics = [TopicProduceData(name="odd", partition_data=data)]
    with system.connect() as connection:
        answer = connection.call(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics), 9)
    assert answer.responses[0].partition_responses[0].error_code == 0


def _fill_and_compact(system: System) -> None:
    producer = Producer({"bootstrap.servers": system.bootstrap, "linger.ms": 5, "compression.type": "lz4"})
    now_ms = int(time.time() * 1000)
    for number in range(200):
        value = None if number % 20 == 7 else b"v%d" % number
        producer.produce("compacted", value, b"k%d" % (number % 20 + number // 100), timestamp=now_ms - 5000 + number)
        if number % 30 == 0:
            producer.flush(30)
    producer.flush(30)
    producer.produce("compacted", b"rolls the segment", b"last", timestamp=now_ms)
    producer.flush(30)
    _wait_until_compacted(system.data / "cleaner-offset-checkpoint")


def _wait_until_compacted(checkpoint: Path) -> None:
    deadline = time.monotonic() + 30
    while not (checkpoint.exists() and re.search(r"^compacted 0 [1-9]", checkpoint.read_text(), re.MULTILINE)):
        assert time.monotonic() < deadline, "the topic was not compacted"
        time.sleep(0.05)


@pytest.fixture(scope="module")
def theirs(filled: dict[str, System]) -> dict[str, Any]:
    """What Spark's own connector reads."""
    try:
        return official_connector.read({**_of(filled["penstock"]), **_of(filled["kafka"])})
    except environments.NotAvailable as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


def _of(system: System) -> dict[str, Any]:
    servers = {"kafka.bootstrap.servers": system.bootstrap}
    return {
        f"{name}, of {system.name}": {**read, "options": {**read["options"], **servers}} for name, read in READS.items()
    }


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("name", READS)
def test_rows_and_columns_are_those_of_sparks_own_connector(
    spark: Any, filled: dict[str, System], theirs: dict[str, Any], name: str, system: str
) -> None:
    asked = f"{name}, of {system}"
    ours = run_reads(spark, "penstock", {asked: _of(filled[system])[asked]})[asked]
    assert ours["schema"] == _said_exactly(theirs[asked]["schema"])
    assert ours["rows"] == theirs[asked]["rows"]


def _said_exactly(schema: dict[str, Any]) -> dict[str, Any]:
    """Spark's own source says of every column that it is null at times; ours, of those that a record may leave out."""
    fields = [{**field, "nullable": field["name"] in ("key", "value", "headers")} for field in schema["fields"]]
    return {**schema, "fields": fields}


@pytest.mark.parametrize("system", SYSTEMS)
def test_what_is_compared_is_something(theirs: dict[str, Any], system: str) -> None:
    theirs = {name: theirs[f"{name}, of {system}"] for name in READS}
    counts = {name: len(found["rows"]) for name, found in theirs.items()}
    assert counts["from a time that is yet to come"] == 0
    assert all(count > 0 for name, count in counts.items() if name != "from a time that is yet to come"), counts
    assert counts["everything that is committed"] < counts["everything"]
    assert 5 < sum(row["topic"] == "compacted" for row in theirs["everything"]["rows"]) < 100
    assert {row["timestampType"] for row in theirs["everything"]["rows"]} == {0, 1}
