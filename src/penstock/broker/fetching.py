"""A fetch under way: reads what is there, and waits for more if that is too little."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.broker.fetch_sessions import FetchPlan, FetchTarget, TopicKey
from penstock.replica.partition import Partition
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


class Fetch:
    """One fetch request.

    It is complete when it has at least `bytes_min`, when any partition has an error, or when its time is up. Until then
    it watches its partitions: it holds no task and no timer of its own but one.
    """

    def __init__(
        self,
        broker: Broker,
        plan: FetchPlan,
        *,
        bytes_min: int,
        bytes_max: int,
        wait_ms: int,
        is_committed_only: bool,
    ) -> None:
        self._broker = broker
        self._plan = plan
        self._bytes_min = bytes_min
        self._bytes_max = bytes_max
        self._wait_ms = wait_ms
        self._is_committed_only = is_committed_only
        self._watched: list[Partition] = []
        self._future: asyncio.Future[FetchResponse] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_woken = False

    def run(self) -> FetchResponse | asyncio.Future[FetchResponse]:
        """The response, or a future of it."""
        results, size, has_error = self._read()
        if size >= self._bytes_min or has_error or self._wait_ms <= 0 or not self._plan.targets:
            return self._respond(results)
        return self._wait()

    # ---- reading ----

    def _read(self) -> tuple[list[tuple[FetchTarget, PartitionData]], int, bool]:
        """What every partition gives now, the sum of the bytes, and whether any of them has an error."""
        results = []
        size = 0
        has_error = False
        for target in self._plan.targets:
            try:
                data = self._read_one(target, min(self._bytes_max - size, target.bytes_max), is_first=size == 0)
                size += len(data.records) if data.records is not None else 0
                has_error = has_error or data.diverging_epoch is not None
            except ApiError as error:
                data = PartitionData(
                    partition_index=target.index,
                    error_code=error.code,
                    high_watermark=-1,
                    aborted_transactions=[],
                    records=b"",
                )
                has_error = True
            results.append((target, data))
        return results, size, has_error

    def _read_one(self, target: FetchTarget, bytes_max: int, *, is_first: bool) -> PartitionData:
        partition = self._broker.replicas.find(target.topic, target.index)
        partition.check_leader()
        partition.check_epoch(target.leader_epoch)
        log = partition.log
        diverging = self._diverging(partition, target)
        if diverging is not None:
            return diverging
        upper_bound = partition.upper_bound(is_committed_only=self._is_committed_only)
        found = partition.read(target.fetch_offset, max(bytes_max, 0), upper_bound, is_first=is_first)
        aborted = None
        if self._is_committed_only:
            aborted = (
                [
                    AbortedTransaction(producer_id=txn.producer_id, first_offset=txn.first_offset)
                    for txn in log.aborted_transactions(target.fetch_offset, found, upper_bound)
                ]
                if found is not None
                else []
            )
        return PartitionData(
            partition_index=target.index,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.start_offset,
            aborted_transactions=aborted,
            records=b"" if found is None else found,
        )

    def _diverging(self, partition: Partition, target: FetchTarget) -> PartitionData | None:
        """Where the fetcher's log and ours part, if they do (KIP-595)."""
        if target.last_fetched_epoch < 0:
            return None
        epoch, end_offset = partition.end_offset_for_epoch(target.last_fetched_epoch)
        if end_offset < 0:
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"{partition.name}: unknown epoch {target.last_fetched_epoch}"
            )
        if epoch >= target.last_fetched_epoch and end_offset >= target.fetch_offset:
            return None
        return PartitionData(
            partition_index=target.index,
            high_watermark=partition.high_watermark,
            log_start_offset=partition.log.start_offset,
            diverging_epoch=EpochEndOffset(epoch=epoch, end_offset=end_offset),
            aborted_transactions=None,
            records=b"",
        )

    # ---- waiting ----

    def _wait(self) -> asyncio.Future[FetchResponse]:
        loop = self._broker.loop
        self._future = loop.create_future()
        self._timer = loop.call_later(self._wait_ms / 1000, self._finish)
        for target in self._plan.targets:
            partition = self._broker.replicas.find(target.topic, target.index)
            partition.watch(self)
            self._watched.append(partition)
        return self._future

    def wake(self) -> None:
        """A partition may have more. All that arrives in the same turn of the loop is answered together."""
        if not self._is_woken:
            self._is_woken = True
            self._broker.loop.call_soon(self._look_again)

    def _look_again(self) -> None:
        self._is_woken = False
        if self._future is None or self._future.done():
            return
        results, size, has_error = self._read()
        if size >= self._bytes_min or has_error:
            self._complete(results)

    def _finish(self) -> None:
        """The time is up: answer with what there is."""
        if self._future is not None and not self._future.done():
            self._complete(self._read()[0])

    def _complete(self, results: list[tuple[FetchTarget, PartitionData]]) -> None:
        assert self._future is not None
        assert self._timer is not None
        self._timer.cancel()
        for partition in self._watched:
            partition.unwatch(self)
        self._future.set_result(self._respond(results))

    # ---- responding ----

    def _respond(self, results: list[tuple[FetchTarget, PartitionData]]) -> FetchResponse:
        session = self._plan.session
        if session is not None:
            told = [
                (target, data) for target, data in results if target.has_news(data) or not self._plan.is_incremental
            ]
            session.served((target.topic, target.index) for target, data in told if data.records)
            results = told
        return FetchResponse(session_id=self._plan.session_id, responses=self._by_topic(results))

    def _by_topic(self, results: list[tuple[FetchTarget, PartitionData]]) -> list[FetchableTopicResponse]:
        """One entry per run of partitions of the same topic, in the order in which they were asked for."""
        responses: list[FetchableTopicResponse] = []
        last: TopicKey | None = None
        for target, data in results:
            if target.topic != last:
                last = target.topic
                responses.append(
                    FetchableTopicResponse(topic_id=target.topic)
                    if isinstance(target.topic, bytes)
                    else FetchableTopicResponse(topic=target.topic)
                )
            responses[-1].partitions.append(data)
        return responses
