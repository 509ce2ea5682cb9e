"""The shell around transactions: finds the shard, appends the records, has markers written, keeps the time.

Every transactional id lives in one partition of `__transaction_state`; who leads that partition coordinates it. A step
is decided in memory, its record appended, and it is true when the record is committed. What comes next follows from the
record alone: once a PREPARE record is committed the outcome is decided, markers are written, again and again until
every partition has one, and then the COMPLETE record. A coordinator that loads a PREPARE record goes on from there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from functools import partial
from typing import Any

from penstock.background import Background
from penstock.clock import Clock
from penstock.config.broker import BrokerConfig
from penstock.coordination.appends import Committing, append, settled, when_done
from penstock.coordination.shards import Shards
from penstock.metadata.image import Image
from penstock.replica.replicas import Replicas
from penstock.txn import transaction as rules
from penstock.txn.markers import Marker, MarkerWriter
from penstock.txn.records import TxnRecord, decode_record, encode_record
from penstock.txn.shard import TxnShard
from penstock.txn.transaction import NO_PRODUCER_ID, PREVIOUS, Identity, State, TopicPartition, Transaction
from penstock.wire.batch import encode_batch
from penstock.wire.errors import ApiError, ErrorCode
from penstock.wire.record import Record

TRANSACTION_TOPIC = "__transaction_state"
TRANSACTION_FEATURE = "transaction.version"

# A record that is appended will be committed, or this broker will not lead its partition any more: there is no time
# after which it can be taken as not written.
_FOR_EVER_MS = 2**31
_RETRY_MS = 500  # after which a marker is written that could not be written

logger = logging.getLogger(__name__)


class TransactionCoordinator:
    """All transactional ids that this broker coordinates. Owned by the event loop."""

    def __init__(
        self,
        *,
        replicas: Replicas,
        config: Callable[[], BrokerConfig],
        image: Callable[[], Image],
        clock: Clock,
        background: Background,
        new_producer_id: Callable[[], Awaitable[int]],
        markers: MarkerWriter,
    ) -> None:
        self._config = config
        self._image = image
        self._clock = clock
        self._background = background
        self._new_producer_id = new_producer_id
        self._markers = markers
        self._tasks: set[asyncio.Task[None]] = set()
        self.shards: Shards[TxnShard] = Shards(
            TRANSACTION_TOPIC,
            replicas=replicas,
            image=image,
            background=background,
            buffer_bytes=lambda: config().transaction_state_log_load_buffer_size,
            decode=decode_record,
            make=TxnShard,
            loaded=self._loaded,
            unloaded=lambda shard: None,
        )

    # ---- leading ----

    def start(self) -> None:
        config = self._config()
        self.shards.follow()
        every = self._background.every
        every(config.transaction_abort_timed_out_transaction_cleanup_interval_ms, self.abort_timed_out)
        every(config.transaction_remove_expired_transaction_cleanup_interval_ms, self.expire)

    def follow(self) -> None:
        """Coordinate what this broker leads now, and nothing else."""
        self.shards.follow()

    def stop(self) -> None:
        self.shards.stop()

    def _loaded(self, shard: TxnShard) -> None:
        """Go on with what was decided before."""
        logger.info("loaded %s: %d transactional ids", shard.partition.name, len(shard.transactions))
        for txn in list(shard.transactions.values()):
            if txn.state.is_prepared:
                self._begin_markers(shard, txn)

    # ---- finding ----

    def find(self, transactional_id: str) -> tuple[TxnShard, Transaction]:
        """An id that must be known."""
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a transactional id must not be empty")
        shard = self.shards.of(transactional_id)
        txn = shard.transactions.get(transactional_id)
        if txn is None:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"transactional id {transactional_id} is not known here"
            )
        return shard, txn

    def all(self) -> Iterator[Transaction]:
        return (txn for shard in self.shards for txn in shard.transactions.values())

    @property
    def _server_version(self) -> int:
        return self._image().features.get(TRANSACTION_FEATURE, 0)

    async def _spare_producer_id(self, is_needed: bool) -> int:
        """A producer id for one whose epochs are used up. Taking it may take time: look again afterwards."""
        return await self._new_producer_id() if is_needed else NO_PRODUCER_ID

    # ---- requests ----

    async def claim(self, transactional_id: str, timeout_ms: int, expected: Identity | None) -> Identity:
        """InitProducerId: returns who the producer is from now on."""
        if not transactional_id:
            raise ApiError(ErrorCode.INVALID_REQUEST, "a transactional id must not be empty")
        timeout_ms_max = self._config().transaction_max_timeout_ms
        if not 0 < timeout_ms <= timeout_ms_max:
            raise ApiError(
                ErrorCode.INVALID_TRANSACTION_TIMEOUT,
                f"transaction.timeout.ms must be within 1 and transaction.max.timeout.ms={timeout_ms_max}",
            )
        known = self.shards.of(transactional_id).transactions.get(transactional_id)
        spare = await self._spare_producer_id(known is None or known.is_epoch_exhausted)
        shard = self.shards.of(transactional_id)
        shard.check_not_pending(transactional_id)
        now_ms = self._clock.time_ms()
        txn = shard.transactions.get(transactional_id) or rules.new(transactional_id, spare, timeout_ms, now_ms)
        rules.check_claim(txn, expected)
        if (txn.is_epoch_exhausted or txn.producer_id < 0) and spare == NO_PRODUCER_ID:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, "it has changed meanwhile: ask again")
        if txn.state is State.ONGOING:
            await self._settle(shard, rules.fence(txn, self._server_version, spare, now_ms))
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, "its open transaction is being aborted")
        claimed = rules.claim(txn, timeout_ms, expected, spare, now_ms)
        await self._settle(shard, claimed)
        return claimed.identity

    def add_partitions(
        self, transactional_id: str, who: Identity, partitions: frozenset[TopicPartition], client_version: int
    ) -> Committing:
        """Partitions are about to be written to; they may be when the future is done, None: now."""
        shard, txn = self.find(transactional_id)
        shard.check_not_pending(transactional_id)
        added = rules.add_partitions(txn, who, partitions, client_version, self._clock.time_ms())
        return None if added is txn else self._write(shard, added)

    def check_partitions(
        self, transactional_id: str, who: Identity, partitions: frozenset[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Whether partitions are in the open transaction."""
        return rules.check_partitions(self.find(transactional_id)[1], who, partitions)

    async def end(self, transactional_id: str, who: Identity, *, is_commit: bool, client_version: int) -> Identity:
        """EndTxn: returns who the producer is from now on, when the outcome is decided and will not be lost."""
        _, known = self.find(transactional_id)
        spare = await self._spare_producer_id(client_version >= rules.VERSION_2 and known.is_epoch_exhausted)
        shard, txn = self.find(transactional_id)
        shard.check_not_pending(transactional_id)
        if client_version >= rules.VERSION_2 and txn.is_epoch_exhausted and spare == NO_PRODUCER_ID:
            raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, "it has changed meanwhile: ask again")
        now_ms = self._clock.time_ms()
        ended = rules.end(
            txn,
            who,
            is_commit=is_commit,
            client_version=client_version,
            spare_producer_id=spare,
            now_ms=now_ms,
        )
        if ended is txn:
            return txn.identity
        await self._settle(shard, ended)
        return rules.complete(ended, now_ms).identity

    # ---- appending ----

    async def _settle(self, shard: TxnShard, txn: Transaction) -> None:
        code = await settled(self._write(shard, txn))
        if code:
            raise ApiError(code)

    def _write(self, shard: TxnShard, txn: Transaction) -> Committing:
        """Append what a transaction is to be; it is that when the record is committed. Raises ApiError."""
        transactional_id = txn.transactional_id
        before = shard.transactions.get(transactional_id)
        assert before is None or before.state in PREVIOUS[txn.state], f"{transactional_id}: {before} -> {txn}"
        return self._append(shard, TxnRecord(transactional_id, txn), partial(self._written, shard, txn))

    def _append(self, shard: TxnShard, record: TxnRecord, then: Callable[[], None]) -> Committing:
        encoded = encode_batch([Record(0, self._clock.time_ms(), *encode_record(record))])
        _, future = append(shard.partition, encoded, _FOR_EVER_MS)
        shard.pending.add(record.transactional_id)

        def done(code: ErrorCode) -> None:
            shard.pending.discard(record.transactional_id)
            if not code and self.shards.has(shard):
                then()

        when_done(future, done)
        return future

    def _written(self, shard: TxnShard, txn: Transaction) -> None:
        shard.apply(txn.transactional_id, txn)
        if txn.state.is_prepared:
            self._begin_markers(shard, txn)

    # ---- markers ----

    def _begin_markers(self, shard: TxnShard, txn: Transaction) -> None:
        """The outcome is decided: tell every partition."""
        shard.unmarked[txn.transactional_id] = set(txn.partitions)
        for where in sorted(txn.partitions):
            self._mark(shard, txn, where)
        if not txn.partitions:
            self._complete(shard, txn)

    def _mark(self, shard: TxnShard, txn: Transaction, where: TopicPartition) -> None:
        if not self.shards.has(shard):
            return  # whoever leads the shard now does it
        marker = Marker(txn.producer_id, txn.epoch, txn.is_commit, shard.leader_epoch, txn.client_version)
        try:
            future = self._markers.write(where, marker)
        except ApiError as error:
            self._marked(shard, txn, where, error.code)
        else:
            when_done(future, partial(self._marked, shard, txn, where))

    def _marked(self, shard: TxnShard, txn: Transaction, where: TopicPartition, code: ErrorCode) -> None:
        """A marker was written, or cannot be, or not now."""
        name = f"{where.topic}-{where.partition}"
        if code == ErrorCode.TRANSACTION_COORDINATOR_FENCED:
            logger.error("%s: %s has seen a newer coordinator; leaving it to that", txn.transactional_id, name)
            return
        if code == ErrorCode.INVALID_PRODUCER_EPOCH:
            logger.warning("%s: %s has a newer epoch than %d already", txn.transactional_id, name, txn.epoch)
        elif code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):  # the latter was deleted
            logger.info(
                "%s: cannot end the transaction in %s (%s); trying again", txn.transactional_id, name, code.name
            )
            self._background.later(_RETRY_MS, partial(self._mark, shard, txn, where))
            return
        unmarked = shard.unmarked.get(txn.transactional_id)
        if unmarked is not None and self.shards.has(shard):
            unmarked.discard(where)
            if not unmarked:
                self._complete(shard, txn)

    def _complete(self, shard: TxnShard, txn: Transaction) -> None:
        """Every partition has its marker."""
        shard.unmarked.pop(txn.transactional_id, None)
        if not self.shards.has(shard):
            return
        try:
            self._write(shard, rules.complete(txn, self._clock.time_ms()))
        except ApiError as error:
            logger.info("%s: cannot complete its transaction (%s); trying again", txn.transactional_id, error)
            self._background.later(_RETRY_MS, partial(self._complete, shard, txn))

    # ---- time ----

    def abort_timed_out(self) -> None:
        """Abort transactions that are open for longer than their producers asked for."""
        now_ms = self._clock.time_ms()
        for shard in self.shards:
            for txn in list(shard.transactions.values()) if shard.is_loaded else ():
                if txn.has_timed_out(now_ms):
                    self._run(self._abort(txn.transactional_id))

    async def _abort(self, transactional_id: str) -> None:
        try:
            _, known = self.find(transactional_id)
            spare = await self._spare_producer_id(known.is_epoch_exhausted)
            shard, txn = self.find(transactional_id)
            now_ms = self._clock.time_ms()
            if transactional_id in shard.pending or not txn.has_timed_out(now_ms) or txn.epoch != known.epoch:
                return
            await self._settle(shard, rules.fence(txn, self._server_version, spare, now_ms))
        except ApiError as error:
            logger.warning("%s: cannot abort its transaction, which has timed out: %s", transactional_id, error)
        else:
            logger.info("%s: aborted its transaction, which has timed out", transactional_id)

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def expire(self) -> None:
        """Forget ids that nobody has used for long."""
        now_ms, expiration_ms = self._clock.time_ms(), self._config().transactional_id_expiration_ms
        for shard in self.shards:
            if not shard.is_loaded:
                continue
            for transactional_id, txn in list(shard.transactions.items()):
                if txn.has_expired(now_ms, expiration_ms) and transactional_id not in shard.pending:
                    self._forget(shard, transactional_id)

    def _forget(self, shard: TxnShard, transactional_id: str) -> None:
        try:
            then = partial(shard.apply, transactional_id, None)
            self._append(shard, TxnRecord(transactional_id, None), then)
        except ApiError as error:
            logger.warning("cannot forget the unused transactional id %s: %s", transactional_id, error)
