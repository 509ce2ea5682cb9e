"""What transactional clients did and saw, and what must be true of it. The names are those of Jepsen's Kafka workload.

Every value is written once, by one transaction, to one partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

Partition = int
Offset = int
Value = int


class Outcome(Enum):
    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "unknown"  # the client was not told; either may be true, but not both


@dataclass
class Written:
    """One transaction of a writer: what it wrote, in order."""

    writer: str
    writes: list[tuple[Partition, Value]] = field(default_factory=list)
    outcome: Outcome = Outcome.UNKNOWN


@dataclass
class Polled:
    """What one reader saw of committed records, in the order in which it saw it, since it began at the beginning."""

    reader: str
    records: list[tuple[Partition, Offset, Value]] = field(default_factory=list)


Log = Mapping[Partition, Sequence[tuple[Offset, Value]]]  # what is committed in the end


def anomalies(written: Iterable[Written], polled: Iterable[Polled], final: Log) -> list[str]:
    """All that is wrong; nothing if all promises were kept."""
    transactions = list(written)
    places = {value: partition for partition, records in final.items() for _, value in records}
    found = [*_doubled(final), *_outcomes(transactions, places), *_orders(transactions, final)]
    for reader in polled:
        found += _reader(reader, final)
    return found


def _doubled(final: Log) -> Iterable[str]:
    seen: set[Value] = set()
    for partition, records in final.items():
        for offset, value in records:
            if value in seen:
                yield f"duplicate: {value} is there again at {partition}:{offset}"
            seen.add(value)


def _outcomes(transactions: Sequence[Written], places: Mapping[Value, Partition]) -> Iterable[str]:
    for one in transactions:
        there = [value for partition, value in one.writes if places.get(value) == partition]
        values = [value for _, value in one.writes]
        if one.outcome is Outcome.COMMITTED and len(there) < len(values):
            yield f"lost-write: {one.writer} committed {values}, but only {there} are there"
        elif one.outcome is Outcome.ABORTED and there:
            yield f"G1a: {one.writer} aborted {values}, but {there} are there"
        elif there and len(there) < len(values):
            yield f"torn transaction: of {values} by {one.writer}, only {there} are there"
    known = {value for one in transactions for _, value in one.writes}
    for value in places.keys() - known:
        yield f"unknown: nobody wrote {value}"


def _orders(transactions: Sequence[Written], final: Log) -> Iterable[str]:
    """A writer's records are in each partition in the order in which it sent them."""
    turns: dict[Value, tuple[str, int]] = {}
    for turn, one in enumerate(transactions):
        for number, (_, value) in enumerate(one.writes):
            turns[value] = (one.writer, turn * 1_000 + number)
    for partition, records in final.items():
        last: dict[str, int] = {}
        for offset, value in records:
            writer, turn = turns.get(value, ("nobody", 0))
            if turn < last.get(writer, -1):
                yield f"nonmonotonic-send: {value} of {writer} is at {partition}:{offset}, behind a later one"
            last[writer] = turn


def _reader(reader: Polled, final: Log) -> Iterable[str]:
    """What was polled is a part of the log without holes, in its order."""
    positions = dict.fromkeys(final, 0)
    for partition, offset, value in reader.records:
        expected = final.get(partition, ())
        at = positions.get(partition, 0)
        if at < len(expected) and expected[at] == (offset, value):
            positions[partition] = at + 1
            continue
        index = next((n for n, record in enumerate(expected) if record == (offset, value)), None)
        if index is None:
            same = [other for where, other in expected if where == offset]
            kind = f"inconsistent-offsets: {offset} is {same[0]}" if same else "G1a: it is not in the end"
            yield f"{kind}; {reader.reader} saw {value} at {partition}:{offset}"
        else:
            kind = "nonmonotonic-poll" if index < at else "poll-skip"
            yield f"{kind}: {reader.reader} saw {value} at {partition}:{offset}, which was not next"
            positions[partition] = index + 1
