"""`df.write.format("penstock")`: one write of all rows, at least once, as with Spark's own Kafka sink.

Each task writes what it has, under a producer id of its own: a retry of a request does not double records, a retry of a
task does. Exactly once is what `sink.write_stream` does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.client.errors import ConfigurationError
from penstock.spark.options import check_security
from penstock.spark.rows import CODECS, check_columns
from penstock.spark.sending import Target
from penstock.spark.writing import write_at_least_once

_KNOWN = ("kafka.bootstrap.servers", "topic", "topics", "kafka.compression.type")
_WITHOUT_EFFECT = ("includeheaders",)  # Spark's own sink takes it too: a column of headers is written in any case


@dataclass
class Written(WriterCommitMessage):
    records: int


class BatchWriter(DataSourceArrowWriter):
    """Writes a DataFrame into topics."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        given = {name.lower(): value for name, value in options.items()}
        taken = {*_KNOWN, *_WITHOUT_EFFECT}
        unknown = [name for name in options if name.lower() not in taken and not name.lower().startswith("kafka.")]
        if unknown:
            raise ConfigurationError(f"there is no option {unknown[0]} for writing; there are {', '.join(_KNOWN)}")
        for name, value in options.items():
            check_security(name, value)
        bootstrap = given.get("kafka.bootstrap.servers", "")
        if not bootstrap:
            raise ConfigurationError("option kafka.bootstrap.servers is missing: name at least one broker as host:port")
        topic = given.get("topic")
        topics = [topic] if topic else [name for name in given.get("topics", "").split(",") if name]
        if not topics:
            raise ConfigurationError("say where to write: option topic, or topics and a column topic")
        codec = given.get("kafka.compression.type", "none").lower()
        if codec not in CODECS:
            raise ConfigurationError(f"option kafka.compression.type: {codec!r} is none of {', '.join(CODECS)}")
        self._target = Target(bootstrap, tuple(topics), topic, CODECS[codec])
        check_columns(schema, needs_topic=topic is None)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return Written(write_at_least_once(self._target, (self._without_topic(batch) for batch in iterator)))

    def _without_topic(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The option wins over the column, as in Spark's own sink."""
        if self._target.default_topic is None or "topic" not in batch.schema.names:
            return batch
        return batch.drop_columns("topic")
