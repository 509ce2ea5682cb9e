"""What writing tasks do: put rows into record batches, and send these to the leaders of their partitions.

One batch per partition is under way at a time; the next is put together meanwhile. Whose batch that is, where several
tasks write as one producer, is a matter of turns.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import pyarrow as pa

from penstock.client.cluster import RETRIABLE, Cluster, Moved, Refused
from penstock.client.connection import ConnectionLost, Scattered
from penstock.client.errors import ConfigurationError
from penstock.client.partitions import TopicPartition
from penstock.client.shared_transaction import Identity
from penstock.spark.placing import Layout, placed
from penstock.spark.task_process import settle
from penstock.spark.turns import OwnTurns, TurnTaker
from penstock.wire import _kernel
from penstock.wire._arrow import Encoder
from penstock.wire.api import APIS, ApiKey
from penstock.wire.batch import TRANSACTIONAL
from penstock.wire.compression import Codec, compress
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.init_producer_id import InitProducerIdRequest
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

BATCH_BYTES = 900_000  # below the default of max.message.bytes, with room for what does not compress
NOW = -1  # in place of a timestamp: that of writing

_BY_CLIENTS_VERSION = 11  # the newest version of Produce in which the client has added its partitions itself
_TIMEOUT_MS = 30_000
_QUEUED_BATCHES = 8  # that wait to be sent, while the next one is put together

_DUPLICATE = ErrorCode.DUPLICATE_SEQUENCE_NUMBER


@dataclass(frozen=True)
class Target:
    """Where a write goes. `default_topic` is for rows that name none."""

    bootstrap: str
    topics: tuple[str, ...]
    default_topic: str | None
    codec: Codec
    timeout_s: float = 60.0


@dataclass(frozen=True)
class WritePlan:
    """What all tasks of one write have in common. `places` are all partitions there are: rows name them by number."""

    target: Target
    places: tuple[TopicPartition, ...]
    identity: Identity
    is_transactional: bool


@dataclass(frozen=True, slots=True)
class Records:
    """The records of one batch, encoded and compressed, and where they go.

    Their timestamps are relative to the first one; they are of the time of writing if that is `NOW`.
    """

    place: int
    count: int
    content: Any
    first_timestamp_ms: int = NOW
    max_timestamp_ms: int = NOW


def encoded(rows: Iterable[pa.RecordBatch], place_count: int, codec: Codec) -> Iterator[Records]:
    """Rows with the columns place, key, value and perhaps headers and timestamp (in ms), as records.

    Those of one place keep their order.
    """
    settle()
    encoder = Encoder(place_count, BATCH_BYTES)

    def taken(place: int) -> Iterator[Records]:
        payload = encoder.take(place)
        if payload is not None:
            times = (payload.first_timestamp, payload.max_timestamp) if has_times else (NOW, NOW)
            content = compress(codec, payload.content) if codec else payload.content
            yield Records(place, payload.count, content, *times)

    has_times = False
    for batch in rows:
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        has_times = "timestamp" in columns
        headers = header_parts(columns["headers"]) if "headers" in columns else None
        places = columns["place"]
        row = 0
        while row < batch.num_rows:
            row = encoder.add(columns.get("key"), columns["value"], headers, places, row, columns.get("timestamp"))
            if row < batch.num_rows:
                yield from taken(places[row].as_py())
    for place in range(place_count):
        yield from taken(place)


class Writer:
    """Sends the batches of one task."""

    def __init__(self, plan: WritePlan, cluster: Cluster, turns: TurnTaker) -> None:
        self._plan = plan
        self._cluster = cluster
        self._turns = turns
        self._under_way: dict[int, _Sent] = {}
        self.count = 0  # records that are acknowledged

    def send(self, records: Records) -> None:
        """Send a batch when the one before it is acknowledged."""
        place = records.place
        if place in self._under_way:
            self._await(place)
        sequence = self._turns.take(place, records.count)
        if sequence is None:
            self.finish()  # who waits must hold no turn
            sequence = self._turns.wait()
        batch = self._batch(records, sequence)
        sent = _Sent(batch, records.count, time.monotonic() + self._plan.target.timeout_s)
        self._under_way[place] = sent
        self._transmit(place, sent)

    def finish(self) -> None:
        """Wait until everything is acknowledged."""
        while self._under_way:
            self._await(next(iter(self._under_way)))

    def _batch(self, records: Records, sequence: int) -> Scattered:
        now_ms = int(time.time() * 1000)
        header = _kernel.batch_header(
            records.content,
            base_offset=0,
            last_offset_delta=records.count - 1,
            count=records.count,
            attributes=self._plan.target.codec | (TRANSACTIONAL if self._plan.is_transactional else 0),
            base_timestamp=now_ms if records.first_timestamp_ms == NOW else records.first_timestamp_ms,
            max_timestamp=now_ms if records.max_timestamp_ms == NOW else records.max_timestamp_ms,
            producer_id=self._plan.identity.producer_id,
            producer_epoch=self._plan.identity.producer_epoch,
            base_sequence=sequence,
        )
        return Scattered(header, records.content)

    def _transmit(self, place: int, sent: _Sent) -> None:
        """Send a batch to its leader, and again if it must be: its sequence number keeps it from being there twice."""
        partition = self._plan.places[place]
        data = PartitionProduceData(index=partition.partition, records=sent.batch)
        request = ProduceRequest(
            transactional_id=self._plan.identity.transactional_id if self._plan.is_transactional else None,
            acks=-1,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=partition.topic, partition_data=[data])],
        )
        while True:
            try:
                self._cluster.learn(one.topic for one in self._plan.places)
                broker = self._cluster.leader(partition)
                sent.version = broker.version_of(request, _BY_CLIENTS_VERSION)
                broker.connection.send(request, sent.version)
                sent.broker = broker
                return
            except (OSError, ConnectionLost, Moved) as error:
                self._connections_are_lost(sent, error, place)

    def _await(self, place: int) -> None:
        """Wait until a place's batch is acknowledged."""
        sent = self._under_way[place]
        while place in self._under_way:
            try:
                answer = sent.broker.connection.receive(APIS[ApiKey.PRODUCE], sent.version)
            except (OSError, ConnectionLost) as error:
                self._connections_are_lost(sent, error, place)
                self._send_all_again()
            else:
                self._settle(answer)

    def _settle(self, answer: Any) -> None:
        """Take note of an answer; each is about one partition."""
        topic = answer.responses[0]
        result = topic.partition_responses[0]
        place = self._plan.places.index(TopicPartition(topic.name, result.index))
        sent = self._under_way[place]
        code = result.error_code
        if code in (ErrorCode.NONE, _DUPLICATE):
            del self._under_way[place]
            self._turns.give_back(place)
            self.count += sent.count
        elif code in RETRIABLE or code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._check_patience(sent, place, Moved(code))
            self._cluster.forget()
            self._send_all_again()
        else:
            partition = self._plan.places[place]
            raise Refused(code, f"write to {partition.topic}-{partition.partition}", result.error_message)

    def _connections_are_lost(self, sent: _Sent, error: Exception, place: int) -> None:
        self._cluster.forget()
        self._check_patience(sent, place, error)

    def _check_patience(self, sent: _Sent, place: int, error: Exception) -> None:
        if time.monotonic() > sent.deadline:
            partition = self._plan.places[place]
            raise Refused(
                ErrorCode.REQUEST_TIMED_OUT, f"write to {partition.topic}-{partition.partition}", f"given up: {error}"
            )
        time.sleep(0.1)

    def _send_all_again(self) -> None:
        """After connections were dropped, nobody will answer what was sent over them."""
        for place, sent in self._under_way.items():
            self._transmit(place, sent)


@dataclass
class _Sent:
    batch: Any  # whatever has a length and can be sent in pieces is fine for a request
    count: int
    deadline: float
    broker: Any = None
    version: int = 0


def header_parts(column: pa.ListArray) -> tuple[Any, ...]:
    """What the encoder needs of a column of headers."""
    validity, ends = column.buffers()[:2]
    items = column.values
    return ends, items.field(0), items.field(1), column.offset, validity


def write(plan: WritePlan, layout: Layout, rows: Iterable[pa.RecordBatch], turns: TurnTaker) -> int:
    """Write all rows; returns how many there were when everything is acknowledged."""
    with _connected(plan.target) as cluster:
        return _send_all(plan, layout, rows, Writer(plan, cluster, turns))


def write_at_least_once(target: Target, rows: Iterable[pa.RecordBatch]) -> int:
    """Write all rows in no transaction, under a producer id of its own; returns how many there were.

    A retry of a request does not double records, a retry of a task does.
    """
    with _connected(target) as cluster:
        layout = layout_of(cluster, target)
        plan = WritePlan(target, places_of(layout), _new_identity(cluster), is_transactional=False)
        return _send_all(plan, layout, rows, Writer(plan, cluster, OwnTurns(len(plan.places))))


def _connected(target: Target) -> Cluster:
    return Cluster(target.bootstrap, client_id="penstock-spark", timeout_s=target.timeout_s)


def _send_all(plan: WritePlan, layout: Layout, rows: Iterable[pa.RecordBatch], writer: Writer) -> int:
    with _Sending(writer) as sending:
        for records in encoded(placed(layout, rows), len(plan.places), plan.target.codec):
            sending.put(records)
    return writer.count


class _Sending:
    """A thread that sends what another puts together, so that no turn at writing is held while rows are awaited."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._queue: queue.Queue[Records | None] = queue.Queue(_QUEUED_BATCHES)
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """Wait until everything is acknowledged. After an error nothing more is sent."""
        if isinstance(error, Exception):
            self._error = error
        self._queue.put(None)
        self._thread.join()
        if error is None and self._error is not None:
            raise self._error

    def put(self, records: Records) -> None:
        if self._error is not None:
            raise self._error
        self._queue.put(records)

    def _run(self) -> None:
        while (records := self._queue.get()) is not None:
            self._attempt(partial(self._writer.send, records))
            if self._queue.empty():
                self._attempt(self._writer.finish)
        self._attempt(self._writer.finish)

    def _attempt(self, step: Callable[[], None]) -> None:
        if self._error is not None:
            return
        try:
            step()
        except Exception as error:  # it belongs to the thread that puts things together
            self._error = error


def _new_identity(cluster: Cluster) -> Identity:
    request = InitProducerIdRequest(transaction_timeout_ms=60_000)
    response = cluster.retrying("get a producer id", lambda: cluster.any_broker().call(request))
    return Identity("", response.producer_id, response.producer_epoch)


def layout_of(cluster: Cluster, target: Target) -> Layout:
    """The topics to write to, as they are now."""
    found = cluster.topics(target.topics)
    missing = [name for name in target.topics if name not in found]
    if missing:
        raise ConfigurationError(f"there is no topic {', '.join(missing)}: create it first")
    return Layout({name: len(found[name].leaders) for name in target.topics}, target.default_topic)


def places_of(layout: Layout) -> tuple[TopicPartition, ...]:
    """All partitions of its topics, as rows number them."""
    return tuple(TopicPartition(topic, index) for topic, count in layout.topics.items() for index in range(count))
