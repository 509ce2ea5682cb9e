"""Producers that write under fire and remember exactly what they were told.

Each writer owns one partition and one connection at a time, and numbers its records. It keeps several requests under
way. When the connection breaks, it connects again: a plain writer forgets what was not acknowledged and goes on with
new numbers, an idempotent one sends again what was not acknowledged, with the same sequence numbers.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field

from penstock.client.connection import Connection, ConnectionLost
from penstock.wire.api import APIS, ApiKey
from penstock.wire.batch import encode_batch
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.wire.record import Record

_VERSION = 9
_UNDER_WAY_MAX = 5
_RETRIABLE = {ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE}


@dataclass
class Sent:
    """A batch under way: the numbers of its records."""

    first: int
    count: int


@dataclass
class Writer:
    """One producer in a thread of its own."""

    port: int
    topic: str
    partition: int
    acks: int = 1
    producer_id: int = -1  # set: idempotent
    batch_records: int = 3
    value_bytes: int = 50
    acknowledged: dict[int, int] = field(default_factory=dict)  # offset -> number
    attempted: int = 0  # numbers below this may be in the log
    reconnects: int = 0

    def __post_init__(self) -> None:
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"writer-{self.partition}", daemon=True)
        self._unacknowledged: deque[Sent] = deque()
        self.failure: BaseException | None = None

    @property
    def is_idempotent(self) -> bool:
        return self.producer_id >= 0

    def start(self) -> Writer:
        self._thread.start()
        return self

    def finish(self) -> None:
        """Stop, after everything under way is answered or given up."""
        self._is_stopping.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            while not self._is_stopping.is_set() or (self.is_idempotent and self._unacknowledged):
                try:
                    with Connection("127.0.0.1", self.port, timeout_s=10.0) as connection:
                        self._write(connection)
                except (OSError, ConnectionLost):
                    self.reconnects += 1
                    time.sleep(0.01)
        except BaseException as error:
            self.failure = error

    def _write(self, connection: Connection) -> None:
        """Write until told to stop or the connection breaks."""
        if not self.is_idempotent:
            self._unacknowledged.clear()
        for sent in list(self._unacknowledged):
            self._send(connection, sent)
        while not self._is_stopping.is_set():
            while len(self._unacknowledged) < _UNDER_WAY_MAX:
                sent = Sent(self.attempted, self.batch_records)
                self._unacknowledged.append(sent)
                self.attempted += sent.count
                self._send(connection, sent)
            self._receive(connection)
        while self._unacknowledged:
            self._receive(connection)

    def _send(self, connection: Connection, sent: Sent) -> None:
        now = int(time.time() * 1000)
        records = encode_batch(
            [Record(n, now, None, self.value(sent.first + n)) for n in range(sent.count)],
            producer_id=self.producer_id,
            producer_epoch=0 if self.is_idempotent else -1,
            base_sequence=sent.first if self.is_idempotent else -1,
        )
        data = [PartitionProduceData(index=self.partition, records=memoryview(records))]
        topics = [TopicProduceData(name=self.topic, partition_data=data)]
        connection.send(ProduceRequest(acks=self.acks, timeout_ms=10_000, topic_data=topics), _VERSION)

    def _receive(self, connection: Connection) -> None:
        response = connection.receive(APIS[ApiKey.PRODUCE], _VERSION)
        (result,) = response.responses[0].partition_responses
        if result.error_code in _RETRIABLE:
            raise ConnectionLost("the partition is not ready")
        if result.error_code:
            raise AssertionError(
                f"{self.topic}-{self.partition}: {ErrorCode(result.error_code).name} {result.error_message}"
            )
        sent = self._unacknowledged.popleft()
        for n in range(sent.count):
            self.acknowledged[result.base_offset + n] = sent.first + n

    def value(self, number: int) -> bytes:
        return b"%d:%d:" % (self.partition, number) + b"." * (number * 7 % self.value_bytes)


def number_of(value: bytes | None) -> int:
    assert value is not None
    return int(value.split(b":")[1])
