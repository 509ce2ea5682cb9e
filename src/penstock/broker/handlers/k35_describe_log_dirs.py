"""DescribeLogDirs (35), versions 0-5: data directories, the logs in them, their sizes."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from penstock.log.directory import LogDirectory
from penstock.wire.errors import ErrorCode
from penstock.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.dispatch import Call


def handle(broker: Broker, request: DescribeLogDirsRequest, call: Call) -> DescribeLogDirsResponse:
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    return DescribeLogDirsResponse(
        results=[_describe(broker, directory, wanted) for directory in broker.logs.directories]
    )


def _describe(broker: Broker, directory: LogDirectory, wanted: set[tuple[str, int]] | None) -> DescribeLogDirsResult:
    if directory.is_offline:
        return DescribeLogDirsResult(log_dir=directory.path, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
    topics: dict[str, DescribeLogDirsTopic] = {}
    for (name, index), log in broker.logs:
        if broker.logs.directory_of((name, index)) is directory and (wanted is None or (name, index) in wanted):
            partition = broker.replicas.get(name, index)
            lag = max(partition.high_watermark - log.end_offset, 0) if partition is not None else 0
            entry = DescribeLogDirsPartition(partition_index=index, partition_size=log.size, offset_lag=lag)
            topics.setdefault(name, DescribeLogDirsTopic(name=name)).partitions.append(entry)
    disk = shutil.disk_usage(directory.path)
    return DescribeLogDirsResult(
        log_dir=directory.path, topics=list(topics.values()), total_bytes=disk.total, usable_bytes=disk.free
    )
