"""What must be true of a log after the writers are done, whatever happened meanwhile.

The names are those of Jepsen's Kafka workload.
"""

from __future__ import annotations

from penstock.client.connection import Connection
from penstock.wire.batch import batches_in, decode_records
from penstock.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from penstock.wire.record import Record
from tests.chaos.writers import Writer, number_of


def read_partition(port: int, topic: str, partition: int) -> list[Record]:
    """All records of a partition, from its beginning to the high watermark."""
    records: list[Record] = []
    with Connection("127.0.0.1", port) as connection:
        offset = 0
        while True:
            wanted = [FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=4 << 20)]
            topics = [FetchTopic(topic=topic, partitions=wanted)]
            request = FetchRequest(max_wait_ms=0, min_bytes=0, session_epoch=-1, topics=topics)
            (data,) = connection.call(request, 12).responses[0].partitions
            assert data.error_code == 0, data
            content = bytes(data.records)
            found = [r for batch in batches_in(content) for r in decode_records(content, batch) if r.offset >= offset]
            records += found
            if found:
                offset = found[-1].offset + 1
            if offset >= data.high_watermark:
                return records
            assert found, f"{topic}-{partition} has nothing at offset {offset}, below its high watermark: {data}"


def check(writer: Writer, records: list[Record]) -> None:
    """Compare a partition's records with what its writer was told."""
    numbers = check_acknowledged(writer.acknowledged, writer.attempted, records)
    if writer.is_idempotent:
        assert numbers == list(range(writer.attempted)), (
            "an idempotent writer's records must all be there, once, in order"
        )


def check_acknowledged(acknowledged: dict[int, int], attempted: int, records: list[Record]) -> list[int]:
    """The same for some of its records, as number by offset. Returns the numbers of all."""
    by_offset = {record.offset: number_of(record.value) for record in records}
    assert len(by_offset) == len(records), "an offset appears twice"
    lost = {offset: number for offset, number in acknowledged.items() if by_offset.get(offset) != number}
    assert not lost, f"lost-write: acknowledged but not there: {dict(list(lost.items())[:5])} of {len(lost)}"
    numbers = [by_offset[offset] for offset in sorted(by_offset)]
    unknown = [number for number in numbers if number >= attempted]
    assert not unknown, f"records that were never sent: {unknown[:5]}"
    assert numbers == sorted(set(numbers)), "duplicate, or nonmonotonic-send: records are there twice or out of order"
    return numbers
