"""The short way of a produce request: what it takes, what it leaves to the long way, and when it waits for acks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.background import Background
from penstock.broker._producing import append_one
from penstock.config.topic import TopicConfig
from penstock.log.turn import Turn
from penstock.metadata.image import PartitionState
from penstock.replica.partition import Partition
from penstock.wire._codec import RequestCursor
from penstock.wire.api import APIS, ApiKey
from penstock.wire.compression import Codec
from penstock.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.log.samples import T0, config_of, data_batch, open_at, records_from

ALONE = PartitionState(replicas=(1,), isr=(1,), leader=1, leader_epoch=3, partition_epoch=0)
WITH_FOLLOWER = replace(ALONE, replicas=(1, 2), isr=(1, 2))
VERSION = 9
LEADER, ALL = 1, -1


class Stage:
    """One partition, and produce requests for it."""

    def __init__(self, path: Path, background: Background) -> None:
        self.log = open_at(path / "t-0")
        self.partition = Partition("t", 0, bytes(16), 1, self.log, background)
        self.partition.update(ALONE)
        self.calls: list[Callable[[], None]] = []
        self.turn = Turn(self.calls.append, lambda: pytest.fail("nothing may be lost here"))

    def configure(self, config: TopicConfig) -> None:
        self.log.reconfigure(config)

    def produce(self, *batches: bytearray, acks: int = LEADER, topic: str = "t", index: int = 0) -> object:
        """What comes of a request with these batches, each for the same partition."""
        data = [PartitionProduceData(index=index, records=memoryview(batch)) for batch in batches]
        request = ProduceRequest(acks=acks, topic_data=[TopicProduceData(name=topic, partition_data=data)])
        frame = APIS[ApiKey.PRODUCE].request_codec(VERSION).encode_request(0, VERSION, 7, "me", True, request)
        cursor = RequestCursor(memoryview(bytearray(frame))[4:])
        return append_one(cursor, {"t": {0: self.partition}}, T0, self.turn)

    @property
    def values(self) -> list[bytes | None]:
        self.turn.end()
        return [record.value for record in records_from(self.log, 0)]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    loop = asyncio.new_event_loop()
    background = Background(loop, 1)
    yield Stage(tmp_path, background)
    background.close()
    loop.close()


def offset_in(answer: object) -> int:
    """The base offset in an encoded answer without an error."""
    assert isinstance(answer, bytes)
    response, _ = APIS[ApiKey.PRODUCE].response_codec(VERSION).read(answer[4:], 5)
    assert isinstance(response, ProduceResponse)
    [result] = response.responses[0].partition_responses
    assert result.error_code == 0
    return result.base_offset


@pytest.mark.parametrize("acks", [LEADER, ALL])
def test_batches_get_their_answers_at_once(stage: Stage, acks: int) -> None:
    offsets = [offset_in(stage.produce(data_batch(value, value), acks=acks)) for value in (b"a", b"b", b"c", b"d")]
    assert offsets == [0, 2, 4, 6]
    assert stage.partition.high_watermark == stage.log.end_offset == 8
    assert stage.values == [b"a", b"a", b"b", b"b", b"c", b"c", b"d", b"d"]


@pytest.mark.parametrize("acks", [LEADER, ALL])
def test_a_batch_that_comes_again_gets_its_first_answer(stage: Stage, acks: int) -> None:
    for number in range(4):
        batch = data_batch(b"%d" % number, producer=5, sequence=number)
        assert offset_in(stage.produce(batch, acks=acks)) == number
    again = data_batch(b"2", producer=5, sequence=2)
    assert offset_in(stage.produce(again, acks=acks)) == 2
    assert stage.values == [b"0", b"1", b"2", b"3"]


def test_those_who_watch_are_woken_by_each_batch(stage: Stage) -> None:
    woken = []

    class Watcher:
        def wake(self) -> None:
            woken.append(stage.partition.high_watermark)

    watcher = Watcher()
    stage.partition.watch(watcher)
    for value in (b"a", b"b", b"c"):
        stage.produce(data_batch(value))
    stage.partition.unwatch(watcher)
    stage.produce(data_batch(b"d"))
    assert woken == [1, 2, 3]


def test_acks_of_all_replicas_wait_for_the_others(stage: Stage) -> None:
    stage.partition.update(replace(WITH_FOLLOWER, partition_epoch=1))
    appended = stage.produce(data_batch(b"a"), acks=ALL)
    assert isinstance(appended, tuple)
    request, partition, batch = appended
    assert (request.acks, partition, batch.base_offset) == (ALL, stage.partition, 0)
    assert offset_in(stage.produce(data_batch(b"b"), acks=LEADER)) == 1
    assert (stage.log.end_offset, stage.partition.high_watermark) == (2, 0)


@pytest.mark.parametrize("acks", [LEADER, ALL])
def test_a_log_that_is_synced_by_count_is_waited_for(stage: Stage, acks: int) -> None:
    stage.configure(config_of(flush_messages=100))
    for value in (b"a", b"b", b"c"):
        assert isinstance(stage.produce(data_batch(value), acks=acks), tuple)
    assert stage.log.end_offset == 3


def spoiled() -> bytearray:
    batch = data_batch(b"value")
    batch[-1] ^= 1
    return batch


@pytest.mark.parametrize(
    "produce",
    [
        pytest.param(lambda stage: stage.produce(data_batch(), acks=0), id="acks=0"),
        pytest.param(lambda stage: stage.produce(data_batch(), acks=2), id="acks=2"),
        pytest.param(lambda stage: stage.produce(data_batch(), topic="u"), id="another topic"),
        pytest.param(lambda stage: stage.produce(data_batch(), index=1), id="another partition"),
        pytest.param(lambda stage: stage.produce(data_batch(), data_batch()), id="two partitions"),
        pytest.param(lambda stage: stage.produce(), id="no partition"),
        pytest.param(lambda stage: stage.produce(bytearray()), id="no batch"),
        pytest.param(lambda stage: stage.produce(data_batch() + data_batch()), id="two batches"),
        pytest.param(lambda stage: stage.produce(spoiled()), id="wrong checksum"),
        pytest.param(lambda stage: stage.produce(data_batch(codec=Codec.GZIP)), id="compressed"),
        pytest.param(
            lambda stage: stage.produce(data_batch(producer=1, sequence=0, is_transactional=True)), id="transactional"
        ),
        pytest.param(lambda stage: stage.produce(data_batch(producer=5, sequence=7)), id="out of sequence"),
    ],
)
def test_what_is_not_simple_is_left_alone(stage: Stage, produce: Callable[[Stage], object]) -> None:
    assert offset_in(stage.produce(data_batch(b"before", producer=5, sequence=0))) == 0
    for _ in range(3):  # also when others wait for the end of the turn
        assert produce(stage) is None
        stage.produce(data_batch(b"ok"))
    assert stage.values == [b"before", b"ok", b"ok", b"ok"]


def test_only_the_leader_takes_batches(stage: Stage) -> None:
    stage.produce(data_batch(b"a"))
    stage.produce(data_batch(b"b"))
    stage.partition.update(replace(ALONE, leader=2, leader_epoch=4))
    assert stage.produce(data_batch(b"c")) is None
    stage.partition.update(replace(ALONE, leader_epoch=5))
    assert offset_in(stage.produce(data_batch(b"d"))) == 2
    assert stage.values == [b"a", b"b", b"d"]
    assert [(entry.epoch, entry.start_offset) for entry in stage.log.epochs.entries] == [(3, 0), (5, 2)]
