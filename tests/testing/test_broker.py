"""The broker for tests: quick to start, leaves nothing behind, keeps what it is told to keep."""

from __future__ import annotations

import gc
import time
from pathlib import Path

import pytest

import penstock.testing
from penstock import Admin, Consumer, Producer
from penstock.config.definition import InvalidConfig
from penstock.testing import ChildBroker


def _send(bootstrap: str, topic: str, value: bytes) -> None:
    with Admin(bootstrap) as admin:
        admin.create_topic(topic)
    with Producer(bootstrap) as producer:
        producer.send_and_wait(topic, value, timeout=10)


def _read(bootstrap: str, topic: str) -> list[bytes]:
    config = {"fetch.wait.max.ms": 20}
    with Consumer(bootstrap, stop_at_end=True, auto_offset_reset="earliest", config=config) as consumer:
        consumer.assign([(topic, 0)])
        return [record.value for record in consumer]


def test_a_broker_is_ready_in_a_fifth_of_a_second_and_leaves_nothing_behind() -> None:
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        with penstock.testing.broker() as broker:
            times.append(time.perf_counter() - begin)
            data = broker.data
            assert data.exists()
        assert not data.exists()
    assert min(times) < 0.2, times


def test_records_go_in_and_come_out() -> None:
    with penstock.testing.broker() as broker:
        _send(broker.bootstrap, "orders", b"1")
        assert _read(broker.bootstrap, "orders") == [b"1"]


def test_settings_have_underscores_for_dots() -> None:
    with (
        penstock.testing.broker(num_partitions=7, auto_create_topics_enable=False) as broker,
        Admin(broker.bootstrap) as admin,
    ):
        admin.create_topic("wide")
        assert len(admin.describe_topics(["wide"])[0].partitions) == 7


def test_data_that_is_asked_for_stays(tmp_path: Path) -> None:
    with penstock.testing.broker(data=tmp_path / "data") as broker:
        _send(broker.bootstrap, "orders", b"1")
    with penstock.testing.broker(data=tmp_path / "data") as broker:
        assert _read(broker.bootstrap, "orders") == [b"1"]


def test_a_restarted_broker_has_its_port_and_its_data() -> None:
    with penstock.testing.broker() as broker:
        before = broker.bootstrap
        _send(before, "orders", b"1")
        broker.restart()
        assert broker.bootstrap == before
        assert _read(before, "orders") == [b"1"]


def test_what_is_wrong_with_a_setting_is_told() -> None:
    broker = penstock.testing.broker(num_partitions="many")
    with pytest.raises(InvalidConfig, match=r"num\.partitions"), broker:
        pass
    assert not broker.data.exists()


def test_the_garbage_collector_of_the_tests_stays_as_it_was() -> None:
    before = gc.get_threshold()
    with penstock.testing.broker():
        assert gc.get_threshold() == before
        assert gc.get_freeze_count() == 0


def test_a_broker_in_a_process_of_its_own_survives_being_killed() -> None:
    broker = penstock.testing.broker(as_process=True)
    assert isinstance(broker, ChildBroker)
    with broker:
        _send(broker.bootstrap, "orders", b"1")
        broker.kill()
        broker.start()
        assert _read(broker.bootstrap, "orders") == [b"1"]
        with pytest.raises(RuntimeError, match="in process only"):
            _ = broker.faults
    with pytest.raises(RuntimeError, match=r"did not start:\n.*num.partitions"):
        penstock.testing.broker(as_process=True, num_partitions="many").start()
