# cython: language_level=3, boundscheck=False, wraparound=False, embedsignature=True, nonecheck=True
"""The short way of a produce request, from its bytes to those of its answer.

It is for what most requests are: one partition, an uncompressed batch, nothing to complain about. Whatever is not that
simple is left to `handlers/k00_produce.py`, which knows all the rules and has the words for what is wrong.
"""

from libc.stdint cimport int64_t

from penstock.log._tail cimport LogEnd
from penstock.replica._leading cimport Leading
from penstock.wire._codec cimport OneProduce, RequestCursor, encode_one_produced, read_one_produce
from penstock.wire._kernel cimport Batch, PlainBatches

from penstock.log.producer_state import CLIENT
from penstock.wire.errors import ApiError


def append_one(RequestCursor cursor not None, dict partitions not None, int64_t now_ms, object turn):
    """Append what a produce request has for its partition; `partitions` has them by topic, then by index.

    Returns the encoded answer, or (request, partition, batch) if the batch is appended but acks may have to be waited
    for. None: nothing was done, and the request must go the long way.
    """
    cdef OneProduce request = read_one_produce(cursor, cursor.api_version)
    if request is None or (request.acks != 1 and request.acks != -1):
        return None
    cdef dict of_topic = partitions.get(request.topic)
    cdef Leading partition = of_topic.get(request.index) if of_topic is not None else None
    if partition is None or partition.is_internal:
        return None
    cdef LogEnd log = partition.log
    cdef PlainBatches plain = log.rules.plain
    cdef Batch batch = plain.check(request.records, now_ms)
    if batch is None or batch.attributes:
        return None
    try:
        partition.append(batch, request.acks, CLIENT, turn)
    except ApiError:
        return None
    cdef int64_t last_offset = batch.base_offset + batch.last_offset_delta
    if log.is_synced_by_count or (request.acks != 1 and last_offset >= log.high_watermark):
        return request, partition, batch
    return encode_one_produced(cursor, request, batch.base_offset, batch.log_append_time, log.start_offset)
