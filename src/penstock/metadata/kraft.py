"""What makes a folder of metadata records one that Kafka's own tools and brokers accept.

Control records at the beginning of each controller's term and around snapshots; the names of snapshot files; and the
`quorum-state` file that names the term and its controller.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

from penstock.metadata.records import decode_record, encode_record
from penstock.wire.batch import batches_in, decode_records, encode_batch
from penstock.wire.errors import WireError
from penstock.wire.record import ControlType, Record, control_key
from penstock.wire.schema import codec, field, message, struct
from penstock.wire.types import INT16, INT32, INT64, array

METADATA_TOPIC = "__cluster_metadata"
DIRECTORY = f"{METADATA_TOPIC}-0"
QUORUM_STATE = "quorum-state"
SNAPSHOT_SUFFIX = ".checkpoint"

_SNAPSHOT_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_SNAPSHOT_BATCH_RECORDS = 1000


@struct
class Voter:
    voter_id: int = field(INT32, default=0)


@message(versions="0", flexible="0+")
class LeaderChangeMessage:
    version: int = field(INT16, default=0)
    leader_id: int = field(INT32, default=0)
    voters: list[Voter] = field(array(Voter), factory=list)
    granting_voters: list[Voter] = field(array(Voter), factory=list)


@message(versions="0", flexible="0+")
class SnapshotHeaderRecord:
    version: int = field(INT16, default=0)
    last_contained_log_timestamp: int = field(INT64, default=0)


@message(versions="0", flexible="0+")
class SnapshotFooterRecord:
    version: int = field(INT16, default=0)


def _control_batch(control_type: ControlType, content: Any, *, offset: int, epoch: int, now_ms: int) -> bytearray:
    value = codec(type(content), 0).encode(content)
    return encode_batch(
        [Record(0, now_ms, control_key(control_type), value)], base_offset=offset, leader_epoch=epoch, is_control=True
    )


def leader_change_batch(node_id: int, now_ms: int) -> bytearray:
    """The record that begins a term."""
    voters = [Voter(voter_id=node_id)]
    content = LeaderChangeMessage(leader_id=node_id, voters=voters, granting_voters=voters)
    return _control_batch(ControlType.LEADER_CHANGE, content, offset=0, epoch=-1, now_ms=now_ms)


def records_batch(records: Iterable[Any], now_ms: int, *, offset: int = 0, epoch: int = -1) -> bytearray:
    """Metadata records that belong together."""
    entries = [Record(number, now_ms, None, encode_record(record)) for number, record in enumerate(records)]
    return encode_batch(entries, base_offset=offset, leader_epoch=epoch)


def quorum_state(node_id: int, epoch: int) -> bytes:
    return json.dumps(
        {
            "clusterId": "",
            "leaderId": node_id,
            "leaderEpoch": epoch,
            "votedId": -1,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": node_id}],
            "data_version": 0,
        },
        separators=(",", ":"),
    ).encode()


# ---- snapshots ----


def snapshot_name(end_offset: int, epoch: int) -> str:
    return f"{end_offset:020d}-{epoch:010d}{SNAPSHOT_SUFFIX}"


def parse_snapshot_name(name: str) -> tuple[int, int] | None:
    """(end offset, epoch) of a snapshot file; None if it is none."""
    match = _SNAPSHOT_NAME.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def encode_snapshot(records: Iterable[Any], epoch: int, now_ms: int) -> Iterator[bytearray]:
    """The batches of a snapshot file."""
    header = SnapshotHeaderRecord(last_contained_log_timestamp=now_ms)
    yield _control_batch(ControlType.SNAPSHOT_HEADER, header, offset=0, epoch=epoch, now_ms=now_ms)
    offset = 1
    batch: list[Any] = []
    for record in records:
        batch.append(record)
        if len(batch) == _SNAPSHOT_BATCH_RECORDS:
            yield records_batch(batch, now_ms, offset=offset, epoch=epoch)
            offset += len(batch)
            batch = []
    if batch:
        yield records_batch(batch, now_ms, offset=offset, epoch=epoch)
        offset += len(batch)
    footer = SnapshotFooterRecord()
    yield _control_batch(ControlType.SNAPSHOT_FOOTER, footer, offset=offset, epoch=epoch, now_ms=now_ms)


def decode_snapshot(content: bytes) -> list[Any]:
    """The records in a snapshot file. Raises WireError if it is damaged or does not end with its footer."""
    records: list[Any] = []
    is_complete = False
    for batch in batches_in(content):
        entries = decode_records(content, batch)
        if batch.is_control:
            is_complete = any(entry.key == control_key(ControlType.SNAPSHOT_FOOTER) for entry in entries)
        else:
            records += [decode_record(entry.value) for entry in entries]
    if not is_complete:
        raise WireError("the snapshot has no footer")
    return records
