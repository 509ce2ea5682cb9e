"""What a broker does from time to time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.log.directory import HIGH_WATERMARKS, RECOVERY_POINTS, START_OFFSETS
from penstock.log.logs import PendingCheckpoint

if TYPE_CHECKING:
    from penstock.broker.broker import Broker

_FLUSH_CHECK_INTERVAL_MS_MAX = 1_000


class Housekeeping:
    """Retention, flushes that are due, checkpoints, forgotten producers. Only timers; the work itself is elsewhere."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def start(self) -> None:
        config = self._broker.config
        every = self._broker.background.every
        first_after_ms = config.log_initial_task_delay_ms
        every(config.log_retention_check_interval_ms, self.apply_retention, first_after_ms=first_after_ms)
        every(min(config.log_flush_scheduler_interval_ms, _FLUSH_CHECK_INTERVAL_MS_MAX), self.flush_due)
        every(
            max(config.log_flush_offset_checkpoint_interval_ms, 1),
            lambda: self._checkpoint(RECOVERY_POINTS),
            first_after_ms=first_after_ms,
        )
        every(
            max(config.log_flush_start_offset_checkpoint_interval_ms, 1),
            lambda: self._checkpoint(START_OFFSETS),
            first_after_ms=first_after_ms,
        )
        every(config.replica_high_watermark_checkpoint_interval_ms, lambda: self._checkpoint(HIGH_WATERMARKS))
        every(config.producer_id_expiration_check_interval_ms, self.forget_producers)

    def apply_retention(self) -> None:
        for pending in self._broker.logs.delete_old_segments(self._broker.trusted_time.time_ms()):
            self._broker.replicas.delete_later(pending)

    def flush_due(self) -> None:
        for partition in self._broker.replicas:
            log = partition.log
            if log.unflushed_records and (
                self._broker.clock.time_ms() - log.last_flush_ms >= log.config.flush_ms or log.needs_flush
            ):
                partition.request_flush()

    def forget_producers(self) -> None:
        self._broker.logs.remove_expired_producers(self._broker.config.producer_id_expiration_ms)

    def _checkpoint(self, name: str) -> None:
        for checkpoint in self._broker.logs.checkpoints(name):
            self._run(checkpoint)

    def _run(self, checkpoint: PendingCheckpoint) -> None:
        self._broker.background.run_logged(checkpoint.run, f"writing {checkpoint.name}")
