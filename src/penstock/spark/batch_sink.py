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

from penstock.client.cluster import Cluster
from penstock.client.errors import ConfigurationError
from penstock.client.shared_transaction import Identity
from penstock.spark.options import check_security
from penstock.spark.placing import placed
from penstock.spark.rows import CODECS, check_columns
from penstock.spark.writing import WritePlan, Writer, encoded, layout_of, places_of
from penstock.wire.messages.init_producer_id import InitProducerIdRequest

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
        self._bootstrap = given.get("kafka.bootstrap.servers", "")
        if not self._bootstrap:
            raise ConfigurationError("option kafka.bootstrap.servers is missing: name at least one broker as host:port")
        self._topic = given.get("topic")
        self._topics = [self._topic] if self._topic else [name for name in given.get("topics", "").split(",") if name]
        if not self._topics:
            raise ConfigurationError("say where to write: option topic, or topics and a column topic")
        codec = given.get("kafka.compression.type", "none").lower()
        if codec not in CODECS:
            raise ConfigurationError(f"option kafka.compression.type: {codec!r} is none of {', '.join(CODECS)}")
        self._codec = CODECS[codec]
        check_columns(schema, needs_topic=self._topic is None)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        with Cluster(self._bootstrap, client_id="penstock-spark") as cluster:
            layout = layout_of(cluster, self._topics, self._topic)
            places = places_of(layout)
            writer = Writer(WritePlan(self._bootstrap, places, _identity(cluster), False, self._codec, 60.0), cluster)
            rows = (self._without_topic(batch) for batch in iterator)
            for records in encoded(placed(layout, rows), len(places), self._codec):
                writer.send(records)
            writer.finish()
        return Written(sum(writer.counts.values()))

    def _without_topic(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The option wins over the column, as in Spark's own sink."""
        if self._topic is None or "topic" not in batch.schema.names:
            return batch
        return batch.drop_columns("topic")


def _identity(cluster: Cluster) -> Identity:
    request = InitProducerIdRequest(transaction_timeout_ms=60_000)
    response = cluster.retrying("get a producer id", lambda: cluster.any_broker().call(request))
    return Identity("", response.producer_id, response.producer_epoch)
