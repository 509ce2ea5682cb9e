"""The consumer: reads records of topics, alone or as a member of a group.

Records are fetched in batches and handed over one by one. What is committed, by itself or on request, never covers a
record that was not handed over; an automatic commit also leaves out the one that was handed over last, until the next
is asked for or the consumer is closed in an orderly way: the program may still be working on it.

librdkafka calls back (rebalances, finished commits) only while the program is inside a method of the consumer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain, islice
from typing import Any, Literal

import confluent_kafka
from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, KafkaError, KafkaException

from penstock.client._records import Record, records_of
from penstock.client.errors import Closed, ConfigurationError, NoOffset, PenstockError, RequestFailed
from penstock.client.interceptors import ConsumerInterceptor
from penstock.client.pace import Pace
from penstock.client.partitions import PartitionLike, TopicPartition
from penstock.client.prefetch import Positions, Prefetch
from penstock.client.processing import Handler, Processor, RetryTopics
from penstock.client.rdkafka import from_exception, from_kafka, from_rdkafka, offsets_to_rdkafka, to_rdkafka
from penstock.client.retry import Retry
from penstock.client.serializers import Deserializer, deserialize, deserializer
from penstock.client.settings import Bootstrap, Config, LastError, make, settings
from penstock.client.times import to_timestamp_ms

logger = logging.getLogger("penstock.client")

OnPartitions = Callable[[list[TopicPartition]], None]
OnCommit = Callable[[dict[TopicPartition, int], PenstockError | None], None]
AnyRecord = Record[Any, Any]

# The longest time inside librdkafka without looking at whether to stop.
_PATIENCE_S = 0.5
_SEEK_RETRY_S = 0.01
_TIMEOUT_S = 30.0
# How soon librdkafka fetches again after its queue was full. It would be a second, in which a fast reader has nothing.
_FETCH_PAUSE_MS = 20
# librdkafka wants a group even from consumers that have none; nothing is ever committed to this one.
_NO_GROUP = "penstock-without-a-group"
_MANAGED = ("enable.auto.offset.store", "enable.auto.commit", "enable.partition.eof", "group.id")


class Consumer:
    """Reads records.

        with Consumer("localhost:9092", group="billing", topics=["orders"]) as consumer:
            for record in consumer:
                print(record.key, record.value)

    `topics` is a list of names, `pattern` a regular expression for them; without either, call `subscribe` or `assign`.
    Times are in seconds. Without a `group`, partitions are assigned by hand and nothing is committed.

    With `auto_commit`, what was handed over is committed every `auto_commit_interval` seconds, when partitions are
    revoked, and by `close`. Leaving the `with` block by an exception leaves out the record that was worked on.

    `on_assigned`, `on_revoked` and `on_lost` are called with the partitions that come and go, within calls that fetch
    records and within `close`. Partitions are lost, not revoked, when another member may read them already.

    With `retry`, records are handled by `process`; see `Retry`. With `stop_at_end`, iteration ends where all assigned
    partitions end. Not to be used from several threads at once, except for `stop`.
    """

    def __init__(
        self,
        bootstrap: Bootstrap = "localhost:9092",
        *,
        group: str | None = None,
        topics: Iterable[str] | None = None,
        pattern: str | None = None,
        key_deserializer: str | Deserializer | None = None,
        value_deserializer: str | Deserializer | None = None,
        auto_offset_reset: Literal["earliest", "latest", "none"] = "latest",
        auto_commit: bool = True,
        auto_commit_interval: float = 5.0,
        isolation_level: Literal["read_committed", "read_uncommitted"] = "read_committed",
        group_protocol: Literal["classic", "consumer"] | None = None,
        instance_id: str | None = None,
        session_timeout: float | None = None,
        max_poll_interval: float | None = None,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        on_lost: OnPartitions | None = None,
        on_commit: OnCommit | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        retry: Retry | None = None,
        stop_at_end: bool = False,
        prefetch: int = 500,
        client_id: str | None = None,
        config: Config | None = None,
    ) -> None:
        if auto_offset_reset not in ("earliest", "latest", "none"):
            raise ConfigurationError(f"auto_offset_reset is {auto_offset_reset!r}: use earliest, latest or none")
        if prefetch < 1:
            raise ConfigurationError(f"prefetch is {prefetch}: it must be at least 1")
        if retry is not None and group is None:
            raise ConfigurationError("retry needs a group: retry topics belong to one")
        self._group = group
        self._deserialize_key = deserializer(key_deserializer)
        self._deserialize_value = deserializer(value_deserializer)
        self._interceptors = tuple(interceptors)
        self._is_raw = self._deserialize_key is None and self._deserialize_value is None and not interceptors
        self._auto_offset_reset = auto_offset_reset
        self._auto_commits = auto_commit and group is not None
        self._listeners = (on_assigned, on_revoked, on_lost)
        self._on_commit = on_commit
        self._stops_at_end = stop_at_end
        self._last_error = LastError()
        arguments = {
            "client.id": client_id,
            "group.id": group or _NO_GROUP,
            "auto.offset.reset": "error" if auto_offset_reset == "none" else auto_offset_reset,
            "enable.auto.commit": self._auto_commits,
            "enable.auto.offset.store": False,
            "auto.commit.interval.ms": max(1, round(auto_commit_interval * 1000)),
            "enable.partition.eof": stop_at_end,
            "isolation.level": isolation_level,
            "fetch.queue.backoff.ms": _FETCH_PAUSE_MS,
            "group.protocol": group_protocol,
            "group.instance.id": instance_id,
            "session.timeout.ms": None if session_timeout is None else round(session_timeout * 1000),
            "max.poll.interval.ms": None if max_poll_interval is None else round(max_poll_interval * 1000),
            "on_commit": self._committed,
            "error_cb": self._last_error,
        }
        merged = settings(bootstrap, arguments, config, _MANAGED)
        strategy = str(merged.get("partition.assignment.strategy", ""))
        self._is_incremental = merged.get("group.protocol") == "consumer" or "cooperative" in strategy
        self._rdkafka = make(confluent_kafka.Consumer, merged)
        self._retry = None if retry is None or group is None else RetryTopics(retry, group, bootstrap, config)

        self._prefetch = Prefetch()
        self._pace = Pace(prefetch)
        self._loaded_at = time.monotonic()
        self._held: dict[TopicPartition, list[AnyRecord]] = {}
        self._positions: Positions = {}
        self._uncommitted: Positions = {}
        self._unstored: Positions = {}
        self._revoked: set[TopicPartition] = set()
        self._at_end: dict[TopicPartition, int] = {}
        self._starting: dict[TopicPartition, int] | None = None
        self._errors: list[PenstockError] = []
        self._is_stopped = False
        self._is_closed = False
        if topics is not None or pattern is not None:
            self.subscribe(topics, pattern=pattern)

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, kind: object, exception: BaseException | None, traceback: object) -> None:
        self._close(is_orderly=exception is None)

    # ---- what to read ----

    def subscribe(self, topics: Iterable[str] | None = None, *, pattern: str | None = None) -> None:
        """Read topics as a member of the group: those named, or all whose names match a regular expression."""
        self._check_open()
        if self._group is None:
            raise ConfigurationError("subscribing needs a group: give one, or assign partitions")
        if (topics is None) == (pattern is None):
            raise ConfigurationError("subscribe to either topics or a pattern")
        if isinstance(topics, str):
            raise ConfigurationError(f"topics must be a list of names, not the string {topics!r}")
        names = list(topics) if topics is not None else [f"^{(pattern or '').removeprefix('^')}"]
        if not names:
            raise ConfigurationError("subscribe to at least one topic")
        if self._retry is not None:
            names += self._retry.prepare(names)
        on_revoke, on_lost = self._partitions_revoked, self._partitions_lost
        try:
            self._rdkafka.subscribe(names, on_assign=self._partitions_assigned, on_revoke=on_revoke, on_lost=on_lost)
        except KafkaException as exception:
            raise from_exception(exception, f"subscribe to {', '.join(names)}") from None

    def unsubscribe(self) -> None:
        """Leave the group, or drop what was assigned. What was not handed over yet is forgotten."""
        self._finish_batch()
        before = self.assignment()
        self._rdkafka.unsubscribe()
        self._rdkafka.unassign()
        self._forget(before)

    def assign(self, partitions: Iterable[PartitionLike] | Mapping[TopicPartition, int]) -> None:
        """Read these partitions, whatever the group does: from the given offsets, or where the group left off."""
        self._check_open()
        if self._retry is not None:
            raise ConfigurationError("retry works with subscribe: assigned partitions have no retry topics")
        self._finish_batch()
        self._forget(self.assignment())
        wanted = offsets_to_rdkafka(partitions) if isinstance(partitions, Mapping) else to_rdkafka(partitions)
        if self._group is None:
            start = OFFSET_END if self._auto_offset_reset == "latest" else OFFSET_BEGINNING
            for one in wanted:
                one.offset = start if one.offset < 0 else one.offset
        self._positions.update({from_rdkafka(one): one.offset for one in wanted if one.offset >= 0})
        self._rdkafka.assign(wanted)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that this consumer reads now."""
        self._check_open()
        return sorted(map(from_rdkafka, self._rdkafka.assignment()))

    # ---- reading ----

    def __iter__(self) -> Iterator[AnyRecord]:
        """All records, without end unless `stop` is called or `stop_at_end` is set."""
        self._check_may_read()
        return chain.from_iterable(self._batches())

    def _batches(self) -> Iterator[Iterator[AnyRecord]]:
        while True:
            yield self._handing_over()
            while not self._fetch(_PATIENCE_S):
                if self._is_over():
                    return

    def poll(self, timeout: float = 1.0) -> AnyRecord | None:
        """The next record; None if there is none within `timeout` seconds."""
        return next(iter(self.poll_many(1, timeout)), None)

    def poll_many(self, max_records: int = 500, timeout: float = 1.0) -> list[AnyRecord]:
        """The records that are there, at most `max_records`; waits up to `timeout` seconds for the first."""
        self._check_may_read()
        deadline = time.monotonic() + timeout
        records = list(islice(self._handing_over(), max_records))
        while not records:
            remaining = deadline - time.monotonic()
            if self._fetch(min(max(remaining, 0.0), _PATIENCE_S)):
                records = list(islice(self._handing_over(), max_records))
            elif remaining <= 0 or self._is_over():
                break
        return records

    def process(self, handler: Handler) -> None:
        """Call `handler(record)` for each record until `stop` is called, at least once, whatever crashes.

        A record is committed when its handler has returned, or, with `retry`, when it has been handed over to a retry
        topic or to the dead-letter topic. Without `retry`, what the handler raises ends the processing.
        """
        self._check_open()
        if self._group is None:
            raise ConfigurationError("process needs a group: it commits what is done")
        Processor(self, handler, self._retry).run()

    def stop(self) -> None:
        """Have iteration or `process` end before the next fetch. May be called from a handler, thread or signal."""
        self._is_stopped = True

    def _handing_over(self) -> Iterator[AnyRecord]:
        return self._prefetch.waiting if self._is_raw else map(self._finish, self._prefetch.waiting)

    def _finish(self, record: AnyRecord) -> AnyRecord:
        """A record as the program wants to see it."""
        if self._deserialize_key is not None or self._deserialize_value is not None:
            place = f"the record at {record.topic}-{record.partition}:{record.offset}"
            key = deserialize(record.key, self._deserialize_key, "key", place)
            record = record.with_contents(key, deserialize(record.value, self._deserialize_value, "value", place))
        for interceptor in self._interceptors:
            record = interceptor.on_consume(record)
        return record

    def _is_over(self) -> bool:
        if self._is_stopped:
            self._is_stopped = False
            return True
        return self._stops_at_end and self._is_at_end()

    def _is_at_end(self) -> bool:
        assigned = self._rdkafka.assignment()
        return bool(assigned) and all(from_rdkafka(one) in self._at_end for one in assigned)

    def _fetch(self, timeout: float) -> bool:
        """Have more records wait; False if there are none. Asking for more says that all before is done with."""
        self._check_open()
        now = time.monotonic()
        self._pace.took(now - self._loaded_at)
        self._finish_batch()
        if not self._is_stopped and not self._prefetch.load_returned():
            if self._errors:
                raise self._errors.pop(0)
            self._prefetch.load(self._usable_records(self._consume(timeout)))
        self._loaded_at = time.monotonic()
        return self._prefetch.peek() is not None

    def _consume(self, timeout: float) -> list[Any]:
        self._revoked.clear()
        try:
            messages = self._rdkafka.consume(self._pace.size, 0)
            if not messages and timeout > 0:
                first = self._rdkafka.poll(timeout)
                if first is not None:
                    messages = [first, *self._rdkafka.consume(self._pace.size, 0)]
        except KafkaException as exception:
            raise from_exception(exception, "fetch records", more=self._last_error.text) from None
        return messages

    def _usable_records(self, messages: list[Any]) -> list[AnyRecord]:
        """Records of messages, without those of partitions that were revoked while they were fetched."""
        errors: list[Any] = []
        records = records_of(messages, errors)
        if self._revoked:
            gone = self._revoked - set(map(from_rdkafka, self._rdkafka.assignment()))
            records = [record for record in records if (record.topic, record.partition) not in gone]
        if self._stops_at_end:
            for record in records:
                self._at_end.pop(TopicPartition(record.topic, record.partition), None)
        for message in errors:
            self._note_error(message, records)
        if not records and self._errors:
            raise self._errors.pop(0)
        return records

    def _note_error(self, message: Any, records: list[AnyRecord]) -> None:
        error = message.error()
        if error.code() == KafkaError._PARTITION_EOF:
            partition = TopicPartition(message.topic(), message.partition())
            later = any((one.topic, one.partition) == partition and one.offset >= message.offset() for one in records)
            if not later:
                self._at_end[partition] = message.offset()
        elif error.code() == KafkaError._MAX_POLL_EXCEEDED:
            logger.warning("%s; the group gave this consumer's partitions to others", error.str())
        else:
            topic = message.topic()
            self._errors.append(from_kafka(error, f"read topic {topic!r}" if topic else "read"))

    # ---- rebalances ----

    def _partitions_assigned(self, rdkafka: Any, partitions: list[confluent_kafka.TopicPartition]) -> None:
        named = list(map(from_rdkafka, partitions))
        self._forget(named)
        on_assigned = self._listeners[0]
        if on_assigned is None:
            return
        self._starting = dict.fromkeys(named, confluent_kafka.OFFSET_INVALID)
        try:
            on_assigned(named)
            starting = self._starting
        finally:
            self._starting = None
        if any(offset != confluent_kafka.OFFSET_INVALID for offset in starting.values()):
            wanted = offsets_to_rdkafka(starting)
            self._positions.update({one: offset for one, offset in starting.items() if offset >= 0})
            (rdkafka.incremental_assign if self._is_incremental else rdkafka.assign)(wanted)

    def _partitions_revoked(self, rdkafka: Any, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self._partitions_gone(partitions, self._listeners[1])

    def _partitions_lost(self, rdkafka: Any, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self._partitions_gone(partitions, self._listeners[2] or self._listeners[1])

    def _partitions_gone(self, partitions: list[Any], listener: OnPartitions | None) -> None:
        named = list(map(from_rdkafka, partitions))
        self._revoked.update(named)
        try:
            if listener is not None:
                listener(named)
        finally:
            self._forget(named)

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        chosen = set(partitions)
        self._settle()
        self._prefetch.take_out(chosen)
        for partition in chosen:
            self._held.pop(partition, None)
            self._at_end.pop(partition, None)
            for positions in (self._positions, self._uncommitted, self._unstored):
                positions.pop(partition, None)

    # ---- committing ----

    def commit(
        self,
        offsets: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int] | None = None,
        *,
        timeout: float = _TIMEOUT_S,
    ) -> dict[TopicPartition, int]:
        """Commit what was handed over, or the given offsets (of the records to read next), and wait for it.

        Returns what was committed. Errors that pass by themselves are waited for, up to `timeout` seconds.
        """
        wanted = self._to_commit(offsets)
        deadline = time.monotonic() + timeout
        while wanted:
            try:
                self._commit_now(wanted)
                break
            except RequestFailed as error:
                if not error.is_retriable or time.monotonic() > deadline:
                    self._uncommitted = {**wanted, **self._uncommitted}
                    self._tell_commit(wanted, error)
                    raise
                time.sleep(_SEEK_RETRY_S)
        committed = {TopicPartition(*partition): offset for partition, offset in wanted.items()}
        if committed:
            self._tell_commit(committed, None)
        return committed

    def commit_async(self, offsets: Mapping[TopicPartition, int] | Mapping[tuple[str, int], int] | None = None) -> None:
        """Commit without waiting. `on_commit` is told how it went; what failed is tried again with the next commit."""
        wanted = self._to_commit(offsets)
        if wanted:
            try:
                self._rdkafka.commit(offsets=offsets_to_rdkafka(wanted), asynchronous=True)
            except KafkaException as exception:
                raise from_exception(exception, f"commit offsets of group {self._group!r}") from None

    def _to_commit(self, offsets: Mapping[Any, int] | None) -> Positions:
        self._check_open()
        if self._group is None:
            raise ConfigurationError("committing needs a group")
        if offsets is not None:
            return {TopicPartition(*partition): offset for partition, offset in offsets.items()}
        self._settle()
        wanted, self._uncommitted = self._uncommitted, {}
        return wanted

    def _commit_now(self, wanted: Positions) -> None:
        doing = f"commit offsets of group {self._group!r}"
        try:
            results = self._rdkafka.commit(offsets=offsets_to_rdkafka(wanted), asynchronous=False)
        except KafkaException as exception:
            raise from_exception(exception, doing) from None
        for one in results:
            if one.error is not None:
                raise from_kafka(one.error, f"{doing} for partition {one.partition} of topic {one.topic!r}")

    def _committed(self, error: KafkaError | None, partitions: list[confluent_kafka.TopicPartition]) -> None:
        """Called by librdkafka after commits that nobody waited for."""
        offsets: Positions = {from_rdkafka(one): one.offset for one in partitions if one.offset >= 0}
        if not offsets or (error is not None and error.code() == KafkaError._NO_OFFSET):
            return
        failure = None
        if error is not None:
            failure = from_kafka(error, f"commit offsets of group {self._group!r}")
            logger.warning("%s", failure)
            self._uncommitted = {**offsets, **self._uncommitted}
        self._tell_commit(offsets, failure)

    def _tell_commit(self, offsets: Mapping[Any, int], error: PenstockError | None) -> None:
        named = {TopicPartition(*partition): offset for partition, offset in offsets.items()}
        for interceptor in self._interceptors:
            try:
                interceptor.on_commit(named, error)
            except Exception:
                logger.exception("an interceptor failed in on_commit")
        if self._on_commit is not None:
            self._on_commit(named, error)

    def _settle(self) -> None:
        """Take note of what was handed over."""
        positions = self._prefetch.settle()
        if positions:
            self._positions.update(positions)
            self._uncommitted.update(positions)
            if self._auto_commits:
                self._unstored.update(positions)

    def _finish_batch(self) -> None:
        """What was handed over is done with: let it be committed."""
        self._settle()
        if self._unstored:
            offsets, self._unstored = self._unstored, {}
            self._store(offsets)

    def _take_back(self, records: Iterable[AnyRecord]) -> None:
        """These records are not done with: they are handed over again, and no commit covers them."""
        for partition, offset in _first_offsets(records).items():
            try:
                self.seek(partition, offset)
            except PenstockError:
                # The partition went to another member, which reads from what was committed.
                self._forget([partition])

    def _store(self, offsets: Positions) -> None:
        try:
            self._rdkafka.store_offsets(offsets=offsets_to_rdkafka(offsets))
        except KafkaException as exception:
            # Partitions that this consumer lost meanwhile: who has them now reads those records again.
            logger.warning("offsets of lost partitions are not committed: %s", exception.args[0])

    # ---- where reading stands ----

    def position(self, partition: PartitionLike, timeout: float = _TIMEOUT_S) -> int:
        """The offset of the record that is handed over next."""
        self._settle()
        wanted = TopicPartition(*partition)
        known = self._positions.get(wanted)
        if known is not None:
            return known
        committed = self.committed([wanted], timeout).get(wanted) if self._group is not None else None
        if committed is not None:
            return committed
        return self._reset_position(wanted, timeout)

    def _reset_position(self, partition: TopicPartition, timeout: float = _TIMEOUT_S) -> int:
        """Where a partition starts of which nothing was committed."""
        if self._auto_offset_reset == "none":
            raise NoOffset(
                f"there is no offset for partition {partition.partition} of topic {partition.topic!r} yet; "
                "seek to one, or set auto_offset_reset to earliest or latest"
            )
        return self.watermarks(partition, timeout=timeout)[1 if self._auto_offset_reset == "latest" else 0]

    def committed(
        self, partitions: Iterable[PartitionLike] | None = None, timeout: float = _TIMEOUT_S
    ) -> dict[TopicPartition, int]:
        """What the group has committed, for the given or all assigned partitions. Those without are left out."""
        wanted = to_rdkafka(self.assignment() if partitions is None else partitions)
        if not wanted:
            return {}
        try:
            found = self._rdkafka.committed(wanted, timeout)
        except KafkaException as exception:
            raise from_exception(exception, f"look up offsets of group {self._group!r}") from None
        return {from_rdkafka(one): one.offset for one in found if one.offset >= 0}

    def watermarks(
        self, partition: PartitionLike, *, cached: bool = False, timeout: float = _TIMEOUT_S
    ) -> tuple[int, int]:
        """The first offset of a partition and the one behind its last record; `cached` as of the last fetch."""
        self._check_open()
        topic, number = partition
        doing = f"look up offsets of partition {number} of topic {topic!r}"
        try:
            return self._rdkafka.get_watermark_offsets(
                confluent_kafka.TopicPartition(topic, number), timeout, cached=cached
            )
        except KafkaException as exception:
            raise from_exception(exception, doing, more=self._last_error.text) from None

    def lag(self) -> dict[TopicPartition, int]:
        """How many offsets each assigned partition has that were not handed over."""
        return {one: max(self.watermarks(one)[1] - self.position(one), 0) for one in self.assignment()}

    def ends(self) -> dict[TopicPartition, int]:
        """Of the partitions that were fetched to their end, the offset there. Known with `stop_at_end` only.

        It is beyond the last record where a transaction's marker comes after it.
        """
        return dict(self._at_end)

    def group_metadata(self) -> Any:
        """Who this consumer is in its group, as transactions need it."""
        return self._rdkafka.consumer_group_metadata()

    def offsets_for_transaction(self) -> dict[TopicPartition, int]:
        """What was handed over, for `Producer.send_offsets`."""
        if self._auto_commits or self._group is None:
            raise ConfigurationError("sending offsets in a transaction needs a group and auto_commit=False")
        self._settle()
        return {TopicPartition(*partition): offset for partition, offset in self._positions.items()}

    # ---- moving ----

    def seek(self, partition: PartitionLike, offset: int) -> None:
        """Go on with the record at `offset`. Within `on_assigned`, start there."""
        self._check_open()
        wanted = TopicPartition(*partition)
        if offset < 0:
            raise ConfigurationError(f"cannot seek to offset {offset}: it must be 0 or above")
        if self._starting is not None and wanted in self._starting:
            self._starting[wanted] = offset
            return
        self._settle()
        self._prefetch.forget_finished()
        self._prefetch.take_out({wanted})
        self._held.pop(wanted, None)
        self._at_end.pop(wanted, None)
        self._seek_when_fetching(wanted, offset)
        self._positions[wanted] = self._uncommitted[wanted] = offset
        if self._auto_commits:
            self._unstored[wanted] = offset

    def seek_to_beginning(self, partitions: Iterable[PartitionLike] | None = None) -> None:
        """Go to the first record of the given or all assigned partitions."""
        for partition in self._chosen(partitions):
            self.seek(partition, self.watermarks(partition)[0])

    def seek_to_end(self, partitions: Iterable[PartitionLike] | None = None) -> None:
        """Go behind the last record of the given or all assigned partitions."""
        for partition in self._chosen(partitions):
            self.seek(partition, self.watermarks(partition)[1])

    def seek_to_time(self, time: int | datetime, partitions: Iterable[PartitionLike] | None = None) -> None:
        """Go to the first record at or after a time (milliseconds or datetime), or to the end if there is none."""
        moment = to_timestamp_ms(time)
        wanted = {TopicPartition(*partition): moment for partition in self._chosen(partitions)}
        try:
            found = self._rdkafka.offsets_for_times(offsets_to_rdkafka(wanted), _TIMEOUT_S)
        except KafkaException as exception:
            raise from_exception(exception, "look up offsets by time") from None
        for one in found:
            partition = from_rdkafka(one)
            self.seek(partition, one.offset if one.offset >= 0 else self.watermarks(partition)[1])

    def seek_to_committed(self, partitions: Iterable[PartitionLike] | None = None) -> None:
        """Go back to what the group has committed: what was handed over since is handed over again.

        Where it has committed nothing, `auto_offset_reset` says where to go. For use after an aborted transaction.
        """
        chosen = self._chosen(partitions)
        committed = self.committed(chosen)
        for partition in chosen:
            start = committed.get(partition)
            self.seek(partition, self._reset_position(partition) if start is None else start)

    def pause(self, partitions: Iterable[PartitionLike]) -> None:
        """Hand over no more records of these partitions until `resume`. A rebalance that moves them ends it."""
        self._check_open()
        chosen = [TopicPartition(*partition) for partition in partitions]
        for partition in chosen:
            self._held.setdefault(partition, []).extend(self._prefetch.take_out({partition}))
        self._rdkafka.pause(to_rdkafka(chosen))

    def resume(self, partitions: Iterable[PartitionLike]) -> None:
        """Hand over records of these partitions again."""
        self._check_open()
        chosen = [TopicPartition(*partition) for partition in partitions]
        self._rdkafka.resume(to_rdkafka(chosen))
        for partition in chosen:
            held = self._held.pop(partition, None)
            if held:
                self._prefetch.put_back(held)

    def _chosen(self, partitions: Iterable[PartitionLike] | None) -> list[TopicPartition]:
        if partitions is None:
            return self.assignment()
        return [TopicPartition(*partition) for partition in partitions]

    def _seek_when_fetching(self, partition: TopicPartition, offset: int) -> None:
        """Seek. A partition that was only just assigned needs a moment before librdkafka lets it."""
        deadline = time.monotonic() + _TIMEOUT_S
        while True:
            try:
                self._rdkafka.seek(confluent_kafka.TopicPartition(*partition, offset))
                return
            except KafkaException as exception:
                is_early = exception.args[0].code() == KafkaError._STATE and partition in self.assignment()
                if not is_early or time.monotonic() > deadline:
                    doing = f"seek in partition {partition.partition} of topic {partition.topic!r}"
                    raise from_exception(exception, doing) from None
                time.sleep(_SEEK_RETRY_S)

    # ---- the end ----

    def close(self) -> None:
        """Commit what was handed over, if commits are automatic, and leave the group."""
        self._close(is_orderly=True)

    def _close(self, *, is_orderly: bool) -> None:
        if self._is_closed:
            return
        if is_orderly:
            self._finish_batch()
        elif self._auto_commits:
            finished = self._prefetch.finished()
            if finished:
                self._store(finished)
        self._unstored.clear()
        self._prefetch.take_out(set(self.assignment()))
        try:
            self._rdkafka.close()
        finally:
            self._is_closed = True

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed("the consumer is closed")

    def _check_may_read(self) -> None:
        self._check_open()
        if self._retry is not None:
            raise ConfigurationError("a consumer with retry hands records to `process(handler)`")


def _first_offsets(records: Iterable[AnyRecord]) -> dict[TopicPartition, int]:
    first: dict[TopicPartition, int] = {}
    for record in records:
        first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
    return first
