"""`Admin` and `AsyncAdmin`: the same operations, blocking and for asyncio.

The operations themselves are in the modules beside this one, by subject; here each gets its name as a method.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from penstock.client.admin import cluster, configs, groups, offsets, topics, transactions
from penstock.client.admin.session import Session, run, run_async
from penstock.client.settings import Bootstrap, Config

P = ParamSpec("P")
R = TypeVar("R")
_Operation = Callable[Concatenate[Session, P], Coroutine[Any, Any, R]]


def _blocking(operation: _Operation[P, R]) -> Callable[Concatenate[Admin, P], R]:
    @wraps(operation)
    def method(admin: Admin, /, *arguments: P.args, **options: P.kwargs) -> R:
        return run(operation(admin._session, *arguments, **options))

    return method


def _awaitable(operation: _Operation[P, R]) -> Callable[Concatenate[AsyncAdmin, P], Coroutine[Any, Any, R]]:
    @wraps(operation)
    async def method(admin: AsyncAdmin, /, *arguments: P.args, **options: P.kwargs) -> R:
        return await run_async(operation(admin._session, *arguments, **options))

    return method


class Admin:
    """Looks after a cluster: topics, settings, groups, offsets, records, transactions, data directories.

        with Admin("localhost:9092") as admin:
            admin.create_topic("orders", partitions=6)

    Each call waits at most `timeout` seconds for its answer. Results are plain dataclasses; what fails raises a
    `PenstockError`, and `SeveralFailed` if several of the things asked for did.
    """

    def __init__(
        self,
        bootstrap: Bootstrap = "localhost:9092",
        *,
        timeout: float = 30.0,
        client_id: str | None = None,
        config: Config | None = None,
    ) -> None:
        self._session = Session(bootstrap, timeout, client_id, config)

    def __enter__(self) -> Admin:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        self._session.close()

    create_topic = _blocking(topics.create_topic)
    create_topics = _blocking(topics.create_topics)
    delete_topics = _blocking(topics.delete_topics)
    list_topics = _blocking(topics.list_topics)
    describe_topics = _blocking(topics.describe_topics)
    add_partitions = _blocking(topics.add_partitions)

    describe_config = _blocking(configs.describe_config)
    alter_config = _blocking(configs.alter_config)

    list_groups = _blocking(groups.list_groups)
    describe_groups = _blocking(groups.describe_groups)
    delete_groups = _blocking(groups.delete_groups)

    group_offsets = _blocking(offsets.group_offsets)
    group_lag = _blocking(offsets.group_lag)
    alter_group_offsets = _blocking(offsets.alter_group_offsets)
    reset_group_offsets = _blocking(offsets.reset_group_offsets)
    delete_group_offsets = _blocking(offsets.delete_group_offsets)

    partition_offsets = _blocking(offsets.partition_offsets)
    topic_offsets = _blocking(offsets.topic_offsets)
    delete_records = _blocking(offsets.delete_records)

    list_transactions = _blocking(transactions.list_transactions)
    describe_transactions = _blocking(transactions.describe_transactions)
    open_transactions = _blocking(transactions.open_transactions)
    hanging_transactions = _blocking(transactions.hanging_transactions)
    abort_transaction = _blocking(transactions.abort_transaction)

    describe_cluster = _blocking(cluster.describe_cluster)
    describe_log_dirs = _blocking(cluster.describe_log_dirs)


class AsyncAdmin:
    """`Admin` for asyncio: the same methods, to be awaited. The event loop is never blocked."""

    def __init__(
        self,
        bootstrap: Bootstrap = "localhost:9092",
        *,
        timeout: float = 30.0,
        client_id: str | None = None,
        config: Config | None = None,
    ) -> None:
        self._session = Session(bootstrap, timeout, client_id, config)

    async def __aenter__(self) -> AsyncAdmin:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        self._session.close()

    create_topic = _awaitable(topics.create_topic)
    create_topics = _awaitable(topics.create_topics)
    delete_topics = _awaitable(topics.delete_topics)
    list_topics = _awaitable(topics.list_topics)
    describe_topics = _awaitable(topics.describe_topics)
    add_partitions = _awaitable(topics.add_partitions)

    describe_config = _awaitable(configs.describe_config)
    alter_config = _awaitable(configs.alter_config)

    list_groups = _awaitable(groups.list_groups)
    describe_groups = _awaitable(groups.describe_groups)
    delete_groups = _awaitable(groups.delete_groups)

    group_offsets = _awaitable(offsets.group_offsets)
    group_lag = _awaitable(offsets.group_lag)
    alter_group_offsets = _awaitable(offsets.alter_group_offsets)
    reset_group_offsets = _awaitable(offsets.reset_group_offsets)
    delete_group_offsets = _awaitable(offsets.delete_group_offsets)

    partition_offsets = _awaitable(offsets.partition_offsets)
    topic_offsets = _awaitable(offsets.topic_offsets)
    delete_records = _awaitable(offsets.delete_records)

    list_transactions = _awaitable(transactions.list_transactions)
    describe_transactions = _awaitable(transactions.describe_transactions)
    open_transactions = _awaitable(transactions.open_transactions)
    hanging_transactions = _awaitable(transactions.hanging_transactions)
    abort_transaction = _awaitable(transactions.abort_transaction)

    describe_cluster = _awaitable(cluster.describe_cluster)
    describe_log_dirs = _awaitable(cluster.describe_log_dirs)
