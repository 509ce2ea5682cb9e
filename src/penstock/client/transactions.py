"""Transactions: what a producer sends, and what a consumer has read, become visible together or not at all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from penstock.client.errors import ConfigurationError, PenstockError, TransactionFailed
from penstock.client.partitions import TopicPartition
from penstock.client.rdkafka import from_exception, offsets_to_rdkafka

_RETRY_S = 0.1


class OffsetSource(Protocol):
    """A consumer, as far as transactions need it."""

    def offsets_for_transaction(self) -> Mapping[TopicPartition, int]: ...

    def group_metadata(self) -> Any: ...


class Transactions:
    """The transactions of one producer, one after the other.

    The id is claimed with the first of them: a producer that had it before is fenced from then on, and what it left
    open is aborted.
    """

    def __init__(self, rdkafka: confluent_kafka.Producer, transactional_id: str) -> None:
        self._rdkafka = rdkafka
        self._id = transactional_id
        self._is_claimed = False
        self._is_open = False

    def check_may_send(self) -> None:
        if self._id and not self._is_open:
            raise ConfigurationError(
                "a producer with a transactional_id sends only within `with producer.transaction()`"
            )

    @contextmanager
    def transaction(self, timeout: float) -> Iterator[None]:
        self._begin(timeout)
        try:
            yield
        except BaseException:
            self._abort(timeout)
            raise
        self._commit(timeout)

    def send_offsets(self, consumer: OffsetSource, timeout: float) -> None:
        if not self._is_open:
            raise ConfigurationError("offsets are sent only within `with producer.transaction()`")
        offsets = offsets_to_rdkafka(consumer.offsets_for_transaction())
        if not offsets:
            return
        metadata = consumer.group_metadata()
        self._try(
            lambda left: self._rdkafka.send_offsets_to_transaction(offsets, metadata, left), "send offsets", timeout
        )

    def _begin(self, timeout: float) -> None:
        if not self._id:
            raise ConfigurationError("transactions need a producer with a transactional_id")
        if self._is_open:
            raise ConfigurationError("a transaction is open already: transactions cannot be nested")
        if not self._is_claimed:
            self._try(self._rdkafka.init_transactions, "claim the transactional id", timeout)
            self._is_claimed = True
        self._try(lambda left: self._rdkafka.begin_transaction(), "begin a transaction", timeout)
        self._is_open = True

    def _commit(self, timeout: float) -> None:
        try:
            self._try(self._rdkafka.commit_transaction, "commit the transaction", timeout)
        except PenstockError as error:
            if getattr(error, "is_fatal", False):
                self._is_open = False
            else:
                self._abort(timeout)
            raise
        self._is_open = False

    def _abort(self, timeout: float) -> None:
        """Best effort: what is not aborted now is aborted by the broker, or by whoever claims the id next."""
        self._is_open = False
        try:
            self._try(self._rdkafka.abort_transaction, "abort the transaction", timeout)
        except PenstockError as error:
            if not getattr(error, "is_fatal", False):
                raise

    def _try(self, call: Callable[[float], Any], doing: str, timeout: float) -> None:
        """Call, and again for as long as librdkafka says that this may help and there is time."""
        doing = f"{doing} of {self._id!r}"
        deadline = time.monotonic() + timeout
        while True:
            try:
                call(max(deadline - time.monotonic(), _RETRY_S))
                return
            except KafkaException as exception:
                error = exception.args[0]
                if _may_be_retried(error) and time.monotonic() < deadline:
                    time.sleep(_RETRY_S)
                    continue
                found = from_exception(exception, doing)
                if isinstance(error, KafkaError) and error.txn_requires_abort():
                    raise TransactionFailed(f"{found}; it was aborted", error) from None
                raise found from None


def _may_be_retried(error: Any) -> bool:
    return isinstance(error, KafkaError) and error.retriable() and not error.fatal() and not error.txn_requires_abort()
