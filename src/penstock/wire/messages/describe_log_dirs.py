"""DescribeLogDirs (35).

0 is kept for clients of Kafka 1.0 (Kafka 4 starts at 1). 2 is flexible, 3 adds an error for the whole, 4 disk sizes, 5
whether the directory is cordoned.
"""

from __future__ import annotations

from penstock.wire.schema import field, message, struct
from penstock.wire.types import BOOL, INT16, INT32, INT64, STRING, array


@struct
class DescribableLogDirTopic:
    topic: str = field(STRING, default="")
    partitions: list[int] = field(array(INT32), factory=list)


@message(versions="0-5", flexible="2+")
class DescribeLogDirsRequest:
    topics: list[DescribableLogDirTopic] | None = field(array(DescribableLogDirTopic), nullable="0+", factory=list)


@struct
class DescribeLogDirsPartition:
    partition_index: int = field(INT32, default=0)
    partition_size: int = field(INT64, default=0)
    offset_lag: int = field(INT64, default=0)
    is_future_key: bool = field(BOOL, default=False)


@struct
class DescribeLogDirsTopic:
    name: str = field(STRING, default="")
    partitions: list[DescribeLogDirsPartition] = field(array(DescribeLogDirsPartition), factory=list)


@struct
class DescribeLogDirsResult:
    error_code: int = field(INT16, default=0)
    log_dir: str = field(STRING, default="")
    topics: list[DescribeLogDirsTopic] = field(array(DescribeLogDirsTopic), factory=list)
    total_bytes: int = field(INT64, "4+", default=-1, ignorable=True)
    usable_bytes: int = field(INT64, "4+", default=-1, ignorable=True)
    is_cordoned: bool = field(BOOL, "5+", default=False, ignorable=True)


@message(versions="0-5", flexible="2+")
class DescribeLogDirsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16, "3+", default=0, ignorable=True)
    results: list[DescribeLogDirsResult] = field(array(DescribeLogDirsResult), factory=list)
