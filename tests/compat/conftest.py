"""What tests against both systems share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from penstock.client.connection import Connection
from tests.compat.test_protocol import Client
from tests.support.systems import System


@pytest.fixture
def connection(system: System) -> Iterator[Connection]:
    with system.connect() as made:
        yield made


@pytest.fixture
def client(system: System) -> Iterator[Client]:
    made = Client(system)
    yield made
    made.connection.close()


@pytest.fixture
def group(unique: Callable[[str], str]) -> str:
    return unique("group")
