"""The fixtures that come with Penstock."""

from __future__ import annotations

import subprocess
import sys

from penstock import Admin, Producer
from penstock.testing import RunningBroker

_seen: list[tuple[str, str]] = []


def test_a_topic_is_there(penstock_broker: RunningBroker, penstock_topic: str) -> None:
    _seen.append((penstock_broker.bootstrap, penstock_topic))
    with Producer(penstock_broker.bootstrap) as producer:
        assert producer.send_and_wait(penstock_topic, b"1", timeout=10).offset == 0


def test_the_broker_is_the_same_and_the_topic_another(penstock_broker: RunningBroker, penstock_topic: str) -> None:
    ((bootstrap, topic),) = _seen
    assert penstock_broker.bootstrap == bootstrap
    assert penstock_topic != topic
    with Admin(penstock_broker.bootstrap) as admin:
        assert {topic, penstock_topic} <= set(admin.list_topics())


def test_runs_that_want_no_broker_do_not_load_one() -> None:
    program = "import sys, penstock.testing.plugin; assert not {'uvloop', 'confluent_kafka'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True, timeout=20)
