"""What the checkpoint of a streaming query says: how far its sources are read, and where its watermark is.

Spark writes down what a micro-batch reads before it begins, and keeps it while the query may still have to repeat it.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.utils import is_remote

from penstock.client.partitions import TopicPartition
from penstock.spark.ranges import from_text


def source_offsets(log: str) -> dict[TopicPartition, int]:
    """The offsets of Kafka sources in an entry of Spark's offset log: a line for each source after two others.

    Where two sources read the same partition, what both have read counts.
    """
    found: dict[TopicPartition, int] = {}
    for line in log.splitlines()[2:]:
        for partition, offset in (from_text(line) or {}).items():
            found[partition] = min(offset, found.get(partition, offset))
    return found


def offsets_before(frame: DataFrame, checkpoint: str, batch_id: int) -> dict[TopicPartition, int]:
    """How far the sources were read before a batch, as far as they are topics."""
    return offsets_after(frame, checkpoint, batch_id - 1) if batch_id else {}


def offsets_after(frame: DataFrame, checkpoint: str, batch_id: int) -> dict[TopicPartition, int]:
    """How far the sources are read with a batch, as far as they are topics."""
    return source_offsets(read_text(frame, checkpoint, f"offsets/{batch_id}"))


def watermark_before(frame: DataFrame, checkpoint: str, batch_id: int) -> int:
    """The watermark of the batch before, in ms: records that it has passed are those that Spark drops as too late."""
    if not batch_id:
        return 0
    log = read_text(frame, checkpoint, f"offsets/{batch_id - 1}")
    return int(json.loads(log.splitlines()[1])["batchWatermarkMs"])


def read_text(frame: DataFrame, checkpoint: str, name: str) -> str:
    """A small file of a checkpoint, on any file system that Spark knows. It is in every micro-batch's way."""
    if is_remote():
        return "\n".join(row.value for row in frame.sparkSession.read.text(f"{checkpoint}/{name}").collect())
    context: Any = frame.sparkSession.sparkContext
    folder = _folder_here(context, checkpoint)
    if folder is not None:
        return (folder / name).read_text(encoding="utf-8")
    file = context._jvm.org.apache.hadoop.fs.Path(f"{checkpoint}/{name}")
    stream = file.getFileSystem(context._jsc.hadoopConfiguration()).open(file)
    try:
        text: str = context._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        return text
    finally:
        stream.close()


@lru_cache(maxsize=100)
def _folder_here(context: Any, checkpoint: str) -> Path | None:
    """A checkpoint's folder, if it is on a disk of this machine: then each look into it need not go through the JVM."""
    path = context._jvm.org.apache.hadoop.fs.Path(checkpoint)
    file_system = path.getFileSystem(context._jsc.hadoopConfiguration())
    if file_system.getUri().getScheme() != "file":
        return None
    return Path(file_system.makeQualified(path).toUri().getPath())
