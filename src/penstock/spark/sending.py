"""Batches of records to the leaders of their partitions, in the order that turns at writing give them.

`Sending` is a thread that sends what another one puts together. What it does is `Writer`: it asks for a turn for each
batch, sends whichever batch has its turn, and gives turns back as batches are acknowledged. It never waits for one of
these things alone, so no turn is held while rows are awaited, nor while another turn is.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import Any, Self

from penstock.client.cluster import RETRIABLE, Cluster, Moved, Refused
from penstock.client.connection import ConnectionLost, Scattered
from penstock.client.partitions import TopicPartition
from penstock.client.shared_transaction import Identity
from penstock.spark.encoding import NOW, Records
from penstock.spark.turns import TurnTaker
from penstock.wire import _kernel
from penstock.wire.api import APIS, ApiKey
from penstock.wire.batch import TRANSACTIONAL
from penstock.wire.compression import Codec
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

_BY_CLIENTS_VERSION = 11  # the newest version of Produce in which the client has added its partitions itself
_TIMEOUT_MS = 30_000
_RETRY_PAUSE_S = 0.1
_BATCHES_MAX = 12  # that a task has put together, and that are not acknowledged

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


class Sending:
    """A thread that sends what another puts together. Leaving it waits until everything is acknowledged."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._thread = threading.Thread(target=self._run, name="penstock-sending", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        """After an error nothing more is sent."""
        inbox = self._writer.inbox
        if error is not None:
            inbox.fail(error)
        inbox.close()
        self._thread.join()
        if error is None and inbox.error is not None:
            raise inbox.error

    def put(self, records: Records) -> None:
        self._writer.inbox.put(records)

    def _run(self) -> None:
        try:
            self._writer.run()
        except BaseException as error:  # it belongs to the thread that puts things together, or is from there
            self._writer.inbox.fail(error)
        finally:
            self._writer.inbox.end()


class Inbox:
    """What one thread gives to the other. Who puts something in waits while there is too much that is not done."""

    def __init__(self) -> None:
        self._change = threading.Condition()
        self._records: deque[Records] = deque()
        self._not_done = 0
        self._readable, self._wake = os.pipe()
        os.set_blocking(self._readable, False)
        self.is_closed = False
        self.error: BaseException | None = None

    # ---- for the thread that puts batches together ----

    def put(self, records: Records) -> None:
        with self._change:
            self._change.wait_for(lambda: self.error is not None or self._not_done < _BATCHES_MAX)
            if self.error is not None:
                raise self.error
            self._records.append(records)
            self._not_done += 1
            os.write(self._wake, b"\0")

    def close(self) -> None:
        """There is no more to come."""
        with self._change:
            self.is_closed = True
            os.write(self._wake, b"\0")

    # ---- for the thread that sends them ----

    def fileno(self) -> int:
        """What can be read when there is something new, or the end has come."""
        return self._readable

    def taken(self) -> list[Records]:
        """What is new. Raises what the other thread has failed with."""
        with self._change:
            with contextlib.suppress(BlockingIOError):
                os.read(self._readable, 4096)
            if self.error is not None:
                raise self.error
            taken = list(self._records)
            self._records.clear()
            return taken

    def done(self) -> None:
        """One of them is acknowledged."""
        with self._change:
            self._not_done -= 1
            self._change.notify()

    def end(self) -> None:
        """Nobody waits for anything new any more."""
        with self._change:
            self._change.wait_for(lambda: self.is_closed)
            os.close(self._readable)
            os.close(self._wake)

    # ---- for both ----

    def fail(self, error: BaseException) -> None:
        """The first error is the one that counts."""
        with self._change:
            self.error = self.error or error
            self._change.notify_all()


@dataclass
class _Sent:
    batch: Any  # whatever has a length and can be sent in pieces is fine for a request
    count: int
    deadline: float
    broker: Any = None
    version: int = 0


class Writer:
    """Sends the batches of one task. `run` is for one thread, `inbox` for another."""

    def __init__(self, plan: WritePlan, cluster: Cluster, turns: TurnTaker) -> None:
        self._plan = plan
        self._cluster = cluster
        self._turns = turns
        self._waiting: defaultdict[int, deque[Records]] = defaultdict(deque)  # by place: for a turn, in order
        self._under_way: defaultdict[int, deque[_Sent]] = defaultdict(deque)  # by place: sent, in order
        self.inbox = Inbox()
        self.count = 0  # records that are acknowledged

    def run(self) -> None:
        """Send what comes, until there is no more to come and all of it is acknowledged."""
        while not self.inbox.is_closed:
            self.advance()
        self.finish()

    def finish(self) -> None:
        self._take_in()  # what came together with the end
        while self._has_work:
            self.advance()

    def advance(self) -> None:
        """Send what has a turn; then wait for whatever comes first."""
        for turn in self._turns.taken():
            self.send(self._waiting[turn.place].popleft(), turn.number)
        if self._has_work or not self.inbox.is_closed:
            self._wait()

    @property
    def _has_work(self) -> bool:
        """Whether a batch waits for its turn, or is under way."""
        return any(self._waiting.values()) or any(self._under_way.values())

    def _wait(self) -> None:
        """Wait for batches, turns, or acknowledgements."""
        brokers = [sent[0].broker for sent in self._under_way.values() if sent]
        readers = {broker.connection.fileno(): broker for broker in brokers}
        poll = select.poll()
        for reader in (self.inbox.fileno(), self._turns.fileno(), *readers):
            if reader is not None:
                poll.register(reader, select.POLLIN)
        found = [reader for reader, _ in poll.poll(self._patience_ms())]
        if not found:
            self._send_again(TimeoutError("timed out"))
        elif self.inbox.fileno() in found:
            self._take_in()
        for reader in found:
            if reader in readers:
                self._receive(readers[reader])
                return  # connections may be others now

    def _take_in(self) -> None:
        """Ask for turns for what is new."""
        for records in self.inbox.taken():
            self._waiting[records.place].append(records)
            self._turns.ask(records.place, records.count)

    def send(self, records: Records, sequence: int) -> None:
        """Send a batch whose turn it is."""
        deadline = time.monotonic() + self._plan.target.timeout_s
        sent = _Sent(self._batch(records, sequence), records.count, deadline)
        self._under_way[records.place].append(sent)
        try:
            self._transmit(records.place, sent)
        except (OSError, ConnectionLost, Moved) as error:
            self._send_again(error)

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
        """Send a batch to its leader."""
        partition = self._plan.places[place]
        data = PartitionProduceData(index=partition.partition, records=sent.batch)
        request = ProduceRequest(
            transactional_id=self._plan.identity.transactional_id if self._plan.is_transactional else None,
            acks=-1,
            timeout_ms=_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=partition.topic, partition_data=[data])],
        )
        self._cluster.learn(one.topic for one in self._plan.places)
        sent.broker = self._cluster.leader(partition)
        sent.version = sent.broker.version_of(request, _BY_CLIENTS_VERSION)
        sent.broker.connection.send(request, sent.version)

    def _receive(self, broker: Any) -> None:
        """Take in the next answer of a broker. All of them are of one version."""
        version = next(sent[0].version for sent in self._under_way.values() if sent and sent[0].broker is broker)
        try:
            answer = broker.connection.receive(APIS[ApiKey.PRODUCE], version)
        except (OSError, ConnectionLost) as error:
            self._send_again(error)
        else:
            self._settle(answer)

    def _settle(self, answer: Any) -> None:
        """Take note of an answer. Each is about one partition, and those of a partition come in order."""
        topic = answer.responses[0]
        result = topic.partition_responses[0]
        partition = TopicPartition(topic.name, result.index)
        place = self._plan.places.index(partition)
        code = result.error_code
        if code in (ErrorCode.NONE, _DUPLICATE):
            self.count += self._under_way[place].popleft().count
            self._turns.give_back(place)
            self.inbox.done()
        elif code in RETRIABLE or code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            self._send_again(Moved(code))
        else:
            raise Refused(code, f"write to {partition.topic}-{partition.partition}", result.error_message)

    def _send_again(self, error: Exception) -> None:
        """Drop connections, on which nobody will answer any more, and send all that is under way again, in order.

        Sequence numbers keep it from being there twice.
        """
        while True:
            self._cluster.forget()
            self._check_patience(error)
            time.sleep(_RETRY_PAUSE_S)
            try:
                for place, under_way in self._under_way.items():
                    for sent in under_way:
                        self._transmit(place, sent)
                return
            except (OSError, ConnectionLost, Moved) as new_error:
                error = new_error

    def _patience_ms(self) -> float | None:
        """How long there may be no answer; None: for ever, as there is none to come."""
        deadlines = [sent[0].deadline for sent in self._under_way.values() if sent]
        return max((min(deadlines) - time.monotonic()) * 1000, 0) if deadlines else None

    def _check_patience(self, error: Exception) -> None:
        for place, under_way in self._under_way.items():
            if under_way and time.monotonic() >= under_way[0].deadline:
                partition = self._plan.places[place]
                what = f"write to {partition.topic}-{partition.partition}"
                raise Refused(ErrorCode.REQUEST_TIMED_OUT, what, f"given up: {error}")
