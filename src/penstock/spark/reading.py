"""What a task does: fetch a range of a partition, and lay its records out as Arrow columns.

Nothing here is done record by record. While one response is turned into columns, the broker already sends the next.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from penstock.client.cluster import EARLIEST, RETRIABLE, Cluster, Moved, Refused
from penstock.client.connection import ConnectionLost
from penstock.spark.options import SourceOptions
from penstock.spark.ranges import DataLoss, OffsetRange
from penstock.spark.task_process import settle
from penstock.wire._arrow import Columns, next_offset
from penstock.wire._kernel import HEADER_BYTES, Batch
from penstock.wire.api import APIS, ApiKey
from penstock.wire.batch import batches_in, decode_records
from penstock.wire.compression import Codec, decompress
from penstock.wire.errors import ErrorCode
from penstock.wire.isolation import READ_COMMITTED
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, PartitionData
from penstock.wire.record import decode_end_txn_marker

# A batch of columns is handed to Spark when it has so many rows or bytes.
_ROWS = 65_536
_BYTES = 16 * 1024 * 1024

_WAIT_MS = 500
_BY_NAME_VERSION = 12  # the newest version of Fetch that names topics by name

_HEADER = pa.struct([("key", pa.string()), ("value", pa.binary())])
_TYPES: dict[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(_HEADER),
}


def arrow_schema(columns: Mapping[str, bool]) -> pa.Schema:
    """A schema with these columns of a record, each with whether it is declared to be null at times."""
    return pa.schema([pa.field(name, _TYPES[name], is_nullable) for name, is_nullable in columns.items()])


def read_range(options: SourceOptions, wanted: OffsetRange, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """All records of a range, as Arrow batches with the columns of a schema that `arrow_schema` made."""
    settle()
    columns = Columns(options.include_headers)
    topic = _Constant(pa.scalar(wanted.partition.topic, pa.string()))
    partition = _Constant(pa.scalar(wanted.partition.partition, pa.int32()))
    with Cluster(options.bootstrap, client_id="penstock-spark", timeout_s=options.timeout_s) as cluster:
        fetches = Fetches(cluster, options, wanted)
        for data in fetches:
            for batch, payload in _readable(data, options.isolation_level == READ_COMMITTED):
                append_time = batch.max_timestamp if batch.is_log_append_time else -1
                columns.add(
                    payload,
                    batch.count,
                    batch.base_offset,
                    batch.base_timestamp,
                    append_time,
                    fetches.start,
                    wanted.end,
                )
                if columns.count >= _ROWS or columns.size >= _BYTES:
                    yield _record_batch(columns, topic, partition, schema)
    if columns.count:
        yield _record_batch(columns, topic, partition, schema)


class Fetches:
    """The responses that cover a range of a partition, one after the other."""

    def __init__(self, cluster: Cluster, options: SourceOptions, wanted: OffsetRange) -> None:
        self._cluster = cluster
        self._options = options
        self._wanted = wanted
        self._position = wanted.start
        self.start = wanted.start  # batches come whole: records before this are not for us

    def __iter__(self) -> Iterator[PartitionData]:
        deadline = time.monotonic() + self._options.timeout_s
        while self._position < self._wanted.end:
            try:
                for data in self._from_leader():
                    deadline = time.monotonic() + self._options.timeout_s
                    yield data
            except DataLoss:
                if self._options.fail_on_data_loss:
                    raise
                self._skip_what_is_lost()
            except (OSError, ConnectionLost, Moved) as error:
                self._cluster.forget()
                if time.monotonic() > deadline:
                    raise self._gave_up(error) from None
                time.sleep(0.1)

    def _skip_what_is_lost(self) -> None:
        """Go on with the first record that is there; with none, if what is wanted is not there at all."""
        partition = self._wanted.partition
        self._cluster.forget()
        earliest = self._cluster.offsets({partition: EARLIEST})[partition]
        self._position = self.start = earliest if self._position < earliest else self._wanted.end

    def _gave_up(self, error: Exception) -> Exception:
        if isinstance(error, Moved):
            return Refused(error.code, f"read {self._wanted}")
        return Refused(ErrorCode.REQUEST_TIMED_OUT, f"read {self._wanted}", f"the broker does not answer ({error})")

    def _from_leader(self) -> Iterator[PartitionData]:
        """Responses of the leader, as long as it is one. The next request is sent before a response is handed over."""
        broker = self._cluster.leader(self._wanted.partition)
        version = broker.version_of(self._request(), _BY_NAME_VERSION)
        api = APIS[ApiKey.FETCH]
        broker.connection.send(self._request(), version)
        while True:
            response = broker.connection.receive(api, version)
            data = self._checked(response)
            found = next_offset(data.records or b"")
            if found < 0:
                self._check_there_is_more(data)
            else:
                self._position = found
            is_done = self._position >= self._wanted.end
            if not is_done:
                broker.connection.send(self._request(), version)
            yield data
            if is_done:
                return

    def _request(self) -> FetchRequest:
        partition = FetchPartition(
            partition=self._wanted.partition.partition,
            fetch_offset=self._position,
            partition_max_bytes=self._options.fetch_bytes,
        )
        return FetchRequest(
            max_wait_ms=_WAIT_MS,
            min_bytes=1,
            max_bytes=self._options.fetch_bytes,
            isolation_level=self._options.isolation_level,
            session_epoch=-1,
            topics=[FetchTopic(topic=self._wanted.partition.topic, partitions=[partition])],
        )

    def _checked(self, response: Any) -> PartitionData:
        data: PartitionData = response.responses[0].partitions[0]
        code = response.error_code or data.error_code
        if code == ErrorCode.NONE:
            return data
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise DataLoss(
                f"{self._wanted}: offset {self._position} is not there any more: retention or DeleteRecords removed "
                "it, or the topic was deleted and made again. Set failOnDataLoss=false to go on with what is left"
            )
        if code in RETRIABLE or code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise Moved(code)
        raise Refused(code, f"read {self._wanted}")

    def _check_there_is_more(self, data: PartitionData) -> None:
        """An empty response is fine while there is something to come."""
        if data.high_watermark < self._wanted.end:
            raise DataLoss(
                f"{self._wanted}: the partition ends at {data.high_watermark}: it was deleted and made again, or lost "
                "records. Set failOnDataLoss=false to go on with what is left"
            )


def _readable(data: PartitionData, is_committed_only: bool) -> Iterator[tuple[Batch, Any]]:
    """The batches with data that may be read, and their records, decompressed."""
    records = data.records
    aborts = sorted(data.aborted_transactions or [], key=lambda one: one.first_offset) if is_committed_only else []
    aborted: set[int] = set()
    for batch in batches_in(records):
        while aborts and aborts[0].first_offset <= batch.last_offset:
            aborted.add(aborts.pop(0).producer_id)
        if batch.is_control:
            if batch.producer_id in aborted and batch.count and _is_abort(records, batch):
                aborted.discard(batch.producer_id)
            continue
        if batch.count == 0 or (batch.is_transactional and batch.producer_id in aborted):
            continue
        payload = memoryview(records)[batch.position + HEADER_BYTES : batch.position + batch.size]  # type: ignore[arg-type]
        yield batch, payload if batch.codec == Codec.NONE else decompress(batch.codec, payload)


def _is_abort(records: Any, batch: Batch) -> bool:
    return not decode_end_txn_marker(decode_records(records, batch)[0]).is_commit


# ---- Arrow ----


class _Constant:
    """A column with the same value in every row: made once, and cut to size."""

    def __init__(self, value: pa.Scalar) -> None:
        self._value = value
        self._column = pa.repeat(value, 0)

    def of(self, count: int) -> pa.Array:
        if len(self._column) < count:
            self._column = pa.repeat(self._value, count)
        return self._column[:count]


def _record_batch(columns: Columns, topic: _Constant, partition: _Constant, schema: pa.Schema) -> pa.RecordBatch:
    """What came together in `columns`, as Arrow has it."""
    count, keys, values, offsets, timestamps, types, headers = columns.take()
    arrays = {
        "key": _binary(pa.binary(), count, keys),
        "value": _binary(pa.binary(), count, values),
        "topic": topic.of(count),
        "partition": partition.of(count),
        "offset": _numbers(_TYPES["offset"], count, offsets),
        "timestamp": _numbers(_TYPES["timestamp"], count, timestamps),
        "timestampType": _numbers(_TYPES["timestampType"], count, types),
    }
    if headers is not None:
        arrays["headers"] = _headers(count, headers)
    return pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)


def _headers(count: int, column: Any) -> pa.Array:
    nulls, validity, ends, header_count, names, contents = column
    items = pa.StructArray.from_arrays(
        [_text(header_count, names), _binary(pa.binary(), header_count, contents)], fields=list(_HEADER)
    )
    return pa.Array.from_buffers(_TYPES["headers"], count, [_buffer(validity), _buffer(ends)], nulls, children=[items])


def _binary(kind: pa.DataType, count: int, column: Any) -> pa.Array:
    nulls, validity, ends, content = column
    return pa.Array.from_buffers(kind, count, [_buffer(validity), _buffer(ends), _buffer(content)], nulls)


def _text(count: int, column: Any) -> pa.Array:
    """A column of text; what is not UTF-8 is replaced as the Java client does it."""
    found = _binary(pa.string(), count, column)
    try:
        found.validate(full=True)
    except pa.ArrowInvalid:
        found = pa.array([name.decode("utf-8", "replace") for name in found.cast(pa.binary()).to_pylist()], pa.string())
    return found


def _numbers(kind: pa.DataType, count: int, block: Any) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, _buffer(block)])


def _buffer(block: Any) -> pa.Buffer | None:
    return None if block is None else pa.py_buffer(block)
