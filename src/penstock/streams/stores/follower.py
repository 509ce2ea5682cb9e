"""Follows the changelogs of stores: one consumer, in a thread of its own, for all stores of an application."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from penstock.client.admin import Admin
from penstock.client.consumer import Consumer
from penstock.client.errors import ConfigurationError, PenstockError
from penstock.client.partitions import TopicPartition
from penstock.client.records import Record
from penstock.streams.stores.answers import Standing
from penstock.streams.stores.forms import Form
from penstock.streams.stores.store import Store
from penstock.streams.stores.view import View

logger = logging.getLogger(__name__)

_RECORDS_MAX = 5000  # that are taken in at once
_POLL_S = 0.2
_PAUSE_S = 1.0  # after something went wrong
_MEMORY = {"queued.max.messages.kbytes": "8192", "fetch.wait.max.ms": "100"}


@dataclass(frozen=True)
class Changelog:
    """A store's name, the topic that says what is in it, and what the bytes there mean."""

    store: str
    topic: str
    form: Form


class Stores:
    """The stores of an application, which follow their changelogs until this is closed."""

    def __init__(self, changelogs: Iterable[Changelog], bootstrap: str, folder: Path, client_id: str) -> None:
        self._bootstrap = bootstrap
        self._client_id = client_id
        self._is_closing = threading.Event()
        self._has_moved = threading.Condition()
        self._reached: dict[TopicPartition, int] = {}
        self._behind: dict[TopicPartition, int] = {}
        self._as_of: int | None = None
        self._views: dict[str, list[View]] = {}
        self._stores: dict[str, Store] = {}
        wanted = list(changelogs)
        topics, ends = self._described({one.topic for one in wanted})
        for one in wanted:
            partitions, topic_id = topics[one.topic]
            view = View(folder / f"{one.store}.sqlite3", one.form, topic_id)
            self._views.setdefault(one.topic, []).append(view)
            self._stores[one.store] = Store(one.store, one.topic, view, partial(self._standing, partitions))
            for partition in partitions:  # of several views of one topic, the one that is least far counts
                position = view.positions.get(partition.partition, 0)
                self._reached[partition] = min(position, self._reached.get(partition, position))
                self._behind[partition] = max(ends[partition] - self._reached[partition], 0)
        self._thread = threading.Thread(target=self._run, name=f"stores-{client_id}", daemon=True)
        if self._stores:
            self._thread.start()

    def __enter__(self) -> Stores:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __getitem__(self, name: str) -> Store:
        if name not in self._stores:
            there = f"there are {', '.join(self._stores)}" if self._stores else "name one with table.store(name)"
            raise ConfigurationError(f"there is no store {name!r}: {there}")
        return self._stores[name]

    @property
    def names(self) -> list[str]:
        return list(self._stores)

    def close(self) -> None:
        """Follow no longer. What was taken in is there the next time."""
        self._is_closing.set()
        if self._thread.is_alive():
            self._thread.join()
        for view in (one for views in self._views.values() for one in views):
            view.close()

    def wait_for(self, offsets: Mapping[TopicPartition, int], timeout: float) -> bool:
        """Wait until partitions are taken in up to these offsets; returns whether they are."""
        with self._has_moved:
            return self._has_moved.wait_for(
                lambda: all(self._reached.get(one, offset) >= offset for one, offset in offsets.items()), timeout
            )

    def _described(
        self, names: set[str]
    ) -> tuple[dict[str, tuple[list[TopicPartition], str]], dict[TopicPartition, int]]:
        """The partitions of topics and their ids; and where the partitions end now."""
        if not names:
            return {}, {}
        with Admin(self._bootstrap, client_id=self._client_id) as admin:
            topics = {
                one.name: ([TopicPartition(one.name, part.partition) for part in one.partitions], one.topic_id)
                for one in admin.describe_topics(names)
            }
            every = [partition for partitions, _ in topics.values() for partition in partitions]
            found = admin.partition_offsets(every, "latest", read_committed=True)
        return topics, {partition: one.offset for partition, one in found.items()}

    def _standing(self, partitions: list[TopicPartition]) -> Standing:
        return Standing(sum(self._behind.get(one, 0) for one in partitions), None, self._as_of)

    def _run(self) -> None:
        while not self._is_closing.is_set():
            try:
                self._follow()
            except (PenstockError, sqlite3.Error) as error:
                logger.warning("stores cannot follow their topics and try again: %s", error)
                self._is_closing.wait(_PAUSE_S)

    def _follow(self) -> None:
        with Consumer(
            self._bootstrap,
            auto_offset_reset="earliest",
            stop_at_end=True,
            client_id=self._client_id,
            config=_MEMORY,
        ) as consumer:
            consumer.assign(self._reached)
            while not self._is_closing.is_set():
                self._take_in(consumer.poll_many(_RECORDS_MAX, _POLL_S), consumer)

    def _take_in(self, records: list[Record[Any, Any]], consumer: Consumer) -> None:
        by_topic: dict[str, list[Record[Any, Any]]] = {topic: [] for topic in self._views}
        for record in records:
            by_topic[record.topic].append(record)
        reached = {one: max(consumer.position(one), before) for one, before in self._reached.items()}
        ends = consumer.ends() if not records else {}  # else there may be records before them that are still to come
        reached |= ends
        for topic, own in by_topic.items():
            positions = {one.partition: offset for one, offset in reached.items() if one.topic == topic}
            for view in self._views[topic]:
                view.take_in(own, positions)
        with self._has_moved:
            self._reached = reached
            for one, offset in reached.items():
                _, end = consumer.watermarks(one, cached=True)
                if one in ends or end >= 0:  # not known before the first fetch
                    self._behind[one] = 0 if one in ends else max(end - offset, 0)
            self._as_of = time.time_ns() // 1_000_000
            self._has_moved.notify_all()
