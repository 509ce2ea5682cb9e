"""The broker that the client library's tests run against."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from penstock import Admin
from penstock.client.errors import RequestFailed, UnknownTopic
from tests.client.waiting import eventually
from tests.support import systems
from tests.support.systems import System

# The library is a client of any Kafka.
SYSTEMS = ["penstock", "kafka"]

# Kafka makes 50 partitions each by default, which takes a while on a small machine.
QUICK_KAFKA = {"offsets_topic_num_partitions": "2", "transaction_state_log_num_partitions": "2"}


@pytest.fixture(scope="package", params=SYSTEMS)
def system(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    data = tmp_path_factory.mktemp(f"client-{request.param}") / "data"
    running = (systems.penstock(data) if request.param == "penstock" else systems.kafka(data, **QUICK_KAFKA)).start()
    try:
        _make_ready_for_groups(running)
        yield running
    finally:
        running.kill()


def _make_ready_for_groups(system: System) -> None:
    """The first use of a group has the broker create the topic for offsets; until that is done it refuses."""
    with Admin(system.bootstrap, timeout=2.0) as admin:

        def works() -> bool:
            try:
                admin.alter_group_offsets("first", {("first", 0): 0})
            except UnknownTopic:
                return True
            except RequestFailed:
                return False
            return True

        eventually(works, 60.0)


@pytest.fixture
def admin(system: System) -> Iterator[Admin]:
    with Admin(system.bootstrap) as admin:
        yield admin


@pytest.fixture
def create(admin: Admin) -> Callable[..., None]:
    """Creates a topic and waits until the broker knows what its controller decided."""

    def make(name: str, partitions: int = 1, **config: str) -> None:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topic(name, partitions=partitions, config=settings)
        eventually(lambda: name in admin.list_topics())

    return make
