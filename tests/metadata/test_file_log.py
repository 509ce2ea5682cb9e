from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.background import Background
from penstock.clock import ManualClock
from penstock.log.storage import Storage
from penstock.metadata import kraft
from penstock.metadata.file_log import FileMetadataLog
from penstock.metadata.image import Delta, Image, snapshot_records
from penstock.metadata.log import NotController
from penstock.metadata.records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
)
from penstock.wire.batch import batches_in, decode_records
from penstock.wire.errors import ApiError, ErrorCode, WireError
from penstock.wire.record import ControlType, control_key
from tests.log.forgetful import ForgetfulStorage
from tests.log.gated import GatedStorage
from tests.log.samples import T0, append, open_at

FOLDER = "__cluster_metadata-0"
FIRST_LOG = f"{0:020d}.log"


def topic(name: str) -> list[Any]:
    """The records of a new topic."""
    topic_id = name.encode().ljust(16, b"\0")
    return [
        TopicRecord(name=name, topic_id=topic_id),
        PartitionRecord(topic_id=topic_id, partition_id=0, replicas=[1], isr=[1], leader=1),
    ]


@asynccontextmanager
async def opened(
    path: Path, storage: Storage | None = None, *, bytes_between_snapshots: int = 10**9, is_closed: bool = True
) -> AsyncIterator[FileMetadataLog]:
    background = Background(asyncio.get_running_loop(), 2)
    log = FileMetadataLog(
        storage=storage or Storage(),
        directory=str(path),
        node_id=1,
        clock=ManualClock(T0),
        background=background,
        bytes_between_snapshots=bytes_between_snapshots,
    )
    try:
        yield log
    finally:
        if isinstance(storage, GatedStorage):
            storage.let_sync_end(1000)
        background.close()
        if is_closed:
            log.close()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))


async def eventually(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 (nobody is told when a snapshot is done)
        await asyncio.sleep(0.001)


def image_at(path: Path) -> Image:
    """The image that the next start finds."""
    images: list[Image] = []

    async def look() -> None:
        async with opened(path, is_closed=False) as log:
            images.append(log.image)

    run(look)
    return images[0]


def facts(image: Image) -> tuple[Any, ...]:
    """What an image says, without where in the log it is."""
    return image.brokers, image.topics, image.configs, image.features, image.next_producer_id


# ---- appending ----


def test_records_are_visible_when_they_are_synced_and_not_before(tmp_path: Path) -> None:
    async def scenario() -> None:
        storage = GatedStorage()
        async with opened(tmp_path, storage) as log:
            epoch = log.begin_term()
            heard: list[tuple[Image, Delta]] = []
            log.listen(lambda image, delta: heard.append((image, delta)))
            task = asyncio.ensure_future(log.append(topic("a"), epoch))
            await storage.sync_begins()
            assert log.image.topics == {}
            assert heard == []
            assert not task.done()
            storage.let_sync_end()
            await task
            assert set(log.image.topics) == {"a"}
            [(image, delta)] = heard
            assert image is log.image
            assert set(delta.changed_topics) == {"a"}

    run(scenario)


def test_appends_become_visible_in_order_each_on_its_own(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as log:
            epoch = log.begin_term()
            seen: list[list[str]] = []
            offsets: list[int] = []

            def listen(image: Image, delta: Delta) -> None:
                seen.append(list(delta.changed_topics))
                offsets.append(image.offset)

            log.listen(listen)
            await asyncio.gather(*[log.append(topic(f"t{n}"), epoch) for n in range(10)])
            assert seen == [[f"t{n}"] for n in range(10)]
            assert offsets == [2 + 2 * n for n in range(10)]  # offset 0 is the record that begins the term
            assert log.next_offset == 21

    run(scenario)


def test_appends_that_wait_together_share_a_sync(tmp_path: Path) -> None:
    async def scenario() -> None:
        storage = GatedStorage()
        async with opened(tmp_path, storage) as log:
            epoch = log.begin_term()
            first = asyncio.ensure_future(log.append(topic("first"), epoch))
            await storage.sync_begins()
            others = [asyncio.ensure_future(log.append(topic(f"t{n}"), epoch)) for n in range(20)]
            await asyncio.sleep(0)
            storage.let_sync_end(2)
            await asyncio.gather(first, *others)
            assert storage.sync_count == 2

    run(scenario)


def test_an_append_of_another_epoch_is_refused(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as log:
            epoch = log.begin_term()
            for wrong in (epoch - 1, epoch + 1, -1):
                with pytest.raises(NotController):
                    await log.append(topic("a"), wrong)
            assert log.next_offset == 1
            await log.append(topic("a"), epoch)

    run(scenario)


def test_a_failed_sync_fails_the_append_and_all_later_ones(tmp_path: Path) -> None:
    async def scenario() -> None:
        storage = GatedStorage()
        async with opened(tmp_path, storage) as log:
            epoch = log.begin_term()
            storage.let_sync_end()
            await log.append(topic("a"), epoch)
            assert log.failure is None
            await storage.sync_begins()
            storage.error = OSError(errno.EIO, "I/O error")
            storage.let_sync_end()
            with pytest.raises(ApiError) as caught:
                await log.append(topic("b"), epoch)
            assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
            assert log.failure is storage.error
            with pytest.raises(OSError, match="I/O error"):
                await log.append(topic("c"), epoch)
            assert set(log.image.topics) == {"a"}

    run(scenario)


# ---- epochs ----


def test_every_start_begins_a_new_epoch(tmp_path: Path) -> None:
    async def scenario() -> None:
        for expected in range(4):
            async with opened(tmp_path, is_closed=expected % 2 == 0) as log:
                assert log.begin_term() == log.epoch == expected
                await log.append(topic(f"t{expected}"), expected)
                state = json.loads((tmp_path / FOLDER / "quorum-state").read_text())
                assert (state["leaderId"], state["leaderEpoch"], state["data_version"]) == (1, expected, 0)

    run(scenario)
    assert set(image_at(tmp_path).topics) == {"t0", "t1", "t2", "t3"}


def test_a_term_begins_with_kafkas_record_of_a_new_leader(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path) as log:
            log.begin_term()
            await log.append(topic("a"), 0)

    run(scenario)
    content = (tmp_path / FOLDER / FIRST_LOG).read_bytes()
    batches = list(batches_in(content))
    assert [(b.base_offset, b.count, b.is_control, b.leader_epoch) for b in batches] == [
        (0, 1, True, 0),
        (1, 2, False, 0),
    ]
    [change] = decode_records(content, batches[0])
    assert change.key == control_key(ControlType.LEADER_CHANGE)


# ---- opening again ----


def fill(path: Path, names: list[str], **options: Any) -> Image:
    """Append some topics, each on its own; returns the image."""
    images: list[Image] = []

    async def scenario() -> None:
        async with opened(path, **options) as log:
            epoch = log.begin_term()
            for name in names:
                await log.append(topic(name), epoch)
            images.append(log.image)

    run(scenario)
    return images[0]


@pytest.mark.parametrize("is_closed", [True, False])
def test_the_next_start_finds_the_same_image(tmp_path: Path, is_closed: bool) -> None:
    image = fill(tmp_path, ["a", "b", "c"], is_closed=is_closed)
    again = image_at(tmp_path)
    assert facts(again) == facts(image)
    assert (again.offset, again.epoch) == (image.offset, image.epoch)


def test_an_empty_log_gives_an_empty_image(tmp_path: Path) -> None:
    assert facts(image_at(tmp_path)) == facts(Image())


def test_a_torn_tail_costs_only_the_append_that_was_under_way(tmp_path: Path) -> None:
    fill(tmp_path / "whole", ["a", "b", "c"], is_closed=False)
    content = (tmp_path / "whole" / FOLDER / FIRST_LOG).read_bytes()
    last = list(batches_in(content))[-1]
    for size in range(last.position, len(content), 7):
        path = tmp_path / str(size)
        shutil.copytree(tmp_path / "whole", path)
        (path / FOLDER / FIRST_LOG).write_bytes(content[:size])
        assert set(image_at(path).topics) == {"a", "b"}


def test_what_was_acknowledged_survives_a_power_cut(tmp_path: Path) -> None:
    async def scenario() -> None:
        storage = ForgetfulStorage(tmp_path / "data")
        async with opened(tmp_path / "data", storage) as log:
            epoch = log.begin_term()
            for n in range(5):
                await log.append(topic(f"t{n}"), epoch)
                storage.crash_to(tmp_path / f"after{n}")

    run(scenario)
    for n in range(5):
        assert set(image_at(tmp_path / f"after{n}").topics) == {f"t{k}" for k in range(n + 1)}


# ---- snapshots ----


def snapshots(path: Path) -> list[str]:
    return sorted(name for name in os.listdir(path / FOLDER) if name.endswith(".checkpoint"))


def logs(path: Path) -> list[str]:
    return sorted(name for name in os.listdir(path / FOLDER) if name.endswith(".log"))


def test_after_enough_bytes_a_snapshot_takes_the_place_of_the_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened(tmp_path, bytes_between_snapshots=1000) as log:
            epoch = log.begin_term()
            n = 0
            while not snapshots(tmp_path):
                await log.append(topic(f"t{n}"), epoch)
                n += 1
                await eventually(lambda: not log._is_snapshotting)
            assert n > 3
            end = log.image.offset + 1
            assert snapshots(tmp_path) == [f"{end:020d}-{epoch:010d}.checkpoint"]
            assert logs(tmp_path) == [f"{end:020d}.log"]
            names.extend(f"t{k}" for k in range(n))

    names: list[str] = []
    run(scenario)
    assert set(image_at(tmp_path).topics) == set(names)


def with_snapshots(path: Path, names: list[str]) -> Image:
    """A snapshot after every append."""
    images: list[Image] = []

    async def scenario() -> None:
        async with opened(path, bytes_between_snapshots=1, is_closed=False) as log:
            epoch = log.begin_term()
            for name in names:
                await log.append(topic(name), epoch)
                await eventually(lambda: not log._is_snapshotting)
            images.append(log.image)

    run(scenario)
    return images[0]


def test_the_next_start_finds_the_snapshot_and_what_came_after_it(tmp_path: Path) -> None:
    with_snapshots(tmp_path, ["a", "b", "c"])
    assert len(snapshots(tmp_path)) == 1
    image = fill(tmp_path, ["d", "e"])
    assert set(image.topics) == {"a", "b", "c", "d", "e"}
    again = image_at(tmp_path)
    assert facts(again) == facts(image)
    assert again.offset == image.offset


def test_epochs_go_on_after_a_snapshot(tmp_path: Path) -> None:
    with_snapshots(tmp_path, ["a"])

    async def scenario() -> None:
        async with opened(tmp_path) as log:
            assert log.begin_term() == 1

    run(scenario)


def test_a_crash_between_the_snapshot_and_the_removal_of_the_log_is_harmless(tmp_path: Path) -> None:
    image = fill(tmp_path, ["a", "b"], is_closed=False)
    content = b"".join(kraft.encode_snapshot(snapshot_records(image), image.epoch, T0))
    (tmp_path / FOLDER / kraft.snapshot_name(image.offset + 1, image.epoch)).write_bytes(content)
    assert facts(image_at(tmp_path)) == facts(image)


def test_a_snapshot_beyond_the_end_of_the_log_counts(tmp_path: Path) -> None:
    image = with_snapshots(tmp_path, ["a", "b"])
    for name in logs(tmp_path):
        (tmp_path / FOLDER / name).write_bytes(b"")
    os.rename(tmp_path / FOLDER / logs(tmp_path)[0], tmp_path / FOLDER / FIRST_LOG)
    again = image_at(tmp_path)
    assert facts(again) == facts(image)
    more = fill(tmp_path, ["c"])
    assert set(more.topics) == {"a", "b", "c"}
    assert more.offset > image.offset
    assert facts(image_at(tmp_path)) == facts(more)


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "no footer"])
def test_a_damaged_snapshot_is_passed_over_if_the_log_still_has_all(tmp_path: Path, damage: str) -> None:
    image = fill(tmp_path, ["a", "b"], is_closed=False)
    content = bytearray(b"".join(kraft.encode_snapshot(snapshot_records(image), image.epoch, T0)))
    if damage == "cut":
        del content[-20:]
    elif damage == "flip":
        content[150] ^= 4
    elif damage == "empty":
        content.clear()
    else:
        last = list(batches_in(bytes(content)))[-1]
        del content[last.position :]
    (tmp_path / FOLDER / kraft.snapshot_name(image.offset + 1, image.epoch)).write_bytes(content)
    assert facts(image_at(tmp_path)) == facts(image)


def test_a_damaged_snapshot_whose_records_are_nowhere_else_is_reported(tmp_path: Path) -> None:
    with_snapshots(tmp_path, ["a", "b"])
    [name] = snapshots(tmp_path)
    content = bytearray((tmp_path / FOLDER / name).read_bytes())
    content[-1] ^= 1
    (tmp_path / FOLDER / name).write_bytes(content)
    with pytest.raises(WireError, match="missing"):
        image_at(tmp_path)


def test_only_the_newest_snapshot_is_kept(tmp_path: Path) -> None:
    with_snapshots(tmp_path, [f"t{n}" for n in range(5)])
    assert len(snapshots(tmp_path)) == 1
    assert len(logs(tmp_path)) == 1


def test_what_was_acknowledged_survives_a_power_cut_with_snapshots(tmp_path: Path) -> None:
    async def scenario() -> None:
        storage = ForgetfulStorage(tmp_path / "data")
        async with opened(tmp_path / "data", storage, bytes_between_snapshots=400) as log:
            epoch = log.begin_term()
            for n in range(12):
                await log.append(topic(f"t{n}"), epoch)
                storage.crash_to(tmp_path / f"after{n}")
                await eventually(lambda: not log._is_snapshotting)
                storage.crash_to(tmp_path / f"later{n}")

    run(scenario)
    for n in range(12):
        for when in ("after", "later"):
            assert set(image_at(tmp_path / f"{when}{n}").topics) == {f"t{k}" for k in range(n + 1)}


# ---- Kafka's transactions in the metadata log ----


def written(path: Path, *batches: list[Any]) -> None:
    """A metadata log with these batches, as Kafka would have left it."""
    log = open_at(path / FOLDER, is_clean=False)
    for records in batches:
        append(log, kraft.records_batch(records, T0), epoch=3)
    log.close()


BEGIN, END, ABORT = BeginTransactionRecord(), EndTransactionRecord(), AbortTransactionRecord()


@pytest.mark.parametrize(
    ("batches", "found"),
    [
        ([topic("a"), topic("b")], "ab"),
        ([topic("a"), [BEGIN, *topic("b"), END], topic("c")], "abc"),
        ([topic("a"), [BEGIN], topic("b"), topic("c"), [END], topic("d")], "abcd"),
        ([topic("a"), [BEGIN, *topic("b")], topic("c"), [ABORT], topic("d")], "ad"),
        ([[BEGIN], topic("a"), [ABORT, BEGIN, *topic("b"), END]], "b"),
        ([topic("a"), [BEGIN], topic("b")], "a"),  # it never ended
        ([topic("a"), [BEGIN, *topic("b"), END], [BEGIN], topic("c")], "ab"),
    ],
)
def test_only_transactions_that_ended_count(tmp_path: Path, batches: list[list[Any]], found: str) -> None:
    written(tmp_path, *batches)
    image = image_at(tmp_path)
    assert set(image.topics) == set(found)
    assert image.epoch == 3


def test_what_follows_a_transaction_that_never_ended_is_not_taken_for_part_of_it(tmp_path: Path) -> None:
    written(tmp_path, topic("a"), [BEGIN], topic("b"))
    image = fill(tmp_path, ["c"])
    assert set(image.topics) == {"a", "c"}
    assert set(image_at(tmp_path).topics) == {"a", "c"}


# ---- snapshot files ----


def test_snapshot_names_are_kafkas() -> None:
    assert kraft.snapshot_name(1234, 7) == "00000000000000001234-0000000007.checkpoint"
    assert kraft.parse_snapshot_name("00000000000000001234-0000000007.checkpoint") == (1234, 7)
    for other in ("00000000000000001234.log", "1234-7.checkpoint", "00000000000000001234-0000000007.checkpoint.part"):
        assert kraft.parse_snapshot_name(other) is None


@pytest.mark.parametrize("count", [0, 1, 999, 1000, 1001, 2500])
def test_a_snapshot_holds_all_records_between_its_header_and_footer(count: int) -> None:
    records = [ProducerIdsRecord(next_producer_id=n) for n in range(count)]
    content = b"".join(kraft.encode_snapshot(records, 5, T0))
    assert kraft.decode_snapshot(content) == records
    batches = list(batches_in(content))
    assert [batch.is_control for batch in (batches[0], batches[-1])] == [True, True]
    assert [batch.base_offset for batch in batches] == [sum(b.count for b in batches[:n]) for n in range(len(batches))]
    assert {batch.leader_epoch for batch in batches} == {5}


def test_a_snapshot_that_was_cut_anywhere_is_refused() -> None:
    content = b"".join(kraft.encode_snapshot(topic("a"), 5, T0))
    for size in range(len(content)):
        with pytest.raises(WireError):
            kraft.decode_snapshot(content[:size])
