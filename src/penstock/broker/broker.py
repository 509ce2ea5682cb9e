"""The broker: all the parts, put together."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
from collections.abc import Mapping
from dataclasses import replace

from penstock.background import Background
from penstock.broker.cleaners import Cleaners
from penstock.broker.dispatch import Dispatcher, InterceptedDispatcher, Interceptor
from penstock.broker.fetch_sessions import FetchSessions
from penstock.broker.housekeeping import Housekeeping
from penstock.broker.listeners import Listener, advertised, listeners
from penstock.broker.markers import LocalMarkers
from penstock.broker.producer_ids import ProducerIds
from penstock.broker.scrubber import Scrubber
from penstock.broker.server import Server
from penstock.clock import Clock, SystemClock
from penstock.config.broker import BrokerConfig, BrokerSettings, warn_of_unknown
from penstock.config.definition import InvalidConfig
from penstock.controller.controller import Controller
from penstock.group.coordinator import GroupCoordinator
from penstock.log.directory import DirectoryError, LogDirectory, MetaProperties
from penstock.log.logs import Logs
from penstock.log.storage import Storage
from penstock.log.trusted_time import TrustedTime
from penstock.log.turn import Turn
from penstock.metadata.file_log import FileMetadataLog
from penstock.metadata.image import Delta, Image, PartitionState, ResourceType
from penstock.metadata.records import BrokerEndpoint
from penstock.replica.replicas import Replicas
from penstock.txn.coordinator import TransactionCoordinator
from penstock.wire.types import random_uuid, uuid_text

logger = logging.getLogger(__name__)

# How long a stopping broker waits for requests that are under way.
_STOP_PATIENCE_S = 5.0


class Broker:
    """One broker. `start` it, let it run, `stop` it; it belongs to the event loop that started it."""

    def __init__(
        self,
        static: Mapping[str, str],
        *,
        storage: Storage | None = None,
        clock: Clock | None = None,
        interceptor: Interceptor | None = None,
    ) -> None:
        """Raises InvalidConfig for settings that cannot be. An `interceptor` serves every request first: for tests."""
        self.settings = BrokerSettings.resolve(static)
        warn_of_unknown(static)
        self._listeners = listeners(self.settings.broker)
        self.clock = clock or SystemClock()
        self.trusted_time = TrustedTime(self.clock, self.config.penstock_clock_jump_patience_ms)
        self.storage = storage or Storage()
        self._interceptor = interceptor
        self.broker_id = -1
        self.broker_epoch = -1
        self.cluster_id = ""
        self.failed = asyncio.Event()  # set when the broker cannot go on
        self.addresses: list[Listener] = []

    # ---- what handlers use ----

    @property
    def config(self) -> BrokerConfig:
        return self.settings.broker

    @property
    def image(self) -> Image:
        return self._metadata.image

    @property
    def controller_id(self) -> int:
        return self.broker_id

    def nodes(self, listener: str) -> list[tuple[int, str, int, str | None]]:
        """(id, host, port, rack) of the brokers that clients of a listener can reach."""
        found = []
        for broker in self.image.brokers.values():
            endpoint = broker.endpoint(listener)
            if endpoint is not None and not broker.is_fenced:
                found.append((broker.broker_id, endpoint.host, endpoint.port, broker.rack))
        return found

    def offline_replicas(self, topic: str, index: int, state: PartitionState) -> list[int]:
        """The replicas of a partition that cannot be used: their broker is gone, or their disk has failed."""
        brokers = self.image.brokers
        offline = [node for node in state.replicas if node not in brokers or brokers[node].is_fenced]
        if self.broker_id in state.replicas and self.broker_id not in offline:
            partition = self.replicas.get(topic, index)
            if partition is None or partition.is_offline:
                offline.append(self.broker_id)
        return offline

    # ---- starting ----

    async def start(self) -> None:
        """Open the data, join the cluster, serve. Raises InvalidConfig, DirectoryError or OSError."""
        self.loop = asyncio.get_running_loop()
        _raise_descriptor_limit()
        self.background = Background(self.loop, self.config.background_threads)
        self.logs = Logs(self.storage, self.clock, self.config.data_directories, self._directory_failed)
        self._take_identity(self.logs.open_directories())
        self._metadata = self._open_metadata()
        self._refresh_settings()
        self.replicas = Replicas(self.broker_id, self.logs, self.background, lambda: self.settings)
        self.controller = Controller(
            self._metadata, self._metadata.begin_term(), lambda: self.settings, lambda: self._metadata.next_offset
        )
        self.producer_ids = ProducerIds(
            lambda: self.controller.allocate_producer_ids(self.broker_id, self.broker_epoch)
        )
        self.groups = GroupCoordinator(
            replicas=self.replicas,
            config=lambda: self.config,
            image=lambda: self.image,
            clock=self.clock,
            background=self.background,
        )
        self.markers = LocalMarkers(self.replicas, self.groups.shards, self.clock)
        self.transactions = TransactionCoordinator(
            replicas=self.replicas,
            config=lambda: self.config,
            image=lambda: self.image,
            clock=self.clock,
            background=self.background,
            new_producer_id=self.producer_ids.next,
            markers=self.markers,
        )
        self.fetch_sessions = FetchSessions(self.config.max_incremental_fetch_session_cache_slots)
        self.turn = Turn(self.loop.call_soon, self._records_lost)
        self._server = Server(lambda: self.config, self.background, self._dispatcher().dispatch, self.turn.end)
        bound = self._server.bind(self._listeners)
        self.addresses = [replace(listener, port=bound_socket.getsockname()[1]) for listener, bound_socket in bound]
        await self._register()
        self.replicas.load(self.image, self.config.num_recovery_threads_per_data_dir)
        self.groups.start()
        self.transactions.start()
        self._metadata.listen(self._metadata_changed)
        await self._server.listen(bound)
        Housekeeping(self).start()
        self._cleaners = Cleaners(self)
        self._cleaners.start()
        self._scrubber = Scrubber(self)
        self._scrubber.start()

    def _take_identity(self, meta: MetaProperties | None) -> None:
        """Find out who this broker is: from its settings, from its data, or new."""
        wanted = self.config.broker_id if self.config.broker_id >= 0 else self.config.node_id
        if meta is not None:
            if wanted not in (-1, meta.broker_id):
                raise DirectoryError(
                    f"the data belongs to broker {meta.broker_id}, but broker.id is {wanted}; "
                    "change broker.id or choose another data directory"
                )
            self.broker_id, self.cluster_id = meta.broker_id, meta.cluster_id
        else:
            if wanted < 0 and not self.config.broker_id_generation_enable:
                raise InvalidConfig("broker.id is not set, and broker.id.generation.enable is false")
            self.broker_id = wanted if wanted >= 0 else self.config.reserved_broker_max_id + 1
            self.cluster_id = uuid_text(random_uuid())
        self.logs.write_identity(self.cluster_id, self.broker_id)

    def _open_metadata(self) -> FileMetadataLog:
        directory = self.config.metadata_log_dir or self.logs.directories[0].path
        return FileMetadataLog(
            storage=self.storage,
            directory=directory,
            node_id=self.broker_id,
            clock=self.clock,
            background=self.background,
            bytes_between_snapshots=self.config.metadata_log_max_record_bytes_between_snapshots,
        )

    def _dispatcher(self) -> Dispatcher:
        return Dispatcher(self) if self._interceptor is None else InterceptedDispatcher(self, self._interceptor)

    async def _register(self) -> None:
        endpoints = [
            BrokerEndpoint(name=address.name, host=address.host, port=address.port)
            for address in advertised(self.config, self.addresses)
        ]
        directories = [
            directory.meta.directory_id for directory in self.logs.online_directories if directory.meta is not None
        ]
        self.broker_epoch = await self.controller.register_broker(
            self.broker_id, endpoints, self.config.broker_rack, directories, was_clean=self.logs.was_clean
        )

    # ---- running ----

    def _metadata_changed(self, image: Image, delta: Delta) -> None:
        if any(resource_type == ResourceType.BROKER for resource_type, _ in delta.changed_configs):
            self._refresh_settings()
        self.replicas.apply(image, delta)
        self.groups.follow(delta)
        self.transactions.follow()

    def _refresh_settings(self) -> None:
        """Follow settings that were changed while the broker runs."""
        dynamic_default = self.image.config(ResourceType.BROKER, "")
        dynamic = self.image.config(ResourceType.BROKER, str(self.broker_id))
        try:
            self.settings = self.settings.with_dynamic(dynamic_default, dynamic)
        except InvalidConfig as error:
            logger.error("keeping the old settings: %s", error)

    def _directory_failed(self, directory: LogDirectory) -> None:
        """A disk is lost. Go on with the others, unless it is the one with the metadata."""
        if hasattr(self, "replicas"):
            self.replicas.directory_failed(directory)
        if hasattr(self, "transactions"):
            self.loop.call_soon(self._resign)  # not now: it may be a coordinator that has just found out
        metadata_directory = self.config.metadata_log_dir or self.logs.directories[0].path
        if os.path.abspath(metadata_directory) == directory.path:
            logger.critical("the failed directory holds the metadata; stopping")
            self.failed.set()

    def _records_lost(self) -> None:
        """What clients sent could not be written: they must not hear that it was."""
        self._server.drop_answers()

    def _resign(self) -> None:
        """Coordinate no longer what was on a disk that failed."""
        self.groups.follow()
        self.transactions.follow()

    # ---- stopping ----

    async def stop(self) -> None:
        """Finish what is under way, bring everything to disk, and mark the shutdown as clean."""
        self.groups.stop()
        self.transactions.stop()
        await self._server.stop(_STOP_PATIENCE_S)
        await self._cleaners.stop()
        await self._scrubber.stop()
        self.background.close()
        self._metadata.close()
        self.logs.close(self.broker_epoch)


def _raise_descriptor_limit() -> None:
    """Thousands of partitions mean thousands of open files: take all the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
